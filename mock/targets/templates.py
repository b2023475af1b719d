"""Templates with `{query}` and similar placeholders, and extraction of answers from output."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line

PLACEHOLDERS = (
    "query",
    "system",
    "messages",
    "base_url",
    "root_url",
    "api_key",
    "model",
    "session",
    "app_session",
    "row",
    "turn",
    "folder",
    "here",
    "python",
)
"""Names allowed in braces, besides `env:NAME`."""
_PLACEHOLDER = re.compile(r"\{([a-z_]+|env:[A-Za-z_][A-Za-z0-9_]*)\}")
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
_STEP = re.compile(r'"([^"]*)"|([^.\[\]"]+)|\[(-?\d+|\*)\]')


class NoAnswer(ValueError):
    """The output contains no answer; the text gives the reason."""


# --- templates ----------------------------------------------------------------------------------


def placeholders(template: Any) -> set[str]:
    """Return all placeholders in a text, list or mapping."""
    if isinstance(template, str):
        return {name for name in _PLACEHOLDER.findall(template) if _is_placeholder(name)}
    if isinstance(template, Mapping):
        return set().union(*(placeholders(item) for pair in template.items() for item in pair))
    if isinstance(template, list | tuple):
        return set().union(*(placeholders(item) for item in template))
    return set()


def fill(
    template: str, values: Mapping[str, Any], quote: Callable[[str], str] | None = None
) -> str:
    """Return `template` with the placeholders replaced; other braces stay.

    Args:
        template: Text from the target file.
        values: By name; `env:NAME` under that full name.
        quote: Escapes each value for its context.
    """

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if not _is_placeholder(name):
            return match[0]
        value = values.get(name, "")
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return quote(text) if quote is not None else text

    return _PLACEHOLDER.sub(replace, template)


def fill_all(template: Any, values: Mapping[str, Any]) -> Any:
    """Apply `fill` to every text of a structure; a text that is one placeholder becomes its
    value."""
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole and _is_placeholder(whole[1]):
            return values.get(whole[1], "")
        return fill(template, values)
    if isinstance(template, Mapping):
        return {fill(str(key), values): fill_all(item, values) for key, item in template.items()}
    if isinstance(template, list):
        return [fill_all(item, values) for item in template]
    return template


def _is_placeholder(name: str) -> bool:
    return name in PLACEHOLDERS or name.startswith("env:")


# --- answers ------------------------------------------------------------------------------------


def read_output(data: bytes) -> str:
    """Return a program's output as a terminal would show it.

    Raises:
        NoAnswer: it is not text.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NoAnswer(
            f"its output is not text: byte 0x{data[error.start]:02x} at {error.start + 1}"
        ) from None
    if "\x00" in text:
        raise NoAnswer(f"its output is not text: a NUL at {text.index(chr(0)) + 1}")
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return "\n".join(line.rsplit("\r", 1)[-1] for line in text.split("\n"))


def parse_path(path: str) -> tuple[str | int, ...]:
    """Parse `choices[0].message.content` or `choices.0.message.content`.

    Raises:
        ValueError: it is not a path.
    """
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        if path[at] == "." and steps:
            at += 1
        match = _STEP.match(path, at)
        if match is None:
            raise ValueError(f"cannot be `{one_line(path, 60)}`: a path is like choices[0].text")
        quoted, name, index = match.groups()
        if index is not None:
            steps.append("*" if index == "*" else int(index))
        elif name is not None and re.fullmatch(r"-?\d+", name):
            steps.append(int(name))
        else:
            steps.append(quoted if quoted is not None else name)
        at = match.end()
    return tuple(steps)


def values_at(value: Any, path: tuple[str | int, ...]) -> list[Any]:
    """Return the values at a path; several with `*`, none when nothing is there."""
    values = [value]
    for step in path:
        values = [inner for value in values for inner in _inner(value, step)]
    return values


def _inner(value: Any, step: str | int) -> list[Any]:
    if isinstance(value, Mapping):
        if step == "*":
            return list(value.values())
        return [value[str(step)]] if str(step) in value else []
    if isinstance(value, list):
        if step == "*":
            return value
        if isinstance(step, int) and -len(value) <= step < len(value):
            return [value[step]]
    return []


def text_at(value: Any, path: tuple[str | int, ...], path_text: str) -> str:
    """Return the text at a path; several texts are joined as lines.

    Raises:
        NoAnswer: there is none; describes what is there.
    """
    values = [item for item in values_at(value, path) if item is not None]
    if not values:
        raise NoAnswer(f"nothing at `{path_text}`{_describe_reached(value, path)}")
    return "\n".join(
        item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in values
    )


_JSON_WORDS: dict[type, str] = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def _describe_reached(value: Any, path: tuple[str | int, ...]) -> str:
    """Return how far a path can be followed, and what is there."""
    deep = 0
    while deep < len(path) and any(item is not None for item in values_at(value, path[: deep + 1])):
        deep += 1
    values = [item for item in values_at(value, path[:deep]) if item is not None]
    last = values[0] if values else None
    pieces = [
        f"[{item}]" if isinstance(item, int) or item == "*" else f".{item}" for item in path[:deep]
    ]
    which = f"`{one_line(''.join(pieces).removeprefix('.'), 80)}`" if deep else "it"
    if isinstance(last, Mapping) and last:
        there = one_line(", ".join(map(str, last)), 120)
        return f"; fields of {which}: {there}" if deep else f"; its fields: {there}"
    if isinstance(last, list):
        return f": {which} is a list of {len(last)}"
    return f": {which} is {'empty' if last == {} else _JSON_WORDS.get(type(last), 'null')}"


def parse_json(text: str | bytes, what: str = "its output") -> Any:
    """Parse JSON.

    Raises:
        NoAnswer: it is not JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        shown = one_line(text if isinstance(text, str) else text.decode(errors="replace"), 80)
        raise NoAnswer(f"{what} is not JSON: {shown or 'nothing'}") from None
