"""Tells the operator while the journal cannot be written, and that it can be again."""

import asyncio

from core.events import AlertCleared, AlertRaised, Event
from core.journal.damage import check_in_background
from core.journal.file import mark
from core.journal.writer import JournalError
from proxy.context import ProxyContext

LOOK_EVERY = 0.5
SALVAGE = "Restart the proxy: the start sets the file aside and keeps what can be read"


def follow_journal(context: ProxyContext) -> None:
    """Raise an alert when writing fails and clear it once all that was kept is written.

    A disk that stalls does not fail by itself: it is looked at every `LOOK_EVERY` seconds. The file
    is checked for damage once, in the background; the next start salvages a damaged one.

    Both are events, and so in the journal themselves, with everything that happened meanwhile.
    """
    loop, journal, bus = asyncio.get_running_loop(), context.journal, context.bus

    def tell(event: Event) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(bus.publish, event)

    def failed(error: JournalError) -> None:
        tell(AlertRaised(key="journal", cause=error.what, todo=error.todo, level="error"))

    def recovered(seconds: float) -> None:
        note = f"it is written again, after {seconds:.0f} s; nothing is missing"
        tell(AlertCleared(key="journal", note=note))

    def notice(text: str) -> None:
        tell(AlertRaised(key="journal_file", cause=text, level="warning"))

    def checked(damage: str) -> None:
        if damage:
            mark(journal.path, damage)
            cause = f"the journal is damaged: {damage}"
            tell(AlertRaised(key="journal_damage", cause=cause, todo=SALVAGE, level="error"))

    async def look() -> None:
        while True:
            journal.disk.look()
            await asyncio.sleep(LOOK_EVERY)

    journal.on_error, journal.on_recovered = failed, recovered
    journal.on_notice = notice
    if journal.error:  # since the start
        failed(journal.failure())
    check_in_background(journal.path, checked)
    context.tasks.spawn(look(), "disk watch")
