"""Removal of keys, tokens, passwords, e-mail addresses and telephone numbers from an export.

What a secret is says `ajet_swarm.common.secrets`; here are values with keys, and own patterns.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.secrets import mark, secret_kind, without_secrets
from ajet_swarm.common.text import one_line
from console.export.json_text import JsonText, encoded

CACHE_TEXTS = 2_000
"""Number of texts whose result is kept: system prompts and questions repeat."""
CACHE_LENGTH = 20_000
"""Maximum length of a text whose result is kept."""
_PLAIN = re.compile(r"[a-z_]{1,24}")
"""A single word, such as most keys of objects: no rule applies to it."""
_SAMPLE = "ab 1-2\n_"
"""A text with beginnings and ends of words and lines, where a pattern must not match nothing."""
_NAME_FIELDS = ("name", "key", "variable", "header")
_VALUE_FIELDS = frozenset({"value", "values", "default", "example"})


class Redactor:
    """Replaces secrets by `[redacted: KIND]` and counts them.

    Args:
        patterns: Regular expressions of the operator; each match is replaced.

    Raises:
        UsageError: A pattern is no regular expression, or matches the empty text.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._own = [_compiled(pattern) for pattern in patterns]
        self._cached = lru_cache(CACHE_TEXTS)(self._redacted)
        self.counts: Counter[str] = Counter()
        """Number of replaced secrets by kind."""

    def value(self, value: Any, kind: str = "") -> Any:
        """Return a plain JSON value with redacted texts; the keys of objects are redacted too.

        Args:
            value: The value.
            kind: Kind of the secret that a key announces, such as `password`.

        Raises:
            RecursionError: The value is nested too deeply.
        """
        if isinstance(value, JsonText):
            return encoded(self.value(value.value, kind))
        if isinstance(value, Mapping):
            return self._object(value, kind)
        if isinstance(value, list | tuple):
            return self._list(value, kind)
        if kind and isinstance(value, str | int | float) and value != "" and value not in (0, 1):
            self.counts[kind] += 1
            return mark(kind)
        return self.text(value) if isinstance(value, str) else value

    def _object(self, value: Mapping[Any, Any], kind: str) -> dict[str, Any]:
        """Redact an object; the description of a type keeps all but its example values."""
        describes_type = isinstance(value.get("type"), str)
        named = ""
        if "role" not in value:  # `name` of a message is a tool
            named = next(filter(None, (secret_kind(value.get(at)) for at in _NAME_FIELDS)), "")
        clean: dict[str, Any] = {}
        for key, item in value.items():
            text = unique = self.text(str(key))
            while unique in clean:  # two redacted keys are equal, their values are not
                unique = f"{text} {len(clean) + 1}"
            announced = secret_kind(key)
            if key in _VALUE_FIELDS:
                announced = announced or named or kind
            elif not describes_type:
                announced = announced or kind
            clean[unique] = self.value(item, announced)
        return clean

    def _list(self, value: Sequence[Any], kind: str) -> list[Any]:
        """Redact a list; a flag such as `--token` and the first item of a pair are names too."""
        clean: list[Any] = []
        flag = ""
        for item in value:
            is_pair = isinstance(item, list | tuple) and len(item) == 2
            if is_pair and (pair := secret_kind(item[0])):
                clean.append([item[0], self.value(item[1], pair)])
            else:
                clean.append(self.value(item, kind or flag))
            is_flag = isinstance(item, str) and item.startswith("-")
            flag = secret_kind(item) if is_flag else ""
        return clean

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if not self._own and (len(text) < 5 or _PLAIN.fullmatch(text)):
            return text
        redacted = self._cached if len(text) <= CACHE_LENGTH else self._redacted
        result, kinds = redacted(text)
        self.counts.update(kinds)
        return result

    def _redacted(self, text: str) -> tuple[str, tuple[str, ...]]:
        own = 0
        for pattern in self._own:
            text, count = pattern.subn(mark("own pattern"), text)
            own += count
        text, kinds = without_secrets(text)
        return text, (*kinds, *["own pattern"] * own)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
        empty = compiled.match("") or any(not match[0] for match in compiled.finditer(_SAMPLE))
        wrong = "it matches the empty text, so it would match everywhere" if empty else ""
    except re.error as error:
        wrong = str(error)
    if wrong:
        what = f"`{one_line(pattern, 60)}` is no usable regular expression: {wrong}"
        raise UsageError(what, "export.patterns", "Correct it in the settings")
    return compiled
