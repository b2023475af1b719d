"""What the keys of the history do with the run under the cursor: name, note, pin, open."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.app import SuspendNotSupported
from textual.binding import Binding, BindingType

from ajet_swarm.common.errors import AjetError
from console.models.history.past import past_command
from console.models.history.runs import title
from console.screens.base import ConsoleScreen
from console.screens.parts import ScreenPart, in_background
from console.widgets.editor import run_program
from core.state import EngineRun

WRITING = {"name": "run.name", "note": "run.note", "pin": "run.pin"}
"""Action -> command that it sends."""


class RunActions(ScreenPart):
    """Changes and opens the run under the cursor.

    Args:
        screen: The screen with the cursor.
        chosen: Returns the run under the cursor.
    """

    BINDINGS: ClassVar[Sequence[BindingType]] = [
        Binding("r", "name", "Name", id="run.name", tooltip="Name the run; empty removes it"),
        Binding("n", "note", "Note", id="run.note", tooltip="Write a note on the run"),
        Binding(
            "p", "pin", "Pin", id="run.pin", tooltip="Keep its requests when the journal is pruned"
        ),
    ]

    def __init__(self, screen: ConsoleScreen, chosen: Callable[[], EngineRun | None]) -> None:
        super().__init__(screen)
        self._chosen = chosen

    def action_name(self) -> None:
        """Ask for the name of the run."""
        if (run := self._chosen()) is not None:
            self._ask(run, "name", run.name)

    def action_note(self) -> None:
        """Ask for the note of the run."""
        if (run := self._chosen()) is not None:
            self._ask(run, "note", run.note)

    def action_pin(self) -> None:
        """Pin the run, or remove the pin."""
        if (run := self._chosen()) is not None:
            self.host.run_command("run.pin", number=run.number, pinned=not run.pinned)

    @in_background("command")
    async def _ask(self, run: EngineRun, field: str, value: str) -> None:
        text = await self.host.ask(f"{field.capitalize()} of run {run.number}", value=value)
        if text is not None and text != value:
            args: dict[str, Any] = {"number": run.number, field: text}
            await self.host.send_command(WRITING[field], **args)

    @in_background("past", exclusive=True)
    async def open_past(self, run: EngineRun) -> None:
        """Show a replay of the run on this terminal; return when the operator leaves it."""
        journal, theme = self.session.journal, self.host.theme
        try:
            command = await asyncio.to_thread(past_command, journal, run, "overview", theme)
            when = "as of now" if run.ended is None else "as of its end"
            notice = f"Run {run.number} opens {when}. Ctrl+Q returns to the present."
            code = await run_program(self.host, command, notice)
        except AjetError as error:
            self.host.say(str(error), "warning")
        except SuspendNotSupported:
            todo = f"`ajet-console journal replay --history {run.number}` in a terminal of its own"
            self.host.say(f"This terminal cannot show it beside the console: {todo}", "warning")
        except OSError as error:
            self.host.say(f"{title(run)} cannot be shown: {error.strerror or error}", "error")
        else:
            if code:
                self.host.say(f"The replay of {title(run)} ended with {code}", "error")
