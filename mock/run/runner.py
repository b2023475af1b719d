"""The mock user at work: rows out, answers in, at its pace, as long as it may."""

import asyncio
import contextlib
import logging
import math
from pathlib import Path

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from core.events import MockCounted, MockFinished, MockRowSkipped, MockStarted
from mock.control import Control, ControlDown, ControlRefused
from mock.dataset import BadRow, Dataset, no_usable_row
from mock.run.group_feed import Following
from mock.run.pace import MOST_IN_FLIGHT, Gate, How, Outcome, Pace
from mock.run.progress import Progress
from mock.run.reporting import Telling
from mock.run.results import Results
from mock.run.row_order import Choice, Place, Walk
from mock.run.row_task import RowWork
from mock.tally import Tally
from mock.targets.openai import Target
from mock.users.persona import UserModel

__all__ = ["Choice", "Control", "ControlDown", "ControlRefused", "Outcome", "Pace", "Runner"]

log = logging.getLogger("mock")

SKIPS_TOLD = 50
"""Broken rows posted one by one; the others only as a number."""
_FIRST_LOOK = 5.0
"""Seconds the first look at the proxy's state may take before rows are asked without it."""
_SETTLE = 0.2
_STOP_SETTLE = 3.0
"""Seconds that rewards of the last rows get after a stop."""


class Runner:
    """One start of the mock user. Lives on one event loop, runs once.

    Args:
        dataset: Its rows.
        progress: What is done; holds the name of this start.
        target: Answers questions.
        pace: How fast.
        choice: Which rows, how often, in what order.
        control: The proxy's control API, or None without one.
        results: A file for one line a row, or None.
        user: Plays the user of rows with a persona, or None.
    """

    def __init__(
        self,
        dataset: Dataset,
        progress: Progress,
        target: Target,
        pace: Pace,
        choice: Choice,
        control: Control | None = None,
        results: Results | None = None,
        user: UserModel | None = None,
    ) -> None:
        self.dataset = dataset
        self.progress = progress
        self.pace = pace
        self.choice = choice
        self.tally = Tally(expected=choice.expected)
        self._control = control
        self._target = target
        self._results = results
        self._gate = Gate()
        self._limit = asyncio.timeout(None)
        self._ended: Outcome | None = None
        self._telling = Telling(control) if control is not None else None
        self._following = Following(control) if control is not None else None
        self._work = RowWork(
            progress, target, pace, self._gate, self.tally, control, self._following, user
        )
        self._walk = Walk(dataset, progress, choice, self.tally, played=user is not None)
        self._next = asyncio.Lock()
        self._entered = False
        self._counted = (-1, 0)
        self._count()
        self._give_up = math.inf
        self.problems: list[BadRow] = []
        """The first broken rows."""

    @property
    def results_path(self) -> Path:
        """Where the results are: the operator's file, else that of this start."""
        return self._results.path if self._results is not None else self.progress.results

    @property
    def mock_id(self) -> str:
        return self.progress.mock_id

    def stop(
        self,
        how: How = "stopped",
        cause: str = "",
        wait: float | None = None,
        settle: float | None = None,
    ) -> None:
        """Send nothing more.

        Args:
            how: What the run ends as.
            cause: Why, for people.
            wait: Seconds rows in flight get to end; `pace.stop_wait` when left out.
            settle: Seconds from now that the rewards of answered rows get; `wait` when left out.
        """
        if self._ended is None:
            self._ended = Outcome(how, cause)
            self.tally.phase = "stopping"
        self._gate.stopping.set()
        self._gate.open.set()
        until = asyncio.get_running_loop().time() + (self.pace.stop_wait if wait is None else wait)
        if wait is not None:
            patience = wait if settle is None else settle
            self._give_up = min(self._give_up, until - wait + patience)
        known = self._limit.when()
        if self._entered and not self._limit.expired() and (known is None or until < known):
            self._limit.reschedule(until)

    async def run(self) -> Outcome:
        """Ask every row that is not done; returns when all are, or after a stop.

        Raises:
            AjetError: the control API refuses this mock user, or does not answer at all.
        """
        async with Tasks("mock") as tasks:
            await asyncio.to_thread(self.dataset.scan)
            self._count()
            await self._start()
            tasks.spawn(self._find_all(), "count")
            if self._control is not None and self._telling is not None:
                tasks.spawn(self._telling.run(), "facts")
                tasks.spawn(self._watch(self._control), "directive")
            if self._following is not None:
                tasks.spawn(self._following.run(), "feed")
                tasks.spawn(self._look_on(self._following), "engines")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_FIRST_LOOK):
                        await self._following.seen.wait()
            await self._recover()
            if self._results is not None:
                tasks.spawn(self._results.keep_up(self._following), "results")
            await self._ask_all()
            outcome = self._outcome()
            if outcome.how == "finished":
                await asyncio.to_thread(self.progress.finish)
            await self._settle(outcome)
            self.tally.phase = outcome.how
            await self._close_facts(outcome)
        return outcome

    # --- beginning -------------------------------------------------------------------------------

    async def _start(self) -> None:
        lost = self.progress.lost
        self._counted = (self.tally.total or 0, 0)
        event = MockStarted(
            mock_id=self.mock_id,
            dataset=str(self.dataset.path),
            target=self._target.name,
            total=self._counted[0],
            concurrency=self.pace.concurrency,
            pace=self.pace.seconds,
            done=self.tally.already,
            rate=self.pace.rate,
            passes=self.choice.passes,
            seed=self.choice.seed,
            split=self.choice.split or "",
            held_out=self.choice.held_out if self.choice.split else 0.0,
            columns=str(self.dataset.columns),
            lost=sum(key.number <= self.choice.passes for key in lost),
        )
        if self._telling is not None:
            await self._telling.now(
                f"{self.mock_id}:started", event, self.pace.patience, self._gate.rest
            )
        self._gate.open.set()

    async def _recover(self) -> None:
        """Close what a killed start had in flight, and write what it could not."""
        await asyncio.to_thread(self._work.recover)
        if self._telling is not None:
            for event in self._work.ends:
                await self._telling.put(f"{event.mock_id}:{event.row_id}:lost", event)
        if self._results is not None:
            self._work.results = self._results
            await asyncio.to_thread(self._results.add_missing, self.progress.earlier())
            for result in self._work.lost:
                self._results.add(result)

    def _count(self) -> None:
        self.tally.rows = self.dataset.found * self.choice.passes if self.dataset.whole else None
        self.tally.already = self.progress.done.count(self.choice.passes) + sum(
            key.number <= self.choice.passes for key in self.progress.lost
        )

    async def _find_all(self) -> None:
        """Look through the rest of the dataset, so that its length is known."""
        more = True
        while more:
            more = await asyncio.to_thread(self.dataset.scan)
        self.tally.rows = self.dataset.found * self.choice.passes
        await self._tell_total()

    # --- rows ------------------------------------------------------------------------------------

    async def _ask_all(self) -> None:
        try:
            async with self._limit:
                self._entered = True
                async with asyncio.TaskGroup() as group:
                    if self.pace.rate:
                        group.create_task(self._arrivals(group), name="mock:arrivals")
                    else:
                        for number in range(self.pace.concurrency):
                            group.create_task(self._worker(), name=f"mock:worker{number}")
        except TimeoutError:
            log.warning("rows in flight were given up: they are asked again by the next start")
        finally:
            self._entered = False

    async def _worker(self) -> None:
        while (place := await self._take()) is not None:
            await self._one(place)
            if self.pace.seconds and await self._gate.rest(self.pace.seconds):
                return

    async def _arrivals(self, group: asyncio.TaskGroup) -> None:
        """Rows at their times, however many are in flight."""
        clock = asyncio.get_running_loop().time
        room = asyncio.Semaphore(MOST_IN_FLIGHT)
        due = clock()
        for gap in self.pace.gaps(self.choice.seed):
            due += gap
            if await self._gate.rest(due - clock()):
                return
            if not self._gate.open.is_set() or room.locked():
                await self._gate.open.wait()
                if room.locked():
                    self.tally.waiting = f"{MOST_IN_FLIGHT} in flight: the next ones wait"
            await room.acquire()
            place = await self._take()
            if place is None:
                return
            due = max(due, clock() - 1.0)  # what a pause held back does not come as a burst
            group.create_task(self._arrived(place, room), name=f"mock:{place.key}")

    async def _arrived(self, place: Place, room: asyncio.Semaphore) -> None:
        try:
            await self._one(place)
        finally:
            room.release()

    async def _take(self) -> Place | None:
        """The next row, once rows may go out; None when there is none or a stop came."""
        while not self._gate.stopping.is_set():
            await self._gate.open.wait()
            if self.pace.pause_sync and self._following is not None and self._following.syncing:
                self.tally.waiting = "paused for the weight sync"
                await self._gate.rest(_SETTLE)
                continue
            async with self._next:
                found = None if self._gate.stopping.is_set() else await self._walked()
            if isinstance(found, BadRow):
                await self._skip(found)
                continue
            return None if self._gate.stopping.is_set() else found
        return None

    async def _walked(self) -> Place | BadRow | None:
        try:
            return await self._walk.next()
        except AjetError as error:
            self.stop("failed", str(error))
        except Exception:  # a worker's boundary: the others end in order and the run says so
            log.exception("the dataset cannot be read on")
            self.stop("failed", "an internal error while reading; the log has it")
        return None

    async def _one(self, place: Place) -> None:
        try:
            told = await self._work.row(place, self._obey)
            if told is not None and self._telling is not None:
                await self._telling.put(f"{self.mock_id}:{place.row.row_id}:{place.key}", told)
        except AjetError as error:
            self.stop("failed", str(error), wait=5.0)
        except Exception:  # a worker's boundary: the others end in order and the run says so
            log.exception("the mock user failed")
            self.stop("failed", "an internal error; the log has it")

    async def _skip(self, row: BadRow) -> None:
        place = self.dataset.reader.place
        if len(self.problems) < SKIPS_TOLD:
            self.problems.append(row)
        log.warning("%s, %s %d: passed over: %s", self.dataset.path, place, row.line, row.cause)
        if self._telling is not None and self.tally.skipped <= SKIPS_TOLD:
            event = MockRowSkipped(
                mock_id=self.mock_id, line=row.line, cause=row.cause, place=place
            )
            await self._telling.put(f"{self.mock_id}:line-{row.line}:skipped", event)

    # --- directives and engines ------------------------------------------------------------------

    def _obey(self, directive: str) -> None:
        if directive == "stop":
            self.stop("stopped", "ordered")
        elif not self._gate.stopping.is_set():
            self.tally.phase = "paused" if directive == "pause" else "running"
            if directive == "pause":
                self._gate.open.clear()
            else:
                self._gate.open.set()

    async def _watch(self, control: Control) -> None:
        while not await self._gate.rest(self.pace.poll):
            try:
                self._obey(await control.directive(self.mock_id))
            except (ControlDown, ControlRefused) as error:
                log.debug("the directive is not known: %s", error)
            await self._tell_total()

    async def _look_on(self, following: Following) -> None:
        while self.pace.updates and not await self._gate.rest(_SETTLE):
            if (updates := following.updates) >= self.pace.updates:
                self.stop("stopped", f"{updates} update{'s' * (updates != 1)} done, as asked for")

    # --- ends ------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        if self._ended is not None:
            return self._ended
        bad = self._walk.first_bad
        if bad is not None and not self.tally.kept:
            return Outcome("failed", str(no_usable_row(self.dataset, bad)))
        return Outcome("finished")

    async def _settle(self, outcome: Outcome) -> None:
        """The last rows' rewards, for the file; not for long after a stop."""
        if self._results is None:
            return
        clock = asyncio.get_running_loop().time
        until = clock() + (_STOP_SETTLE if outcome.how == "stopped" else math.inf)
        self.tally.waiting = "waiting for the last rewards"
        while self._results.settle(self._following):
            if clock() >= min(until, self._give_up):
                break
            await asyncio.sleep(_SETTLE)
        self.tally.waiting = ""

    async def _tell_total(self) -> None:
        total = self.tally.total
        known = (total or 0, self.tally.skipped)
        if self._telling is not None and total is not None and known != self._counted:
            self._counted = known
            event = MockCounted(mock_id=self.mock_id, total=total, skipped=self.tally.skipped)
            await self._telling.put(f"{self.mock_id}:counted:{known}:{self.tally.passed}", event)

    async def _close_facts(self, outcome: Outcome) -> None:
        if self._telling is not None:
            await self._tell_total()
            event = MockFinished(mock_id=self.mock_id, how=outcome.how, cause=outcome.cause)
            seconds = 3.0 if outcome.how == "stopped" else 10.0
            await self._telling.close(f"{self.mock_id}:finished", event, seconds)
