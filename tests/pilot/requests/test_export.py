"""Export from the list: format, file, progress, notice; Escape cancels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from console.backend.options import ConsoleOptions
from console.backend.startup import open_session
from console.export import home as module
from console.export.run import ExportCancelled, ExportOptions, ExportProgress, ExportReport, Report
from console.models.screen_registry import SCREENS
from console.screens.requests.export import ExportScreen
from console.screens.requests.screen import ListKeys
from console.shell.palette import entries
from core.events import GroupMarked
from core.runtime.home import Home
from core.settings import Settings
from tests.support.console import NOW, RunningConsole, group_events, run_console, state_of
from tests.support.ranked import ranked_group, write_journal

PLACES = [place for place in SCREENS if place.name == "requests"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose journal has three groups, one of them marked."""
    made = Home.open(tmp_path / "home")
    events = [event for number in range(3) for event in ranked_group(f"g{number}", f"q{number}")]
    write_journal(made.journal, [*events, GroupMarked(group_id="g1", marked=True)])
    return made.root


async def worked(console: RunningConsole) -> None:
    """Wait until the thread of the export has ended."""
    for worker in [
        worker for worker in console.app.workers if isinstance(worker.node, ExportScreen)
    ]:
        await worker.wait()
    await console.settle()


async def test_the_filtered_groups_are_exported(home: Path, tmp_path: Path) -> None:
    state = state_of(*group_events(1, at=NOW))
    async with run_console(state, places=PLACES, at="requests") as console:
        console.session.home = home
        await console.press("slash", *"text~q2", "enter", "X")
        assert "that match text~q2" in console.text()
        assert "preference" in console.text()
        await console.press("down", "down")
        path = console.app.screen.query_one(Input)
        assert path.value == "sft.jsonl"
        path.value = str(tmp_path / "out.jsonl")
        await console.press("enter", "enter")
        await worked(console)
        assert not isinstance(console.app.screen, ExportScreen)
        assert "(1 row); 0 secrets" in " ".join(console.text().split())
    assert (tmp_path / "out.jsonl").read_text().count('"q2"') == 1
    assert (tmp_path / "out.md").exists()


async def test_marked_groups_come_first_and_a_file_that_exists_is_kept(
    home: Path, tmp_path: Path
) -> None:
    state = state_of(
        *group_events(1, at=NOW), GroupMarked(server="embedded", group_id="g0001", marked=True)
    )
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    async with run_console(state, places=PLACES, at="requests") as console:
        console.session.home = home
        await console.press("X")
        assert "the marked groups" in console.text()
        path = console.app.screen.query_one(Input)
        path.value = str(out)
        await console.press("enter", "enter")
        await worked(console)
        assert "Name another file" in " ".join(console.text().split())
        path.value = str(tmp_path / "marked.jsonl")
        await console.press("enter")
        await worked(console)
        assert not isinstance(console.app.screen, ExportScreen)
    assert out.read_text() == "mine"
    assert (tmp_path / "marked.jsonl").read_text().count('"q1"') == 1


async def test_escape_cancels_a_running_export(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []
    async with run_console(
        state_of(*group_events(1, at=NOW)), places=PLACES, at="requests"
    ) as console:

        def slow(
            root: Path,
            proxy_url: str,
            options: ExportOptions,
            report: Report,
            cancelled: Callable[[], bool],
        ) -> ExportReport:
            """An export during which the operator presses Escape."""
            report(ExportProgress(done=1, total=4, rows=1))
            stopped.append(cancelled())
            console.app.call_from_thread(console.app.simulate_key, "escape")
            console.app.call_from_thread(lambda: None)
            stopped.append(cancelled())
            raise ExportCancelled("cancelled")

        monkeypatch.setattr(module, "export_home", slow)
        console.session.home = home
        await console.press("X", "enter", "enter")
        await worked(console)
        assert stopped[0] is False
        assert not isinstance(console.app.screen, ExportScreen)


async def test_the_palette_exports_from_every_screen(home: Path, tmp_path: Path) -> None:
    async with run_console(state_of(*group_events(1, at=NOW)), at="overview") as console:
        titles = [title for title, _, _ in entries(console.app)]
        assert "Requests: Export groups" not in titles  # it has no home
        console.session.home = home
        run = {title: action for title, _, action in entries(console.app)}
        run["Requests: Export groups"]()
        await console.shows("all groups of the journal")
        assert isinstance(console.app.screen, ExportScreen)


def test_a_console_in_a_browser_has_no_home_to_export(tmp_path: Path) -> None:
    for in_browser in (False, True):
        options = ConsoleOptions(home=Home.at(tmp_path), settings=Settings(), in_browser=in_browser)
        assert (open_session(options)[0].home is None) == in_browser


async def test_without_a_home_the_command_is_named() -> None:
    async with run_console(
        state_of(*group_events(1, at=NOW)), places=PLACES, at="requests"
    ) as console:
        assert not console.app.screen.query_one(ListKeys).check_action("export", ())
        await console.press("X")
        assert "ajet-console export --journal" in " ".join(console.text().split())


async def test_the_dialog_can_be_left_after_any_error(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[bool] = []
    async with run_console(
        state_of(*group_events(1, at=NOW)), places=PLACES, at="requests"
    ) as console:

        def failing(*args: Any) -> ExportReport:
            """An export that fails after the operator pressed Escape."""
            stopped.append(args[-1]())
            console.app.call_from_thread(console.app.simulate_key, "escape")
            console.app.call_from_thread(lambda: None)
            raise KeyError("reward")

        monkeypatch.setattr(module, "export_home", failing)
        console.session.home = home
        await console.press("X", "enter", "enter")
        await worked(console)
        assert "KeyError" in " ".join(console.text().split())
        await console.press("enter")
        await worked(console)
        assert stopped == [False, False]
        await console.press("escape")
        assert not isinstance(console.app.screen, ExportScreen)


async def test_marks_of_groups_outside_the_memory_can_be_chosen(home: Path, tmp_path: Path) -> None:
    state = state_of(*group_events(1, at=NOW))
    async with run_console(state, places=PLACES, at="requests") as console:
        console.session.home = home
        await console.press("X")
        assert "Export all groups" in console.text()
        console.app.screen.query_one(Input).value = str(tmp_path / "marked.jsonl")
        await console.press("f2")
        assert "Export the marked groups" in console.text()
        await console.press("enter", "enter")
        await worked(console)
    (line,) = (tmp_path / "marked.jsonl").read_text().splitlines()
    assert '"group":"g1"' in line
