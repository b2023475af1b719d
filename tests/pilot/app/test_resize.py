"""Terminal sizes: many resizes, too small ones, the smallest that is enough."""

import random

import pytest
from rich.cells import cell_len
from textual.events import Resize
from textual.geometry import Size

from console.app import ConsoleApp
from console.models.screen_registry import SCREENS
from console.screens.dialogs.too_small import MIN_HEIGHT, MIN_WIDTH
from tests.support.console import RunningConsole, run_console
from tests.support.sample import sample_state

STORMS = (10, 30, 300)
"""Sizes of a storm in the long forms."""


WHERE = [place.name for place in SCREENS] + ["group", "tokens", "help", "abort", "jump", "palette"]


RARELY = ("mock", "rewards", "tokens", "abort")
"""Resized by the long forms alone: their panes, forms and dialogs are like those of the others, and
Rewards has a test of its own."""


KEYS = {
    "group": ("down", "enter"),
    "tokens": ("down", "enter", "p"),
    "help": ("question_mark",),
    "abort": ("down", "x"),
    "jump": ("ctrl+o",),
    "palette": ("ctrl+p",),
}


def send(console: RunningConsole, width: int, height: int) -> None:
    """Another size, without waiting for it to be painted."""
    size = Size(width, height)
    console.app._driver._size = size  # type: ignore[union-attr]  # the headless driver has one
    console.app.post_message(Resize(size, size))


def sizes(seed: str, count: int) -> list[tuple[int, int]]:
    dice = random.Random(seed)
    return [(dice.randint(20, 250), dice.randint(5, 80)) for _ in range(count)]


def widest(app: ConsoleApp) -> int:
    """Cells of the longest line that is painted."""
    return max(strip.cell_length for strip in app.screen._compositor.render_strips())


def shown(console: RunningConsole) -> list[str]:
    return [strip.text for strip in console.app.screen._compositor.render_strips()]


async def opened(console: RunningConsole, where: str) -> None:
    while len(console.app.screen_stack) > 1:
        await console.press("escape")
    console.app.action_go("requests" if where in KEYS else where)
    await console.settle()
    await console.press(*KEYS.get(where, ()))


@pytest.mark.parametrize(
    "storm", [4, *(pytest.param(count, marks=pytest.mark.soak) for count in STORMS)]
)
async def test_many_resizes_and_back_leave_every_picture_as_it_was(storm: int) -> None:
    async with run_console(sample_state("長い質問です why? " * 9)) as console:
        for where in WHERE:
            if storm not in STORMS and where in RARELY:
                continue
            await opened(console, where)
            before = console.text().splitlines()
            await resized(console, where, storm)
            lines = console.text().splitlines()
            if where == "jump":  # what the letters stood on has moved: they are gone
                bar = before[0].partition("!")[0]
                assert lines[0].startswith(bar)
            else:
                assert lines == before, "\n".join([where, *before, "=====", *lines])
            assert console.app.is_running


async def resized(console: RunningConsole, where: str, storm: int) -> None:
    """As many other sizes, then the first one again."""
    for number, (width, height) in enumerate(sizes(where, storm)):
        send(console, width, height)
        if number % 10 == 9 or number == storm - 1:  # most come while the last one is being painted
            await console.pilot.resize_terminal(width, height)
            await console.settle()
            assert widest(console.app) <= width, (where, width, height)
            small = width < MIN_WIDTH or height < MIN_HEIGHT
            assert any("too small" in line for line in shown(console)) is small, (width, height)
    for width, height in ((62, 16), (170, 50)):
        await console.pilot.resize_terminal(width, height)
        await console.settle()
        assert widest(console.app) <= width
    await console.pilot.resize_terminal(80, 24)
    await console.settle()
    await console.settle()


async def test_every_screen_works_in_the_smallest_terminal() -> None:
    async with run_console(sample_state(), size=(MIN_WIDTH, MIN_HEIGHT)) as console:
        for where in WHERE:
            await opened(console, where)
            lines = console.text().splitlines()
            assert "too small" not in "\n".join(lines), where
            assert max(cell_len(line) for line in lines) <= MIN_WIDTH, where
            assert len(lines) <= MIN_HEIGHT, where


async def test_a_too_small_terminal_shows_a_message_and_can_quit() -> None:
    async with run_console(sample_state(), size=(59, 15)) as console:
        for width, height in ((59, 15), (60, 14), (20, 5), (1, 1)):
            await console.pilot.resize_terminal(width, height)
            await console.press("f2", "ctrl+o", "x", "question_mark")
            assert console.link.commands == []
            if width > 45:
                message = f"terminal too small: {width}x{height}, needs 60x15"
                assert console.text().strip() == message
        await console.pilot.resize_terminal(60, 15)
        await console.settle()
        assert "too small" not in console.text()
        assert "ROLL" in console.text()
        await console.pilot.resize_terminal(59, 15)
        await console.press("ctrl+q")
        assert not console.app.is_running
