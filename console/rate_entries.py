"""Who rates: asked for from the palette or by key, said to whoever asked."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from console.rater_name import clean, proposed

if TYPE_CHECKING:
    from console.app import ConsoleApp


def rate_entries(app: "ConsoleApp") -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Title, help and action of what concerns the rater."""
    session = app.session
    if not session.read_only:
        about = f"Your votes go out as {session.rater}" if session.rater else "Goes with your votes"
        yield "Rate: Your name", about, partial(_name, app)


def _name(app: "ConsoleApp") -> None:
    app.run_worker(_tell(app), group="question", exclusive=True, exit_on_error=False)


async def _tell(app: "ConsoleApp") -> None:
    if said := await ask_name(app):
        app.say(f"{said[:1].upper()}{said[1:]}")


async def ask_name(app: "ConsoleApp") -> str:
    """Ask for the name of the next votes; what has become of it, or nothing when left."""
    session = app.session
    present = session.rater or ("" if session.rater_asked else proposed())
    label = "The name that goes with your next votes; empty: none"
    given = await app.ask("Who rates?", label, present)
    if given is None:
        return ""
    session.rater_asked = True
    session.rater = clean(given)
    if session.keep_rater is not None:
        await asyncio.to_thread(session.keep_rater, session.rater)
    return f"you rate as {session.rater}" if session.rater else "your votes go without a name"
