"""The refusal of a prompt over the window, as vLLM words it."""

import pytest

from engine.llm.context_length import too_long

OVER = "This model's maximum context length is 4096 tokens. However, "


@pytest.mark.parametrize(
    ("tokens", "limit", "named", "text"),
    [
        (
            5000,
            96,
            False,
            "your prompt contains 5000 input tokens. Please reduce the length of the input prompt. "
            "(parameter=input_tokens, value=5000)",
        ),
        (
            4050,
            96,
            False,
            "you requested 96 output tokens and your prompt contains at least 4050 input tokens, "
            "for a total of at least 4146 tokens. Please reduce the length of the input prompt or "
            "the number of requested output tokens. (parameter=input_tokens, value=4050)",
        ),
        (
            5000,
            16,
            True,
            "you requested 16 output tokens and your prompt contains at least 5000 input tokens, "
            "for a total of at least 5016 tokens. Please reduce the length of the input prompt or "
            "the number of requested output tokens. (parameter=input_tokens, value=5000)",
        ),
        (
            0,
            16,
            True,
            "you requested 16 output tokens and your prompt contains more input tokens than fit in "
            "it. Please reduce the length of the input prompt or the number of requested output "
            "tokens.",
        ),
    ],
)
def test_the_words(tokens: int, limit: int, named: bool, text: str) -> None:
    refusal = too_long(4096, tokens, limit, named=named)
    assert (refusal.status, str(refusal)) == (400, OVER + text)
