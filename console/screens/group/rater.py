"""Name of the rater: requested by the first vote, by key or from the palette."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from textual.widget import Widget

from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost, host
from console.session.app_state import Outcome, Session
from console.session.rater_name import clean, proposed
from core.commands.table import OVERRIDE_HINT


def rate_entries(app: AppHost) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield title, help and action of the palette entries about the rater."""
    session = app.session
    if not session.read_only:
        about = f"You rate as {session.rater}" if session.rater else "Recorded with your votes"
        yield "Rate: Your name", about, partial(_start_asking, app)


def _start_asking(app: AppHost) -> None:
    app.run_worker(_ask_and_report(app), group="question", exclusive=True, exit_on_error=False)


async def _ask_and_report(app: AppHost) -> None:
    if message := await ask_name(app):
        app.say(f"{message[:1].upper()}{message[1:]}")


async def ask_name(app: AppHost) -> str:
    """Ask for the name of the next votes; return a message about it, "" when canceled."""
    session = app.session
    if not await _ask(app, "The name recorded with your next votes; empty: none"):
        return ""
    await _store_name(session)
    return f"you rate as {session.rater}" if session.rater else "your votes have no name"


def rater_args(session: Session) -> dict[str, str]:
    """Return the rater's name as an argument of a command; empty without a name."""
    return {"rater": session.rater} if session.rater else {}


def with_rater_name(widget: Widget, vote: Callable[[], None]) -> None:
    """Cast a vote; before the first vote of a home, ask for a name.

    Args:
        widget: Where the vote is cast.
        vote: Casts it.
    """
    if host(widget).session.rater_asked:
        vote()
        return
    asking = _ask_then_vote(widget, vote)
    widget.run_worker(asking, "your name", "question", exclusive=True, exit_on_error=False)


async def _ask_then_vote(widget: Widget, vote: Callable[[], None]) -> None:
    app = host(widget)
    label = "Votes are recorded with this name; empty: none. You are asked once; N changes it."
    if not await _ask(app, label):
        return
    if widget.is_mounted:
        vote()
    await _store_name(app.session)


async def cast_vote(app: AppHost, question: str, /, **args: Any) -> Outcome:
    """Send a vote; if another rater's vote or lease refuses it, ask whether to override.

    Args:
        app: The app, in one of its workers.
        question: The query of the group.
        **args: Arguments of the command `group.rate`.

    Returns:
        The outcome; its message is empty when the operator has already read the refusal.
    """
    session = app.session
    outcome = await session.command("group.rate", **args)
    if outcome.ok or OVERRIDE_HINT not in outcome.message:
        return outcome
    about = f"“{one_line(question, 60)}”: " if question else ""
    body = f"{about}{outcome.message.rpartition('. ')[0]}.\nYour vote differs. It replaces theirs."
    if not await app.confirm("Override another rater?", body, "Override"):
        return replace(outcome, message="")
    return await session.command("group.rate", **args, override=True)


async def _ask(app: AppHost, label: str) -> bool:
    """Ask for the name of the next votes; return False when canceled."""
    session = app.session
    present = session.rater or ("" if session.rater_asked else proposed())
    if (answer := await app.ask("Who rates?", label, present)) is None:
        return False
    session.rater_asked, session.rater = True, clean(answer)
    return True


async def _store_name(session: Session) -> None:
    """Store the name for the next start."""
    if session.save_rater is not None:
        await asyncio.to_thread(session.save_rater, session.rater)
