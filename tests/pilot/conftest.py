"""Style sheets, which are the same for every test, are parsed once; reports hold sane text."""

from collections.abc import Generator
from typing import Any

import pytest
from textual.css.stylesheet import Stylesheet

_parse = Stylesheet._parse_rules
_parsed: dict[Any, Any] = {}


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


@pytest.fixture(autouse=True)
def _parsed_style_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_once)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Lone surrogates in what was logged could not be handed from worker to worker."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
