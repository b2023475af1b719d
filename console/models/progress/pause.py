"""Pauses of training, as screens of other subjects name them."""

from console.models.advice import context_of
from console.session.app_state import Session
from console.text.causes import pause_words


def pause_text(session: Session) -> str:
    """Return on which servers training is paused, and how to resume it; empty if it is not."""
    state = session.state
    known = {name: state.progress.get(name) for name in state.servers}
    paused = [
        pause_words(name, one.paused)
        for name, one in known.items()
        if one is not None and one.paused
    ]
    if not paused:
        return ""
    words, context = "; ".join(paused), context_of(session)
    screen, key = context.screens["progress"], context.keys["progress.resume"]
    todo = "" if context.read_only else f" {screen} then {key} resumes"
    return f"{words[0].upper()}{words[1:]}: nothing is trained.{todo}"
