"""Copies of a policy's weights to sample from while training goes on.

A thread of its own samples from the copies. It gives way to the policy's worker, so that users
wait hardly longer for their answers.
"""

import asyncio
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.interface import (
    Completion,
    Decoder,
    NoSnapshotError,
    PolicyClosedError,
    Prompt,
    SamplingParams,
    WeightSnapshot,
)
from engine.policy.answer import Request
from engine.policy.futures import call_on_loop, reject, resolve
from engine.policy.sampler import Sampler
from engine.training.model import Params
from engine.training.state import State

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

CopyOnWorker = Callable[[Callable[[], WeightSnapshot]], Awaitable[WeightSnapshot]]
"""Runs a function on the thread that changes the weights."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A snapshot and its weights."""

    snapshot: WeightSnapshot
    params: Params


@dataclass(slots=True, eq=False)
class _Call:
    """One call for answers from a copy."""

    copy: _Copy
    requests: list[Request]
    future: "asyncio.Future[list[Completion]]"
    cancelled: bool = False
    """The caller has left; the next token step frees the slots."""


class LocalSnapshots:
    """`WeightSnapshots` of a numpy policy.

    Args:
        state: The policy's state; read on the worker only.
        language: Ids to text.
        on_worker: Runs the copying on the policy's worker.
        idle: Set while the policy's worker has nothing to do.
    """

    def __init__(
        self,
        state: State,
        language: Decoder,
        on_worker: CopyOnWorker,
        idle: threading.Event,
    ) -> None:
        self._state, self._language = state, language
        self._on_worker, self._idle = on_worker, idle
        self._copies: tuple[_Copy, ...] = ()
        """Oldest first; replaced as a whole, so that other threads can read it."""
        self._wake = threading.Condition()
        self._calls: deque[_Call] = deque()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._sampler: Sampler | None = None
        self._loaded: Params | None = None
        """Weights of the sampler."""

    async def take(self) -> WeightSnapshot:
        """Copy the present weights between two token steps; see `WeightSnapshots.take`."""
        return await self._on_worker(self._copy)

    async def sample(
        self, name: str, prompt: Prompt, params: Sequence[SamplingParams]
    ) -> list[Completion]:
        """Sample one answer for each of `params`; see `WeightSnapshots.sample`."""
        copy = next((one for one in self._copies if one.snapshot.name == name), None)
        if copy is None:
            raise NoSnapshotError(
                f"There is no snapshot {name!r:.80}: only the newest {MOST} are kept, until the "
                "policy is closed",
                todo="Take a new one with POST /ajetc/snapshot.",
            )
        future: asyncio.Future[list[Completion]] = asyncio.get_running_loop().create_future()
        call = _Call(copy, [Request(prompt, one) for one in params], future)
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
        if self._sampler is not None:
            self._sampler.close()

    def _copy(self) -> WeightSnapshot:
        """Return the snapshot of the present weights, a new one unless they are kept already."""
        state = self._state
        for one in self._copies:
            same = one.snapshot.step == state.step
            if same and np.array_equal(one.params.flat, state.params.flat):
                return one.snapshot
        made = _Copy(WeightSnapshot(uuid.uuid4().hex, state.step), state.params.copy())
        with self._wake:
            if self._closing:
                raise _closed()
            self._copies = (*self._copies, made)[-MOST:]
        return made.snapshot

    def _loop(self) -> None:
        """Body of the thread."""
        while (call := self._next()) is not None:
            loop = call.future.get_loop()
            try:
                completions = self._answers(call)
            except PolicyClosedError as error:
                call_on_loop(loop, reject, call.future, error)
            except Exception as error:  # worker boundary: fail this call, keep running
                log.exception("sampling from a snapshot failed")
                self._clear()
                call_on_loop(loop, reject, call.future, error)
            else:
                call_on_loop(loop, resolve, call.future, completions)
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
        sampler = self._sampler_of(call.copy.params)
        for request in call.requests:
            sampler.add(request)
        completions: dict[Request, Completion] = {}
        while (sampler.live or sampler.waiting) and not call.cancelled:
            if self._closing:
                raise _closed()
            began = time.perf_counter()
            finished = sampler.step(call.copy.snapshot.step)
            completions |= {done.request: done.completion for done in finished}
            self._idle.wait(min(YIELD * (time.perf_counter() - began), LONGEST_YIELD))
        sampler.clear()
        return [completions[request] for request in call.requests if request in completions]

    def _clear(self) -> None:
        if self._sampler is not None:
            self._sampler.clear()

    def _sampler_of(self, params: Params) -> Sampler:
        """Return the sampler with these weights; there is one, as its cache takes 36 MB."""
        if self._sampler is None:
            self._sampler = Sampler(params, self._language, SLOTS)
        elif self._loaded is not params:
            self._sampler.use(params)
        self._loaded = params
        return self._sampler


def _closed() -> PolicyClosedError:
    return PolicyClosedError("The policy was closed before the answers were sampled")
