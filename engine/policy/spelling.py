"""Tokens of the tiny policy as people read them."""

from collections.abc import Sequence

from engine import tokenizer as bpe

_NAMES = {
    bpe.SYSTEM: "<system>",
    bpe.USER: "<user>",
    bpe.ANSWER: "<answer>",
    bpe.END: "<end>",
    bpe.TOOL: "<tool>",
    bpe.CALL: "<call>",
}


def spell(tokenizer: bpe.Tokenizer, tokens: Sequence[int]) -> list[str]:
    """What each token reads as: tags by name, bytes that are no character as `\\xe2`."""
    return [
        _NAMES.get(token) or tokenizer.decode_bytes((token,)).decode("utf-8", "backslashreplace")
        for token in tokens
    ]
