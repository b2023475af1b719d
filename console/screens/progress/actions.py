"""Keys of the progress screen that send commands: look, new baseline, rewind, resume."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from console.models.available_commands import is_available
from console.models.progress import trust_loss
from console.screens.parts import ScreenPart, in_background
from console.screens.rewind_question import ask_rewind

COMMANDS: Final[Mapping[str, str]] = {
    "look": "progress.look",
    "trust": "progress.trust",
    "rewind": "progress.rewind",
    "resume": "progress.resume",
}
"""Action -> the command that it sends."""


class LookActions(ScreenPart):
    """The commands about the probe set of the screen's server."""

    BINDINGS: ClassVar[Sequence[BindingType]] = (
        Binding(
            "l",
            "look",
            "Take a look",
            id=COMMANDS["look"],
            tooltip="Measure the present policy on the probe set now",
        ),
        Binding(
            "t",
            "trust",
            "Trust this step",
            id=COMMANDS["trust"],
            tooltip="Take a new baseline at the present step; asks first",
        ),
        Binding(
            "b",
            "rewind",
            "Rewind",
            id=COMMANDS["rewind"],
            tooltip="Back to the weights of the best verified step; asks first",
        ),
        Binding(
            "u",
            "resume",
            "Resume",
            id=COMMANDS["resume"],
            tooltip="Train on requests again after a pause",
        ),
    )

    def may(self, action: str) -> bool:
        """Return whether the command of an action can be sent now."""
        server = self.screen.target_server
        return server is not None and is_available(self.session, COMMANDS[action], server=server)

    @property
    def may_look(self) -> bool:
        """Whether a look can be taken now."""
        return self.may("look")

    def action_look(self) -> None:
        """Take a look now."""
        self.host.run_command(COMMANDS["look"], server=self.screen.target_server)

    @in_background("question", exclusive=True)
    async def action_trust(self) -> None:
        """Ask, then take a new baseline."""
        server = self.screen.target_server or ""
        title, body = trust_loss(self.session.state, server)
        if await self.host.confirm(title, body, "Trust it"):
            await self.host.send_command(COMMANDS["trust"], server=server)

    @in_background("question", exclusive=True)
    async def action_rewind(self) -> None:
        """Show what a rewind restores and loses, ask, then rewind."""
        await ask_rewind(self.host, self.screen.target_server or "")

    def action_resume(self) -> None:
        """Train on requests again."""
        self.host.run_command(COMMANDS["resume"], server=self.screen.target_server)
