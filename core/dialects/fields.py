"""Checks of single fields, with errors in the form and words of vLLM's validation. No I/O.

Shapes are msgspec structs: `typed` converts a value to one and names the path of what does not
fit. Numbers and booleans are read as pydantic reads them: also from text.
"""

import math
import re
import sys
from typing import Any, TypeVar

import msgspec

from core.dialects.errors import ApiError, bad_request, invalid

Shape = TypeVar("Shape")

_WORDS = {"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"}
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_EXPECTED = re.compile(r"Expected `(\w+)")
_KINDS = {
    "str": ("string_type", "string"),
    "array": ("list_type", "list"),
    "object": ("dict_type", "dictionary"),
    "int": ("int_type", "integer"),
}
"""msgspec's name of a type -> pydantic's kind of error and its word."""


def typed(value: Any, shape: type[Shape], where: str) -> Shape:
    """Convert a decoded JSON value.

    Args:
        value: The value.
        shape: A struct, or another type; of a union the error names the first type.
        where: The value's path, such as `body`.

    Raises:
        ApiError: The value has another shape; the error names the path of the wrong part.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
    for key in re.findall(r"\w+", path):
        value = value[int(key)] if isinstance(value, list) else value[key]
        where += f".{key}"
    if missing := _MISSING.match(reason):
        raise required(f"{where}.{missing[1]}", value)
    expected = _EXPECTED.match(reason)
    kind, word = _KINDS[expected[1] if expected else "object"]
    raise invalid(kind, where, f"Input should be a valid {word}", value)


def required(where: str, parent: Any) -> ApiError:
    """Return the error for a field that is missing in `parent`."""
    return invalid("missing", where, "Field required", parent)


def bad_value(text: str, param: str, value: Any = None) -> ApiError:
    """Return the error for a value that vLLM refuses, with its suffix: field name and value."""
    suffix = "" if value is None else f", value={value}"
    return bad_request(f"{text} (parameter={param}{suffix})", param)


def unsupported(text: str, param: str, status: int = 400) -> ApiError:
    """Return the error for what this server does not store or do, in OpenAI's form."""
    return ApiError(status, None, text, kind="invalid_request_error", param=param)


def number(name: str, value: Any) -> float:
    """Return a finite number, also from its text.

    Args:
        name: The field, for the error message.
        value: The decoded JSON value.

    Raises:
        ApiError: The value is not a finite number.
    """
    where = f"body.{name}"
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            text = "Input should be a valid number, unable to parse string as a number"
            raise invalid("float_parsing", where, text, value) from None
    if not isinstance(value, int | float):
        raise invalid("float_type", where, "Input should be a valid number", value)
    if abs(value) > sys.float_info.max or math.isnan(value):
        raise invalid("finite_number", where, "Input should be a finite number", str(value))
    return float(value) if isinstance(value, bool) else value


def integer(name: str, value: Any) -> int:
    """Return an integer, also from its text or from a float without a fraction.

    Raises:
        ApiError: The value is not an integer or does not fit into 64 bits.
    """
    where = f"body.{name}"
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            text = "Input should be a valid integer, unable to parse string as an integer"
            raise invalid("int_parsing", where, text, value) from None
    if isinstance(value, float):
        if not value.is_integer():
            text = "Input should be a valid integer, got a number with a fractional part"
            raise invalid("int_from_float", where, text, value)
        value = int(value)
    if not isinstance(value, int):
        raise invalid("int_type", where, "Input should be a valid integer", value)
    if value < -(1 << 63):
        text = f"Input should be greater than or equal to {-(1 << 63)}"
        raise invalid("greater_than_equal", where, text, str(value))
    if value >= 1 << 63:
        text = f"Input should be less than or equal to {(1 << 63) - 1}"
        raise invalid("less_than_equal", where, text, str(value))
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Return a boolean, also from 0, 1 or a word like "yes" or "off".

    Raises:
        ApiError: The value is none of these.
    """
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in _WORDS:
        return value.lower() in ("true", "yes", "on", "1", "t", "y")
    text = "Input should be a valid boolean, unable to interpret input"
    raise invalid("bool_parsing", f"body.{name}", text, value)
