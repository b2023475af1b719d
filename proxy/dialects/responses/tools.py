"""Tools of a Responses request as those of a chat completion, and their names back. No I/O.

| declared as        | the upstream gets                     | a call comes back as              |
|--------------------|---------------------------------------|-----------------------------------|
| `function`         | the same function                     | `function_call`                   |
| `custom`           | a function with one string, `input`   | `custom_tool_call` with that text |
| `namespace`        | each tool inside as `NAMESPACE__NAME` | as above, with its `namespace`    |
| all other types    | nothing: they run on OpenAI's servers | never                             |

The last row is `web_search`, `file_search`, `mcp`, `code_interpreter`, `computer`, `shell`,
`local_shell`, `apply_patch`, `image_generation`, `tool_search` and what is unknown. All of them are
accepted and repeated in the response. Source: vLLM does the same, but for `custom`, which it drops.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.dialects.validation import bad_value, check_parameters
from proxy.http.errors import ApiError, invalid

JOIN = "__"
"""Between a namespace and a name in the one name the upstream sees."""

_FUNCTION = (
    "name",
    "parameters",
    "strict",
    "type",
    "allowed_callers",
    "async",
    "defer_loading",
    "description",
    "output_schema",
)
_INNER = (
    "name",
    "type",
    "allowed_callers",
    "async",
    "defer_loading",
    "description",
    "output_schema",
    "parameters",
    "strict",
)
_CUSTOM = ("name", "type", "allowed_callers", "async", "defer_loading", "description", "format")
_NAMESPACE = ("description", "name", "tools", "type")


class ToolTable(msgspec.Struct):
    """The tools of one request."""

    chat: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """As the upstream gets them."""
    told: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """As the response repeats them: every key there, in vLLM's order."""
    names: dict[str, tuple[str, str | None]] = msgspec.field(default_factory=dict)
    """The upstream's name of a tool -> its own name and its namespace."""
    custom: set[str] = msgspec.field(default_factory=set)
    """The upstream's names of custom tools."""

    def add(self, tool: Mapping[str, Any], where: str, namespace: str | None = None) -> None:
        """Take one function or custom tool.

        Raises:
            ApiError: it has no name, or parameters that are no schema.
        """
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            raise invalid("missing", f"{where}.name", "Field required", tool)
        flat = flat_name(namespace, name)
        self.names[flat] = (name, namespace)
        if tool.get("type") == "custom":
            self.custom.add(flat)
            function = _custom(tool, flat)
        else:
            check_parameters(tool, where)
            shown = ("description", "parameters", "strict")
            found = {key: tool[key] for key in shown if tool.get(key) is not None}
            function = {"name": flat, **found}
        self.chat.append({"type": "function", "function": function})


def flat_name(namespace: Any, name: str) -> str:
    """The one name by which the upstream knows a tool."""
    return f"{namespace}{JOIN}{name}" if isinstance(namespace, str) and namespace else name


def read_tools(given: Any) -> ToolTable:
    """The tools of a request.

    Args:
        given: The field as it came; None for no tools.

    Raises:
        ApiError: it is no list of objects, or a function has no name.
    """
    tools = ToolTable()
    if given is None:
        return tools
    if not isinstance(given, list):
        raise invalid("list_type", "body.tools", "Input should be a valid list", given)
    for index, tool in enumerate(given):
        _read(tools, tool, f"body.tools.{index}")
    return tools


def _read(tools: ToolTable, tool: Any, where: str) -> None:
    kind = _kind(tool, where)
    if kind == "function" and isinstance(tool.get("function"), dict):  # as in chat completions
        tool = {**tool["function"], "type": "function"}
    if kind in ("function", "custom"):
        tools.add(tool, where)
        tools.told.append(_told(tool, _CUSTOM if kind == "custom" else _FUNCTION))
    elif kind == "namespace":
        inside = tool.get("tools")
        inside = inside if isinstance(inside, list) else []
        told = []
        for index, one in enumerate(inside):
            deeper = f"{where}.tools.{index}"
            sort = _kind(one, deeper)
            if sort in ("function", "custom"):
                tools.add(one, deeper, tool.get("name"))
            told.append(_told(one, _CUSTOM if sort == "custom" else _INNER))
        tools.told.append(_told({**tool, "tools": told}, _NAMESPACE))
    else:
        tools.told.append(tool)


def _kind(tool: Any, where: str) -> str:
    if not isinstance(tool, dict):
        raise invalid("dict_type", where, "Input should be a valid dictionary", tool)
    kind = tool.get("type")
    if not isinstance(kind, str):
        raise invalid("missing", f"{where}.type", "Field required", tool)
    return kind


def _told(tool: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: tool.get(key) for key in keys} | {k: v for k, v in tool.items() if k not in keys}


def _custom(tool: Mapping[str, Any], flat: str) -> dict[str, Any]:
    """A tool that takes free text, as a function the upstream can call."""
    text = tool.get("description")
    text = text if isinstance(text, str) else ""
    field: dict[str, Any] = {"type": "string"}
    form = tool.get("format")
    if isinstance(form, dict) and isinstance(grammar := form.get("definition"), str):
        field["description"] = f"Text in this {form.get('syntax') or ''} grammar:\n{grammar}"
    schema = {"type": "object", "properties": {"input": field}, "required": ["input"]}
    return {"name": flat, "description": text, "parameters": schema}


# --- which of them ------------------------------------------------------------------------------


def choose(choice: Any, tools: ToolTable) -> Any:
    """`tool_choice` as the upstream gets it; None leaves it to the upstream.

    `allowed_tools` takes the others out of `tools.chat`; a choice of a tool that the upstream never
    sees is none.

    Raises:
        ApiError: no such form, or no such function.
    """
    if choice is None or isinstance(choice, str):
        if choice not in (None, "none", "auto", "required"):
            raise _no_choice(choice)
        return choice if tools.chat else None
    if not isinstance(choice, dict):
        raise _no_choice(choice)
    kind = choice.get("type")
    if kind == "allowed_tools":
        return _allow(choice, tools)
    if kind not in ("function", "custom"):
        return None
    inner = choice.get("function")
    named = choice if not isinstance(inner, dict) else inner
    flat = _find(named, tools)
    if flat is None:
        text = f"Tool '{named.get('name')}' has not been passed in `tools`."
        raise bad_value(text, "tool_choice")
    return {"type": "function", "function": {"name": flat}}


def _allow(choice: Mapping[str, Any], tools: ToolTable) -> Any:
    allowed = choice.get("tools")
    mode = choice.get("mode")
    if not isinstance(allowed, list) or mode not in ("auto", "required"):
        raise _no_choice(choice)
    flats = {_find(one, tools) for one in allowed if isinstance(one, dict)}
    tools.chat = [tool for tool in tools.chat if tool["function"]["name"] in flats]
    return mode if tools.chat else None


def _find(named: Mapping[str, Any], tools: ToolTable) -> str | None:
    name = named.get("name")
    if not isinstance(name, str):
        return None
    flat = flat_name(named.get("namespace"), name)
    if flat in tools.names:
        return flat
    return next((key for key, (own, _) in tools.names.items() if own == name), None)


def _no_choice(choice: Any) -> ApiError:
    text = "Input should be 'none', 'auto', 'required' or a tool to call"
    return invalid("literal_error", "body.tool_choice", text, choice)


# --- the text of a custom call ------------------------------------------------------------------


def custom_input(arguments: str) -> str:
    """What a custom tool is given, of the arguments the model wrote."""
    try:
        found = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return arguments
    text = found.get("input") if isinstance(found, dict) else None
    return text if isinstance(text, str) else arguments


def custom_arguments(text: str) -> str:
    """The arguments that carry `text` to a custom tool."""
    return json.dumps({"input": text}, ensure_ascii=False)
