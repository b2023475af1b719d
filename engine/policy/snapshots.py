"""Copies of a policy's weights to sample from while training goes on.

A thread of its own asks for the answers, token after token. It gives way to the policy's worker,
so that users wait hardly longer for their answers.
"""

import asyncio
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.interface import (
    Completion,
    NoSnapshotError,
    PolicyClosedError,
    Prompt,
    SamplingParams,
    WeightSnapshot,
)
from engine.policy.answer import AnswerFailedError, Request, SampledAnswer
from engine.policy.futures import call_on_loop, reject, resolve
from engine.policy.speed import SamplingSpeed
from engine.policy.worker import PolicyWorker

log = logging.getLogger(__name__)

MOST = 2
"""Number of snapshots; a further one drops the oldest."""
SLOTS = 17
"""Number of answers sampled at the same time: those to a prompt of a look, which 8 slots would need
two thirds more token steps for. More would lengthen a step, for which an answer to a user may have
to wait."""
YIELD = 4.0
"""Longest wait for a working policy before a token step, as a multiple of the step before it: under
constant load, a fifth of the time remains for sampling from snapshots."""
LONGEST_YIELD = 0.05
"""Bound of that wait in seconds."""
SPEED_STEPS = 256
"""Number of the newest token steps whose speed is measured."""
SPEED_SECONDS = 10.0
"""Seconds for which the speed of the last token step is the current one: scores are computed
between two prompts."""


class CopySampler(Protocol):
    """Samples the answers of one call; used by the thread of the snapshots alone."""

    @property
    def live(self) -> int:
        """Number of answers being sampled."""

    def add(self, request: Request) -> None:
        """Queue a request."""

    def step(self, number: int) -> list[SampledAnswer]:
        """Sample one token for every answer that has a slot; return the finished ones.

        Args:
            number: Global step of the weights, recorded in the answers.

        Raises:
            AnswerFailedError: one request cannot be answered.
            PolicyClosedError: the policy was closed meanwhile.
        """

    def clear(self) -> object:
        """Drop all requests."""


class WeightCopies(Protocol):
    """Copies of one policy's weights in the form of its backend."""

    def copy(self) -> Any:
        """Return a copy of the present weights; called on the policy's worker."""

    def equal(self, one: Any, other: Any) -> bool:
        """Return whether two copies are of the same weights."""

    def sampler(self, copy: Any, requests: Sequence[Request]) -> CopySampler:
        """Return a sampler without requests.

        Args:
            copy: Weights to sample from.
            requests: What it will be asked.
        """


@dataclass(frozen=True, slots=True)
class _Copy:
    """A snapshot and its weights."""

    snapshot: WeightSnapshot
    weights: Any


@dataclass(slots=True, eq=False)
class _Call:
    """One call for answers from a copy."""

    copy: _Copy
    requests: list[Request]
    future: "asyncio.Future[list[Completion]]"
    cancelled: bool = False
    """The caller has left; the next token step frees the slots."""


class LocalSnapshots:
    """`WeightSnapshots` of a policy on this machine.

    Args:
        copies: Copies the weights and samples from a copy.
        worker: The policy's worker.
        step: Returns the global step of the weights; called on the worker.
        check: Raises ValueError for ids of a prompt that the policy cannot continue.
        longest_yield: Bound of a wait for the worker, in seconds.
    """

    def __init__(
        self,
        copies: WeightCopies,
        worker: PolicyWorker,
        step: Callable[[], int],
        check: Callable[[Sequence[int]], None],
        longest_yield: float = LONGEST_YIELD,
    ) -> None:
        self._source, self._worker, self._step = copies, worker, step
        self._check, self._longest_yield = check, longest_yield
        self._copies: tuple[_Copy, ...] = ()
        """Oldest first; replaced as a whole, so that other threads can read it."""
        self._wake = threading.Condition()
        self._calls: deque[_Call] = deque()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._sampler: CopySampler | None = None
        """That of the last call."""
        self.speed = SamplingSpeed(SPEED_STEPS, SPEED_SECONDS)
        """How fast the thread samples now, its waits for the worker included."""

    async def take(self) -> WeightSnapshot:
        """Copy the present weights between two token steps; see `WeightSnapshots.take`."""
        taken: WeightSnapshot = await self._worker.run(self._copy, alone=False)
        return taken

    async def sample(
        self, name: str, prompt: Prompt, params: Sequence[SamplingParams]
    ) -> list[Completion]:
        """Sample one answer for each of `params`; see `WeightSnapshots.sample`."""
        copy = next((copy for copy in self._copies if copy.snapshot.name == name), None)
        if copy is None:
            raise NoSnapshotError(
                f"There is no snapshot {name!r:.80}: only the newest {MOST} are kept, until the "
                "policy is closed",
                todo="Take a new one with POST /ajetc/snapshot.",
            )
        self._check(prompt.tokens)
        future: asyncio.Future[list[Completion]] = asyncio.get_running_loop().create_future()
        call = _Call(copy, [Request(prompt, param) for param in params], future)
        with self._wake:
            if self._closing:
                raise _closed()
            self._calls.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="snapshots", daemon=True)
                self._thread.start()
            self._wake.notify()
        try:
            return await future
        finally:
            call.cancelled = True

    def close(self) -> None:
        """Drop the snapshots, fail the waiting calls and stop the thread. Blocks for a token
        step."""
        with self._wake:
            self._closing = True
            self._copies = ()
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _copy(self) -> WeightSnapshot:
        """Return the snapshot of the present weights, a new one unless they are kept already."""
        step, weights = self._step(), self._source.copy()
        for copy in self._copies:
            if copy.snapshot.step == step and self._source.equal(copy.weights, weights):
                return copy.snapshot
        made = _Copy(WeightSnapshot(uuid.uuid4().hex, step), weights)
        with self._wake:
            if self._closing:
                raise _closed()
            self._copies = (*self._copies, made)[-MOST:]
        return made.snapshot

    def _loop(self) -> None:
        """Body of the thread."""
        while (call := self._next()) is not None:
            loop = call.future.get_loop()
            self.speed.begin()
            try:
                completions = self._answers(call)
            except PolicyClosedError as error:
                call_on_loop(loop, reject, call.future, error)
            except AnswerFailedError as error:
                log.error("sampling from a snapshot: %s", error)
                self._clear()
                call_on_loop(loop, reject, call.future, error)
            except Exception as error:  # worker boundary: fail this call, keep running
                log.exception("sampling from a snapshot failed")
                self._clear()
                call_on_loop(loop, reject, call.future, error)
            else:
                call_on_loop(loop, resolve, call.future, completions)
            self.speed.end()
        self._clear()
        for call in self._calls:
            call_on_loop(call.future.get_loop(), reject, call.future, _closed())

    def _next(self) -> _Call | None:
        """Wait for a call; return None when closing."""
        with self._wake:
            while not (self._closing or self._calls):
                self._wake.wait()
            return None if self._closing else self._calls.popleft()

    def _answers(self, call: _Call) -> list[Completion]:
        """Return an answer to each request, in order; fewer when the caller has left.

        Raises:
            PolicyClosedError: the policy is being closed.
        """
        sampler = self._sampler = self._source.sampler(call.copy.weights, call.requests)
        for request in call.requests:
            sampler.add(request)
        completions: dict[Request, Completion] = {}
        while len(completions) < len(call.requests) and not call.cancelled:
            if self._closing:
                raise _closed()
            began = time.perf_counter()
            finished = sampler.step(call.copy.snapshot.step)
            self.speed.note(sampler.live + len(finished))
            completions |= {done.request: done.completion for done in finished}
            pause = YIELD * (time.perf_counter() - began)
            self._worker.idle.wait(min(pause, self._longest_yield))
        sampler.clear()
        return [completions[request] for request in call.requests if request in completions]

    def _clear(self) -> None:
        if self._sampler is not None:
            self._sampler.clear()


def _closed() -> PolicyClosedError:
    return PolicyClosedError("The policy was closed before the answers were sampled")
