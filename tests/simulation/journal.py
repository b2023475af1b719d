"""The journal in memory: commits and syncs are timers of the loop, and a kill cuts them.

It has the methods of `core.journal.writer.Journal` that the request path calls, with the same
promises. `JournalFile` is what survives a kill; a new `SimulatedJournal` on it goes on from there.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from core.events import AnyEvent, Event, GroupEvent, decode, encode
from core.journal.file import JournalError
from core.journal.reader import END
from core.journal.storage import Job, Meta
from core.state import State, apply
from tests.simulation.loop import Incarnation, context_of
from tests.support.proxy.singles import Candidates

COMMIT = (0.0, 0.05)
"""Seconds until an event is committed, at least and at most."""
SYNC = (0.0, 0.1)
"""Seconds until a commit is synced, at least and at most."""


@dataclass
class JournalFile:
    """Committed rows of a journal."""

    lines: list[bytes] = field(default_factory=list)
    """Events as JSON, in order."""
    durable: int = 0
    """Number of the newest event that survives a loss of power."""
    meta: dict[str, str] = field(default_factory=dict)

    def events(self) -> list[AnyEvent]:
        """Return all events."""
        return [decode(line) for line in self.lines]

    def holds_reward(self, task_id: str, uuid: str, reward: float) -> bool:
        """Return whether a durable event fixes this reward of an episode, as `GroupSealed` does."""
        group_id = task_id.rpartition("#")[2]
        candidates = Candidates()
        for line in self.lines:
            if group_id.encode() in line and (event := decode(line)).seq <= self.durable:
                candidates.note(event)
        return any(
            candidates.rewards.get(key) == reward
            for key, claimed in candidates.uuids.items()
            if claimed == uuid
        )

    def state(self) -> State:
        """Return the state that the events lead to."""
        state = State()
        for event in self.events():
            apply(state, event)
        return state


class SimulatedJournal:
    """One opening of a journal by one incarnation of the proxy; use it inside the loop.

    Args:
        file: The committed rows.
        incarnation: Process that has it open; does nothing once that is killed.
        chance: Chooses the delays.
    """

    def __init__(
        self,
        file: JournalFile,
        incarnation: Incarnation | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.path = Path("journal.db")
        self.error = ""
        self.on_error: Callable[[JournalError], None] | None = None
        self.on_recovered: Callable[[float], None] | None = None
        self.on_notice: Callable[[str], None] | None = None
        self.stalled = False
        """Commits and syncs wait until `resume`."""
        self._file = file
        self._incarnation = incarnation or Incarnation("journal")
        self._chance = chance or random.Random(0)
        self._loop = asyncio.get_running_loop()
        self._context = context_of(self._incarnation)
        self._rows: list[bytes] = []
        """Lines of the open batch."""
        self._meta: dict[str, str] = {}
        """Keys and values of the open batch."""
        self._written = self._committed = self._durable = self.last_seq()
        """Number of the newest event that is appended, committed and synced."""
        file.durable = self._durable
        self._commit_timer: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._commit_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._sync_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._failed_at = 0.0

    # --- as `core.journal.writer.Journal` -------------------------------------------------------

    def append(self, job: Job) -> None:
        """Queue an event or another job."""
        if self._incarnation.killed:
            return
        if isinstance(job, Event):
            self._rows.append(encode(job))
            self._written = job.seq
        elif isinstance(job, Meta):
            self._meta[job.key] = job.value
        self._schedule_commit()

    def append_snapshot(self, state: State) -> None:
        """Check that the state can be stored; the state is always rebuilt from all events."""
        msgspec.json.decode(msgspec.json.encode(state), type=State)

    def put_meta(self, key: str, value: str) -> None:
        """Queue a key and value that are no event."""
        self.append(Meta(key, value))

    def meta(self, key: str) -> str | None:
        """Return a committed value; None without one."""
        return self._file.meta.get(key)

    async def committed(self, seq: int) -> None:
        """Wait until all events up to `seq` survive a kill."""
        if self._committed < seq:
            await self._wait(self._commit_waiters, seq)

    async def durable(self, seq: int) -> None:
        """Wait until all events up to `seq` survive a loss of power."""
        if self._durable < seq:
            await self._wait(self._sync_waiters, seq)

    def failure(self) -> JournalError:
        """Return the error for waiters while nothing can be written."""
        return JournalError(
            f"the journal cannot be written: {self.error}", str(self.path), "Free some space"
        )

    def load_state(self, until: int = END, advance: Callable[[int], None] | None = None) -> State:
        """Return the state of the committed events; all of them."""
        return self._file.state()

    def last_seq(self) -> int:
        """Return the number of the newest committed event; 0 for none."""
        return decode(self._file.lines[-1]).seq if self._file.lines else 0

    def events(self, after: int = 0, limit: int = 1_000) -> list[AnyEvent]:
        """Return up to `limit` committed events with `seq` above `after`."""
        return [event for event in self._file.events() if event.seq > after][:limit]

    def group_events(self, group_id: str, until: int = END) -> list[AnyEvent]:
        """Return the committed events of one group up to `until`."""
        return [
            event
            for event in self._file.events()
            if isinstance(event, GroupEvent) and event.group_id == group_id and event.seq <= until
        ]

    def close(self) -> None:
        """Write what is queued, unless the journal is full or its process killed."""
        if not self._incarnation.killed and not self.error:
            self.stalled = False
            self._commit()
            self._sync()

    # --- faults ---------------------------------------------------------------------------------

    def stall(self) -> None:
        """Hold commits and syncs until `resume`; nothing reports an error."""
        self.stalled = True

    def fill(self, error: str = "the disk is full") -> None:
        """Fail commits and syncs until `resume`; what waits for one gets `JournalError`."""
        self.error = error
        self._failed_at = self._loop.time()
        if self.on_error is not None:
            self.on_error(self.failure())
        for _, future in (*self._commit_waiters, *self._sync_waiters):
            if not future.done():
                future.set_exception(self.failure())
        self._commit_waiters, self._sync_waiters = [], []

    def resume(self) -> None:
        """End `stall` and `fill`; the open batch is committed after a delay."""
        failed, self.error, self.stalled = bool(self.error), "", False
        self._schedule_commit()
        self._schedule_sync()
        if failed and self.on_recovered is not None:
            self.on_recovered(self._loop.time() - self._failed_at)

    def cut(self, with_open_batch: bool) -> None:
        """Leave the file as a kill of the process does; call it at the kill.

        Args:
            with_open_batch: Whether the commit that was to come still took place.
        """
        if with_open_batch and not self.error and not self.stalled:
            self._write()

    # --- timers ---------------------------------------------------------------------------------

    async def _wait(self, waiters: list[tuple[int, asyncio.Future[None]]], seq: int) -> None:
        if self.error:
            raise self.failure()
        future: asyncio.Future[None] = self._loop.create_future()
        waiters.append((seq, future))
        await future

    def _schedule_commit(self) -> None:
        if self._commit_timer is None:
            delay = self._chance.uniform(*COMMIT)
            self._commit_timer = self._loop.call_later(delay, self._commit, context=self._context)

    def _schedule_sync(self) -> None:
        if self._sync_timer is None and self._durable < self._committed:
            delay = self._chance.uniform(*SYNC)
            seq = self._committed  # later commits are not part of this sync
            self._sync_timer = self._loop.call_later(delay, self._sync, seq, context=self._context)

    def _write(self) -> None:
        self._file.lines += self._rows
        self._file.meta |= self._meta
        self._rows, self._meta = [], {}

    def _commit(self) -> None:
        self._commit_timer = None
        if self.error or self.stalled:
            return
        self._write()
        self._committed = self._written
        self._commit_waiters = _resolved(self._commit_waiters, self._committed)
        self._schedule_sync()

    def _sync(self, seq: int | None = None) -> None:
        self._sync_timer = None
        if self.error or self.stalled:
            return
        self._durable = self._file.durable = self._committed if seq is None else seq
        self._sync_waiters = _resolved(self._sync_waiters, self._durable)
        self._schedule_sync()


def _resolved(
    waiters: list[tuple[int, asyncio.Future[None]]], seq: int
) -> list[tuple[int, asyncio.Future[None]]]:
    """Resolve the waiters for events up to `seq` and return the others."""
    for wanted, future in waiters:
        if wanted <= seq and not future.done():
            future.set_result(None)
    return [waiter for waiter in waiters if waiter[0] > seq]
