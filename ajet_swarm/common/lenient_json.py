"""Tolerant JSON reader, for input that the strict and faster one refuses."""

import json
import math
import re
from typing import Any

_HALF = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def lenient(data: bytes | str) -> Any:
    """Read JSON; lone surrogates become U+FFFD, NaN and infinities become None.

    Raises:
        ValueError: it is not JSON, or not text; `json.JSONDecodeError` if the position is known.
        RecursionError: it is nested too deeply.
    """
    return _clean(json.loads(data))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _whole(text: str) -> str:
    """Return `text` without lone surrogates, which cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # The codec's "replace" handler is slow: it takes seconds for a text of lone surrogates.
        text = _HALF.sub("\ufffd", text)
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")  # joins the pairs
    return text
