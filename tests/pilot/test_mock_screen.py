"""The mock user on a screen: its form, its orders, its results."""

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Input

from console.places import SCREENS
from console.widgets.mock_form import FieldError, read_fields
from core.events import MockFinished, MockPaused, MockRowDone, MockRowSkipped, MockStarted
from tests.support.console import HOSTILE, NOW, FakeBoss, FakeChild, Seat, seat, state_of

PLACES = [place for place in SCREENS if place.name in ("mock", "requests")]
STARTED = MockStarted(
    mock_id="m1", dataset="rows.jsonl", target="http://x/v1", total=20, concurrency=2, at=NOW - 10
)


def row(number: int, **more: object) -> MockRowDone:
    """One asked row."""
    given = {"query": f"Question {number}", "ok": True, "seconds": 1.0, "error": "", **more}
    return MockRowDone(mock_id="m1", row_id=f"r{number}", at=NOW - 10 + number, **given)  # type: ignore[arg-type]  # fields of the event


async def eventually(here: Seat, words: str) -> None:
    """Wait until `words` are on screen; a file is read in a thread meanwhile."""
    for _ in range(100):
        if words in here.text():
            return
        await asyncio.sleep(0.02)
        await here.settle()
    raise AssertionError(f"{words!r} never came:\n{here.text()}")


def test_fields() -> None:
    assert read_fields({}) == {}
    given = {"dataset": " a.jsonl ", "concurrency": "4", "pace": "0.5", "passes": "2"}
    assert read_fields(given) == {
        "dataset": "a.jsonl",
        "concurrency": 4,
        "pace": 0.5,
        "passes": 2,
    }


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("concurrency", "0"),
        ("concurrency", "many"),
        ("concurrency", "²"),
        ("passes", "-1"),
        ("passes", "1.5"),
        ("pace", "fast"),
        ("pace", "-1"),
        ("pace", "nan"),
        ("pace", "inf"),
    ],
)
def test_fields_that_cannot_be_used_are_named(field: str, text: str) -> None:
    with pytest.raises(FieldError, match=field) as caught:
        read_fields({field: text})
    assert caught.value.field == field


async def test_start_with_the_fields_and_letters_stay_in_them(tmp_path: Path) -> None:
    file = tmp_path / "rows.spk"
    file.write_text('{"query": "What is red?", "answer": "a colour"}\nbroken\n')
    boss = FakeBoss()
    async with seat(state_of(), places=PLACES, at="mock", boss=boss) as here:
        await eventually(here, "What is the speed of light?")
        await here.press("e")
        here.app.screen.query_one("#mock-dataset", Input).value = str(file)[:-3]
        await here.pilot.press("end", *"spk")
        assert boss.commands == []
        await eventually(here, "What is red?")
        assert "a colour" in here.text()
        await here.press("tab", "5", "tab", *"x")
        await here.press("escape", "s")
        assert boss.commands == []
        assert "pace cannot be" in here.text()
        await here.press("backspace", *"1.5", "enter", "s")
        assert boss.commands == [
            ("mock.start", {"dataset": str(file), "concurrency": 5, "pace": 1.5})
        ]
        assert here.link.commands == []


async def test_a_file_that_cannot_be_read_is_not_started() -> None:
    boss = FakeBoss()
    async with seat(state_of(), places=PLACES, at="mock", boss=boss) as here:
        await here.press("e")
        await here.pilot.press(*"/nowhere")
        await eventually(here, "First rows of /nowhere")
        await here.press("escape", "s")
        assert boss.commands == []


async def test_the_shipped_questions_need_no_field() -> None:
    boss = FakeBoss()
    async with seat(state_of(), places=PLACES, at="mock", boss=boss) as here:
        await here.press("p", "r", "k", "s")
        assert boss.commands == [("mock.start", {})]
        assert here.link.commands == []


async def test_pause_resume_stop_only_when_they_make_sense() -> None:
    boss = FakeBoss()
    async with seat(state_of(STARTED), places=PLACES, at="mock", boss=boss) as here:
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
        assert boss.commands == []


async def test_a_killed_mock_user_can_be_started_again() -> None:
    child = FakeChild("mock", url="")
    boss = FakeBoss({"mock": child})
    async with seat(state_of(STARTED, row(1)), places=PLACES, at="mock", boss=boss) as here:
        assert "running" in here.text()
        await here.press("s")
        assert boss.commands == []
        child.pid, child.phase, child.exit_code = None, "exited", -9
        here.session.touch(("children",))
        await here.settle()
        assert "✖ ended: no process" in here.text()
        assert "s Start" in here.text()
        await here.press("p", "k", "s")
        assert here.link.commands == []
        assert boss.commands == [("mock.start", {})]


async def test_progress_results_and_problems() -> None:
    events = [STARTED, *(row(number) for number in range(1, 11))]
    events.append(row(11, ok=False, error="503: no candidate in time", query=HOSTILE))
    events.append(MockRowSkipped(mock_id="m1", line=7, cause="not JSON"))
    async with seat(state_of(*events), places=PLACES, at="mock", size=(160, 48)) as here:
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


async def test_a_read_only_console_starts_nothing() -> None:
    boss = FakeBoss()
    async with seat(state_of(), places=PLACES, at="mock", boss=boss, read_only=True) as here:
        await here.press("s")
        assert boss.commands == []
