"""Style sheets, the same for every test, are parsed once; a pause ends when all is done."""

from collections.abc import Generator, Iterable
from typing import Any

import pytest
import textual._callback
import textual.app
import textual.css.tokenize
import textual.pilot
from rich.segment import Segment
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.pilot import Pilot
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from tests.support.console import PAINT
from tests.support.quiet import quiet

_parse = Stylesheet._parse_rules
_parse_all = Stylesheet.parse
_apply = Stylesheet.apply
_tokenize = textual.css.tokenize.tokenize_values
_parsed: dict[Any, Any] = {}
_sheets: dict[Any, Any] = {}
_tokens: dict[Any, Any] = {}
_rules: dict[Any, tuple[Any, ...]] = {}
_parent: list[Any] = [None, ()]
"""The node whose parts are styled, and its path."""
_FLAGS = ("_has_hover_style", "_has_focus_within", "_has_order_style", "_has_odd_or_even")


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


def _apply_once(
    self: Stylesheet, node: DOMNode, *, animate: bool = False, cache: Any = None
) -> None:
    """Match the selectors once for all nodes that are equal to them, with their ancestors.

    Textual does so for the nodes of one update, and never for the parts of a widget.
    """
    path = _path(node, {} if cache is None else cache)
    key, base = (id(self.rules), path), node.styles.base
    _parent[:] = node, path
    if key not in _rules:
        result: dict[Any, Any] = {}
        _apply(self, node, animate=animate, cache=result)
        for rules in result.values():  # Textual stores none that depends on the order of the nodes
            if "transitions" not in rules:
                flags = [getattr(node, flag) for flag in _FLAGS]
                _rules[key] = rules, dict(base._rules), _comparable(base._rules), flags
        return
    rules, applied, comparable, flags = _rules[key]
    for flag, value in zip(_FLAGS, flags, strict=True):
        setattr(node, flag, value)
    if type(node) is DOMNode and not base._rules:  # a part of a widget: setting has no effects
        base.merge_rules(applied)
    elif _comparable(base._rules) == comparable:
        node.notify_style_update()
    else:
        self.replace_rules(node, rules)
    self._process_component_classes(node)


def _comparable(rules: Any) -> dict[str, Any]:
    return {**rules, "layout": type(rules.get("layout"))}  # each node has a layout of its own


def _path(node: DOMNode, paths: dict[Any, Any]) -> tuple[object, ...]:
    """All that selectors read of a node and its ancestors."""
    if node not in paths:
        above, before = node._parent, ()
        if type(node) is DOMNode and above is _parent[0]:
            before = _parent[1]
        elif isinstance(above, DOMNode):
            before = _path(above, paths)
        state: object = ()
        if isinstance(node, Widget):
            state = node.disabled, node.mouse_hover, node.has_focus, node.allow_focus()
        elif isinstance(node, App):
            state = frozenset(node.get_pseudo_classes())
        paths[node] = *before, (type(node), node.id, node.classes, state)
    return paths[node]


_CACHES = frozenset(
    f"_{name}_cache"
    for name in ("divide", "crop", "style", "filter", "line_length", "crop_extend", "offsets")
)


def _strip(self: Strip, segments: Iterable[Segment], cell_length: int | None = None) -> None:
    self._segments = list(segments)
    self._cell_length = cell_length
    self._render_cache = self._link_ids = self._cell_count = None


def _strip_cache(self: Strip, name: str) -> dict[Any, Any]:
    """Make a cache of a strip when it is first used: Textual makes all seven for each strip."""
    if name not in _CACHES:
        raise AttributeError(name)
    cache: dict[Any, Any] = {}
    setattr(self, name, cache)
    return cache


_count = textual._callback._count_parameters
_counts: dict[Any, int] = {}


def _count_once(func: Any) -> int:
    """Count the parameters of a function once; Textual does so for each callback."""
    code = getattr(func, "__code__", None)
    if code is None or hasattr(func, "__wrapped__"):
        return _count(func)
    key = code, hasattr(func, "__self__")
    if key not in _counts:
        _counts[key] = _count(func)
    return _counts[key]


@pytest.fixture(autouse=True)
def _parsed_style_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textual._callback, "_count_parameters", _count_once)
    monkeypatch.setattr(Stylesheet, "_parse_rules", _parse_once)
    monkeypatch.setattr(Stylesheet, "parse", _parse_all_once)
    monkeypatch.setattr(Stylesheet, "apply", _apply_once)
    monkeypatch.setattr("textual.css.stylesheet.tokenize_values", _tokenize_once)
    # The same number, without a call into Python for each of a million look-ups.
    monkeypatch.setattr(RuleSet, "__hash__", object.__hash__)
    # Each painted line has seven small caches and uses two; a test paints thousands of lines.
    monkeypatch.setattr(Strip, "__init__", _strip)
    monkeypatch.setattr(Strip, "__getattr__", _strip_cache, raising=False)


def _paint_at_rest(self: Screen[object]) -> None:
    """Leave the painting to `rest`, which does it once for all changes before it.

    Painting each frame is a third of the CPU time of these tests.
    """
    if self is not self.app.screen:
        PAINT(self)
    else:
        self._dirty_widgets.clear()
        self.app._update_mouse_over(self)


@pytest.fixture(autouse=True)
def _painting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Screen, "_compositor_refresh", _paint_at_rest)


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
    """Lone surrogates in the log cannot be sent from worker to worker."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
