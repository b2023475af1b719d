"""Only changed rows of the request list are painted, and only another size is laid out."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from textual.geometry import Size
from textual.strip import Strip

from console.models.screen_registry import SCREENS
from console.screens.log.screen import LogScreen
from console.screens.requests.widgets import GroupList
from console.widgets.key_bar import KeyBar
from core.events import GroupMarked
from core.state import State
from tests.support.console import RunningConsole, run_console
from tests.support.sample import NOW, group_events, state_of

PLACES = [place for place in SCREENS if place.name == "requests"]


def over(count: int) -> State:
    """Groups that are done, g0001 the oldest."""
    return state_of(
        *(event for number in range(1, count + 1) for event in group_events(number, at=NOW))
    )


def listed(console: RunningConsole) -> GroupList:
    """The list on screen."""
    return console.app.screen.query_one(GroupList)


@contextmanager
def painted() -> Iterator[list[int]]:
    """The rows of the list that are painted meanwhile."""
    rows: list[int] = []
    paint = GroupList.render_line

    def noted(self: GroupList, y: int) -> Strip:
        rows.append(y)
        return paint(self, y)

    with patch.object(GroupList, "render_line", noted):
        yield rows


async def test_only_the_rows_that_changed_are_painted() -> None:
    async with run_console(over(60), places=PLACES, at="requests") as console:
        await console.press("down")
        await console.settle()
        place = listed(console).model.place("g0055")
        with painted() as rows:
            console.link.publish(GroupMarked(group_id="g0055", marked=True))
            await console.settle()
        assert rows == [place]
        with painted() as rows:
            await console.press("down")
            await console.settle()
        assert sorted(set(rows)) == [1, 2]


async def test_new_groups_above_cause_no_layout_and_move_nothing() -> None:
    async with run_console(over(60), places=PLACES, at="requests") as console:
        await console.press("end")
        await console.settle()
        layouts: list[object] = []
        console.app.screen.screen_layout_refresh_signal.subscribe(listed(console), layouts.append)
        shown = [listed(console).row(y) for y in range(listed(console).size.height)]
        with painted() as rows:
            console.link.publish(*group_events(99, at=NOW + 99))
            await console.settle()
        assert listed(console).model.count == 61
        assert listed(console).vertical_scrollbar.window_virtual_size == 61
        assert [listed(console).row(y) for y in range(listed(console).size.height)] == shown
        assert (rows, layouts) == ([], [])


async def test_a_changed_finished_group_is_drawn_again() -> None:
    async with run_console(over(3), places=PLACES, at="requests") as console:
        assert "★" not in console.text()
        console.link.publish(GroupMarked(group_id="g0002", marked=True))
        await console.settle()
        assert any("finished" in line and "★" in line for line in console.text().splitlines())


async def test_a_screen_is_laid_out_once_for_a_size() -> None:
    async with run_console(over(3), at="requests") as console:
        sizes: list[Size] = []
        lay_out = LogScreen._refresh_layout

        def noted(self: LogScreen, size: Size | None = None, scroll: bool = False) -> None:
            sizes.extend([size] if size else [])
            lay_out(self, size, scroll)

        with patch.object(LogScreen, "_refresh_layout", noted):
            await console.press("f7")
            assert sizes == [(80, 24)]
            await console.pilot.resize_terminal(100, 30)
            await console.settle()
        assert (100, 30) in sizes
        assert console.app.screen.query_one(KeyBar).size.width == 100


async def test_the_size_of_the_terminal_at_the_start_does_not_lay_a_screen_out_again() -> None:
    """Textual sends it when the app runs, after the first layout of the first screen."""
    sizes: list[object] = []
    lay_out = LogScreen._screen_resized

    def noted(self: LogScreen, size: Size) -> None:
        if self.is_attached and self._compositor.size == size:
            sizes.append(size)
        lay_out(self, size)

    with patch.object(LogScreen, "_screen_resized", noted):
        async with run_console(at="log") as console:
            assert "log" in console.text().lower()
            assert sizes == []
            await console.pilot.resize_terminal(100, 30)
            await console.settle()
            assert console.app.screen._compositor.size == Size(100, 30)
