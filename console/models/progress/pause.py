"""Pauses of training, as screens of other subjects name them, and the question before a run."""

from typing import TYPE_CHECKING, Any

from console.models.advice import context_of
from console.text.causes import pause_words
from core.state import State

if TYPE_CHECKING:  # the command line reads `paused_servers`: no widgets
    from console.models.app_host import AppHost
    from console.session.app_state import Session

UNTRAINED = "The rows are answered untrained, and a later start does not repeat them."
"""What a run of the mock user loses while training is paused."""


def paused_servers(state: State) -> str:
    """Return on which servers training is paused, and why; empty if it is not."""
    known = {name: state.progress.get(name) for name in state.servers}
    return "; ".join(
        pause_words(name, progress.paused)
        for name, progress in known.items()
        if progress is not None and progress.paused
    )


def pause_text(session: "Session") -> str:
    """Return on which servers training is paused, and how to resume it; empty if it is not."""
    words, context = paused_servers(session.state), context_of(session)
    if not words:
        return ""
    screen, key = context.screens["progress"], context.keys["progress.resume"]
    todo = "" if context.read_only else f" {screen} then {key} resumes"
    return f"{words[0].upper()}{words[1:]}: nothing is trained.{todo}"


async def mock_start_args(app: "AppHost", **args: Any) -> dict[str, Any] | None:
    """Return the arguments that start the mock user; ask first while training is paused.

    Args:
        app: The console.
        args: Arguments of `mock.start`.

    Returns:
        The arguments, with the permission to run untrained; None if the operator declines.
    """
    pause = pause_text(app.session)
    if not pause:
        return args
    agreed = await app.confirm("Start without training?", f"{pause}\n\n{UNTRAINED}", "Start")
    return {**args, "override": True} if agreed else None
