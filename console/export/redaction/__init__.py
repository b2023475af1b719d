"""Removal of keys, tokens, passwords and e-mail addresses from the texts of an export.

Sources of the formats: the rules of gitleaks, detect-secrets and trufflehog, and the providers' own
descriptions. Every expression is linear in the length of the text, which may be hostile: repeats
are bounded, or begin at a boundary that occurs once in a run of characters.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from console.export.json_text import JsonText, encoded
from console.export.redaction.addresses import without_addresses
from console.export.redaction.assignments import without_assigned
from console.export.redaction.marks import mark
from console.export.redaction.names import SecretName, inherited, secret_name, without_named_value
from console.export.redaction.private_keys import without_private_keys
from console.export.redaction.tokens import without_tokens

CACHE_TEXTS = 2_000
"""Number of texts whose result is kept: system prompts and questions repeat."""
CACHE_LENGTH = 20_000
"""Maximum length of a text whose result is kept."""
_PLAIN = re.compile(r"[a-z_]{1,24}")
"""A single word, such as most keys of objects: no rule applies to it."""
_SAMPLE = "ab 1-2\n_"
"""A text with beginnings and ends of words and lines, where a pattern must not match nothing."""
_RULES = (without_private_keys, without_tokens, without_assigned, without_addresses)


class Redactor:
    """Replaces secrets by `[redacted: KIND]` and counts them.

    Args:
        patterns: Regular expressions of the operator; each match is replaced.

    Raises:
        UsageError: A pattern is no regular expression, or matches the empty text.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._own = [_compiled(pattern) for pattern in patterns]
        self._cache: OrderedDict[str, tuple[str, tuple[str, ...]]] = OrderedDict()
        self.counts: Counter[str] = Counter()
        """Number of replaced secrets by kind."""

    def value(self, value: Any, name: SecretName | None = None) -> Any:
        """Return a plain JSON value with redacted texts; the keys of objects are redacted too.

        Args:
            value: The value.
            name: The name of a secret that announces the value, such as the key `password`.

        Raises:
            RecursionError: The value is nested too deeply.
        """
        if isinstance(value, JsonText):
            return encoded(self.value(value.value, name))
        if name is not None and isinstance(value, str | int):
            kinds: list[str] = []
            value = without_named_value(value, name, kinds)
            self.counts.update(kinds)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._object(value, name)
        if isinstance(value, list | tuple):
            return [self.value(one, secret_name(value, at) or name) for at, one in enumerate(value)]
        return value

    def _object(self, value: Mapping[Any, Any], name: SecretName | None) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for key, one in value.items():
            text = unique = self.text(str(key))
            number = 1
            while unique in clean:  # two redacted keys are equal, their values are not
                number += 1
                unique = f"{text} {number}"
            clean[unique] = self.value(one, secret_name(value, key) or inherited(value, key, name))
        return clean

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if not self._own and (len(text) < 5 or _PLAIN.fullmatch(text)):
            return text
        cached = self._cache.get(text)
        if cached is None:
            cached = self._redacted(text)
            if len(text) <= CACHE_LENGTH:
                self._cache[text] = cached
                if len(self._cache) > CACHE_TEXTS:
                    self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(text)
        result, kinds = cached
        self.counts.update(kinds)
        return result

    def _redacted(self, text: str) -> tuple[str, tuple[str, ...]]:
        kinds: list[str] = []
        for pattern in self._own:
            text = pattern.sub(lambda match: _own_mark(match, kinds), text)
        for rule in _RULES:
            text = rule(text, kinds)
        return text, tuple(kinds)


def _own_mark(match: re.Match[str], kinds: list[str]) -> str:
    if not match[0]:
        return ""
    kinds.append("own pattern")
    return mark("own pattern")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"`{one_line(pattern, 60)}` is no regular expression: {error}",
            "export.patterns",
            "Correct it in the settings",
        ) from error
    if any(not match[0] for match in compiled.finditer(_SAMPLE)) or compiled.match(""):
        raise UsageError(
            f"`{one_line(pattern, 60)}` matches the empty text, so it would match everywhere",
            "export.patterns",
            "Use a pattern that needs at least one character",
        )
    return compiled
