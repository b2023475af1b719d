"""JSON values in words."""

from typing import Any

import pytest

from console.text.values import value_words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "yes"),
        (0.123456, "0.1235"),
        (None, "none"),
        ([1, "a", False], "1 a no"),
        (list(range(8)), "0 1 2 3 4 5 and 2 more"),
        ({"a": 1, "b": None}, "a 1 b none"),
        ("two\nlines", "two lines"),
    ],
)
def test_each_kind_of_value_is_one_line(value: Any, words: str) -> None:
    assert value_words(value) == words
