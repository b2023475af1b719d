"""Values as JSON has them."""

from typing import Any

import msgspec


def plain(given: Any) -> Any:
    """`given` in dicts, lists, text and numbers: numpy's values and models become plain ones.

    Raises:
        TypeError, ValueError, RecursionError, msgspec.MsgspecError: something in it has no such
            form (`NO_JSON`).
    """
    return msgspec.to_builtins(given, str_keys=True, enc_hook=_other)


NO_JSON = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What `plain`, or writing what it gives, raises."""


def _other(value: Any) -> Any:
    for way in ("tolist", "model_dump"):
        if callable(turn := getattr(value, way, None)):
            return turn()
    raise TypeError(f"a {type(value).__name__} has no JSON form")
