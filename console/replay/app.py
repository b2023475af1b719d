"""The console app on a journal: the same screens, plus keys that control the playback."""

import logging
import sys
from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from console.app import ConsoleApp
from console.backend.hangup import watch_terminal
from console.replay.player import Replay
from console.session.app_state import Session
from core.journal.read_only import JournalFile
from core.settings import Settings

_MOVES = (
    ("comma", ",", "toggle", "Pause", "Pause or resume the replay"),
    ("full_stop", ".", "step", "Step", "Show the next event, then pause"),
    ("less_than_sign", "<", "slower", "Slower", "About half the speed"),
    ("greater_than_sign", ">", "faster", "Faster", "About twice the speed"),
    ("ctrl+b", "^b", "to_begin", "Begin", "Play from the beginning"),
    ("ctrl+e", "^e", "to_end", "End", "Jump to the end"),
)


class ReplayApp(ConsoleApp):
    """A console that shows a journal."""

    TITLE = "ajet-console replay"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            key,
            f"replay('{move}')",
            title,
            key_display=shown,
            id=f"replay.{move}",
            tooltip=about,
            show=move == "toggle",  # the footer has no room for more
        )
        for key, shown, move, title, about in _MOVES
    ]

    def __init__(self, replay: Replay, **options: Any) -> None:
        self.replay = replay
        session = Session(link=replay, read_only=True, clock=replay.tempo.now)
        session.replay, session.journal = replay, replay.file.path
        super().__init__(session, replay.run, **options)

    def action_replay(self, move: str) -> None:
        """Run a playback control and repaint the status bar."""
        getattr(self.replay, move)()
        self.flush_screen(self.front, frozenset({"clock"}))


def run_replay(
    file: JournalFile,
    first: int,
    last: int,
    speed: float | None,
    settings: Settings,
    screen: str,
    label: str = "",
) -> int:
    """Show a journal until the operator leaves.

    Args:
        file: The journal.
        first: Number of the last event before the beginning.
        last: Number of the last event.
        speed: Play at this speed; None shows the end.
        settings: Theme and keys.
        screen: Name of the first screen; empty for the first one.
        label: Name of an engine run that is shown; empty for a whole journal.

    Returns:
        The exit code.
    """
    logging.getLogger().setLevel(logging.INFO)
    replay = Replay(file, first, last, speed, label=f"PAST {label}" if label else "REPLAY")
    app = ReplayApp(replay, theme=settings.console.theme, keys=settings.console.keys)
    if label:
        app.footer_words = {"quit": "Back"}
    if screen:
        app.call_later(app.action_go, screen)
    watch_terminal(sys.stdin.fileno())
    return app.run() or app.return_code or 0
