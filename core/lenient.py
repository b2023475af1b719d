"""JSON as careless writers make it: what the quick reader refuses, read slowly and cleaned."""

import json
import math
from typing import Any


def lenient(data: bytes | str) -> Any:
    """The JSON in `data`; halves of surrogate pairs are U+FFFD, NaN and infinities are None.

    Raises:
        ValueError: there is none, or no text; `json.JSONDecodeError` where its place is known.
        RecursionError: it is nested beyond reason.
    """
    return _clean(json.loads(data))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
