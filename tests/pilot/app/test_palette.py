"""The command palette under two clicks or keys that arrive at once."""

import pytest
from textual.command import CommandList, CommandPalette
from textual.widgets import Input, OptionList

from tests.support.console import rest, run_console


@pytest.mark.parametrize("how", ["clicks", "keys"])
async def test_two_selections_at_once_run_one_command_and_leave_the_screen(how: str) -> None:
    async with run_console(at="rate") as console:
        await console.press("ctrl+p")
        await rest(console.app)
        palette = console.app.screen
        assert isinstance(palette, CommandPalette)
        below, ran = console.app.screen_stack[-2], []
        entries = palette.query_one(CommandList)
        option = entries.get_option_at_index(0)
        option.hit.command = lambda: ran.append(1)  # type: ignore[attr-defined]
        field = palette.query_one(Input)
        palette.post_message(OptionList.OptionSelected(entries, option, 0))
        palette.post_message(
            OptionList.OptionSelected(entries, option, 0)
            if how == "clicks"
            else Input.Submitted(field, "")
        )
        await rest(console.app)
        assert console.app.screen is below
        assert ran == [1]
