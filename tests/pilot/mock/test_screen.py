"""The Mock user screen: form, commands, results."""

from pathlib import Path

import msgspec
import pytest
from textual.widgets import Input

from console.models.available_commands import available_commands
from console.models.screen_registry import SCREENS
from console.screens.run_command import run_available
from console.widgets.item_list import ItemList
from core.events import (
    AlertRaised,
    GroupOpened,
    GroupRated,
    MockCounted,
    MockFinished,
    MockPaused,
    MockRetried,
    MockRowDone,
    MockRowSkipped,
    MockStarted,
    RatingAwaited,
    TrainingPaused,
    TrainingResumed,
)
from tests.support.console import (
    HOSTILE,
    NOW,
    FakeChild,
    FakeProcessManager,
    group_events,
    run_console,
    sample_events,
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
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as console:
        await console.shows("What is the speed of light?")
        await console.press("e")
        console.app.screen.query_one("#mock-dataset", Input).value = str(file)[:-3]
        await console.pilot.press("end", *"spk")
        assert processes.commands == []
        await console.shows("What is red?")
        assert "a colour" in console.text()
        await console.press("tab", "tab", "tab", "5", "tab", *"x")
        await console.press("enter", "s")
        assert processes.commands == []
        assert "Pace s cannot be" in console.text()
        await console.press("e")
        await console.press("backspace", *"9", "escape", "s", "e")
        assert "Pace s cannot be `x`" in console.text()  # the typed text is removed
        await console.press("backspace", *"1.5", "enter", "s")
        await console.until(lambda: processes.commands)
        assert processes.commands == [
            ("mock.start", {"dataset": str(file), "concurrency": 5, "pace": 1.5})
        ]
        assert console.link.commands == []


async def test_a_start_without_fields_sends_the_shipped_questions() -> None:
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as console:
        await console.press("p", "r", "k", "s")
        assert processes.commands == [("mock.start", {})]
        assert console.link.commands == []


async def test_a_start_while_training_is_paused_asks_first() -> None:
    processes = FakeProcessManager()
    async with run_console(
        state_of(*sample_events()[:2]), places=PLACES, at="mock", processes=processes
    ) as console:
        for cause, shown in (
            ("paused by the operator", " by the operator"),
            ("step 9 is worse by 0.12", ": step 9 is worse by 0.12"),
        ):
            console.link.publish(TrainingPaused(server="embedded", cause=cause))
            await console.settle()
            words = f"raining on embedded is paused{shown}"
            text = " ".join(console.text().split())
            assert f"T{words}: nothing is trained. 8 then r resumes" in text
            await console.press("s")
            await console.shows("Start without training?")
            await console.press("escape")
            assert processes.commands == []
            await console.press("s")
            await console.shows("Start without training?")
            await console.press("y")
            await console.until(lambda: processes.commands)
            assert processes.commands == [("mock.start", {"override": True})]
            processes.commands.clear()
            console.link.publish(TrainingResumed(server="embedded"))
            await console.settle()
            assert words not in console.text()
            await console.press("s")
            await console.until(lambda: processes.commands)
            processes.commands.clear()


async def test_the_palette_asks_too_while_training_is_paused() -> None:
    processes = FakeProcessManager()
    events = [
        *sample_events()[:2],
        TrainingPaused(server="embedded", cause="paused by the operator"),
    ]
    async with run_console(state_of(*events), places=PLACES, processes=processes) as console:
        offers = available_commands(console.session, None, None)
        run_available(console.app, next(offer for offer in offers if offer.command == "mock.start"))
        await console.shows("Start without training?")
        assert processes.commands == []
        await console.press("y")
        await console.until(lambda: processes.commands)
        assert processes.commands == [("mock.start", {"override": True})]


async def test_pause_resume_stop_only_when_they_make_sense() -> None:
    processes = FakeProcessManager()
    async with run_console(
        state_of(STARTED), places=PLACES, at="mock", processes=processes
    ) as console:
        await console.press("s", "r", "p")
        assert console.link.commands == [("mock.pause", {})]
        console.link.publish(MockPaused(mock_id="m1"))
        await console.settle()
        assert "paused" in console.text()
        await console.press("p", "r", "k")
        assert "Stop the mock user?" in console.text()
        await console.press("y")
        assert [name for name, _ in console.link.commands] == [
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
    ) as console:
        assert "running" in console.text()
        await console.press("s")
        assert processes.commands == []
        child.pid, child.phase, child.exit_code = None, "exited", -9
        console.session.touch(("children",))
        await console.settle()
        assert "✖ ended: no process" in console.text()
        assert "s Start" in console.text()
        await console.shows("1 row")
        await console.press("p", "k", "s")
        await console.until(lambda: processes.commands)
        assert console.link.commands == []
        assert processes.commands == [("mock.start", LAST)]


async def test_the_screen_shows_progress_results_and_problems() -> None:
    events = [STARTED, *(row(number) for number in range(1, 11))]
    events.append(row(11, ok=False, error="503: no candidate in time", query=HOSTILE))
    events.append(MockRowSkipped(mock_id="m1", line=7, cause="not JSON"))
    async with run_console(state_of(*events), places=PLACES, at="mock", size=(160, 48)) as console:
        shown = console.text()
        for words in ("11/20 · 55%", "10 ok", "1 failed", "1 skipped", "/min", "left", "line 7"):
            assert words in shown
        assert shown.index("✗") < shown.index("Question 10") < shown.index("Question 9")
        assert "503: no candidate" in shown
        await console.pilot.resize_terminal(80, 24)
        await console.settle()
        assert "Question 10" in console.text()
        assert "\x1b" not in console.text()
        assert "\u202e" not in console.text()
        console.link.publish(
            MockFinished(mock_id="m1", how="failed", cause="the proxy [/b] is gone")
        )
        await console.settle()
        assert "the proxy [/b] is gone" in console.text()


async def test_problems_of_another_dataset_are_not_shown(
    rows_here: None,
) -> None:
    broken = MockRowSkipped(mock_id="m1", line=7, cause="not JSON")
    async with run_console(
        state_of(STARTED, broken), places=PLACES, at="mock", size=(160, 48)
    ) as console:
        await console.shows("line 7")
        console.app.screen.query_one("#mock-dataset", Input).value = ""
        await console.shows("What is the speed of light?")
        assert "line 7" not in console.text()


async def test_a_read_only_console_starts_nothing() -> None:
    processes = FakeProcessManager()
    async with run_console(
        state_of(), places=PLACES, at="mock", processes=processes, read_only=True
    ) as console:
        await console.press("s")
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
    async with run_console(state_of(*events), places=PLACES, at="mock") as console:
        await console.press("down", "enter")
        assert type(console.app.screen).__name__ == "GroupScreen"
        assert "Question 2" in console.text()
        await console.press("escape", "down", "enter")
        assert type(console.app.screen).__name__ == "MockScreen"
        await console.shows("There is no group for this row")


async def test_the_cursor_stays_on_its_row_while_new_ones_arrive() -> None:
    events = [STARTED, *(row(number) for number in range(1, 6))]
    async with run_console(state_of(*events), places=PLACES, at="mock") as console:
        results = console.app.screen.query_one("#mock-results", ItemList)
        await console.press("down", "down")
        assert results.cursor.startswith("r3 ")
        for number in range(6, 60):
            console.link.publish(row(number))
        await console.settle()
        assert results.cursor.startswith("r3 ")
        await console.press("home")
        assert results.place == 0


async def test_the_form_is_hidden_while_a_run_is_active() -> None:
    async with run_console(state_of(STARTED, row(1)), places=PLACES, at="mock") as console:
        assert "In flight" not in console.text()
        await console.press("e")
        assert "In flight" in console.text()
        await console.press("escape")
        assert "In flight" not in console.text()


@pytest.mark.usefixtures("rows_here")
async def test_starting_over_asks_first() -> None:
    processes = FakeProcessManager()
    ended = MockFinished(mock_id="m1", how="stopped", cause="ordered")
    async with run_console(
        state_of(STARTED, row(1), ended), places=PLACES, at="mock", processes=processes
    ) as console:
        await console.shows("1 row")
        await console.press("n")
        await console.shows("Their groups and results stay")
        await console.press("n")
        assert processes.commands == []
        await console.press("n")
        await console.press("y")
        await console.until(lambda: processes.commands)
        assert processes.commands == [("mock.start", {**LAST, "restart": True})]


async def test_the_summary_shows_the_settings_of_the_run() -> None:
    started = msgspec.structs.replace(
        STARTED, rate=0.5, seed=7, passes=3, split="held-out", done=5, lost=2
    )
    counted = MockCounted(mock_id="m1", total=1_200, skipped=4)
    async with run_console(
        state_of(started, row(1), counted), places=PLACES, at="mock", size=(160, 48)
    ) as console:
        for words in (
            "arrivals 0.5/s",
            "seed 7",
            "passes 3",
            "held-out",
            "5 done before, 2 cut off",
        ):
            assert words in console.text()
        assert "6/1,200" in console.text()
        assert "4 skipped" in console.text()


async def test_retries_and_their_cause_are_shown_until_the_next_answer() -> None:
    async with run_console(state_of(STARTED), size=(80, 24), at="mock") as console:
        assert "retr" not in console.text()
        cause = "the target answers 503: aborted by the operator"
        console.link.publish(MockRetried(mock_id="m1", retries=2, waiting=cause))
        await console.settle()
        assert "0 failed  2 retries" in console.text()
        assert f"! {cause}" in console.text()
        console.link.publish(row(1))
        await console.settle()
        assert "0 failed  2 retries" in console.text()
        assert cause not in console.text()


async def test_a_vote_ends_the_text_about_what_waits_at_once() -> None:
    asked = group_events(1, at=NOW - 20, until="SCORING")[:-1]
    awaited = RatingAwaited(
        group_id="g0001", until=NOW + 60, fallback="accept", why="hold", at=NOW - 15
    )
    words = "! 1 request waits for your rating  3 opens Rate"
    async with run_console(state_of(STARTED, *asked, awaited), size=(80, 24), at="mock") as console:
        assert words in console.text()
        console.link.publish(GroupRated(group_id="g0001", rating="tie", rewards=(0.5,) * 4))
        await console.settle()
        assert "waits for your rating" not in console.text()


async def test_a_run_stalled_by_ratings_says_so_and_names_the_key() -> None:
    held = AlertRaised(key="hold:embedded", cause="3 open ratings hold up 2 waiting users")
    waits = group_events(1, at=NOW - 20, until="CLAIMING")
    result = "! 3 open ratings hold up 2 waiting users  3 opens Rate"
    async with run_console(state_of(STARTED, *waits), size=(80, 24), at="mock") as console:
        assert "opens Rate" not in console.text()
        console.link.publish(held)
        await console.settle()
        assert result in console.text()
        console.link.publish(MockFinished(mock_id="m1", how="stopped", at=NOW))
        await console.settle()
        assert result not in console.text()
        await console.press("3")
        assert console.app.current_mode == "rate"
