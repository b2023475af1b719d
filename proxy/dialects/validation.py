"""vLLM's checks of the fields of chat and legacy completions, with its error texts. No I/O."""

from collections.abc import Mapping
from typing import Any

from proxy.dialects.common import flag, integer, number
from proxy.http.errors import ApiError, bad_request, invalid

MOST_CHOICES = 128
"""Choices per request."""
MOST_LOGPROBS = 20
MOST_LISTED = 20
"""Invalid keys that one error lists."""
MOST_STOPS = 1024
"""Stop texts per request: the upstream searches for each one after every token."""
FORMATS = ("text", "json_object", "json_schema", "structural_tag")
"""Kinds of `response_format`."""
CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
"""Kinds of `structured_outputs`."""
_COMMON_CONSTRAINTS = CONSTRAINTS[:3]
"""The constraints that vLLM checks first."""

NUMBERS = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "min_p",
    "repetition_penalty",
)
INTEGERS = (
    "max_tokens",
    "max_completion_tokens",
    "n",
    "seed",
    "top_k",
    "min_tokens",
    "prompt_logprobs",
)
_ORDINARY = frozenset({"model", "messages", "max_tokens", "temperature", "stream", "user"})
_DICTIONARY = "Input should be a valid dictionary"
_LIST = "Input should be a valid list"
_STRING = "Input should be a valid string"
_STRUCTURED = "Input should be a dictionary or an instance of StructuredOutputsParams"
_MISSING = "Field required"


def bad_value(text: str, param: str, value: Any = None) -> ApiError:
    """Return the error for a value that vLLM refuses, with its suffix: field name and value."""
    suffix = "" if value is None else f", value={value}"
    return bad_request(f"{text} (parameter={param}{suffix})", param)


def is_ordinary(body: Mapping[str, Any]) -> bool:
    """Return whether a chat has only common, valid fields, so that the full checks are skipped."""
    if not body.keys() <= _ORDINARY:
        return False
    max_tokens, temperature = body.get("max_tokens", 1), body.get("temperature", 0)
    return (
        type(body.get("model", "")) is str
        and type(max_tokens) is int
        and 1 <= max_tokens < 1 << 31
        and type(temperature) in (int, float)
        and 0 <= temperature <= 100
        and type(body.get("stream", False)) is bool
    )


def check_numbers(
    body: dict[str, Any],
    integers: tuple[str, ...] = INTEGERS,
    flags: tuple[str, ...] = ("stream",),
) -> None:
    """Replace texts that hold numbers or booleans by their values, in place.

    Args:
        body: The request's body; changed in place.
        integers: Fields that hold integers.
        flags: Fields that hold booleans.

    Raises:
        ApiError: A field holds another kind of value; the error names it.
    """
    for name in NUMBERS:
        if (value := body.get(name)) is not None:
            body[name] = number(name, value)
    for name in integers:
        if (value := body.get(name)) is not None:
            body[name] = integer(name, value)
    for name in flags:
        if (value := body.get(name)) is not None:
            body[name] = flag(name, value)


def check_common(body: Mapping[str, Any]) -> None:
    """Check the fields that all completions share; call `check_numbers` first.

    Raises:
        ApiError: A field is invalid; the error names it.
    """
    if (model := body.get("model")) is not None and not isinstance(model, str):
        raise invalid("string_type", "body.model", _STRING, model)
    for name in ("stream_options", "response_format", "logit_bias"):
        if (value := body.get(name)) is not None and not isinstance(value, dict):
            raise invalid("dict_type", f"body.{name}", _DICTIONARY, value)
    check_effort(body.get("reasoning_effort"), "body.reasoning_effort")
    _check_stop(body.get("stop"))
    if body.get("stream_options") and not body.get("stream"):
        text = "Stream options can only be defined when `stream=True`."
        raise bad_value(text, "stream_options")
    if (response_format := body.get("response_format")) is not None:
        _check_format(response_format)
    _check_ranges(body)
    _check_sampling(body)
    _check_bias(body.get("logit_bias"))
    _check_structured(body.get("structured_outputs"))
    _check_prompt_logprobs(body)


def _check_prompt_logprobs(body: Mapping[str, Any]) -> None:
    count = body.get("prompt_logprobs")
    if not isinstance(count, int):  # dialects without this field pass it on unchecked
        return
    if body.get("stream") and (count > 0 or count == -1):
        text = "`prompt_logprobs` are not available when `stream=True`."
        raise bad_value(text, "prompt_logprobs")
    if count < 0:  # -1 requests the whole vocabulary, which exceeds the limit too
        text = "`prompt_logprobs` must be a positive value."
        raise bad_value(text, "prompt_logprobs", count)
    if count > MOST_LOGPROBS:
        text = (
            f"Requested prompt logprobs of {count}, which is greater than max allowed: "
            f"{MOST_LOGPROBS}"
        )
        raise bad_value(text, "prompt_logprobs", count)


def _check_format(response_format: Mapping[str, Any]) -> None:
    kind, where = response_format.get("type"), "body.response_format.type"
    if "type" not in response_format:
        raise invalid("missing", where, "Field required", response_format)
    if kind not in FORMATS:
        text = "Input should be {}, {}, {} or {}".format(*(f'"{name}"' for name in FORMATS))
        raise invalid("literal_error", where, text, kind)
    if kind == "json_schema" and response_format.get("json_schema") is None:
        text = (
            "When response_format type is 'json_schema', the 'json_schema' field must be provided."
        )
        raise bad_value(text, "response_format")
    if kind == "json_schema" and not isinstance(schema := response_format["json_schema"], dict):
        where = "body.response_format.json_schema"
        raise invalid("dict_type", where, _DICTIONARY, schema)


def _check_stop(stop: Any) -> None:
    if stop is None:
        return
    if isinstance(stop, str):
        stop = [stop]
    if not isinstance(stop, list):
        raise invalid("list_type", "body.stop", _LIST, stop)
    for index, text in enumerate(stop):
        if not isinstance(text, str):
            raise invalid("string_type", f"body.stop.{index}", _STRING, text)
    check_stop_texts(stop)


def check_stop_texts(texts: list[str]) -> None:
    """Refuse empty stop texts, which would stop every answer at once, and too many of them.

    Raises:
        ApiError: A text is empty, or there are more than `MOST_STOPS`.
    """
    if (count := len(texts)) > MOST_STOPS:
        raise bad_value(f"stop must hold at most {MOST_STOPS} texts, got {count}.", "stop")
    if "" in texts:
        raise bad_request("stop cannot contain an empty string.", None)


def _check_ranges(body: Mapping[str, Any]) -> None:
    for name in ("max_tokens", "max_completion_tokens", "n"):
        if (value := body.get(name)) is not None and value < 1:
            raise bad_value(f"{name} must be at least 1, got {value}.", name, value)
    if (value := body.get("n")) is not None and value > MOST_CHOICES:
        raise bad_value(f"n must be at most {MOST_CHOICES}, got {value}.", "n", value)
    if (value := body.get("temperature")) is not None and value < 0:
        text = f"temperature must be non-negative, got {float(value)}."
        raise bad_value(text, "temperature", float(value))
    if (value := body.get("top_p")) is not None and not 0 < value <= 1:
        text = f"top_p must be in (0, 1], got {float(value)}."
        raise bad_value(text, "top_p", float(value))
    for name in ("presence_penalty", "frequency_penalty"):
        if (value := body.get(name)) is not None and not -2 <= value <= 2:
            text = f"{name} must be in [-2, 2], got {float(value)}."
            raise bad_value(text, name, float(value))


def _check_sampling(body: Mapping[str, Any]) -> None:
    """Check the ranges for which vLLM's error has no `param`."""
    if (value := body.get("repetition_penalty")) is not None and value <= 0:
        text = f"repetition_penalty must be greater than zero, got {float(value)}."
        raise bad_request(text, None)
    if (value := body.get("top_k")) is not None and value < -1:
        raise bad_request(f"top_k must be 0 (disable), or at least 1, got {value}.", None)
    if (value := body.get("min_p")) is not None and not 0 <= value <= 1:
        raise bad_request(f"min_p must be in [0, 1], got {float(value)}.", None)
    if (min_tokens := body.get("min_tokens")) is None:
        return
    if min_tokens < 0:
        text = f"min_tokens must be greater than or equal to 0, got {min_tokens}."
        raise bad_request(text, None)
    max_tokens = body.get("max_completion_tokens") or body.get("max_tokens")
    if max_tokens is not None and min_tokens > max_tokens:
        text = (
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}."
        )
        raise bad_request(text, None)


def _check_bias(bias: Mapping[str, Any] | None) -> None:
    invalid_keys: list[str] = []
    for token, value in (bias or {}).items():
        number(f"logit_bias.{token[:20]}", value)
        try:
            int(token)
        except ValueError:
            invalid_keys.append(token[:20])
    if invalid_keys:
        listed = invalid_keys[:MOST_LISTED]
        text = f"logit_bias contains key(s) that cannot be converted to integer token IDs: {listed}"
        raise bad_value(text, "logit_bias", listed)


def _check_structured(constraints: Any) -> None:
    where = "body.structured_outputs"
    if constraints is None:
        return
    if not isinstance(constraints, dict):
        raise invalid("dataclass_type", where, _STRUCTURED, constraints)
    if sum(constraints.get(name) is not None for name in _COMMON_CONSTRAINTS) > 1:
        text = (
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
            "'choice')."
        )
        raise bad_request(text, None)
    for name in ("regex", "grammar", "structural_tag"):
        if (value := constraints.get(name)) is not None and not isinstance(value, str):
            raise invalid("string_type", f"{where}.{name}", _STRING, value)
    if (schema := constraints.get("json")) is not None and not isinstance(schema, str | dict):
        raise invalid("dict_type", f"{where}.json", _DICTIONARY, schema)
    if (texts := constraints.get("choice")) is not None:
        if not isinstance(texts, list):
            raise invalid("list_type", f"{where}.choice", _LIST, texts)
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise invalid("string_type", f"{where}.choice.{index}", _STRING, text)
    names = [name for name in CONSTRAINTS if constraints.get(name) is not None]
    if len(names) != 1:
        template = "You {} use one kind of structured outputs constraint but {} are specified"
        raise bad_request(
            template.format(*(("can only", "multiple") if names else ("must", "none"))), None
        )


def check_effort(effort: Any, where: str) -> None:
    """Check that a reasoning effort is a text; the upstream checks its value.

    Args:
        effort: The field's value; None for an absent one.
        where: The field's path for the error, such as `body.reasoning_effort`.

    Raises:
        ApiError: The value is not a text.
    """
    if effort is not None and not isinstance(effort, str):
        words = 'Input should be "none", "low", "medium" or "high"'
        raise invalid("literal_error", where, words, effort)


def check_logprobs(count: int | None, param: str) -> None:
    """Check the number of requested logprobs per token: -1 (all), or 0 to `MOST_LOGPROBS`.

    Raises:
        ApiError: The number is out of range.
    """
    if count is None or count == -1:
        return
    if count < 0:
        raise bad_value(f"`{param}` must be a positive value or -1.", param, count)
    if count > MOST_LOGPROBS:
        text = (
            f"Requested sample logprobs of {count}, which is greater than max allowed: "
            f"{MOST_LOGPROBS}"
        )
        raise bad_value(text, param, count)


# --- chat ---------------------------------------------------------------------------------------


def check_messages(body: Mapping[str, Any]) -> None:
    """Check the list of messages; any role is valid, and text or blocks as content.

    Raises:
        ApiError: A message is invalid; the error names its path.
    """
    if "messages" not in body:
        raise invalid("missing", "body.messages", _MISSING, body)
    messages = body["messages"]
    if not isinstance(messages, list):
        raise invalid("list_type", "body.messages", _LIST, messages)
    for index, message in enumerate(messages):
        _check_message(f"body.messages.{index}", message)


def _check_message(where: str, message: Any) -> None:
    if not isinstance(message, dict):
        raise invalid("dict_type", where, _DICTIONARY, message)
    role = message.get("role")
    if role is None:
        raise invalid("missing", f"{where}.role", _MISSING, message)
    if not isinstance(role, str):
        raise invalid("string_type", f"{where}.role", _STRING, role)
    content = message.get("content")
    if isinstance(content, list):
        for index, block in enumerate(content):
            _check_block(f"{where}.content.{index}", block)
    elif content is not None and not isinstance(content, str):
        raise invalid("string_type", f"{where}.content", _STRING, content)
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list):
        raise invalid("list_type", f"{where}.tool_calls", _LIST, calls)
    for index, call in enumerate(calls):
        if not isinstance(call, dict):
            raise invalid("dict_type", f"{where}.tool_calls.{index}", _DICTIONARY, call)


def _check_block(where: str, block: Any) -> None:
    if isinstance(block, str):
        return
    if not isinstance(block, dict):
        raise invalid("dict_type", where, _DICTIONARY, block)
    kind = block.get("type")
    if kind is not None and not isinstance(kind, str):
        raise invalid("string_type", f"{where}.type", _STRING, kind)


def check_tools(body: Mapping[str, Any]) -> None:
    """Check that all tools are functions and that `tool_choice` names one of them.

    Raises:
        ApiError: A tool or the choice is invalid; the error names the field.
    """
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise invalid("list_type", "body.tools", _LIST, tools)
    names = [_tool_name(index, tool) for index, tool in enumerate(tools or ())]
    choice = body.get("tool_choice")
    if choice in (None, "none"):
        return
    if tools is None:
        raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, dict):
        if any(
            (body.get("structured_outputs") or {}).get(name) is not None
            for name in _COMMON_CONSTRAINTS
        ):
            text = "You can only either use constraints for structured outputs or tools, not both."
            raise bad_request(text, None)
        function = choice.get("function")
        chosen_name = function.get("name") if isinstance(function, dict) else None
        if choice.get("type", "function") == "function" and chosen_name not in names:
            text = "The tool specified in `tool_choice` does not match any of the specified `tools`"
            raise bad_value(text, "tool_choice")
    elif choice not in ("auto", "required"):
        text = (
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or '
            '"required" are supported.'
        )
        raise bad_value(text, "tool_choice")


def _tool_name(index: int, tool: Any) -> str:
    where = f"body.tools.{index}"
    if not isinstance(tool, dict):
        raise invalid("dict_type", where, _DICTIONARY, tool)
    function = tool.get("function")
    if function is None:
        raise invalid("missing", f"{where}.function", _MISSING, tool)
    if not isinstance(function, dict):
        raise invalid("dict_type", f"{where}.function", _DICTIONARY, function)
    name = function.get("name")
    if name is None:
        raise invalid("missing", f"{where}.function.name", _MISSING, function)
    if not isinstance(name, str):
        raise invalid("string_type", f"{where}.function.name", _STRING, name)
    check_parameters(function, f"{where}.function")
    return name


def check_parameters(function: Mapping[str, Any], where: str) -> None:
    """Check that the parameters of a function are an object (a JSON schema).

    Raises:
        ApiError: They are not.
    """
    if (parameters := function.get("parameters")) is not None and not isinstance(parameters, dict):
        raise invalid("dict_type", f"{where}.parameters", _DICTIONARY, parameters)
