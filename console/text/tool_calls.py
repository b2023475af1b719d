"""Tool calls formatted as names and indented JSON."""

import msgspec


def tool_calls(text: str) -> list[tuple[str, str]]:
    """Return name and indented JSON arguments of each call; text that is not JSON is unchanged."""
    try:
        calls = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return [("", text)]
    result = []
    for call in calls if isinstance(calls, list) else [calls]:
        inner = call.get("function") if isinstance(call, dict) else None
        function = inner if isinstance(inner, dict) else call
        if not isinstance(function, dict):
            result.append(("", pretty(function)))
            continue
        result.append((str(function.get("name") or ""), pretty(function.get("arguments"))))
    return result


def pretty(value: object) -> str:
    """Format a value as indented JSON; a string that contains JSON is decoded first."""
    try:
        decoded = msgspec.json.decode(value) if isinstance(value, str) else value
        return msgspec.json.format(msgspec.json.encode(decoded), indent=2).decode()
    except (ValueError, OverflowError, RecursionError):
        return str(value)


def calls_text(text: str) -> str:
    """Return all calls as text of several lines, for comparisons."""
    if not text:
        return ""
    return "\n".join(f"⚙ {name}\n{arguments}" for name, arguments in tool_calls(text))
