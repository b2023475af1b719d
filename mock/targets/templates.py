"""Templates with `{query}` and similar placeholders."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

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


def texts_in(template: Any) -> Iterator[str]:
    """Yield all texts in a text, list or mapping."""
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        yield from texts_in([*template.keys(), *template.values()])
    elif isinstance(template, list | tuple):
        for item in template:
            yield from texts_in(item)


def placeholders(template: Any) -> set[str]:
    """Return all placeholders in a text, list or mapping."""
    names = {name for text in texts_in(template) for name in _PLACEHOLDER.findall(text)}
    return set(filter(_is_placeholder, names))


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
