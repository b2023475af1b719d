"""Kinds by one fact about an answer: complete, quick, with code, with well-formed tool calls."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting, each_by, scored_by
from proxy.rewards.parts.expected_answer import expected_answer
from proxy.rewards.text import Reading

_MISSING = PartValue(0.0, "no tool was called")
_ANNOUNCED = PartValue(0.3, "announces what it would do, calls no tool")
_ANNOUNCES = re.compile(
    r"\W*(?:(?:sure|ok(?:ay)?|certainly|of course|yes|great|alright|first|now)\W+)*"
    r"(?:i(?:'ll| will| would| am going to|'m going to)|let me|let's"
    r"|i(?:'ve| have) (?:just |now |successfully )?"
    r"(?:created|written|changed|added|fixed|renamed|updated|edited|removed|deleted|run|read))\b"
)
_HEAD = 80


def finished(reading: Reading, cut: float) -> PartValue:
    """1 for a complete answer, `cut` for one that was cut off, 0 for one that was filtered."""
    if reading.finish_reason == "length":
        return PartValue(cut, "cut off by the length limit")
    if reading.finish_reason == "content_filter":
        return PartValue(0.0, "filtered")
    return PartValue(1.0, reading.finish_reason)


def latency(group: PartInput, good: float, bad: float) -> list[PartValue]:
    """1 up to `good` seconds, 0 from `bad` seconds on, linear between."""
    return [
        PartValue(
            min(1.0, max(0.0, (bad - answer.seconds) / (bad - good))), f"{answer.seconds:.1f} s"
        )
        for answer in group.context.answers
    ]


def code(group: PartInput) -> list[PartValue] | None:
    """1 for a code block; applies only to queries that request code, without tools."""
    if group.context.tools or not expected_answer(group.context.query).code:
        return None
    return [_code_in(reading.text) for reading in group.readings]


def _code_in(text: str) -> PartValue:
    if fences := text.count("```"):
        if fences % 2:
            return PartValue(0.6, "a code block that does not end")
        return PartValue(1.0, "a code block")
    inline = max((len(span) for span in text.split("`")[1:-1:2]), default=0)
    if inline >= 12:
        return PartValue(0.8, "code within the text")
    return PartValue(0.0, "no code, though it is asked for")


def tools(
    group: PartInput, names: Sequence[str], required: bool, declared: bool
) -> list[PartValue | None] | None:
    """Share of the calls that name a function and have a JSON object as arguments.

    It does not apply to an answer without calls, unless calls are required. With `declared` the
    calls must fit the tools that the request offers, and an answer that announces an action instead
    of calling one of them gets 0.3.
    """
    context = group.context
    offered = _offered(context.tools) if declared else {}
    if not required and not offered and not any(reading.tool_calls for reading in group.readings):
        return None
    allowed = frozenset(names) | offered.keys()
    missing = _MISSING if required else None
    may_announce = bool(offered) and not any(
        message.get("role") == "tool" for message in context.messages
    )
    values = [
        _value_of_calls(reading.tool_calls, allowed, offered)
        if reading.tool_calls
        else _ANNOUNCED
        if may_announce and _announces(reading.text)
        else missing
        for reading in group.readings
    ]
    return values if any(values) else None


def _announces(text: str) -> bool:
    return _ANNOUNCES.match(text[:_HEAD].lower().replace("’", "'")) is not None


def _value_of_calls(
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


def _offered(tools: Any) -> dict[str, Sequence[str]]:
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


FINISHED = PartKind(
    each_by(finished),
    "1 for a complete answer, less if cut off by the length limit, 0 if filtered",
    {"cut": Setting("number", 0.5, "value of an answer that was cut off", 0, 1)},
    gate=True,
)
LATENCY = PartKind(
    scored_by(latency),
    "1 for an answer within `good` seconds, 0 from `bad` seconds on",
    {
        "good": Setting("number", 2.0, "seconds up to which the value is 1", 0),
        "bad": Setting("number", 30.0, "seconds from which the value is 0", 0),
    },
    ascending=("good", "bad"),
    relative="it depends on the load of the server",
)
CODE = PartKind(
    scored_by(code),
    "1 for an answer with a code block if the query asks for code",
)
TOOLS = PartKind(
    scored_by(tools),
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
