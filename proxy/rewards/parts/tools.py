"""Checks whether tool calls are well-formed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting

_MISSING = PartValue(0.0, "no tool was called")


_ANNOUNCED = PartValue(0.3, "announces what it would do, calls no tool")
_ANNOUNCES = re.compile(
    r"\W*(?:(?:sure|ok(?:ay)?|certainly|of course|yes|great|alright|first|now)\W+)*"
    r"(?:i(?:'ll| will| would| am going to|'m going to)|let me|let's"
    r"|i(?:'ve| have) (?:just |now |successfully )?"
    r"(?:created|written|changed|added|fixed|renamed|updated|edited|removed|deleted|run|read))\b"
)
_HEAD = 80


class ToolCalls:
    """Share of the calls that name a function and have a JSON object as arguments.

    It does not apply to an answer without calls, unless calls are required. With `declared` the
    calls must fit the tools that the request offers, and an answer that announces an action instead
    of calling one of them gets 0.3.
    """

    def __init__(
        self, names: tuple[str, ...] = (), required: bool = False, declared: bool = False
    ) -> None:
        self._names = frozenset(names)
        self._required = required
        self._declared = declared

    def score(self, group: PartInput) -> list[PartValue | None] | None:
        """Return one value for each answer; None when no answer calls a tool or has to."""
        context = group.context
        declared = _declared(context.tools) if self._declared else {}
        calling = any([reading.tool_calls for reading in group.readings])
        if not calling and not self._required and not declared:
            return None
        names = self._names | declared.keys()
        missing = _MISSING if self._required else None
        may_announce = bool(declared) and not any(
            message.get("role") == "tool" for message in context.messages
        )
        values = [
            _of(reading.tool_calls, names, declared)
            if reading.tool_calls
            else _ANNOUNCED
            if may_announce and _announces(reading.text)
            else missing
            for reading in group.readings
        ]
        return values if any(values) else None


def _announces(text: str) -> bool:
    return _ANNOUNCES.match(text[:_HEAD].lower().replace("’", "'")) is not None


def _of(
    calls: list[Any], names: frozenset[str], declared: Mapping[str, Sequence[str]]
) -> PartValue:
    faults = [fault for call in calls if (fault := _fault(call, names, declared))]
    reason = faults[0] if faults else f"{len(calls)} well-formed calls"
    return PartValue(1.0 - len(faults) / len(calls), reason)


def _fault(call: Any, names: frozenset[str], declared: Mapping[str, Sequence[str]]) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "a call without a function"
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        return "a call without a name"
    if names and name not in names:
        return f"there is no tool {name[:40]!r}"
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return f"{name}: arguments are not JSON"
        if not isinstance(arguments, dict):
            return f"{name}: arguments are not an object"
    elif not isinstance(arguments, Mapping):
        return f"{name}: no arguments"
    missing = [field for field in declared.get(name, ()) if field not in arguments]
    return f"{name}: no {missing[0][:40]!r} among its arguments" if missing else ""


def _declared(tools: Any) -> dict[str, Sequence[str]]:
    """Return the arguments that each tool of a request requires, by the tool's name."""
    required: dict[str, Sequence[str]] = {}
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(function, Mapping) and isinstance(name, str):
            required[name] = _required(function.get("parameters"))
    return required


def _required(parameters: Any) -> Sequence[str]:
    required = parameters.get("required") if isinstance(parameters, Mapping) else None
    if not isinstance(required, list):
        return ()
    return [field for field in required if isinstance(field, str)]


TOOLS = PartKind(
    lambda name, settings, where: ToolCalls(
        settings["names"], settings["required"], settings["declared"]
    ),
    "Share of the tool calls that are well-formed",
    {
        "names": Setting("texts", (), "allowed tools; all if empty"),
        "required": Setting("flag", False, "0 for an answer without a call"),
        "declared": Setting(
            "flag",
            False,
            "calls must match the offered tools; a call that is only announced gives 0.3",
        ),
    },
)
