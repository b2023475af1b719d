"""The dataset of the mock user: picker, preview, start."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.widgets import Input

from console.models.screen_registry import SCREENS
from console.widgets.dataset_picker import DatasetPicker
from console.widgets.dataset_preview import DatasetPreview
from core.events import MockFinished, MockStarted
from tests.support.console import NOW, FakeProcessManager, run_console, state_of

PLACES = [place for place in SCREENS if place.name == "mock"]
STARTED = MockStarted(
    mock_id="m1", dataset="rows.jsonl", target="http://x/v1", total=20, concurrency=2, at=NOW - 10
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with datasets, and a working folder with others."""
    root, here = tmp_path / "home", tmp_path / "here"
    (root / "datasets").mkdir(parents=True)
    here.mkdir()
    rows = "".join(f"q{number},{number},x\n" for number in range(1_200))
    (root / "datasets" / "sums.csv").write_text(f"question,solution,level\n{rows}")
    (here / "chats.jsonl").write_text('{"turns": ["Hello you", "and then?"]}\nnonsense\n')
    (here / "notes.txt").write_text("no dataset")
    monkeypatch.chdir(here)
    return root


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_typing_picks_a_dataset_and_previews_it(home: Path, size: tuple[int, int]) -> None:
    processes = FakeProcessManager()
    async with run_console(
        state_of(), places=PLACES, at="mock", processes=processes, size=size
    ) as here:
        here.session.home = home
        await here.press("o")
        await here.shows("chats.jsonl")
        assert "sums.csv" in here.text()
        assert "notes.txt" not in here.text()
        await here.press(*"chats")
        await here.shows("Hello you  (+1 turns)")
        assert "line 2: not JSON" in here.text()
        assert "sums.csv" not in here.text()
        await here.press(*["backspace"] * 5, "down")
        await here.shows("1,200 rows")
        assert "query ← question   reference ← solution   also level" in here.text()
        await here.press("enter")
        await here.shows("1,200 rows")
        await here.press("s")
        await here.until(lambda: processes.commands)
        assert processes.commands == [
            ("mock.start", {"dataset": str(home / "datasets" / "sums.csv")}),
        ]


async def test_leaving_the_picker_changes_nothing(home: Path) -> None:
    async with run_console(
        state_of(), places=PLACES, at="mock", processes=FakeProcessManager()
    ) as here:
        here.session.home = home
        await here.press("o", "k", "escape")
        assert here.app.screen.query_one("#mock-dataset", Input).value == ""


async def test_wrong_columns_are_named_and_can_be_mapped(home: Path) -> None:
    processes = FakeProcessManager()
    path = home / "datasets" / "wrong.csv"
    path.write_text("qestion,label\nred?,yes\n")
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as here:
        await here.press("e")
        here.app.screen.query_one("#mock-dataset", Input).value = str(path)
        await here.shows("Put into Columns:")
        await here.press("enter", "s")
        assert processes.commands == []
        here.app.screen.query_one("#mock-columns", Input).value = "query=qestion"
        await here.shows("red?")
        await here.press("escape", "s")
        await here.until(lambda: processes.commands)
        assert processes.commands == [
            ("mock.start", {"dataset": str(path), "columns": "query=qestion"})
        ]


async def test_hostile_files_are_previewed_safely(home: Path) -> None:
    evil = "\x1b[31m\u202e[red]x[/red]\u200b"
    (home / "datasets" / "evil.jsonl").write_text(
        json.dumps({"query": evil, evil: 1, "answer": evil}) + "\n" + evil + "\n"
    )
    async with run_console(
        state_of(), places=PLACES, at="mock", processes=FakeProcessManager()
    ) as here:
        here.session.home = home
        await here.press("o", *"evil")
        await here.shows("[red]x[/red]")
        for sign in ("\x1b", "\u202e", "\u200b"):
            assert sign not in here.text()


async def test_a_file_that_cannot_be_read_is_not_started() -> None:
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as here:
        await here.press("e")
        await here.pilot.press(*"/nowhere")
        await here.shows("cannot be read")
        await here.press("enter", "s", "s")
        await here.shows("e goes to the field")
        assert processes.commands == []
        assert here.app.screen.query_one("#mock-dataset", Input).value == "/nowhere"


@pytest.fixture
def may_look(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Until it is set, no reading of a dataset ends."""
    may, read = asyncio.Event(), DatasetPreview._read

    async def held(self: DatasetPreview, *args: Any) -> None:
        await may.wait()
        await read(self, *args)

    monkeypatch.setattr(DatasetPreview, "_read", held)
    return may


async def test_a_start_waits_for_the_preview_of_its_dataset(
    tmp_path: Path, may_look: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.screens.mock._PREVIEW_SECONDS", 600.0)
    file = tmp_path / "rows.jsonl"
    file.write_text('{"query": "What is red?"}\n')
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as here:
        dataset = here.app.screen.query_one("#mock-dataset", Input)
        dataset.value = "/nowhere"
        await here.press("s", "s")
        assert "Checking the dataset" in here.text()
        dataset.value = str(file)  # the form names another dataset by now
        await here.press("s", "s")
        assert processes.commands == []
        may_look.set()
        await here.until(lambda: processes.commands)
        await here.shows("What is red?")
        assert processes.commands == [("mock.start", {"dataset": str(file)})]
        assert "Looking" not in here.text()
        dataset.value = "/nowhere"
        await here.press("s")
        await here.shows("e goes to the field")
        assert len(processes.commands) == 1


async def test_a_run_starts_after_the_preview_timeout(
    may_look: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.screens.mock._PREVIEW_SECONDS", 0.1)
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as here:
        here.app.screen.query_one("#mock-dataset", Input).value = "/share/rows.jsonl"
        await here.press("s")
        await here.until(lambda: processes.commands)
        assert processes.commands == [("mock.start", {"dataset": "/share/rows.jsonl"})]
        assert not may_look.is_set()


async def test_the_picker_refuses_an_unreadable_dataset_and_stays_open(home: Path) -> None:
    processes = FakeProcessManager()
    good = home / "datasets" / "sums.csv"
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as here:
        here.session.home = home
        await here.press("e", "escape", "o")
        await here.shows("chats.jsonl")
        here.app.screen.query_one("#picker-filter", Input).value = f"{good}x"
        await here.press("enter")
        await here.shows("Not chosen: cannot be read: No such file")
        assert isinstance(here.app.screen, DatasetPicker)
        await here.press("backspace")
        assert "Not chosen" not in here.text()
        await here.press("enter")
        await here.shows("1,200 rows")
        assert not isinstance(here.app.screen, DatasetPicker)
        await here.press("s")
        await here.until(lambda: processes.commands)
        assert processes.commands == [("mock.start", {"dataset": str(good)})]


async def test_the_form_shows_the_settings_of_the_last_run(home: Path) -> None:
    processes = FakeProcessManager()
    path = str(home / "datasets" / "sums.csv")
    started = msgspec.structs.replace(
        STARTED, dataset=path, target="fake vLLM", seed=7, split="train", held_out=0.2
    )
    ended = MockFinished(mock_id="m1", how="stopped", cause="ordered")
    async with run_console(
        state_of(started, ended), places=PLACES, at="mock", processes=processes
    ) as here:
        await here.shows("1,200 rows")
        await here.press("s")
        result = {"dataset": path, "concurrency": 2, "seed": 7, "split": "train", "held_out": 0.2}
        assert processes.commands == [("mock.start", result)]
