"""Tool calls as names and indented JSON."""

import msgspec


def tool_calls(text: str) -> list[tuple[str, str]]:
    """Name and indented JSON arguments of each call; text that is no JSON stays as it is."""
    try:
        calls = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return [("", text)]
    found = []
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, dict) else None
        told = function if isinstance(function, dict) else call
        if not isinstance(told, dict):
            found.append(("", pretty(told)))
            continue
        found.append((str(told.get("name") or ""), pretty(told.get("arguments"))))
    return found


def pretty(value: object) -> str:
    """JSON over several lines; a string that holds JSON is opened first."""
    try:
        told = msgspec.json.decode(value) if isinstance(value, str) else value
        return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()
    except (ValueError, OverflowError, RecursionError):
        return str(value)


def calls_text(text: str) -> str:
    """All calls as text over several lines, to be compared."""
    if not text:
        return ""
    return "\n".join(f"⚙ {name}\n{arguments}" for name, arguments in tool_calls(text))
