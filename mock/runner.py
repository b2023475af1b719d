"""The mock user at work: rows out, answers in, at its pace, as long as it may."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from core.errors import AjetError
from core.events import Event, MockFinished, MockRowDone, MockRowSkipped, MockStarted
from core.tasks import Tasks
from mock.asking import Answer, Asker, Unreachable
from mock.dataset import BadRow, Dataset, Row
from mock.progress import Progress, key, number_of
from mock.tally import Tally

log = logging.getLogger("mock")

TEXT_CAP = 2_000
"""Characters of a query or an answer in a fact; the results file has them whole."""
SKIPS_TOLD = 50
"""Broken rows posted one by one; the others only as a number."""
_FACTS_WAITING = 500
_POLL = 1.0
_BACK_OFF = 5.0


class ControlDown(AjetError):
    """The control API does not answer; it may again."""


class ControlRefused(AjetError):
    """The control API answered no; asking again is of no use."""

    def __init__(self, what: str, where: str = "", todo: str = "", status: int = 0) -> None:
        self.status = status
        super().__init__(what, where, todo)


class Control(Protocol):
    """What the mock user needs of the control API."""

    async def register_row(self, row: Mapping[str, Any]) -> str:
        """Announce a row; returns `run`, `pause` or `stop`. Raises ControlDown, ControlRefused."""

    async def directive(self, mock_id: str) -> str:
        """What to do now: `run`, `pause` or `stop`. Raises ControlDown, ControlRefused."""

    async def post_fact(self, fact_id: str, event: Event) -> None:
        """Journal a fact, once for each id. Raises ControlDown, ControlRefused."""


How = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast, how often, in what order, how patiently."""

    concurrency: int = 3
    seconds: float = 0.0
    """Between two requests of one worker."""
    passes: int = 1
    seed: int | None = None
    """Shuffles each pass; None keeps the dataset's order."""
    patience: float = 900.0
    """Seconds a row is tried again while the target is busy or away; groups that wait for a rating
    may keep a server busy for ten minutes."""
    stop_wait: float = 120.0
    """Seconds that rows in flight get after a stop was ordered."""
    poll: float = _POLL
    """Seconds between two looks at the directive."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    how: How
    cause: str = ""


@dataclass(slots=True)
class _Gate:
    """Whether rows may go out now."""

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def rest(self, seconds: float) -> bool:
        """Wait `seconds`, less when a stop comes; True when it came."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return False
        return True


class Runner:
    """One start of the mock user. Lives on one event loop, runs once.

    Args:
        dataset: Its rows.
        progress: What is done; holds the name of this start.
        asker: Sends a row to the target.
        pace: How fast and how often.
        control: The proxy's control API, or None without one.
        target: Where the rows go, for people.
    """

    def __init__(
        self,
        dataset: Dataset,
        progress: Progress,
        asker: Asker,
        pace: Pace,
        control: Control | None = None,
        target: str = "",
    ) -> None:
        self.dataset = dataset
        self.progress = progress
        self.pace = pace
        self.tally = Tally(
            total=len(dataset) * pace.passes,
            already=sum(number_of(one) <= pace.passes for one in progress.done),
            skipped=dataset.broken,
        )
        self._asker = asker
        self._control = control
        self._target = target
        self._gate = _Gate()
        self._limit = asyncio.timeout(None)
        self._ended: Outcome | None = None
        self._facts: asyncio.Queue[tuple[str, Event]] = asyncio.Queue(_FACTS_WAITING)
        self._places = self._all_places()
        self._next = asyncio.Lock()
        self._entered = False

    @property
    def mock_id(self) -> str:
        return self.progress.mock_id

    def stop(self, how: How = "stopped", cause: str = "", wait: float | None = None) -> None:
        """Send nothing more; rows in flight get `wait` seconds (`pace.stop_wait`) to end."""
        if self._ended is None:
            self._ended = Outcome(how, cause)
            self.tally.phase = "stopping"
        self._gate.stopping.set()
        self._gate.open.set()
        until = asyncio.get_running_loop().time() + (self.pace.stop_wait if wait is None else wait)
        known = self._limit.when()
        if self._entered and not self._limit.expired() and (known is None or until < known):
            self._limit.reschedule(until)

    async def run(self) -> Outcome:
        """Ask every row that is not done; returns when all are, or after a stop.

        Raises:
            AjetError: the control API refuses this mock user, or does not answer at all.
        """
        await self._start()
        async with Tasks("mock") as tasks:
            if self._control is not None:
                tasks.spawn(self._post(self._control), "facts")
                tasks.spawn(self._watch(self._control), "directive")
            await self._work()
            outcome = self._ended or Outcome("finished")
            if outcome.how == "finished":
                await asyncio.to_thread(self.progress.finish)
            self.tally.phase = outcome.how
            await self._close_facts(outcome)
        return outcome

    async def _start(self) -> None:
        told = self.dataset.problems[:SKIPS_TOLD]
        await self._fact_now(
            f"{self.mock_id}:started",
            MockStarted(
                mock_id=self.mock_id,
                dataset=str(self.dataset.path),
                target=self._target,
                total=self.tally.total,
                concurrency=self.pace.concurrency,
                pace=self.pace.seconds,
                done=self.tally.already,
                skipped=self.dataset.broken - len(told),
            ),
        )
        self._gate.open.set()
        for problem in self.dataset.problems:
            log.warning("line %d is passed over: %s", problem.line, problem.cause)
        for problem in told:
            self._tell_skipped(problem)

    async def _work(self) -> None:
        try:
            async with self._limit:
                self._entered = True
                async with asyncio.TaskGroup() as group:
                    for number in range(self.pace.concurrency):
                        group.create_task(self._worker(), name=f"mock:worker{number}")
        except TimeoutError:
            log.warning("rows in flight were given up: they are asked again by the next start")
        finally:
            self._entered = False

    async def _all_places(self) -> AsyncIterator[tuple[int, int]]:
        """Pass and position of each row that is not done."""
        done = self.progress.done
        for number in range(1, self.pace.passes + 1):
            for position in await asyncio.to_thread(self.dataset.order, number, self.pace.seed):
                if key(number, self.dataset.line(position)) not in done:
                    yield number, position

    async def _worker(self) -> None:
        try:
            while not self._gate.stopping.is_set():
                await self._gate.open.wait()
                async with self._next:
                    place = await anext(self._places, None)
                if place is None or self._gate.stopping.is_set():
                    return
                await self._row(*place)
                if self.pace.seconds and await self._gate.rest(self.pace.seconds):
                    return
        except AjetError as error:
            self.stop("failed", str(error))
        except Exception:  # a worker's boundary: the others end in order and the run says so
            log.exception("the mock user failed")
            self.stop("failed", "an internal error; the log has it")

    async def _row(self, number: int, position: int) -> None:
        row = await asyncio.to_thread(self.dataset.row, position)
        if isinstance(row, BadRow):
            self.tally.skipped += 1
            log.warning("line %d is passed over: %s", row.line, row.cause)
            await self._fact(*self._skipped(row))
            return
        sent_id = row.row_id if number == 1 else f"{row.row_id}~{number}"
        try:
            if not await self._announce(row, sent_id):
                return
            answer = await self._asker.ask(
                row, sent_id, self._gate.rest, self.pace.patience, self.tally
            )
        except Unreachable as error:
            self.stop("failed", str(error), wait=5.0)
            return
        except ControlRefused as error:
            if error.status in (401, 403):
                raise
            answer = Answer(error=str(error))
        if answer is not None:
            await self._done(row, sent_id, number, answer)

    async def _announce(self, row: Row, sent_id: str) -> bool:
        """Register the row and wait as long as the directive is to pause; False on a stop."""
        if self._control is None:
            return True
        announced = {
            "row_id": sent_id,
            "query": row.query,
            "task_id": row.task_id or row.row_id,
            "reference": row.reference,
            "metadata": row.metadata,
            "mock_id": self.mock_id,
        }
        deadline = time.monotonic() + self.pace.patience
        delay = 0.1
        while not self._gate.stopping.is_set():
            try:
                directive = await self._control.register_row(announced)
            except ControlDown:
                if time.monotonic() + delay > deadline:
                    raise
                await self._gate.rest(delay)
                delay = min(delay * 2, _BACK_OFF)
                continue
            self._obey(directive)
            if directive == "run":
                return True
            await self._gate.open.wait()
        return False

    async def _done(self, row: Row, sent_id: str, number: int, answer: Answer) -> None:
        result = {
            "row_id": sent_id,
            "line": row.line,
            "pass": number,
            "query": row.query,
            "answer": answer.text,
            "seconds": round(answer.seconds, 3),
            "error": answer.error,
        }
        await asyncio.to_thread(self.progress.mark, key(number, row.line), result)
        self.tally.add(answer.error)
        await self._fact(
            f"{self.mock_id}:{row.row_id}:{number}",
            MockRowDone(
                mock_id=self.mock_id,
                row_id=sent_id,
                query=row.query[:TEXT_CAP],
                ok=not answer.error,
                seconds=answer.seconds,
                error=answer.error,
                answer=answer.text[:TEXT_CAP],
            ),
        )

    # --- directives ------------------------------------------------------------------------------

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

    # --- facts -----------------------------------------------------------------------------------

    def _skipped(self, row: BadRow) -> tuple[str, MockRowSkipped]:
        return f"{self.mock_id}:line-{row.line}:skipped", MockRowSkipped(
            mock_id=self.mock_id, line=row.line, cause=row.cause
        )

    def _tell_skipped(self, row: BadRow) -> None:
        if self._control is not None:
            self._facts.put_nowait(self._skipped(row))

    async def _fact(self, fact_id: str, event: Event) -> None:
        if self._control is not None:
            await self._facts.put((fact_id, event))

    async def _fact_now(self, fact_id: str, event: Event) -> None:
        deadline = time.monotonic() + self.pace.patience
        delay = 0.1
        while self._control is not None:
            try:
                await self._control.post_fact(fact_id, event)
                return
            except ControlDown:
                if time.monotonic() + delay > deadline or await self._gate.rest(delay):
                    raise
                delay = min(delay * 2, _BACK_OFF)

    async def _post(self, control: Control) -> None:
        """Post the facts in their order, each until it is taken or refused."""
        while True:
            fact_id, event = await self._facts.get()
            delay = 0.1
            while True:
                try:
                    await control.post_fact(fact_id, event)
                except ControlDown:
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, _BACK_OFF)
                    continue
                except ControlRefused as error:
                    log.warning("a fact was refused: %s", error)
                break
            self._facts.task_done()

    async def _close_facts(self, outcome: Outcome) -> None:
        event = MockFinished(mock_id=self.mock_id, how=outcome.how, cause=outcome.cause)
        try:
            async with asyncio.timeout(3.0 if outcome.how == "stopped" else 10.0):
                await self._fact(f"{self.mock_id}:finished", event)
                await self._facts.join()
        except TimeoutError:
            log.warning("the proxy does not answer: %d facts are lost", self._facts.qsize())
