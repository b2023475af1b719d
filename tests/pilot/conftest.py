"""Style sheets, the same for every test, are parsed once; a pause ends when all is done."""

from collections.abc import Generator
from typing import Any

import pytest
import textual.app
import textual.css.tokenize
import textual.pilot
import textual.strip
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from tests.support.quiet import quiet

_parse = Stylesheet._parse_rules
_parse_all = Stylesheet.parse
_tokenize = textual.css.tokenize.tokenize_values
_parsed: dict[Any, Any] = {}
_sheets: dict[Any, Any] = {}
_tokens: dict[Any, Any] = {}


def _parse_once(
    self: Stylesheet,
    css: str,
    read_from: Any,
    is_default_rules: bool = False,
    tie_breaker: int = 0,
    scope: str = "",
) -> Any:
    key = (css, read_from, is_default_rules, tie_breaker, scope)
    theme = frozenset(self._variables.items())
    if (key, theme) not in _parsed:
        _parsed[key, theme] = _parse(self, css, read_from, is_default_rules, tie_breaker, scope)
    return _parsed[key, theme]


def _parse_all_once(self: Stylesheet) -> None:
    key = frozenset(self._variables.items()), tuple(self.source.items())
    if key not in _sheets:
        _parse_all(self)
        _sheets[key] = self._rules, self.rules_map
    self._rules, self._rules_map = _sheets[key]
    self._require_parse = False


def _tokenize_once(values: dict[str, str]) -> Any:
    key = frozenset(values.items())
    if key not in _tokens:
        _tokens[key] = _tokenize(values)
    return _tokens[key]


def _unlimited_cache(_: int) -> dict[Any, Any]:
    return {}


@pytest.fixture(autouse=True)
def _parsed_style_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_once)
    monkeypatch.setattr(Stylesheet, "parse", _parse_all_once)
    monkeypatch.setattr("textual.css.stylesheet.tokenize_values", _tokenize_once)
    # The same number, without a call into Python for each of a million look-ups.
    monkeypatch.setattr(RuleSet, "__hash__", object.__hash__)
    # Each painted line has seven small caches, and a test paints thousands of lines.
    monkeypatch.setattr(textual.strip, "FIFOCache", _unlimited_cache)


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textual.app, "wait_for_idle", quiet)
    monkeypatch.setattr(textual.pilot, "wait_for_idle", quiet)
    monkeypatch.setattr(textual.pilot.Pilot, "_wait_for_screen", _wait_until_quiet)


async def _wait_until_quiet(_: Pilot[object], timeout: float = 30.0) -> bool:
    """Wait until no message is left to process.

    Textual's own sends a message to every widget of the screen and waits for all of them, several
    times for each key: a third of the CPU time of these tests.
    """
    await quiet()
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Lone surrogates in what was logged could not be handed from worker to worker."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
