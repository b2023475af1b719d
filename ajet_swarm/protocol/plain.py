"""Conversion of values to their JSON form."""

from typing import Any

import msgspec


def to_plain(value: Any) -> Any:
    """Return a value as dicts, lists, text and numbers; convert numpy values and models.

    Raises:
        TypeError, ValueError, RecursionError, msgspec.MsgspecError: a part of it has no JSON form
            (`JSON_ERRORS`).
    """
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_convert)


JSON_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""Errors of `to_plain`, and of encoding its result."""


def _convert(value: Any) -> Any:
    for name in ("tolist", "model_dump"):
        if callable(method := getattr(value, name, None)):
            return method()
    raise TypeError(f"a {type(value).__name__} has no JSON form")
