"""History: a line for each run, marks, the comparison, names and pins, the way to the past."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from console.screens.history.model import PastError, past_command
from console.screens.history.screen import CompareRunsScreen
from core.events import EngineChanged, RunNamed, RunNoted
from core.journal.writer import Journal
from core.state import State
from tests.support.console import RunningConsole, run_console, stamp, state_of
from tests.support.runs import run_events
from tests.support.sample import HOSTILE

SIZES = [(80, 24), pytest.param((160, 48), marks=pytest.mark.slow)]


def three_runs() -> State:
    """Two runs that ended, with other jobs and rewards, and one in progress."""
    state = state_of(
        *run_events(1, verdict=True),
        *run_events(2, rate=1e-4, weight=0.5, gain=0.1),
        *run_events(3, ends=False),
        RunNamed(first_seq=4, name=f"first {HOSTILE}"),
        RunNoted(first_seq=4, note=HOSTILE),
    )
    state.proxy_up = True
    return state


@pytest.mark.parametrize("size", SIZES)
async def test_runs_are_listed_newest_first_and_one_is_shown_in_full(size: tuple[int, int]) -> None:
    async with run_console(three_runs(), at="history", size=size) as console:
        rows = console.text().splitlines()
        lines = [row.split() for row in rows if "1-4" in row]
        assert [line[0] for line in lines[:3]] == ["3", "2", "1"]
        assert "Run 3" in console.text()
        await console.press("end")
        assert "Run 1 first [/b][red]" in console.text()
        assert "better by" in console.text()
        assert "learning rate 0.0005" in console.text()
        assert "\x1b" not in console.text()


async def test_curves_of_ended_runs_are_read_when_the_screen_opens() -> None:
    async with run_console(three_runs(), at="overview") as console:
        assert console.session.unread_curves.waiting == 2
        assert console.link.curve_pages == []
        await console.press("f10")
        await console.until(lambda: not console.session.unread_curves.waiting)
        assert console.link.curve_pages == [2]
        assert console.session.state.engine_runs == console.link.state.engine_runs


@pytest.mark.parametrize("size", SIZES)
async def test_two_marked_runs_are_compared(size: tuple[int, int]) -> None:
    async with run_console(three_runs(), at="history", size=size) as console:
        await console.press("c")
        assert "Mark a run" in notices(console)
        await console.press("down", "space", "down", "c")
        assert isinstance(console.app.screen, CompareRunsScreen)
        text = console.text()
        assert "━━ run 1" in text
        assert "┅┅ run 2" in text
        await console.press("pagedown", "pagedown")
        assert "Learning rate" in console.text()
        await console.press("x")
        assert "━━ run 2" in console.text()
        await console.press("escape")
        assert "✓" in console.text()


async def test_name_note_and_pin_are_sent_for_the_run_under_the_cursor() -> None:
    async with run_console(three_runs(), at="history") as console:
        await console.press("down", "r", *"fast", "enter")
        await console.press("n", *"why", "enter")
        await console.press("p")
        assert console.link.commands == [
            ("run.name", {"number": 2, "name": "fast"}),
            ("run.note", {"number": 2, "note": "why"}),
            ("run.pin", {"number": 2, "pinned": True}),
        ]


async def test_a_read_only_console_offers_no_changes() -> None:
    async with run_console(three_runs(), at="history", read_only=True) as console:
        await console.press("p", "r")
        assert console.link.commands == []
        last = console.text().splitlines()[-1]
        assert "Compare" in last
        assert "Pin" not in last


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State(), "5 opens the engines"),
        (state_of(EngineChanged(server="up", state="OBSERVING")), "observe mode"),
    ],
)
async def test_an_empty_history_says_what_to_do(state: State, words: str) -> None:
    async with run_console(state, at="history") as console:
        assert words in " ".join(console.text().split())
        await console.press("c", "enter", "space")


async def test_enter_opens_a_replay_of_the_run_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path)
    journal.append(stamp(EngineChanged(server="embedded", state="ROLLING", step=1), 1))
    await asyncio.to_thread(journal.close)
    commands: list[list[str]] = []
    said: list[str] = []

    async def run_program(app: Any, command: list[str], notice: str) -> int:
        commands.append(command)
        said.append(notice)
        return len(commands) - 1

    monkeypatch.setattr("console.screens.history.screen.run_program", run_program)
    async with run_console(three_runs(), at="history") as console:
        await console.press("enter")
        await console.until(lambda: "is in the home of the proxy" in notices(console))
        console.session.journal = path
        await console.press("end", "enter")
        await console.until(lambda: commands)
        assert commands[0][3:6] == ["journal", "replay", str(path)]
        place = commands[0].index("--history")
        assert commands[0][place + 1] == "1"
        run = console.session.state.engine_runs.runs[0]
        span = commands[0][commands[0].index("--span") + 1]
        assert span == f"{run.first_seq}-{run.last_seq - 1}"
        await console.press("enter")
        await console.until(lambda: "ended with 1" in notices(console))
        run.ended = None
        await console.press("enter")
        await console.until(lambda: len(said) == 3)
        assert [one.partition(".")[0] for one in said] == [
            "Run 1 opens as of its end",
            "Run 1 opens as of its end",
            "Run 1 opens as of now",
        ]


def test_a_run_that_was_pruned_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    run = three_runs().engine_runs.runs[0]
    assert past_command(path, run, "overview", "dark")[-2:] == ["--theme", "dark"]

    class Pruned:
        seq = run.last_seq

    monkeypatch.setattr("core.journal.read_only.JournalFile.base", lambda _: Pruned)
    with pytest.raises(PastError, match="were pruned"):
        past_command(path, run, "overview", "dark")


def notices(console: RunningConsole) -> str:
    """The messages of a console."""
    return " ".join(console.messages)
