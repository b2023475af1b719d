"""Keys that the operator changes, and pastes."""

from typing import Any, ClassVar

import pytest
from textual import events
from textual.binding import Binding
from textual.message import Message

from console.app import ConsoleApp
from console.cli.common import changed_keys
from console.models.advice import DEFAULT_KEYS
from console.models.screen_registry import SCREENS as SCREENS_ALL
from console.screens.engine.screen import EngineScreen
from console.screens.log.screen import LogScreen
from console.shell.keymap import clashes, key_problems, listing
from console.shell.terminal_driver import LIMIT, PasteParser
from core.events.alerts import params_of
from core.runtime.home import Home
from proxy.alerts import alert_raised
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.console import FakeChild, FakeProcessManager, run_console
from tests.support.sample import sample_events, sample_state, state_of

SCREENS = [EngineScreen, LogScreen]


def check(wanted: dict[str, str], screens: Any = SCREENS) -> tuple[dict[str, str], list[str]]:
    return key_problems(wanted, ConsoleApp, screens)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "usable", "words"),
    [
        ({"engine.stop": "ctrl+k", "log.copy": "c,ctrl+y"}, 2, []),
        ({"engine.start": "k", "engine.stop": "s"}, 2, []),  # they swap their keys
        ({"log.copy": "k"}, 1, []),  # another screen has this key, too
        ({"log.follow": "ctrl+e", "confirm.yes": "j"}, 2, []),
        ({"log.copy": "w", "log.level": "w"}, 1, [""]),
        (
            {"engine.stop": "s"},
            0,
            ["`engine.stop` cannot have `s`: it is the key of `engine.start`"],
        ),
        *(({"log.copy": key}, 0, [""]) for key in ("question_mark", "?", "f2", "2")),
        ({"log.copy": "ctrl+p"}, 0, ["app.palette"]),
        ({"log.follow": "s"}, 0, ["`log.follow` cannot have `s`: it is the key of `log.source`"]),
        (
            {"engine.stopp": "x", "engine.stop": "hyperspace", "log.copy": "strg+c"},
            0,
            ["Did you mean `engine.stop`", "`hyperspace` is not a key", "strg+c"],
        ),
    ],
)
def test_a_wanted_key_is_accepted_or_its_problem_is_named(
    wanted: dict[str, str], usable: int, words: list[str]
) -> None:
    accepted, problems = check(wanted)
    assert accepted.items() <= wanted.items()
    assert len(accepted) == usable
    assert len(problems) == len(words)
    assert all(word in problem for word, problem in zip(words, problems, strict=True)), problems


@pytest.mark.slow
def test_the_key_of_all_lists_has_no_name_of_one_screen() -> None:
    rows = list(listing(ConsoleApp, [place.load() for place in SCREENS_ALL], {}))
    assert "rewards.open" not in {row.action_id for row in rows}
    assert len({row.area for row in rows if row.action_id == "list.open"}) > 1


@pytest.mark.slow
def test_bindings_of_a_base_class_are_checked() -> None:
    class Child(LogScreen):
        BINDINGS: ClassVar[Any] = [Binding("g", "go", "Go", id="child.go")]

    assert check({"child.go": "y"}, [Child])[1] != []


@pytest.mark.slow
async def test_the_new_key_works_and_the_old_one_does_not() -> None:
    processes = FakeProcessManager({"engine": FakeChild("engine")})
    async with run_console(
        sample_state(), at="engine", processes=processes, keys={"engine.stop": "ctrl+k"}
    ) as console:
        await console.press("k")
        assert "Engine: Stop" not in console.text()
        await console.press("ctrl+k")
        assert "Engine: Stop" in console.text()
        await console.press("escape")


@pytest.mark.slow
def test_the_shipped_bindings_have_no_conflict() -> None:
    assert clashes(ConsoleApp, [place.load() for place in SCREENS_ALL]) == []


@pytest.mark.slow
def test_a_key_of_two_actions_is_found() -> None:
    class Child(LogScreen):
        area = "Child"
        BINDINGS: ClassVar[Any] = [Binding("end", "go", "Go", id="child.go")]

    result = clashes(ConsoleApp, [Child])
    assert result == ["Child: `end` is the key of `log.follow` and of `child.go`"]


@pytest.mark.slow
def test_every_action_that_can_be_changed_is_listed_with_its_new_key() -> None:
    screens = [place.load() for place in SCREENS_ALL]
    rows = list(listing(ConsoleApp, screens, {"engine.stop": "ctrl+k"}))
    by_id = {row.action_id: row for row in rows if row.action_id}
    assert (by_id["engine.stop"].keys, by_id["app.help"].area) == (("ctrl+k",), "Everywhere")
    assert by_id["confirm.yes"].area.startswith("Question")
    assert {"log.fold", "requests.open", "group.abort", "app.jump"} <= set(by_id)
    assert all(row.title for row in rows)


@pytest.mark.slow
def test_the_list_of_keys_is_printed(cli: Cli) -> None:
    assert not missing(cli.out("--keys"), "engine.stop", "No two actions have the same key")


@pytest.mark.slow
def test_the_list_reports_errors_of_the_settings(cli: Cli, home: Home) -> None:
    (home.root / "config.yaml").write_text("console:\n  keys:\n    engine.stop: s\n")
    assert "`engine.stop` cannot have `s`" in cli.out("--home", str(home.root), "--keys", code=1)


@pytest.mark.slow
def test_the_keys_that_advice_names_are_those_of_the_bindings() -> None:
    rows = listing(ConsoleApp, [place.load() for place in SCREENS_ALL], {})
    bound: dict[str, set[str]] = {}
    for row in rows:
        if row.action_id in DEFAULT_KEYS:
            bound.setdefault(row.action_id, set()).add(row.keys[0])
    assert bound == {name: {key} for name, key in DEFAULT_KEYS.items()}


@pytest.mark.slow
async def test_another_key_changes_the_advice_of_an_alert() -> None:
    raised = alert_raised(
        "refused:embedded", params_of("refused", server="embedded", state="OFFLINE"), level="error"
    )
    state = state_of(*sample_events()[:2], raised)
    async with run_console(state, size=(160, 48)) as console:
        assert not missing(console.text(), "5 opens Engine: `s` starts it", " 5 s")
    async with run_console(state, size=(160, 48), keys={"engine.start": "ctrl+g"}) as console:
        assert not missing(console.text(), "5 opens Engine: `Ctrl+G` starts it", " 5 Ctrl+G")
        assert " 5 s" not in console.text()


@pytest.mark.slow
def test_another_key_that_cannot_be_used_changes_no_advice(home: Home) -> None:
    file = home.root / "config.yaml"
    assert changed_keys(home) == {}
    file.write_text("console:\n  keys:\n    engine.stop: e\n    engine.start: ctrl+g\n")
    assert changed_keys(home) == {"engine.start": "ctrl+g"}
    file.write_text("console: [\n")
    assert changed_keys(home) == {}


class Line:
    """A parser with a clock of its own, and what it returned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._parser = PasteParser(clock=lambda: self.now)
        self.seen: list[str] = []

    def send(self, *pieces: str) -> None:
        for piece in pieces:
            self._note(self._parser.feed(piece))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._note(self._parser.tick())

    def _note(self, messages: object) -> None:
        assert hasattr(messages, "__iter__")
        for message in messages:
            assert isinstance(message, Message)
            if isinstance(message, events.Paste):
                self.seen.append(f"paste {message.text}")
            elif isinstance(message, events.Key):
                self.seen.append(message.key)


@pytest.mark.parametrize(
    "pieces",
    [
        ["\x1b[200~a\nb\x1b[201~x"],
        ["\x1b[200~a\n", "b\x1b[201~", "x"],
        ["\x1b[200~a\nb\x1b[20", "1~x"],
        [*"\x1b[200~", "a", "\n", "b", *"\x1b[201~", "x"],
    ],
)
def test_a_paste_and_the_key_after_it(pieces: list[str]) -> None:
    line = Line()
    line.send(*pieces)
    assert line.seen == ["paste a\nb", "x"]


def test_a_paste_that_comes_character_by_character_ends_after_the_limit() -> None:
    line = Line()
    line.send("1", *"\x1b[200~abc\x1b[2")
    line.wait(LIMIT)
    line.send(*"01~", "2", *"\x1b[A")
    assert line.seen == ["1", "paste abc", "2", "up"]


def test_the_end_of_a_paste_may_come_late() -> None:
    line = Line()
    line.send("\x1b[200~abc\x1b[20")
    line.wait(LIMIT / 2)
    assert line.seen == []
    line.send("1~", "2")
    assert line.seen == ["paste abc", "2"]


@pytest.mark.parametrize("late", ["1~2", "2"])
def test_a_paste_without_an_end_ends_after_the_limit(late: str) -> None:
    line = Line()
    line.send("\x1b[200~abc\x1b[20")
    line.wait(LIMIT)
    assert line.seen == ["paste abc"]
    line.send(late)  # the rest of the mark, if it comes at all, is no key
    assert line.seen == ["paste abc", "2"]


def test_keys_do_not_keep_a_paste_open() -> None:
    line = Line()
    line.send("\x1b[200~abc")
    for _ in range(4):
        line.wait(LIMIT / 4 - 0.01)
        line.send("q")
    line.wait(0.04)
    assert line.seen == ["paste abcqqqq"]
    line.send("\x11")
    assert line.seen[1:] == ["ctrl+q"]


def test_two_pastes_in_one_read() -> None:
    line = Line()
    line.send("1\x1b[200~a\x00\x1b[201~2\x1b[200~b\x1b[201~")
    assert line.seen == ["1", "paste a", "2", "paste b"]
