"""The tiny policy shipped with the engine: one million parameters, its own vocabulary and
template."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import tokenizer as bpe
from engine.interface import Prompt
from engine.policy import chat_template, weights
from engine.policy.local import LocalPolicy
from engine.policy.weights import WeightStore
from engine.tokenizer import Tokenizer

_TAG_NAMES = {
    bpe.SYSTEM: "<system>",
    bpe.USER: "<user>",
    bpe.ANSWER: "<answer>",
    bpe.END: "<end>",
    bpe.TOOL: "<tool>",
    bpe.CALL: "<call>",
}


class TinyTextCodec(Tokenizer):
    """The shipped tokenizer and chat template."""

    @property
    def name(self) -> str:
        """Display name with the number of parameters."""
        return "tiny-0.9m"

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Empty: the default hyperparameters were tuned for this policy."""
        return {}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        context: int,
    ) -> Prompt:
        return chat_template.render(self, context, messages, tools, max_tokens)

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id: tags by name, bytes that are no character as `\\xe2`."""
        return [
            _TAG_NAMES.get(token) or self.decode_bytes((token,)).decode("utf-8", "backslashreplace")
            for token in ids
        ]


class TinyPolicy(LocalPolicy):
    """The tiny policy, trained in place. Create it with `open`."""

    @classmethod
    def open(
        cls, directory: Path | None, reset: bool = False, start_from: str | None = None
    ) -> "TinyPolicy":
        """Load the saved policy, or the shipped one when nothing is saved.

        Args:
            directory: Folder of the saved state; None saves nothing.
            reset: Set the saved state aside and start from the shipped weights.
            start_from: Checkpoint to restore; the saved state is set aside.

        Raises:
            AjetError: another engine uses the directory, or the weights cannot be read.
        """
        base = weights.shipped()
        store = None if directory is None else WeightStore(directory)
        return cls.resumed(base, store, TinyTextCodec.shipped(), reset, start_from)
