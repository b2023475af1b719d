"""Values as JSON has them."""

from typing import Any

import msgspec


def to_plain(given: Any) -> Any:
    """`given` in dicts, lists, text and numbers: numpy's values and models become plain ones.

    Raises:
        TypeError, ValueError, RecursionError, msgspec.MsgspecError: something in it has no such
            form (`JSON_ERRORS`).
    """
    return msgspec.to_builtins(given, str_keys=True, enc_hook=_other)


JSON_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What `to_plain`, or writing what it gives, raises."""


def _other(value: Any) -> Any:
    for way in ("tolist", "model_dump"):
        if callable(turn := getattr(value, way, None)):
            return turn()
    raise TypeError(f"a {type(value).__name__} has no JSON form")
