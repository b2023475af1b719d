"""Tool calls in the text of an answer, in the formats that chat templates show; without torch.

The format follows from the chat template. Edge cases are those of vLLM's parsers hermes,
qwen3_coder, llama3_json and mistral: text before the calls is the content, text after them is
dropped, and an answer with one call that cannot be read is text as a whole.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.interface import ToolCall
from engine.policy.answer import ParsedAnswer

Tools = Sequence[Mapping[str, Any]]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION = "<function="
_PYTHON = "<|python_tag|>"
_CALLS, _CALL_ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_MISTRAL_ID = 9
"""Length of a call's id that Mistral's templates accept."""

_FUNCTIONS = re.compile(r"<function=(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETERS = re.compile(r"<parameter=(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_SPACE = re.compile(r"\s*")
_BETWEEN = re.compile(r"[\s;]*")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model writes its tool calls."""

    name: str
    markers: tuple[str, ...]
    """Texts that start a call anywhere in an answer."""
    openings: tuple[str, ...]
    """Texts that start a call at the beginning of an answer only."""
    controls: tuple[str, ...]
    """Texts of the format that may be control tokens, which decoding drops."""
    read: Callable[[str, Tools], tuple[str, list[ToolCall]]]
    """Returns content and calls of an answer; raises ValueError when a call cannot be read."""

    def parse(self, text: str, tools: Tools) -> ParsedAnswer | None:
        """Return the content and the tool calls of an answer; None when it has none that can be
        read.

        Args:
            text: The whole answer.
            tools: Tools in the OpenAI form, for the types of arguments that are written as text.
        """
        try:
            content, calls = self.read(text, tools)
        except (ValueError, RecursionError):
            return None
        return ParsedAnswer(content, tuple(calls)) if calls else None


def format_of(template: str) -> CallFormat | None:
    """Return the format of tool calls that a chat template shows; None when none is known."""
    if _CALLS in template:
        return MISTRAL
    if _FUNCTION in template:
        return XML
    if _OPEN in template:
        return HERMES
    if _PYTHON in template or '{"name": function name, "parameters"' in template:
        return LLAMA
    return None


def for_template(
    messages: Sequence[Mapping[str, Any]], form: CallFormat | None
) -> list[dict[str, Any]]:
    """Return messages as chat templates read them: arguments of calls as objects, and ids of calls
    in the form that the template accepts."""
    result = []
    for original in messages:
        message = dict(original)
        calls = message.pop("tool_calls", None)
        if isinstance(calls, list) and calls:
            message["tool_calls"] = [_call_for_template(call, form) for call in calls]
        if form is MISTRAL and isinstance(message.get("tool_call_id"), str):
            message["tool_call_id"] = _mistral_id(message["tool_call_id"])
        result.append(message)
    return result


def _call_for_template(call: Any, form: CallFormat | None) -> Any:
    if not isinstance(call, Mapping):
        return call
    changed = dict(call)
    if form is MISTRAL and isinstance(call.get("id"), str):
        changed["id"] = _mistral_id(call["id"])
    function = call.get("function")
    if isinstance(function, Mapping):
        arguments = function.get("arguments")
        changed["function"] = {**function, "arguments": _parsed_arguments(arguments)}
    return changed


def _parsed_arguments(arguments: Any) -> Any:
    if not arguments:
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments of a tool call are not JSON: {error}") from error


def _mistral_id(name: str) -> str:
    letters = "".join(char for char in name if char.isascii() and char.isalnum())
    return letters[-_MISTRAL_ID:].rjust(_MISTRAL_ID, "0")


# --- reading ------------------------------------------------------------------------------------


def _read_hermes(text: str, tools: Tools) -> tuple[str, list[ToolCall]]:
    """Read calls between tags: a JSON object, or functions of XML."""
    calls: list[ToolCall] = []
    content, position = text.partition(_OPEN)[0], 0
    while (start := text.find(_OPEN, position)) >= 0:
        body = _skip(text, start + len(_OPEN))
        if text.startswith("{", body):
            call, position = _json_call(text, body)
            calls.append(call)
            after = _skip(text, position)
            if after < len(text) and not text.startswith(_CLOSE, after):
                raise ValueError("the call has no end")
        else:
            end = text.find(_CLOSE, body)
            position = len(text) if end < 0 else end
            calls += _xml_calls(text[body:position], tools)
    return content, calls


def _read_xml(text: str, tools: Tools) -> tuple[str, list[ToolCall]]:
    """Read functions of XML; a model may leave out the tags around them."""
    if _OPEN in text:
        return _read_hermes(text, tools)
    content, tag, _rest = text.partition(_FUNCTION)
    return content, _xml_calls(text, tools) if tag else []


def _xml_calls(text: str, tools: Tools) -> list[ToolCall]:
    calls = []
    for match in _FUNCTIONS.finditer(text):
        name, closed, body = match[1].partition(">")
        if not (closed and name.strip()):
            raise ValueError("the function has no name")
        schemas = _schemas(tools, name.strip())
        arguments = {}
        for parameter in _PARAMETERS.finditer(body):
            key, closed, value = parameter[1].partition(">")
            if not closed:
                raise ValueError("the parameter has no name")
            value = value.removeprefix("\n").removesuffix("\n")
            arguments[key.strip()] = _typed(value, schemas.get(key.strip()))
        calls.append(ToolCall(name.strip(), json.dumps(arguments, ensure_ascii=False)))
    if not calls:
        raise ValueError("the call has no function")
    return calls


def _schemas(tools: Tools, name: str) -> Mapping[str, Any]:
    """Return the JSON schema of each parameter of a tool."""
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, Mapping) and function.get("name") == name:
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
            return properties if isinstance(properties, Mapping) else {}
    return {}


def _typed(value: str, schema: Any) -> Any:
    """Return a value that is written as text in the type that its schema names."""
    if value.lower() == "null":
        return None
    kinds = _kinds(schema)
    if not kinds or "string" in kinds:
        return value
    if "boolean" in kinds and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    try:
        return _DECODER.decode(value)
    except (ValueError, RecursionError):
        return value


def _kinds(schema: Any) -> set[str]:
    """Return the types that a JSON schema allows; none when it does not say."""
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type")
    kinds = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()
    for name in ("anyOf", "oneOf"):
        choices = schema.get(name)
        for choice in choices if isinstance(choices, list) else ():
            kinds |= _kinds(choice)
    return kinds


def _read_llama(text: str, tools: Tools) -> tuple[str, list[ToolCall]]:
    """Read an answer that consists of calls: JSON objects, separated by semicolons."""
    calls: list[ToolCall] = []
    body = text.strip().removeprefix(_PYTHON)
    position = _skip(body, 0)
    while position < len(body):
        call, position = _json_call(body, position, needs_arguments=True)
        calls.append(call)
        position = _skip(body, position, _BETWEEN)
    return "", calls


def _read_mistral(text: str, tools: Tools) -> tuple[str, list[ToolCall]]:
    """Read calls after the marker: a JSON list, or a name and its arguments per marker."""
    content, *parts = text.split(_CALLS)
    calls: list[ToolCall] = []
    for part in parts:
        body = part.strip()
        if body.startswith("["):
            calls += _json_calls(body)
        elif body.startswith("{"):
            calls.append(_json_call(body, 0)[0])
        else:
            head, opened, _rest = body.partition("{")
            name = head.partition(_CALL_ID)[0].partition(_ARGS)[0].strip()
            if not (opened and name):
                raise ValueError("the call has no name or no arguments")
            start = len(head)
            _value, end = _DECODER.raw_decode(body, start)
            calls.append(ToolCall(name, body[start:end]))
    return content, calls


def _json_calls(text: str) -> list[ToolCall]:
    """Return the calls of a JSON list at the start of a text."""
    calls: list[ToolCall] = []
    position = _skip(text, 1)
    while not text.startswith("]", position):
        call, position = _json_call(text, position)
        calls.append(call)
        position = _skip(text, position)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
        elif not text.startswith("]", position):
            raise ValueError("the list has no end")
    return calls


def _json_call(text: str, position: int, *, needs_arguments: bool = False) -> tuple[ToolCall, int]:
    """Read a call that is a JSON object; return it and the position after it. The arguments are the
    text that the model wrote."""
    members, end = _members(text, position)
    name, _source = members.get("name", (None, ""))
    if not isinstance(name, str) or not name:
        raise ValueError("the call has no name")
    member = members.get("arguments", members.get("parameters"))
    if member is None and needs_arguments:
        raise ValueError("the call has no arguments")
    value, source = member or (None, "{}")
    if value is None:
        source = "{}"
    elif isinstance(value, str) and isinstance(_DECODER.decode(value or "{}"), dict):
        source = value or "{}"
    return ToolCall(name, source), end


def _members(text: str, position: int) -> tuple[dict[str, tuple[Any, str]], int]:
    """Return value and source text of each member of a JSON object, and the position after it."""
    members: dict[str, tuple[Any, str]] = {}
    if not text.startswith("{", position):
        raise ValueError("not an object")
    position = _skip(text, position + 1)
    while not text.startswith("}", position):
        key, position = _DECODER.raw_decode(text, position)
        position = _skip(text, position)
        if not isinstance(key, str) or not text.startswith(":", position):
            raise ValueError("not a member of an object")
        start = _skip(text, position + 1)
        value, position = _DECODER.raw_decode(text, start)
        members[key] = value, text[start:position]
        position = _skip(text, position)
        if text.startswith(",", position):
            position = _skip(text, position + 1)
        elif not text.startswith("}", position):
            raise ValueError("the object has no end")
    return members, position + 1


def _skip(text: str, position: int, pattern: re.Pattern[str] = _SPACE) -> int:
    """Return the position after the spaces at a position."""
    match = pattern.match(text, position)
    return position if match is None else match.end()


HERMES = CallFormat("hermes", (_OPEN,), (), (_OPEN, _CLOSE), _read_hermes)
XML = CallFormat("xml", (_OPEN, _FUNCTION), (), (_OPEN, _CLOSE), _read_xml)
LLAMA = CallFormat("llama", (), ("{", _PYTHON), (_PYTHON,), _read_llama)
MISTRAL = CallFormat("mistral", (_CALLS,), (), (_CALLS, _CALL_ID, _ARGS), _read_mistral)
