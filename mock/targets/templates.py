"""Templates with `{query}` in them, and answers found in what came back."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line

PLACES = (
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
"""What may stand in braces; with `env:NAME` besides."""
_PLACE = re.compile(r"\{([a-z_]+|env:[A-Za-z_][A-Za-z0-9_]*)\}")
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
_STEP = re.compile(r'"([^"]*)"|([^.\[\]"]+)|\[(-?\d+|\*)\]')


class NoAnswer(ValueError):
    """What came back holds no answer; the text is the cause."""


# --- templates ----------------------------------------------------------------------------------


def places(template: Any) -> set[str]:
    """All names in braces that are ours, anywhere in a text, list or mapping."""
    if isinstance(template, str):
        return {name for name in _PLACE.findall(template) if _ours(name)}
    if isinstance(template, Mapping):
        return set().union(*(places(one) for pair in template.items() for one in pair))
    if isinstance(template, list | tuple):
        return set().union(*(places(one) for one in template))
    return set()


def fill(
    template: str, values: Mapping[str, Any], quote: Callable[[str], str] | None = None
) -> str:
    """`template` with values in place of the names; a brace that is none of ours stays.

    Args:
        template: As it stands in the file.
        values: By name; `env:NAME` under that very name.
        quote: Makes each value fit for where it goes.
    """

    def one(match: re.Match[str]) -> str:
        name = match[1]
        if not _ours(name):
            return match[0]
        value = values.get(name, "")
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return quote(text) if quote is not None else text

    return _PLACE.sub(one, template)


def fill_all(template: Any, values: Mapping[str, Any]) -> Any:
    """`fill` in every text of a structure; a text that is only one name becomes its value."""
    if isinstance(template, str):
        alone = _PLACE.fullmatch(template)
        if alone and _ours(alone[1]):
            return values.get(alone[1], "")
        return fill(template, values)
    if isinstance(template, Mapping):
        return {fill(str(key), values): fill_all(one, values) for key, one in template.items()}
    if isinstance(template, list):
        return [fill_all(one, values) for one in template]
    return template


def _ours(name: str) -> bool:
    return name in PLACES or name.startswith("env:")


# --- answers ------------------------------------------------------------------------------------


def read_output(data: bytes) -> str:
    """What a program printed, as a person would see it.

    Raises:
        NoAnswer: it is no text.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise NoAnswer(
            f"what it printed is no text: byte 0x{data[error.start]:02x} at {error.start + 1}"
        ) from None
    if "\x00" in text:
        raise NoAnswer(f"what it printed is no text: a NUL at {text.index(chr(0)) + 1}")
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    return "\n".join(line.rsplit("\r", 1)[-1] for line in text.split("\n"))


def steps(path: str) -> tuple[str | int, ...]:
    """`choices[0].message.content` or `choices.0.message.content` as steps.

    Raises:
        ValueError: it is no such path.
    """
    found: list[str | int] = []
    at = 0
    while at < len(path):
        if path[at] == "." and found:
            at += 1
        match = _STEP.match(path, at)
        if match is None:
            raise ValueError(f"cannot be `{one_line(path, 60)}`: a path is like choices[0].text")
        quoted, name, index = match.groups()
        if index is not None:
            found.append("*" if index == "*" else int(index))
        elif name is not None and re.fullmatch(r"-?\d+", name):
            found.append(int(name))
        else:
            found.append(quoted if quoted is not None else name)
        at = match.end()
    return tuple(found)


def at_path(value: Any, path: tuple[str | int, ...]) -> list[Any]:
    """What stands at a path; several with `*`, none when there is nothing."""
    found = [value]
    for step in path:
        found = [inner for one in found for inner in _inner(one, step)]
    return found


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


def text_at(value: Any, path: tuple[str | int, ...], told: str) -> str:
    """The text at a path; several are lines.

    Raises:
        NoAnswer: there is none; says what is there.
    """
    found = [one for one in at_path(value, path) if one is not None]
    if not found:
        raise NoAnswer(f"nothing at `{told}`{_reached(value, path)}")
    return "\n".join(
        one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in found
    )


_JSON_WORDS: dict[type, str] = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def _reached(value: Any, path: tuple[str | int, ...]) -> str:
    """How far a path goes, and what is there."""
    deep = 0
    while deep < len(path) and any(one is not None for one in at_path(value, path[: deep + 1])):
        deep += 1
    found = [one for one in at_path(value, path[:deep]) if one is not None]
    last = found[0] if found else None
    pieces = [
        f"[{one}]" if isinstance(one, int) or one == "*" else f".{one}" for one in path[:deep]
    ]
    which = f"`{one_line(''.join(pieces).removeprefix('.'), 80)}`" if deep else "it"
    if isinstance(last, Mapping) and last:
        there = one_line(", ".join(map(str, last)), 120)
        return f"; fields of {which}: {there}" if deep else f"; its fields: {there}"
    if isinstance(last, list):
        return f": {which} is a list of {len(last)}"
    return f": {which} is {'empty' if last == {} else _JSON_WORDS.get(type(last), 'null')}"


def decoded(text: str | bytes, what: str = "what it printed") -> Any:
    """JSON.

    Raises:
        NoAnswer: there is none.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        said = one_line(text if isinstance(text, str) else text.decode(errors="replace"), 80)
        raise NoAnswer(f"{what} is no JSON: {said or 'nothing'}") from None
