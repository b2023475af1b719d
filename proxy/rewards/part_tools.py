"""The part that judges tool calls."""

from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.rewards.base import Part


def tools(calls: list[Any], weight: float) -> Part:
    """Share of the calls that name a function and carry a JSON object as arguments."""
    faults = [fault for call in calls if (fault := _fault(call))]
    value = 1.0 - len(faults) / len(calls)
    reason = faults[0] if faults else f"{len(calls)} well-formed calls"
    return Part("tools", value, weight, False, reason)


def _fault(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "a call without a function"
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        return "a call without a name"
    if isinstance(arguments, Mapping):
        return ""
    if not isinstance(arguments, str):
        return f"{name}: no arguments"
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError):
        return f"{name}: arguments are not JSON"
    return "" if isinstance(decoded, dict) else f"{name}: arguments are not an object"
