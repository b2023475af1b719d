"""Checks of the fields of a request, with vLLM's error texts. No I/O.

Numbers and booleans are read as pydantic reads them: also from text.
"""

import math
import re
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from core.dialects.errors import ApiError, bad_request, invalid
from core.openai.ranges import FLOATS, range_error

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


# --- the fields of completions --------------------------------------------------------------------

MOST_LOGPROBS = 20
MOST_LISTED = 20
"""Invalid keys that one error lists."""
MOST_STOPS = 1024
"""Stop texts per request: the upstream searches for each one after every token."""
FORMATS = ("text", "json_object", "json_schema", "structural_tag")
"""Kinds of `response_format`."""
CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
"""Kinds of `structured_outputs`; vLLM checks the first three before the others."""

INTEGERS = (
    *("max_tokens", "max_completion_tokens", "n", "seed", "top_k", "min_tokens"),
    "prompt_logprobs",
)
RANGED = (
    *("max_tokens", "max_completion_tokens", "n", "temperature", "top_p", "presence_penalty"),
    *("frequency_penalty", "repetition_penalty", "top_k", "min_p", "min_tokens"),
)
"""Fields that have a range."""
_UNNAMED = frozenset({"repetition_penalty", "top_k", "min_p", "min_tokens"})
"""Fields that vLLM's error does not name."""

JsonObject = dict[str, Any]


class Function(msgspec.Struct):
    """A function that the model may call."""

    name: str
    parameters: JsonObject | None = None


class _FunctionTool(msgspec.Struct):
    function: Function


class _ChatBlock(msgspec.Struct):
    type: str | None = None


class _ChatMessage(msgspec.Struct):
    """Any role is valid, and text or blocks as content."""

    role: str
    content: str | list[str | _ChatBlock] | None = None
    tool_calls: list[JsonObject] | None = None


class Messages(msgspec.Struct):
    """A body with the messages of a chat."""

    messages: list[_ChatMessage]


class _StructuredOutputs(msgspec.Struct):
    regex: str | None = None
    grammar: str | None = None
    structural_tag: str | None = None
    json: str | JsonObject | None = None
    choice: list[str] | None = None


class _CommonFields(msgspec.Struct):
    model: str | None = None
    stream_options: JsonObject | None = None
    response_format: JsonObject | None = None
    logit_bias: JsonObject | None = None
    reasoning_effort: str | None = None
    stop: str | list[str] | None = None
    structured_outputs: _StructuredOutputs | None = None


class _ChatTools(msgspec.Struct):
    tools: list[_FunctionTool] | None = None


def check_numbers(
    body: JsonObject, integers: tuple[str, ...] = INTEGERS, flags: tuple[str, ...] = ("stream",)
) -> None:
    """Replace texts that hold numbers or booleans by their values, in place.

    Args:
        body: The request's body; changed in place.
        integers: Fields that hold integers.
        flags: Fields that hold booleans.

    Raises:
        ApiError: A field holds another kind of value; the error names it.
    """
    for names, convert in ((FLOATS, number), (integers, integer), (flags, flag)):
        for name in names:
            if name in body and body[name] is not None:
                body[name] = convert(name, body[name])


def check_common(body: Mapping[str, Any]) -> None:
    """Check the fields that all completions share; call `check_numbers` first.

    Raises:
        ApiError: A field is invalid; the error names it.
    """
    fields = typed(body, _CommonFields, "body")
    if (stop := fields.stop) is not None:
        check_stop_texts([stop] if isinstance(stop, str) else stop)
    if fields.stream_options and not body.get("stream"):
        text = "Stream options can only be defined when `stream=True`."
        raise bad_value(text, "stream_options")
    if fields.response_format is not None:
        check_format(fields.response_format, "body.response_format")
        _check_schema(fields.response_format)
    check_ranges(body)
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    if most is not None and (least := body.get("min_tokens") or 0) > most:
        text = f"min_tokens must be less than or equal to max_tokens={most}, got {least}."
        raise bad_request(text, None)
    if fields.logit_bias:
        _check_bias(fields.logit_bias)
    if (constraints := body.get("structured_outputs")) is not None:
        _check_constraints(constraints)
    count = body.get("prompt_logprobs") or 0
    if body.get("stream") and (count > 0 or count == -1):
        text = "`prompt_logprobs` are not available when `stream=True`."
        raise bad_value(text, "prompt_logprobs")
    check_logprobs(count, "prompt_logprobs", "prompt logprobs", least=0)


def check_format(response_format: Mapping[str, Any], where: str) -> None:
    """Check the kind of a response format.

    Raises:
        ApiError: It has no kind, or an unknown one.
    """
    if "type" not in response_format:
        raise invalid("missing", f"{where}.type", "Field required", response_format)
    if (kind := response_format["type"]) not in FORMATS:
        text = "Input should be {}, {}, {} or {}".format(*(f'"{name}"' for name in FORMATS))
        raise invalid("literal_error", f"{where}.type", text, kind)


def _check_schema(response_format: Mapping[str, Any]) -> None:
    if response_format["type"] != "json_schema":
        return
    schema = response_format.get("json_schema")
    if schema is None:
        text = (
            "When response_format type is 'json_schema', the 'json_schema' field must be provided."
        )
        raise bad_value(text, "response_format")
    typed(schema, JsonObject, "body.response_format.json_schema")


def check_stop_texts(texts: list[str]) -> None:
    """Refuse empty stop texts, which would stop every answer at once, and too many of them.

    Raises:
        ApiError: A text is empty, or there are more than `MOST_STOPS`.
    """
    if (count := len(texts)) > MOST_STOPS:
        raise bad_value(f"stop must hold at most {MOST_STOPS} texts, got {count}.", "stop")
    if "" in texts:
        raise bad_request("stop cannot contain an empty string.", None)


def check_ranges(body: Mapping[str, Any], names: tuple[str, ...] = RANGED) -> None:
    """Check the numbers of those names.

    Raises:
        ApiError: A number is out of its range.
    """
    for name in names:
        if name not in body or (value := body[name]) is None:
            continue
        if text := range_error(name, value):
            value = float(value) if name in FLOATS else value
            raise bad_request(text, None) if name in _UNNAMED else bad_value(text, name, value)


def _check_bias(bias: Mapping[str, Any]) -> None:
    invalid_keys: list[str] = []
    for token, value in bias.items():
        number(f"logit_bias.{token[:20]}", value)
        try:
            int(token)
        except ValueError:
            invalid_keys.append(token[:20])
    if invalid_keys:
        listed = invalid_keys[:MOST_LISTED]
        text = f"logit_bias contains key(s) that cannot be converted to integer token IDs: {listed}"
        raise bad_value(text, "logit_bias", listed)


def _check_constraints(constraints: Mapping[str, Any]) -> None:
    names = [name for name in CONSTRAINTS if constraints.get(name) is not None]
    if len([name for name in names if name in CONSTRAINTS[:3]]) > 1:
        text = (
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
            "'choice')."
        )
        raise bad_request(text, None)
    if len(names) != 1:
        must, count = ("can only", "multiple") if names else ("must", "none")
        text = f"You {must} use one kind of structured outputs constraint but {count} are specified"
        raise bad_request(text, None)


def check_logprobs(
    count: int | None, param: str, what: str = "sample logprobs", least: int = -1
) -> None:
    """Check the number of requested logprobs per token: -1 (all), or 0 to `MOST_LOGPROBS`.

    Args:
        count: The number; None for no request.
        param: The field.
        what: vLLM's word for them.
        least: The smallest valid number.

    Raises:
        ApiError: The number is out of range.
    """
    if count is None or least <= count <= MOST_LOGPROBS:
        return
    if count < least:
        text = f"`{param}` must be a positive value{' or -1' if least else ''}."
        raise bad_value(text, param, count)
    text = f"Requested {what} of {count}, which is greater than max allowed: {MOST_LOGPROBS}"
    raise bad_value(text, param, count)


def check_tools(body: Mapping[str, Any]) -> None:
    """Check that all tools are functions and that `tool_choice` names one of them.

    Raises:
        ApiError: A tool or the choice is invalid; the error names the field.
    """
    tools = typed(body, _ChatTools, "body").tools
    choice = body.get("tool_choice")
    if choice in (None, "none"):
        return
    if tools is None:
        raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, dict):
        constraints = body.get("structured_outputs") or {}
        if any(constraints.get(name) is not None for name in CONSTRAINTS[:3]):
            text = "You can only either use constraints for structured outputs or tools, not both."
            raise bad_request(text, None)
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if choice.get("type", "function") == "function" and all(
            tool.function.name != name for tool in tools
        ):
            text = "The tool specified in `tool_choice` does not match any of the specified `tools`"
            raise bad_value(text, "tool_choice")
    elif choice not in ("auto", "required"):
        text = (
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or '
            '"required" are supported.'
        )
        raise bad_value(text, "tool_choice")
