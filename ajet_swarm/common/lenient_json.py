"""JSON as careless writers make it: what the quick reader refuses, read slowly and cleaned."""

import json
import math
import re
from typing import Any

_HALF = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def lenient(data: bytes | str) -> Any:
    """The JSON in `data`; halves of surrogate pairs are U+FFFD, NaN and infinities are None.

    Raises:
        ValueError: there is none, or no text; `json.JSONDecodeError` where its place is known.
        RecursionError: it is nested beyond reason.
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
    """`text` that every encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # A codec's "replace" calls back for each half: seconds where a text is made of them.
        text = _HALF.sub("\ufffd", text)
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")  # joins the pairs
    return text
