"""The Mock user screen: form, commands, results."""

from pathlib import Path

import msgspec
import pytest
from textual.widgets import Input

from console.models.screen_registry import SCREENS
from console.widgets.dataset_results import ResultList
from core.events import (
    AlertRaised,
    GroupOpened,
    MockCounted,
    MockFinished,
    MockPaused,
    MockRowDone,
    MockRowSkipped,
    MockStarted,
)
from tests.support.console import (
    HOSTILE,
    NOW,
    FakeChild,
    FakeProcessManager,
    group_events,
    run_console,
    state_of,
)

PLACES = [place for place in SCREENS if place.name in ("mock", "requests")]
STARTED = MockStarted(
    mock_id="m1", dataset="rows.jsonl", target="http://x/v1", total=20, concurrency=2, at=NOW - 10
)


LAST = {"dataset": "rows.jsonl", "target": "http://x/v1", "concurrency": 2}
"""What that run was started with."""


def row(number: int, **more: object) -> MockRowDone:
    """One asked row."""
    value = {"query": f"Question {number}", "ok": True, "seconds": 1.0, "error": "", **more}
    return MockRowDone(mock_id="m1", row_id=f"r{number}", at=NOW - 10 + number, **value)  # type: ignore[arg-type]  # fields of the event


async def test_the_fields_start_a_run_and_keep_typed_letters(tmp_path: Path) -> None:
    file = tmp_path / "rows.spk"
    file.write_text('{"query": "What is red?", "answer": "a colour"}\nbroken\n')
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as here:
        await here.shows("What is the speed of light?")
        await here.press("e")
        here.app.screen.query_one("#mock-dataset", Input).value = str(file)[:-3]
        await here.pilot.press("end", *"spk")
        assert processes.commands == []
        await here.shows("What is red?")
        assert "a colour" in here.text()
        await here.press("tab", "tab", "tab", "5", "tab", *"x")
        await here.press("enter", "s")
        assert processes.commands == []
        assert "Pace s cannot be" in here.text()
        await here.press("e")
        await here.press("backspace", *"9", "escape", "s", "e")
        assert "Pace s cannot be `x`" in here.text()  # the typed text is removed
        await here.press("backspace", *"1.5", "enter", "s")
        await here.until(lambda: processes.commands)
        assert processes.commands == [
            ("mock.start", {"dataset": str(file), "concurrency": 5, "pace": 1.5})
        ]
        assert here.link.commands == []


async def test_a_start_without_fields_sends_the_shipped_questions() -> None:
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as here:
        await here.press("p", "r", "k", "s")
        assert processes.commands == [("mock.start", {})]
        assert here.link.commands == []


async def test_pause_resume_stop_only_when_they_make_sense() -> None:
    processes = FakeProcessManager()
    async with run_console(
        state_of(STARTED), places=PLACES, at="mock", processes=processes
    ) as here:
        await here.press("s", "r", "p")
        assert here.link.commands == [("mock.pause", {})]
        here.link.publish(MockPaused(mock_id="m1"))
        await here.settle()
        assert "paused" in here.text()
        await here.press("p", "r", "k")
        assert [name for name, _ in here.link.commands] == [
            "mock.pause",
            "mock.resume",
            "mock.stop",
        ]
        assert processes.commands == []


@pytest.mark.usefixtures("rows_here")
async def test_a_killed_mock_user_can_be_started_again() -> None:
    child = FakeChild("mock", url="")
    processes = FakeProcessManager({"mock": child})
    async with run_console(
        state_of(STARTED, row(1)), places=PLACES, at="mock", processes=processes
    ) as here:
        assert "running" in here.text()
        await here.press("s")
        assert processes.commands == []
        child.pid, child.phase, child.exit_code = None, "exited", -9
        here.session.touch(("children",))
        await here.settle()
        assert "✖ ended: no process" in here.text()
        assert "s Start" in here.text()
        await here.shows("1 row")
        await here.press("p", "k", "s")
        await here.until(lambda: processes.commands)
        assert here.link.commands == []
        assert processes.commands == [("mock.start", LAST)]


async def test_the_screen_shows_progress_results_and_problems() -> None:
    events = [STARTED, *(row(number) for number in range(1, 11))]
    events.append(row(11, ok=False, error="503: no candidate in time", query=HOSTILE))
    events.append(MockRowSkipped(mock_id="m1", line=7, cause="not JSON"))
    async with run_console(state_of(*events), places=PLACES, at="mock", size=(160, 48)) as here:
        shown = here.text()
        for words in ("11/20 · 55%", "10 ok", "1 failed", "1 skipped", "/min", "left", "line 7"):
            assert words in shown
        assert shown.index("✗") < shown.index("Question 10") < shown.index("Question 9")
        assert "503: no candidate" in shown
        await here.pilot.resize_terminal(80, 24)
        await here.settle()
        assert "Question 10" in here.text()
        assert "\x1b" not in here.text()
        assert "\u202e" not in here.text()
        here.link.publish(MockFinished(mock_id="m1", how="failed", cause="the proxy [/b] is gone"))
        await here.settle()
        assert "the proxy [/b] is gone" in here.text()


async def test_problems_of_another_dataset_are_not_shown(
    rows_here: None,
) -> None:
    broken = MockRowSkipped(mock_id="m1", line=7, cause="not JSON")
    async with run_console(
        state_of(STARTED, broken), places=PLACES, at="mock", size=(160, 48)
    ) as here:
        await here.shows("line 7")
        here.app.screen.query_one("#mock-dataset", Input).value = ""
        await here.shows("What is the speed of light?")
        assert "line 7" not in here.text()


async def test_a_read_only_console_starts_nothing() -> None:
    processes = FakeProcessManager()
    async with run_console(
        state_of(), places=PLACES, at="mock", processes=processes, read_only=True
    ) as here:
        await here.press("s")
        assert processes.commands == []


@pytest.fixture
def rows_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dataset of the last run is still there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"query": "a"}\n')


# --- results ------------------------------------------------------------------------------------


async def test_enter_on_a_row_opens_its_group() -> None:
    opened = GroupOpened(
        group_id="g7",
        request_id="r",
        task_id="t",
        n=2,
        query="Question 2",
        body={},
        row_id="r2",
        server="swarm",
        at=NOW,
    )
    events = [STARTED, opened, row(1), row(2), row(3, group_id="g9")]
    async with run_console(state_of(*events), places=PLACES, at="mock") as here:
        await here.press("down", "enter")
        assert type(here.app.screen).__name__ == "GroupScreen"
        assert "Question 2" in here.text()
        await here.press("escape", "down", "enter")
        assert type(here.app.screen).__name__ == "MockScreen"
        await here.shows("There is no group for this row")


async def test_the_cursor_stays_on_its_row_while_new_ones_arrive() -> None:
    events = [STARTED, *(row(number) for number in range(1, 6))]
    async with run_console(state_of(*events), places=PLACES, at="mock") as here:
        results = here.app.screen.query_one(ResultList)
        await here.press("down", "down")
        assert results.row_here is not None
        assert results.row_here.row_id == "r3"
        for number in range(6, 60):
            here.link.publish(row(number))
        await here.settle()
        assert results.row_here.row_id == "r3"
        await here.press("home")
        assert results.at == 0


async def test_the_form_is_hidden_while_a_run_is_active() -> None:
    async with run_console(state_of(STARTED, row(1)), places=PLACES, at="mock") as here:
        assert "In flight" not in here.text()
        await here.press("e")
        assert "In flight" in here.text()
        await here.press("escape")
        assert "In flight" not in here.text()


@pytest.mark.usefixtures("rows_here")
async def test_starting_over_asks_first() -> None:
    processes = FakeProcessManager()
    ended = MockFinished(mock_id="m1", how="stopped", cause="ordered")
    async with run_console(
        state_of(STARTED, row(1), ended), places=PLACES, at="mock", processes=processes
    ) as here:
        await here.shows("1 row")
        await here.press("n")
        await here.shows("Their groups and results stay")
        await here.press("n")
        assert processes.commands == []
        await here.press("n")
        await here.press("y")
        await here.until(lambda: processes.commands)
        assert processes.commands == [("mock.start", {**LAST, "restart": True})]


async def test_the_summary_shows_the_settings_of_the_run() -> None:
    started = msgspec.structs.replace(
        STARTED, rate=0.5, seed=7, passes=3, split="held-out", done=5, lost=2
    )
    counted = MockCounted(mock_id="m1", total=1_200, skipped=4)
    async with run_console(
        state_of(started, row(1), counted), places=PLACES, at="mock", size=(160, 48)
    ) as here:
        for words in (
            "arrivals 0.5/s",
            "seed 7",
            "passes 3",
            "held-out",
            "5 done before, 2 cut off",
        ):
            assert words in here.text()
        assert "6/1,200" in here.text()
        assert "4 skipped" in here.text()


async def test_a_run_stalled_by_ratings_says_so_and_names_the_key() -> None:
    held = AlertRaised(key="hold:embedded", cause="3 open ratings hold up 2 waiting users")
    waits = group_events(1, at=NOW - 20, until="CLAIMING")
    result = "! 3 open ratings hold up 2 waiting users  3 opens Rate"
    async with run_console(state_of(STARTED, *waits), size=(80, 24), at="mock") as here:
        assert "opens Rate" not in here.text()
        here.link.publish(held)
        await here.settle()
        assert result in here.text()
        here.link.publish(MockFinished(mock_id="m1", how="stopped", at=NOW))
        await here.settle()
        assert result not in here.text()
        await here.press("3")
        assert here.app.current_mode == "rate"
