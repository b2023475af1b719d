"""Alerts about the journal: it cannot be written, it can be again, it is damaged or not pruned."""

import asyncio
from collections.abc import Callable
from functools import partial

from ajet_swarm.common.text import one_line
from core.events import AlertCleared, Event
from core.events.alerts import params_of
from core.journal.damage import check_in_background, continue_salvage
from core.journal.file import JournalError, mark
from proxy.alerts import alert_raised
from proxy.context import ProxyContext

CHECK_EVERY = 0.5


def follow_journal(context: ProxyContext) -> None:
    """Raise an alert when writing or pruning fails, and clear it once that succeeds again.

    A stalled disk reports no error, so the disk is checked every `CHECK_EVERY` seconds. The file is
    checked for damage once, in the background; the next start salvages a damaged file. Of a large
    one, the rows are copied in the background too.

    The alerts are events, so they are in the journal as well, together with the backlog.
    """
    loop, journal, bus = asyncio.get_running_loop(), context.journal, context.bus

    def publish(event: Event) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(bus.publish, event)

    def failed(error: JournalError) -> None:
        params = params_of("journal", error=error.what, remedy=error.todo)
        publish(alert_raised("journal", params))

    def recovered(seconds: float) -> None:
        note = f"it is written again, after {seconds:.0f} s; nothing is missing"
        publish(AlertCleared(key="journal", note=note))

    def notice(text: str) -> None:
        publish(alert_raised("journal_file", params_of("journal_file", notice=text)))

    def checked(damage: str) -> None:
        if damage:
            mark(journal.path, damage)
            params = params_of("journal_damage", damage=damage)
            publish(alert_raised("journal_damage", params))

    async def check_disk() -> None:
        while True:
            journal.check_stall()
            await asyncio.sleep(CHECK_EVERY)

    journal.on_error, journal.on_recovered = failed, recovered
    journal.on_notice = notice
    if context.pruner is not None:
        context.pruner.on_change = partial(_pruning_changed, publish)
    if journal.error:  # since the start
        failed(journal.failure())
    check_in_background(journal.path, checked)
    continue_salvage(journal)
    context.tasks.spawn(context.keep_running(check_disk, "disk watch"), "disk watch")


def _pruning_changed(publish: Callable[[Event], None], error: Exception | None) -> None:
    """Raise the alert about pruning that fails; without an error clear it."""
    if error is None:
        publish(AlertCleared(key="journal_prune", note="it is pruned again"))
        return
    params = params_of("journal_prune", error=one_line(f"{type(error).__name__}: {error}", 300))
    publish(alert_raised("journal_prune", params))
