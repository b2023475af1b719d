"""The footer is one widget whose keys can be clicked."""

from console.widgets.key_bar import KeyBar
from tests.pilot.rate.test_screen import waiting
from tests.support.console import run_console


async def test_a_click_presses_the_key_and_the_mouse_shows_its_tooltip() -> None:
    async with run_console(waiting(2), size=(120, 30)) as console:
        bar = console.app.screen.query_one(KeyBar)
        line = console.text().splitlines()[-1]
        help_at = line.index("? Help")
        await console.pilot.hover(KeyBar, (help_at + 2, 0))
        await console.settle()
        shown = {key.key: key for key in bar.shown_keys}
        assert bar.tooltip == (shown["question_mark"].tooltip or None)
        await console.pilot.hover(KeyBar, (line.index("▏") + 2, 0))
        await console.settle()
        assert bar.tooltip == shown["ctrl+p"].tooltip != ""
        before = console.app.screen
        await console.pilot.click(KeyBar, (help_at + 2, 0))
        await console.settle()
        assert console.app.screen is not before, "help is open"


async def test_a_click_between_two_keys_presses_nothing() -> None:
    async with run_console(waiting(2), size=(120, 30)) as console:
        line = console.text().splitlines()[-1]
        before = console.app.screen
        await console.pilot.click(KeyBar, (line.index("? Help") - 1, 0))
        await console.pilot.click(KeyBar, (line.index("▏") - 3, 0))
        await console.settle()
        assert console.app.screen is before
