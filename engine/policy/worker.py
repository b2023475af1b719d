"""The worker thread of a local policy: it samples and trains while coroutines wait."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from engine.interface import Completion, PolicyClosedError, Prompt, SamplingParams
from engine.policy.answer import AnswerFailedError, Request, SampledAnswer
from engine.policy.futures import call_on_loop, reject, resolve
from engine.policy.speed import SamplingSpeed

log = logging.getLogger(__name__)

T = TypeVar("T")

_Delivery = tuple[Request, "asyncio.Future[Completion]", str | Completion]
"""A request, the future of its caller, and a piece of text or the whole answer."""


class TokenSampler(Protocol):
    """Sampler of many answers at once, used by one thread."""

    @property
    def live(self) -> int:
        """Number of answers being sampled."""

    @property
    def waiting(self) -> int:
        """Number of requests without a slot."""

    def add(self, request: Request) -> None:
        """Queue a request."""

    def clear(self) -> list[Request]:
        """Drop and return all requests."""

    def take_pieces(self) -> list[tuple[Request, str]]:
        """Return the new text of the requests that receive pieces, in sampling order."""

    def step(self, number: int, admit: bool = True) -> list[SampledAnswer]:
        """Admit requests that fit, then sample one token for every live row.

        Raises:
            AnswerFailedError: one request was dropped; the others go on with the next step.
        """


@dataclass(slots=True, eq=False)
class _WorkerJob:
    """Work for the worker thread besides sampling."""

    run: Callable[[], Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    alone: bool
    """The job changes the weights: live answers are finished first."""


class PolicyWorker:
    """Thread that admits requests and samples one token for each live answer; before a job that
    changes the weights it finishes the live answers.

    Args:
        sampler: Used by the thread alone.
        step: Returns the global step of the weights.
    """

    def __init__(self, sampler: TokenSampler, step: Callable[[], int]) -> None:
        self._sampler = sampler
        self._step = step
        self._wake = threading.Condition()
        self._incoming: deque[Request] = deque()
        self._jobs: deque[_WorkerJob] = deque()
        self._waiters: dict[Request, asyncio.Future[Completion]] = {}
        self.idle = threading.Event()
        """Set while the worker has nothing to do."""
        self.speed = SamplingSpeed()
        """How fast the thread samples, restarted with each update."""
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="policy", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def sample(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Sample one answer. Cancelling frees the slot.

        Raises:
            PolicyClosedError: the policy was closed meanwhile.
            Exception: any error of `on_text`, which ends the answer.
        """
        request = Request(prompt, params, on_text=on_text)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        with self._wake:
            self._refuse_when_closed()
            self._waiters[request] = future
            self._incoming.append(request)
            self.idle.clear()
            self._wake.notify()
        try:
            return await future
        finally:
            request.cancelled = True
            self._waiters.pop(request, None)

    async def run(self, run: Callable[[], Any], *, alone: bool) -> Any:
        """Run a function on the thread; `alone` after the live answers are finished."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        done = partial(call_on_loop, loop, resolve, future)
        self._queue(_WorkerJob(run, done, partial(call_on_loop, loop, reject, future), alone))
        return await future

    def call(self, run: Callable[[], T]) -> T:
        """Run a function on the thread between two token steps; blocks the calling thread.

        Raises:
            PolicyClosedError: the policy was closed before it ran.
            Exception: any error of `run`.
        """
        future: Future[T] = Future()
        self._queue(_WorkerJob(run, future.set_result, future.set_exception, alone=False))
        return future.result()

    def begin_closing(self) -> None:
        """Refuse further work and end the thread; pending callers get `PolicyClosedError`."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    async def join(self) -> None:
        """Wait for the end of the thread."""
        await asyncio.to_thread(self._thread.join)

    def _queue(self, job: _WorkerJob) -> None:
        with self._wake:
            self._refuse_when_closed()
            self._jobs.append(job)
            self.idle.clear()
            self._wake.notify()

    def _refuse_when_closed(self) -> None:
        if self._closing:
            raise PolicyClosedError("The policy is closed")

    def _loop(self) -> None:
        """Body of the thread."""
        while self._admit_requests():
            try:
                if self._jobs and not (self._jobs[0].alone and self._sampler.live):
                    self._run(self._jobs.popleft())
                else:
                    self._sample()
            except Exception as error:  # worker boundary: fail the callers, keep running
                log.exception("sampling failed")
                self._sampler.clear()
                self._fail(error)
        self._end()

    def _sample(self) -> None:
        self.speed.begin()
        finished: list[SampledAnswer] = []
        try:
            finished = self._sampler.step(self._step(), admit=not self._jobs)
        except AnswerFailedError as error:
            log.error("sampling: %s", error)
            if (future := self._waiters.get(error.request)) is not None:
                call_on_loop(future.get_loop(), reject, future, error)
        self.speed.note(self._sampler.live + len(finished))
        self._deliver(self._sampler.take_pieces(), finished)

    def _admit_requests(self) -> bool:
        """Pass new requests to the sampler; wait while there is no work; return False when
        closing."""
        with self._wake:
            while not (self._closing or self._incoming or self._jobs or self._busy()):
                self.idle.set()
                self._wake.wait()
            while self._incoming:
                self._sampler.add(self._incoming.popleft())
            return not self._closing

    def _busy(self) -> bool:
        return bool(self._sampler.live or self._sampler.waiting)

    def _run(self, job: _WorkerJob) -> None:
        try:
            result = job.run()
        except Exception as error:  # noqa: BLE001 - worker boundary: the caller gets it
            job.failed(error)
        else:
            job.done(result)

    def _deliver(
        self, pieces: Sequence[tuple[Request, str]], finished: Sequence[SampledAnswer]
    ) -> None:
        """Deliver the results of one token step with one call per event loop, pieces before
        answers."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Delivery]] = {}
        results: list[tuple[Request, str | Completion]] = [*pieces]
        results += [(done.request, done.completion) for done in finished]
        for request, value in results:
            future = self._waiters.get(request)
            if future is not None:
                by_loop.setdefault(future.get_loop(), []).append((request, future, value))
        for loop, values in by_loop.items():
            call_on_loop(loop, _deliver_all, values)

    def _fail(self, error: Exception) -> None:
        """Fail every pending answer."""
        for future in list(self._waiters.values()):
            call_on_loop(future.get_loop(), reject, future, error)

    def _end(self) -> None:
        closed = PolicyClosedError("The policy was closed before the answer was drawn")
        self._sampler.clear()
        self._fail(closed)
        while self._jobs:
            self._jobs.popleft().failed(closed)


def _deliver_all(deliveries: Sequence[_Delivery]) -> None:
    for request, future, value in deliveries:
        if isinstance(value, Completion):
            resolve(future, value)
        elif request.on_text is not None and not (request.cancelled or future.done()):
            try:
                request.on_text(value)
            except Exception as error:  # noqa: BLE001 - an error of the caller's own callback
                reject(future, error)
