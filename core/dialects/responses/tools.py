"""Convert the tools of a Responses request to functions of a chat completion, and back. No I/O.

| declared as        | function of the upstream              | a call is returned as             |
|--------------------|---------------------------------------|-----------------------------------|
| `function`         | the same function                     | `function_call`                   |
| `custom`           | a function with one string, `input`   | `custom_tool_call` with that text |
| `namespace`        | each tool inside as `NAMESPACE__NAME` | as above, with its `namespace`    |
| all other types    | nothing: they run on OpenAI's servers | never                             |

Other types are `web_search`, `file_search`, `mcp`, `code_interpreter`, `computer`, `shell`,
`local_shell`, `apply_patch`, `image_generation`, `tool_search` and unknown ones. All of them are
accepted and repeated in the response. vLLM does the same, except for `custom`, which it drops.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from core.dialects.errors import ApiError, invalid
from core.dialects.validation import Function, bad_value, required, typed
from core.openai.forms import choice_of, tool_of

JOIN = "__"
"""Separator of namespace and name in the upstream's name of a tool."""

_MORE = ("allowed_callers", "async", "defer_loading", "description")
_KEYS = {
    "function": ("name", "parameters", "strict", "type", *_MORE, "output_schema"),
    "inner": ("name", "type", *_MORE, "output_schema", "parameters", "strict"),
    "custom": ("name", "type", *_MORE, "format"),
    "namespace": ("description", "name", "tools", "type"),
}
"""Kind of tool -> its keys in the response; `inner` is a tool of a namespace."""


class _Declared(msgspec.Struct):
    type: str


class _ToolsField(msgspec.Struct):
    tools: list[dict[str, Any]] | None = None


class ToolTable(msgspec.Struct):
    """The tools of one request."""

    chat: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """The tools in the form of chat completions, for the upstream."""
    echoed: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """The tools as the response repeats them: all keys, in vLLM's order."""
    names: dict[str, tuple[str, str | None]] = msgspec.field(default_factory=dict)
    """The upstream's name of a tool -> its own name and its namespace."""
    custom: set[str] = msgspec.field(default_factory=set)
    """The upstream's names of custom tools."""

    def add(self, tool: Mapping[str, Any], where: str, namespace: str | None = None) -> None:
        """Add one function or custom tool.

        Args:
            tool: The tool as declared.
            where: Its path in the body, for the error.
            namespace: Name of its namespace; None without one.

        Raises:
            ApiError: It has no name, or its parameters are not an object.
        """
        declared = typed(tool, Function, where)
        if not (name := declared.name):
            raise required(f"{where}.name", tool)
        flat = flat_name(namespace, name)
        self.names[flat] = (name, namespace)
        if tool.get("type") == "custom":
            self.custom.add(flat)
            tool = _custom(tool)
        self.chat.append(tool_of(flat, tool))


def flat_name(namespace: Any, name: str) -> str:
    """Return the upstream's name of a tool: its namespace and name joined."""
    return f"{namespace}{JOIN}{name}" if isinstance(namespace, str) and namespace else name


def read_tools(body: Mapping[str, Any]) -> ToolTable:
    """Parse the tools of a request's body.

    Raises:
        ApiError: They are not a list of objects, or a function has no name.
    """
    table = ToolTable()
    for index, tool in enumerate(typed(body, _ToolsField, "body").tools or ()):
        _read_tool(table, tool, f"body.tools.{index}")
    return table


def _read_tool(table: ToolTable, tool: dict[str, Any], where: str) -> None:
    kind = typed(tool, _Declared, where).type
    if kind == "function" and isinstance(tool.get("function"), dict):  # as in chat completions
        tool = {**tool["function"], "type": "function"}
    if kind == "namespace":
        inner = tool.get("tools")
        echoed = []
        for index, inner_tool in enumerate(inner if isinstance(inner, list) else ()):
            path = f"{where}.tools.{index}"
            inner_kind = typed(inner_tool, _Declared, path).type
            if inner_kind in ("function", "custom"):
                table.add(inner_tool, path, tool.get("name"))
            echoed.append(_echoed(inner_tool, "custom" if inner_kind == "custom" else "inner"))
        tool = {**tool, "tools": echoed}
    elif kind in ("function", "custom"):
        table.add(tool, where)
    table.echoed.append(_echoed(tool, kind))


def _echoed(tool: Mapping[str, Any], kind: str) -> dict[str, Any]:
    keys = _KEYS.get(kind, ())
    return {key: tool.get(key) for key in keys} | {k: v for k, v in tool.items() if k not in keys}


def _custom(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a custom tool, which takes free text, to a function with one string parameter."""
    text = tool.get("description")
    text = text if isinstance(text, str) else ""
    field: dict[str, Any] = {"type": "string"}
    text_format = tool.get("format")
    if isinstance(text_format, dict) and isinstance(grammar := text_format.get("definition"), str):
        field["description"] = f"Text in this {text_format.get('syntax') or ''} grammar:\n{grammar}"
    schema = {"type": "object", "properties": {"input": field}, "required": ["input"]}
    return {"description": text, "parameters": schema}


# --- tool choice --------------------------------------------------------------------------------


def choose(choice: Any, tools: ToolTable) -> Any:
    """Convert `tool_choice` for the upstream; None leaves the choice to the upstream.

    `allowed_tools` removes all other tools from `tools.chat`. The choice of a tool that the
    upstream does not get returns None.

    Raises:
        ApiError: The choice has an unknown form, or names an unknown function.
    """
    if choice is None or isinstance(choice, str):
        if choice not in (None, "none", "auto", "required"):
            raise _bad_choice(choice)
        return choice if tools.chat else None
    if not isinstance(choice, dict):
        raise _bad_choice(choice)
    kind = choice.get("type")
    if kind == "allowed_tools":
        return _allow(choice, tools)
    if kind not in ("function", "custom"):
        return None
    inner = choice.get("function")
    function = choice if not isinstance(inner, dict) else inner
    flat = _find_flat(function, tools)
    if flat is None:
        text = f"Tool '{function.get('name')}' has not been passed in `tools`."
        raise bad_value(text, "tool_choice")
    return choice_of(flat)


def _allow(choice: Mapping[str, Any], tools: ToolTable) -> Any:
    allowed = choice.get("tools")
    mode = choice.get("mode")
    if not isinstance(allowed, list) or mode not in ("auto", "required"):
        raise _bad_choice(choice)
    flats = {_find_flat(tool, tools) for tool in allowed if isinstance(tool, dict)}
    tools.chat = [tool for tool in tools.chat if tool["function"]["name"] in flats]
    return mode if tools.chat else None


def _find_flat(named: Mapping[str, Any], tools: ToolTable) -> str | None:
    name = named.get("name")
    if not isinstance(name, str):
        return None
    flat = flat_name(named.get("namespace"), name)
    if flat in tools.names:
        return flat
    return next((key for key, (own, _) in tools.names.items() if own == name), None)


def _bad_choice(choice: Any) -> ApiError:
    text = "Input should be 'none', 'auto', 'required' or a tool to call"
    return invalid("literal_error", "body.tool_choice", text, choice)


# --- the text of a custom call ------------------------------------------------------------------


def custom_input(arguments: str) -> str:
    """Extract the text for a custom tool from the function arguments that the model wrote."""
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments
    text = decoded.get("input") if isinstance(decoded, dict) else None
    return text if isinstance(text, str) else arguments


def custom_arguments(text: str) -> str:
    """Return the function arguments that hold `text` for a custom tool."""
    return json.dumps({"input": text}, ensure_ascii=False)
