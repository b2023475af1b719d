"""The dataset of the mock user: picker, preview, start."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.widgets import Input

from console.models.screen_registry import SCREENS
from console.screens.mock.picker import DatasetPicker
from console.screens.mock.preview import DatasetPreview
from core.events import MockFinished, MockStarted
from tests.support.console import NOW, FakeProcessManager, run_console, state_of

PLACES = [place for place in SCREENS if place.name == "mock"]
STARTED = MockStarted(
    mock_id="m1", dataset="rows.jsonl", target="http://x/v1", total=20, concurrency=2, at=NOW - 10
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with datasets, and a working folder with others."""
    root, working_folder = tmp_path / "home", tmp_path / "here"
    (root / "datasets").mkdir(parents=True)
    working_folder.mkdir()
    rows = "".join(f"q{number},{number},x\n" for number in range(1_200))
    (root / "datasets" / "sums.csv").write_text(f"question,solution,level\n{rows}")
    (working_folder / "chats.jsonl").write_text('{"turns": ["Hello you", "and then?"]}\nnonsense\n')
    (working_folder / "notes.txt").write_text("no dataset")
    monkeypatch.chdir(working_folder)
    return root


async def test_typing_picks_a_dataset_and_previews_it(home: Path) -> None:
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as console:
        console.session.home = home
        await console.press("o", "k", "escape")  # leaving it changes nothing
        assert console.app.screen.query_one("#mock-dataset", Input).value == ""
        await console.press("o")
        await console.shows("chats.jsonl")
        assert "sums.csv" in console.text()
        assert "notes.txt" not in console.text()
        await console.press(*"chats")
        await console.shows("Hello you  (+1 turns)")
        assert "line 2: not JSON" in console.text()
        assert "sums.csv" not in console.text()
        await console.press(*["backspace"] * 5, "down")
        await console.shows("1,200 rows")
        for size in ((160, 48), (80, 24)):
            await console.pilot.resize_terminal(*size)
            await console.shows("query ← question   reference ← solution   also level")
            await console.shows("1,200 rows")
        await console.press("enter")
        await console.shows("1,200 rows")
        await console.press("s")
        await console.until(lambda: processes.commands)
        assert processes.commands == [
            ("mock.start", {"dataset": str(home / "datasets" / "sums.csv")}),
        ]


async def test_wrong_columns_are_named_and_can_be_mapped(home: Path) -> None:
    processes = FakeProcessManager()
    path = home / "datasets" / "wrong.csv"
    path.write_text("qestion,label\nred?,yes\n")
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as console:
        await console.press("e")
        console.app.screen.query_one("#mock-dataset", Input).value = str(path)
        await console.shows("Put into Columns:")
        await console.press("enter", "s")
        assert processes.commands == []
        console.app.screen.query_one("#mock-columns", Input).value = "query=qestion"
        await console.shows("red?")
        await console.press("escape", "s")
        await console.until(lambda: processes.commands)
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
    ) as console:
        console.session.home = home
        await console.press("o", *"evil")
        await console.shows("[red]x[/red]")
        for sign in ("\x1b", "\u202e", "\u200b"):
            assert sign not in console.text()


async def test_a_file_that_cannot_be_read_is_not_started() -> None:
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as console:
        await console.press("e")
        await console.pilot.press(*"/nowhere")
        await console.shows("cannot be read")
        await console.press("enter", "s", "s")
        await console.shows("e goes to the field")
        assert processes.commands == []
        assert console.app.screen.query_one("#mock-dataset", Input).value == "/nowhere"


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
    monkeypatch.setattr("console.screens.mock.screen._PREVIEW_SECONDS", 600.0)
    file = tmp_path / "rows.jsonl"
    file.write_text('{"query": "What is red?"}\n')
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as console:
        dataset = console.app.screen.query_one("#mock-dataset", Input)
        dataset.value = "/nowhere"
        await console.press("s", "s")
        assert "Checking the dataset" in console.text()
        dataset.value = str(file)  # the form names another dataset by now
        await console.press("s", "s")
        assert processes.commands == []
        may_look.set()
        await console.until(lambda: processes.commands)
        await console.shows("What is red?")
        assert processes.commands == [("mock.start", {"dataset": str(file)})]
        assert "Looking" not in console.text()
        dataset.value = "/nowhere"
        await console.press("s")
        await console.shows("e goes to the field")
        assert len(processes.commands) == 1


async def test_a_run_starts_after_the_preview_timeout(
    may_look: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.screens.mock.screen._PREVIEW_SECONDS", 0.1)
    processes = FakeProcessManager()
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as console:
        console.app.screen.query_one("#mock-dataset", Input).value = "/share/rows.jsonl"
        await console.press("s")
        await console.until(lambda: processes.commands)
        assert processes.commands == [("mock.start", {"dataset": "/share/rows.jsonl"})]
        assert not may_look.is_set()


async def test_the_picker_refuses_an_unreadable_dataset_and_stays_open(home: Path) -> None:
    processes = FakeProcessManager()
    good = home / "datasets" / "sums.csv"
    async with run_console(state_of(), places=PLACES, at="mock", processes=processes) as console:
        console.session.home = home
        await console.press("e", "escape", "o")
        await console.shows("chats.jsonl")
        console.app.screen.query_one("#picker-filter", Input).value = f"{good}x"
        await console.press("enter")
        await console.shows("Not chosen: cannot be read: No such file")
        assert isinstance(console.app.screen, DatasetPicker)
        await console.press("backspace")
        assert "Not chosen" not in console.text()
        await console.press("enter")
        await console.shows("1,200 rows")
        assert not isinstance(console.app.screen, DatasetPicker)
        await console.press("s")
        await console.until(lambda: processes.commands)
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
    ) as console:
        await console.shows("1,200 rows")
        await console.press("s")
        result = {"dataset": path, "concurrency": 2, "seed": 7, "split": "train", "held_out": 0.2}
        assert processes.commands == [("mock.start", result)]
