"""Groups that end unrated because a user's request waits.

In the rating modes a group holds its episodes until it is rated, and a batch has a limited number
of them. No user waits for a rater: for each request that waits for episodes, the oldest group
without a rating ends (with its votes so far, else with the fallback of the mode), and all of them
while the weight update waits for them. A group that a rater has on screen is spared for a short
time as long as another one can end instead.

The requests of the mock user end no group while `rating.mock_waits` is set: their deadlines move
for as long as groups wait for a rating.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator

from proxy.context import ProxyContext
from proxy.groups.capacity import capacity_of
from proxy.groups.run import GroupRun
from proxy.servers.facts import CROWDED_AFTER, ROLLING_POST, ServerFacts

AGAIN = 2.0
"""Seconds after which another group ends for a request that still waits: the server may offer the
episodes of the first one late, or another client may take them."""
ACTIVE = 20.0
"""Seconds after his last key during which the group that a rater has on screen is spared."""
SPARED = 10.0
"""Maximum number of seconds for which a group is spared."""


class GivingWay:
    """Decides which open groups end for waiting requests; one object for all servers."""

    def __init__(self) -> None:
        self._waiting: dict[GroupRun, float] = {}
        """Request that waits -> time on the loop's clock from which a group may end for it."""
        self._timers: dict[GroupRun, asyncio.TimerHandle] = {}
        """Request without episodes yet -> its next check."""
        self._open: list[GroupRun] = []
        """Groups that are open to the operator in a rating mode."""

    @contextlib.contextmanager
    def waits(self, run: GroupRun) -> Iterator[None]:
        """Context in which the request of `run` waits for episodes; most get them at once."""
        self._timers[run] = run.loop.call_later(CROWDED_AFTER, self._check, run)
        try:
            yield
        finally:
            self._timers[run].cancel()
            del self._timers[run]
            self._waiting.pop(run, None)

    @contextlib.contextmanager
    def open(self, run: GroupRun) -> Iterator[None]:
        """Context in which a group is open to the operator; `run.wake` is set when it must end."""
        if run.context.bus.state.rating_mode == "off":  # then nothing stays open while users wait
            yield
            return
        self._open.append(run)
        try:
            self.press(run.facts)
            yield
        finally:
            self._open.remove(run)

    def press(self, facts: ServerFacts) -> None:
        """End the groups on which the waiting requests of a server depend now."""
        requests = [one for one in self._waiting if one.facts is facts]
        if not requests:
            return
        if facts.server.watcher.current.is_in(ROLLING_POST):
            for run in self._groups(facts):
                _end(run)
        elif facts.crowded and not facts.recovering:
            for request in requests:
                now = request.loop.time()
                if now >= self._waiting[request] and (oldest := self._oldest(facts)) is not None:
                    self._waiting[request] = now + AGAIN
                    _end(oldest)

    def _check(self, run: GroupRun) -> None:
        """End a group for a request that still waits, or postpone the request if it is a row."""
        self._timers[run] = run.loop.call_later(AGAIN, self._check, run)
        if not _is_row(run):
            self._waiting.setdefault(run, 0.0)
            self.press(run.facts)
        elif self._groups(run.facts):
            for waiter in run.waiters:
                waiter.limit += AGAIN
                waiter.postpone(AGAIN)

    def _groups(self, facts: ServerFacts) -> list[GroupRun]:
        """Return the open groups whose own users do not wait, those with votes first, then by
        age."""
        groups = [
            run
            for run in self._open
            if run.facts is facts and run.final_answer is not None and not run.gives_way
        ]
        return sorted(groups, key=lambda run: (not run.votes.ballots, run.opened_at))

    def _oldest(self, facts: ServerFacts) -> GroupRun | None:
        """Return the group that ends next; record which ones are spared for their raters."""
        groups = self._groups(facts)
        chosen = next((run for run in groups if not _is_spared(run)), None)
        if chosen is None:
            return groups[0] if groups else None
        for spared in groups[: groups.index(chosen)]:
            if not spared.spared_until:
                spared.spared_until = spared.context.clock() + SPARED
                spared.wake.set()
        return chosen


def rows_wait(
    context: ProxyContext, runs: Iterable[GroupRun], servers: Collection[ServerFacts]
) -> bool:
    """Return whether a row of the mock user, sent now, would wait for votes, so that it must not be
    sent yet.

    Args:
        context: The proxy's shared parts.
        runs: The open groups of all servers.
        servers: The facts of all servers; the row may be for any of them.
    """
    if context.bus.state.rating_mode == "off" or not context.settings.rating.mock_waits:
        return False
    runs = list(runs)
    sent = {run.row.row_id for run in runs if run.row is not None}
    rows = 1 + context.rows.outstanding(sent)
    by_server = [(facts, [run for run in runs if run.facts is facts]) for facts in servers]
    return bool(by_server) and all(_is_full_of_unrated(*one, rows) for one in by_server)


def _is_full_of_unrated(facts: ServerFacts, runs: list[GroupRun], rows: int) -> bool:
    """Return whether the last of `rows` new groups of a server would wait for episodes that unrated
    groups hold."""
    if not any(run.phase == "AWAITING_RATING" and run.votes.rating is None for run in runs):
        return False
    if facts.crowded or facts.server.watcher.current.is_in(ROLLING_POST):
        return True
    context = runs[0].context
    room = capacity_of(facts.server)
    needed = rows * max(facts.known_repeats, context.settings.proxy.repeats)
    return room is not None and sum(run.n for run in runs) + needed > room


def _end(run: GroupRun) -> None:
    run.gives_way = True
    run.wake.set()


def _is_row(run: GroupRun) -> bool:
    """Return whether it is a row of the mock user that waits for votes."""
    mock_waits = run.context.settings.rating.mock_waits
    return run.row is not None and bool(run.row.mock_id) and mock_waits


def _is_spared(run: GroupRun) -> bool:
    """Return whether a rater has the group on screen and is active."""
    now = run.context.clock()
    if run.spared_until and now >= run.spared_until:
        return False
    group = run.context.bus.state.groups.get(run.group_id)
    leases = group.leases if group is not None else []
    return any(now < lease.until and now - lease.key_at < ACTIVE for lease in leases)
