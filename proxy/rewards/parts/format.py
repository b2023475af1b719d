"""Checks whether an answer has a required form."""

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import yaml

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting, SettingError, read_text
from proxy.rewards.parts.patterns import Pattern, bounded, pattern
from proxy.rewards.parts.schema import Schema

_FENCED = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)
MAX_LENGTH = 1 << 20
"""Maximum length of an answer that is read as JSON, in characters."""


class Format:
    """Share of the rules that an answer meets; with `all` 1 when it meets them all, else 0."""

    def __init__(self, rules: list[Callable[[str], str]], require_all: bool) -> None:
        self._rules = rules
        self._all = require_all
        self.files: tuple[Path, ...] = ()
        self.searches = False
        """Whether regular expressions are among the rules."""

    def of(self, text: str) -> PartValue:
        """Return the value of one text."""
        faults = [fault for rule in self._rules if (fault := rule(text))]
        if not faults:
            return PartValue(1.0, "as wanted")
        value = 0.0 if self._all else 1.0 - len(faults) / len(self._rules)
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        return PartValue(value, faults[0] + more)

    def score(self, group: PartInput) -> list[PartValue | None]:
        """Return one value for each answer; None for one that only calls tools."""
        with bounded() if self.searches else nullcontext():
            return [
                self.of(reading.text) if reading.text or not reading.tool_calls else None
                for reading in group.readings
            ]


def make(name: str, settings: Mapping[str, Any], where: Path) -> Format:
    """Return the part.

    Raises:
        SettingError: there is no rule, or an expression or schema is invalid.
    """
    flags = 0 if settings["case"] else re.IGNORECASE
    rules: list[Callable[[str], str]] = []
    for text in settings["match"]:
        rules.append(_matches(pattern(text, "match", flags | re.MULTILINE), True))
    for text in settings["not_match"]:
        rules.append(_matches(pattern(text, "not_match", flags | re.MULTILINE), False))
    rules += [_holds(text, True, settings["case"]) for text in settings["must"]]
    rules += [_holds(text, False, settings["case"]) for text in settings["must_not"]]
    files: tuple[Path, ...] = ()
    schema: Any = settings["schema"]
    if settings["schema_file"] is not None:
        if schema is not None:
            raise SettingError("schema_file", "`schema` and `schema_file` exclude each other")
        files = (settings["schema_file"],)
        text = read_text("schema_file", files[0])
        try:
            schema = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise SettingError(
                "schema_file", f"{files[0]} is not JSON", str(error)[:200]
            ) from error
    if schema is not None:
        rules.append(_json(Schema(schema, "schema_file" if files else "schema").fault_of))
    elif settings["json"]:
        rules.append(_json(lambda value: ""))
    if not rules:
        raise SettingError(
            "", f"`{name}` has no rule", "Give match, not_match, must, must_not, json or schema"
        )
    part = Format(rules, settings["all"])
    part.files = files
    part.searches = bool(settings["match"] or settings["not_match"] or schema is not None)
    return part


def _matches(expected: Pattern, required: bool) -> Callable[[str], str]:
    fault = f"{'nothing fits' if required else 'something fits'} {expected.text[:40]!r}"
    return lambda text: "" if expected.matches(text) is required else fault


def _holds(phrase: str, required: bool, case: bool) -> Callable[[str], str]:
    fault = f"{'no' if required else 'says'} {phrase[:40]!r}"
    if case:
        return lambda text: "" if (phrase in text) is required else fault
    lower = phrase.lower()
    return lambda text: "" if (lower in text.lower()) is required else fault


def _json(check: Callable[[Any], str]) -> Callable[[str], str]:
    def rule(text: str) -> str:
        bare = text.strip()
        if len(bare) > MAX_LENGTH:
            return "too long to be read as JSON"
        if fenced := _FENCED.match(bare):
            bare = fenced.group(1)
        try:
            value = msgspec.json.decode(bare)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return "no JSON"
        try:
            return check(value)[:120]
        except RecursionError:
            return "JSON too deep to be checked"

    return rule


FORMAT = PartKind(
    make,
    "Share of the rules that the text satisfies: expressions, words, JSON, a JSON schema",
    {
        "match": Setting("texts", (), "regular expressions that must all match"),
        "not_match": Setting("texts", (), "regular expressions that must not match"),
        "must": Setting("texts", (), "texts that it must contain"),
        "must_not": Setting("texts", (), "texts that it must not contain"),
        "json": Setting("flag", False, "it must be JSON, optionally in a code fence"),
        "schema": Setting("mapping", None, "JSON schema that it must satisfy"),
        "schema_file": Setting("file", None, "file with this schema"),
        "case": Setting("flag", False, "distinguish upper and lower case"),
        "all": Setting("flag", False, "0 if any rule is broken"),
    },
)
