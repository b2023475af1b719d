"""Keys of the progress screen that send commands: look, new baseline, rewind, pause, resume."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from console.models.available_commands import AvailableCommand, available_commands
from console.screens.parts import ScreenPart
from console.screens.run_command import run_available

LOOK = "progress.look"


class LookActions(ScreenPart):
    """The commands about the progress of the screen's server."""

    BINDINGS: ClassVar[Sequence[BindingType]] = (
        Binding(
            "l",
            "send('progress.look')",
            "Look now",
            id=LOOK,
            tooltip="Measure the present policy on the probe set now",
        ),
        Binding(
            "t",
            "send('progress.trust')",
            "Trust step",
            id="progress.trust",
            tooltip="Take a new baseline at the present step; asks first",
        ),
        Binding(
            "w",
            "send('progress.rewind')",
            "Rewind",
            id="progress.rewind",
            tooltip="Restore the best verified step; asks first",
        ),
        Binding(
            "p",
            "send('progress.pause')",
            "Pause",
            id="progress.pause",
            tooltip="Answer users without training on their requests",
        ),
        Binding(
            "r",
            "send('progress.resume')",
            "Resume",
            id="progress.resume",
            tooltip="Train on requests again",
        ),
    )

    def offer(self, command: str) -> AvailableCommand | None:
        """Return a command for the screen's server; None if it cannot be sent now."""
        server = self.screen.target_server
        offers = available_commands(self.session, None, server) if server is not None else []
        return next((offer for offer in offers if offer.command == command), None)

    def action_send(self, command: str) -> None:
        """Send a command; one that loses something or ends a comparison asks first."""
        if (offer := self.offer(command)) is not None:
            run_available(self.host, offer)
