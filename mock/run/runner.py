"""A run of the mock user: sends rows and collects answers at its pace until done or stopped."""

import asyncio
import contextlib
import logging
import math
from dataclasses import dataclass
from pathlib import Path

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from core.events import MockCounted, MockFinished, MockRetried, MockRowSkipped, MockStarted
from mock.control import Control, ControlDown, ControlRefused
from mock.dataset import BadRow, BadRows, Dataset
from mock.run.group_feed import GroupFeed
from mock.run.pace import MAX_IN_FLIGHT, EndKind, Gate, Outcome, Pace
from mock.run.progress import Progress
from mock.run.reporting import FactQueue
from mock.run.results import Results
from mock.run.row_order import RowOrder, RowSelection, ScheduledRow
from mock.run.row_task import RowTask
from mock.tally import RunCounters
from mock.targets.question import Target
from mock.users.persona import UserModel

log = logging.getLogger("mock")

MAX_SKIP_EVENTS = 50
"""Number of broken rows that are posted individually, beside the first of each reason."""
_FIRST_SNAPSHOT_SECONDS = 5.0
"""Seconds to wait for the proxy's first snapshot before rows are asked without it."""
_PAUSED = "paused for the weight sync"
_WAITING_CAP = 300
"""Maximum characters of a reason for waiting in an event."""
_SETTLE = 0.2
_STOP_SETTLE = 3.0
"""Seconds that rewards of the last rows get after a stop."""


@dataclass
class Runner:
    """One start of the mock user. Runs once, on one event loop."""

    dataset: Dataset
    """Source of the rows."""
    progress: Progress
    """Finished rows and the name of this start."""
    target: Target
    """Application under test."""
    pace: Pace
    selection: RowSelection
    control: Control | None = None
    results: Results | None = None
    user: UserModel | None = None
    """Model that plays the user of rows with a persona."""

    def __post_init__(self) -> None:
        control = self.control
        self.counters = RunCounters(expected=self.selection.expected)
        self.bad_rows = BadRows(self.dataset.records.place)
        self._gate = Gate()
        self._limit = asyncio.timeout(None)
        self._end: Outcome | None = None
        self._facts = FactQueue(control)
        self._feed = GroupFeed(control) if control is not None else None
        self._row_task = RowTask(
            progress=self.progress,
            target=self.target,
            pace=self.pace,
            gate=self._gate,
            counters=self.counters,
            control=control,
            feed=self._feed,
            user=self.user,
        )
        self._row_order = RowOrder(
            self.dataset, self.progress, self.selection, self.counters, self.user is not None
        )
        self._sending = False
        self._posted_total = (-1, 0)
        self._posted_waiting = (0, "", 0)
        """Retries and reason of waiting in the last fact about them; finished rows at that time."""
        self._waiting_facts = 0
        self._give_up = math.inf
        self._count()

    @property
    def results_path(self) -> Path:
        """Path of the results: the operator's file, else that of the progress."""
        return self.results.path if self.results is not None else self.progress.path

    @property
    def mock_id(self) -> str:
        return self.progress.mock_id

    def stop(
        self,
        how: EndKind = "stopped",
        cause: str = "",
        wait: float | None = None,
        settle: float | None = None,
    ) -> None:
        """Stop sending rows.

        Args:
            how: Outcome of the run.
            cause: Reason, as text for people.
            wait: Seconds that rows in flight get; `pace.stop_wait` by default.
            settle: Seconds from now that rewards of answered rows get; `wait` by default.
        """
        if self._end is None:
            self._end = Outcome(how, cause)
            self.counters.phase = "stopping"
        self._gate.stopping.set()
        self._gate.open.set()
        until = asyncio.get_running_loop().time() + (self.pace.stop_wait if wait is None else wait)
        if wait is not None:
            patience = wait if settle is None else settle
            self._give_up = min(self._give_up, until - wait + patience)
        current = self._limit.when()
        if self._sending and not self._limit.expired() and (current is None or until < current):
            self._limit.reschedule(until)

    async def run(self) -> Outcome:
        """Ask every unfinished row; return when all are done, or after a stop.

        Raises:
            AjetError: the control API refuses this mock user, or does not respond at all.
        """
        async with Tasks("mock") as tasks:
            await asyncio.to_thread(self.dataset.records.scan)
            self._count()
            await self._start()
            tasks.spawn(self._scan_all(), "count")
            if self.control is not None and self._feed is not None:
                tasks.spawn(self._facts.run(), "facts")
                tasks.spawn(self._poll_directive(self.control), "directive")
                tasks.spawn(self._feed.run(), "feed")
                tasks.spawn(self._watch_updates(self._feed), "engines")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_FIRST_SNAPSHOT_SECONDS):
                        await self._feed.ready.wait()
            await self._recover()
            if self.results is not None:
                tasks.spawn(self.results.keep_up(self._feed), "results")
            await self._ask_all()
            outcome = self._outcome()
            if outcome.how == "finished":
                await asyncio.to_thread(self.progress.finish)
            await self._settle(outcome)
            self.counters.phase = outcome.how
            await self._post_finished(outcome)
        return outcome

    # --- start -----------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._posted_total = (self.counters.total or 0, 0)
        event = MockStarted(
            mock_id=self.mock_id,
            dataset=str(self.dataset.path),
            target=self.target.name,
            total=self._posted_total[0],
            concurrency=self.pace.concurrency,
            pace=self.pace.seconds,
            done=self.counters.already,
            rate=self.pace.rate,
            passes=self.selection.passes,
            seed=self.selection.seed,
            split=self.selection.split or "",
            held_out=self.selection.held_out if self.selection.split else 0.0,
            columns=str(self.dataset.columns),
            lost=sum(row.key.number <= self.selection.passes for row in self.progress.lost),
        )
        await self._facts.post_now(
            f"{self.mock_id}:started", event, self.pace.patience, self._gate.rest
        )
        self._gate.open.set()

    async def _recover(self) -> None:
        """Record the rows that a killed start had in flight, and add its missing results."""
        lost = await asyncio.to_thread(lambda: list(self._row_task.recover()))
        for end in lost:
            await self._facts.put(f"{end.mock_id}:{end.row_id}:lost", end)
        if (results := self.results) is not None:
            self._row_task.results = results
            for result in await asyncio.to_thread(lambda: [*self.progress.results(results.path)]):
                results.add(result)

    def _count(self) -> None:
        records = self.dataset.records
        self.counters.rows = records.count * self.selection.passes if records.whole else None
        self.counters.already = self.progress.count(self.selection.passes)

    async def _scan_all(self) -> None:
        """Scan the rest of the dataset, to learn its length."""
        more = True
        while more:
            more = await asyncio.to_thread(self.dataset.records.scan)
        self.counters.rows = self.dataset.records.count * self.selection.passes
        await self._post_total()

    # --- rows ------------------------------------------------------------------------------------

    async def _ask_all(self) -> None:
        try:
            async with self._limit:
                self._sending = True
                async with asyncio.TaskGroup() as group:
                    await self._send(group)
        except TimeoutError:
            log.warning("rows in flight were given up: the next start asks them again")
        finally:
            self._sending = False

    async def _send(self, group: asyncio.TaskGroup) -> None:
        """Send rows: each when an earlier one has ended, or at its time, whatever is in flight."""
        pace, clock = self.pace, asyncio.get_running_loop().time
        slots = asyncio.Semaphore(MAX_IN_FLIGHT if pace.rate else pace.concurrency)
        due = clock()
        for gap in pace.gaps(self.selection.seed):
            due = max(due, clock() - 1.0) + gap  # no burst after a pause
            if pace.rate and await self._gate.rest(due - clock()):
                return
            if pace.rate and slots.locked():
                self.counters.waiting = f"{MAX_IN_FLIGHT} in flight: further rows wait"
            await slots.acquire()
            if (place := await self._next_sendable()) is None:
                return
            group.create_task(self._in_slot(place, slots), name=f"mock:{place.key}")

    async def _in_slot(self, place: ScheduledRow, slots: asyncio.Semaphore) -> None:
        await self._ask_row(place)
        if self.pace.seconds:
            await self._gate.rest(self.pace.seconds)
        slots.release()

    async def _next_sendable(self) -> ScheduledRow | None:
        """Return the next row once rows may be sent; None when there is none or a stop came."""
        while not self._gate.stopping.is_set():
            await self._gate.open.wait()
            if self.pace.pause_sync and self._feed is not None and self._feed.syncing:
                self.counters.waiting = _PAUSED
                await self._gate.rest(_SETTLE)
                continue
            if self.counters.waiting == _PAUSED:
                self.counters.waiting = ""
            row = None if self._gate.stopping.is_set() else await self._next_row()
            if isinstance(row, BadRow):
                await self._skip(row)
                continue
            return None if self._gate.stopping.is_set() else row
        return None

    async def _next_row(self) -> ScheduledRow | BadRow | None:
        try:
            return await self._row_order.next()
        except AjetError as error:
            self.stop("failed", str(error))
        except Exception:  # worker boundary: the others finish and the run fails
            log.exception("reading the dataset failed")
            self.stop("failed", "an internal error while reading; see the log")
        return None

    async def _ask_row(self, place: ScheduledRow) -> None:
        try:
            done = await self._row_task.row(place, self._apply_directive)
            if done is not None:
                await self._facts.put(f"{self.mock_id}:{place.row.row_id}:{place.key}", done)
        except AjetError as error:
            self.stop("failed", str(error), wait=5.0)
        except Exception:  # worker boundary: the others finish and the run fails
            log.exception("the mock user failed")
            self.stop("failed", "an internal error; see the log")

    async def _skip(self, row: BadRow) -> None:
        place = self.dataset.records.place
        is_new = self.bad_rows.add(row)
        log.warning("%s, %s %d: skipped: %s", self.dataset.path, place, row.line, row.cause)
        if is_new or self.counters.skipped <= MAX_SKIP_EVENTS:
            event = MockRowSkipped(
                mock_id=self.mock_id, line=row.line, cause=row.cause, place=place
            )
            await self._facts.put(f"{self.mock_id}:line-{row.line}:skipped", event)

    # --- directives and engines ------------------------------------------------------------------

    def _apply_directive(self, directive: str) -> None:
        if directive == "stop":
            self.stop("stopped", "ordered")
        elif not self._gate.stopping.is_set():
            self.counters.phase = "paused" if directive == "pause" else "running"
            if directive == "pause":
                self._gate.open.clear()
            else:
                self._gate.open.set()

    async def _poll_directive(self, control: Control) -> None:
        while not await self._gate.rest(self.pace.poll):
            try:
                self._apply_directive(await control.directive(self.mock_id))
            except (ControlDown, ControlRefused) as error:
                log.debug("the directive is unknown: %s", error)
            await self._post_total()
            await self._post_waiting()

    async def _watch_updates(self, feed: GroupFeed) -> None:
        while self.pace.updates and not await self._gate.rest(_SETTLE):
            if (updates := feed.updates) >= self.pace.updates:
                self.stop("stopped", f"{updates} update{'s' * (updates != 1)} done, as requested")

    # --- end -------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        if self._end is not None:
            return self._end
        if self.bad_rows.firsts and not self.counters.selected:
            return Outcome("failed", str(self.dataset.no_usable_row(self.bad_rows)))
        return Outcome("finished")

    async def _settle(self, outcome: Outcome) -> None:
        """Wait for the rewards of the last rows, for the results file; only briefly after a
        stop."""
        if self.results is None:
            return
        clock = asyncio.get_running_loop().time
        until = clock() + (_STOP_SETTLE if outcome.how == "stopped" else math.inf)
        self.counters.waiting = "waiting for the last rewards"
        while self.results.settle(self._feed):
            if clock() >= min(until, self._give_up):
                break
            await asyncio.sleep(_SETTLE)
        self.counters.waiting = ""

    async def _post_total(self) -> None:
        total = self.counters.total
        current = (total or 0, self.counters.skipped)
        if total is not None and current != self._posted_total:
            self._posted_total = current
            event = MockCounted(mock_id=self.mock_id, total=total, skipped=self.counters.skipped)
            await self._facts.put(f"{self.mock_id}:counted:{current}:{self.counters.passed}", event)

    async def _post_waiting(self) -> None:
        """Post the retries and what is waited for, if they changed."""
        counters = self.counters
        retries, waiting, done = self._posted_waiting
        now = (counters.retries, counters.waiting[:_WAITING_CAP])
        if not now[1] and counters.done > done:
            waiting = ""  # a finished row ends the waiting in the state, too
        if now == (retries, waiting):
            return
        self._posted_waiting = (*now, counters.done)
        self._waiting_facts += 1
        event = MockRetried(mock_id=self.mock_id, retries=now[0], waiting=now[1])
        await self._facts.put(f"{self.mock_id}:retried:{self._waiting_facts}", event)

    async def _post_finished(self, outcome: Outcome) -> None:
        await self._post_total()
        await self._post_waiting()
        event = MockFinished(mock_id=self.mock_id, how=outcome.how, cause=outcome.cause)
        seconds = 3.0 if outcome.how == "stopped" else 10.0
        await self._facts.close(f"{self.mock_id}:finished", event, seconds)
