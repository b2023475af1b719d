"""Whether tool calls can be carried out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from proxy.rewards.part import Kind, Looked, PartValue, Setting

_MISSING = PartValue(0.0, "no tool was called")


class Tools:
    """Share of the calls that name a function and carry a JSON object as arguments.

    Does not apply to an answer without calls, unless they are required.
    """

    def __init__(
        self, names: tuple[str, ...] = (), required: bool = False, declared: bool = False
    ) -> None:
        self._names = frozenset(names)
        self._required = required
        self._declared = declared

    def score(self, group: Looked) -> list[PartValue | None] | None:
        """None when nothing is called anywhere and nothing need be."""
        calling = any([reading.tool_calls for reading in group.readings])
        if not calling and not self._required:
            return None
        names = self._names
        if self._declared:
            names |= frozenset(_declared(group.context.tools))
        missing = _MISSING if self._required else None
        return [
            _of(reading.tool_calls, names) if reading.tool_calls else missing
            for reading in group.readings
        ]


def _of(calls: list[Any], names: frozenset[str]) -> PartValue:
    faults = [fault for call in calls if (fault := _fault(call, names))]
    reason = faults[0] if faults else f"{len(calls)} well-formed calls"
    return PartValue(1.0 - len(faults) / len(calls), reason)


def _fault(call: Any, names: frozenset[str]) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "a call without a function"
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        return "a call without a name"
    if names and name not in names:
        return f"there is no tool {name[:40]!r}"
    if isinstance(arguments, Mapping):
        return ""
    if not isinstance(arguments, str):
        return f"{name}: no arguments"
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return f"{name}: arguments are not JSON"
    return "" if isinstance(decoded, dict) else f"{name}: arguments are not an object"


def _declared(tools: Any) -> list[str]:
    """Names of the tools that a request offers."""
    functions = (tool.get("function") for tool in tools if isinstance(tool, Mapping))
    names = (one.get("name") for one in functions if isinstance(one, Mapping))
    return [name for name in names if isinstance(name, str)]


def make(name: str, settings: Mapping[str, Any], where: Path) -> Tools:
    return Tools(settings["names"], settings["required"], settings["declared"])


KIND = Kind(
    make,
    "Share of the tool calls that are well-formed",
    {
        "names": Setting("texts", (), "tools that may be called; any when empty"),
        "required": Setting("flag", False, "an answer without a call gets 0"),
        "declared": Setting("flag", False, "the tools that the request offers may be called"),
    },
)
