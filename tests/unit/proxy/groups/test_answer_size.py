"""The memory that one answer may take."""

from typing import Any

import pytest

from proxy.groups.answer_size import LEAST, MOST, largest_answer


@pytest.mark.parametrize(
    ("body", "window", "size"),
    [
        ({"max_tokens": 16}, 4096, LEAST),
        ({"max_tokens": 20_000}, None, 20_000 * 64 * 4),
        ({"max_completion_tokens": 20_000, "max_tokens": 5}, None, 20_000 * 64 * 4),
        ({"max_tokens": 1000, "logprobs": True, "top_logprobs": 5}, None, 1000 * 1064 * 4),
        ({}, 100_000, 100_000 * 64 * 4),
        ({"max_tokens": 1 << 30}, None, MOST),
        ({"max_tokens": 10, "prompt_logprobs": 5}, 4096, 4106 * 1064 * 4),
        ({"max_tokens": "many"}, 4096, LEAST),
    ],
)
def test_the_size_follows_from_the_request(
    body: dict[str, Any], window: int | None, size: int
) -> None:
    assert largest_answer(body, window) == size
