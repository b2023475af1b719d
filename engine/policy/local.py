"""A policy of this machine as a backend: one worker thread samples and trains, coroutines wait."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ajet_swarm.common.errors import AjetError
from engine.interface import (
    CheckpointError,
    Completion,
    Hyperparameters,
    Prompt,
    SamplingParams,
    TextCodec,
    TrainSample,
    UnknownTokenError,
    UpdateStats,
)
from engine.policy.sampler import Request, SampledAnswer, Sampler
from engine.policy.weights import WeightStore
from engine.training.frozen_prefix import FrozenPrefixCache
from engine.training.grpo import Learner
from engine.training.model import BLOCKED, log_softmax, logits_only
from engine.training.state import Base, State

log = logging.getLogger(__name__)


class PolicyClosedError(AjetError):
    """The policy was closed before the work was done."""


_Delivery = tuple[Request, "asyncio.Future[Completion]", str | Completion]
"""A piece of text or a whole answer, and whose."""


@dataclass(slots=True, eq=False)
class _WorkerJob:
    """Work of the worker thread beside drawing answers."""

    run: Callable[[], Any]
    future: "asyncio.Future[Any]"
    alone: bool
    """It changes the weights: the live answers end first."""


class LocalPolicy:
    """A policy in numpy, trained in place.

    The worker admits requests, draws one token for each live answer, and when an update is asked
    for lets the live ones end before it changes the weights.

    Args:
        base: The weights it begins with.
        state: What training goes on from.
        store: Where it is saved; None keeps nothing.
        language: Text to ids and back.
    """

    def __init__(
        self, base: Base, state: State, store: WeightStore | None, language: TextCodec
    ) -> None:
        self._base = base
        self._state = state
        self._store = store
        self._language = language
        self._config = state.params.config
        trunk = FrozenPrefixCache() if self._config.frozen else None
        self._sampler = Sampler(state.params, language, trunk=trunk)
        self._learner = Learner(state, base.params, trunk)
        self._wake = threading.Condition()
        self._incoming: deque[Request] = deque()
        self._jobs: deque[_WorkerJob] = deque()
        self._waiters: dict[Request, asyncio.Future[Completion]] = {}
        self._closing = False
        self._worker = threading.Thread(target=self._loop, name="policy", daemon=True)
        self._worker.start()

    @classmethod
    def resumed(
        cls,
        base: Base,
        store: WeightStore | None,
        language: TextCodec,
        reset: bool = False,
        start_from: str | None = None,
    ) -> Self:
        """Go on from what is saved, or begin with the base weights when nothing is.

        Args:
            base: The weights it begins with.
            store: Where it is kept; None keeps nothing. Closed when this fails.
            language: Text to ids and back.
            reset: Set what is saved aside and begin with the base weights.
            start_from: Name of a checkpoint to go back to; what is saved is set aside.

        Raises:
            AjetError: what is saved can not be used.
        """
        if store is None:
            return cls(base, State.fresh(base), None, language)
        try:
            if reset:
                store.reset()
            if start_from is not None:
                store.restore(start_from, base.digest)
            return cls(base, store.load(base), store, language)
        except BaseException:
            store.close()
            raise

    @property
    def name(self) -> str:
        """What to call it."""
        return self._language.name

    @property
    def context(self) -> int:
        """Window in tokens."""
        return self._config.context

    @property
    def step(self) -> int:
        """Policy updates in the weights held now."""
        return self._state.step

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
    ) -> Prompt:
        """Chat messages to a prompt."""
        return self._language.render(messages, tools, max_tokens, self.context)

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """What each token reads as."""
        return self._language.token_texts(tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`; tags are nothing."""
        return self._language.decode(tokens)

    async def sample(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Draw one answer; concurrent calls are batched. Cancelling frees its slot.

        Raises:
            ValueError: the prompt is empty, leaves no room for an answer, or holds unknown ids.
            PolicyClosedError: the policy was closed meanwhile.
            Exception: whatever `on_text` raised; the answer is not drawn further.
        """
        self._check_ids(prompt.tokens, self.context - 1)
        request = Request(prompt, params, on_text=on_text)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        with self._wake:
            self._refuse_when_closed()
            self._waiters[request] = future
            self._incoming.append(request)
            self._wake.notify()
        try:
            return await future
        finally:
            request.cancelled = True
            self._waiters.pop(request, None)

    async def logprobs(self, prompt_tokens: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Log-prob of each of `tokens` after those before it, by the weights held now.

        As when sampled: a tool call is impossible in an answer to a prompt that offers no tool.

        Raises:
            ValueError: no prompt, too many tokens, or unknown ids.
            PolicyClosedError: the policy was closed meanwhile.
        """
        ids = (*prompt_tokens, *tokens)
        self._check_ids(ids, self.context)
        start = len(prompt_tokens)
        if start == 0:
            raise ValueError("the prompt has no tokens")

        def score() -> list[float]:
            where = np.arange(start - 1, len(ids) - 1)
            logits = logits_only(self._state.params, np.array([ids]), where)
            call = self._config.call
            if call is not None and call not in prompt_tokens:
                logits[:, call] = BLOCKED
            found: list[float] = log_softmax(logits)[where - start + 1, ids[start:]].tolist()
            return found

        scored: list[float] = await self._ask(score, alone=False)
        return scored

    async def train(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """One update on the batch, saved before it returns.

        Raises:
            ValueError: the batch can not be trained on; see `grpo.check`.
            SaveError: the update was done but could not be written; it is kept in memory.
            PolicyClosedError: the policy was closed before the update began.
        """

        def update() -> UpdateStats:
            try:
                stats = self._learner.update(samples, replace(hyper, **self._language.recipe))
            finally:
                self._sampler.use(self._state.params)
            if self._store is None:
                return stats
            began = time.perf_counter()
            self._store.save(self._state, self._base)
            saved = {"save_seconds": time.perf_counter() - began}
            return replace(stats, extra={**stats.extra, **saved})

        stats: UpdateStats = await self._ask(update, alone=True)
        return stats

    async def checkpoint(self, name: str) -> None:
        """Save the state held now under a name; answers being drawn are not held up.

        Raises:
            SaveError: it could not be written; nothing that was saved is lost.
            AjetError: the name can not be used, or the policy keeps nothing.
            PolicyClosedError: the policy was closed before.
        """
        store = self._store
        if store is None:
            raise CheckpointError(
                "This policy keeps nothing", name, "Give the engine a home to save in."
            )
        await self._ask(lambda: store.save(self._state, self._base, name), alone=False)

    async def reset(self) -> None:
        """Back to the base weights, step 0; what was saved is set aside.

        Raises:
            AjetError: what is saved could not be moved; nothing was changed.
        """

        def back() -> None:
            if self._store is not None:
                self._store.reset()
            state, fresh = self._state, State.fresh(self._base)
            state.params.flat[...] = fresh.params.flat
            state.adam, state.step = fresh.adam, 0
            self._sampler.use(state.params)

        await self._ask(back, alone=True)

    async def close(self) -> None:
        """Stop the worker; what waits for it gets `PolicyClosedError`. Safe to call again."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._worker.join)
        self._learner.close()
        self._sampler.close()
        if self._store is not None:
            self._store.close()

    async def _ask(self, run: Callable[[], Any], *, alone: bool) -> Any:
        job = _WorkerJob(run, asyncio.get_running_loop().create_future(), alone)
        with self._wake:
            self._refuse_when_closed()
            self._jobs.append(job)
            self._wake.notify()
        return await job.future

    def _check_ids(self, ids: Sequence[int], most: int) -> None:
        if not 0 < len(ids) <= most:
            raise ValueError(f"{len(ids)} tokens are given, 1 to {most} can be read")
        if unknown := [one for one in ids if not 0 <= one < self._config.vocab]:
            raise UnknownTokenError(
                f"Token id {unknown[0]} is out of vocabulary: token ids go from 0 to "
                f"{self._config.vocab - 1}"
            )

    def _refuse_when_closed(self) -> None:
        if self._closing:
            raise PolicyClosedError("The policy is closed")

    def _loop(self) -> None:
        """The worker thread."""
        while self._take():
            try:
                if self._jobs and not (self._jobs[0].alone and self._sampler.live):
                    self._run(self._jobs.popleft())
                else:
                    finished = self._sampler.step(self.step, admit=not self._jobs)
                    self._deliver(self._sampler.take_pieces(), finished)
            except Exception as error:  # the worker's boundary: its callers are told, it goes on
                log.exception("sampling failed")
                self._sampler.clear()
                self._fail(error)
        self._end()

    def _take(self) -> bool:
        """Move new requests to the sampler, wait while there is nothing; False when closing."""
        with self._wake:
            while not (self._closing or self._incoming or self._jobs or self._busy()):
                self._wake.wait()
            while self._incoming:
                self._sampler.add(self._incoming.popleft())
            return not self._closing

    def _busy(self) -> bool:
        return bool(self._sampler.live or self._sampler.waiting)

    def _run(self, job: _WorkerJob) -> None:
        loop = job.future.get_loop()
        try:
            result = job.run()
        except Exception as error:  # noqa: BLE001 - the worker's boundary: whoever asked gets it
            self._call(loop, _refuse, job.future, error)
        else:
            self._call(loop, _resolve, job.future, result)

    def _deliver(
        self, pieces: Sequence[tuple[Request, str]], finished: Sequence[SampledAnswer]
    ) -> None:
        """Hand all that one token step gave over with one call a loop; pieces before answers."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Delivery]] = {}
        given: list[tuple[Request, str | Completion]] = [*pieces]
        given += [(done.request, done.completion) for done in finished]
        for request, value in given:
            future = self._waiters.get(request)
            if future is not None:
                by_loop.setdefault(future.get_loop(), []).append((request, future, value))
        for loop, values in by_loop.items():
            self._call(loop, _deliver_all, values)

    def _fail(self, error: Exception) -> None:
        """Tell everyone who waits for an answer."""
        for future in list(self._waiters.values()):
            self._call(future.get_loop(), _refuse, future, error)

    def _end(self) -> None:
        closed = PolicyClosedError("The policy was closed before the answer was drawn")
        self._sampler.clear()
        self._fail(closed)
        while self._jobs:
            future = self._jobs.popleft().future
            self._call(future.get_loop(), _refuse, future, closed)

    def _call(
        self, loop: asyncio.AbstractEventLoop, function: Callable[..., None], *a: Any
    ) -> None:
        try:
            loop.call_soon_threadsafe(function, *a)
        except RuntimeError:
            log.debug("the event loop of a request is closed; nobody waits for its answer")


def _resolve(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _deliver_all(given: Sequence[_Delivery]) -> None:
    for request, future, value in given:
        if isinstance(value, Completion):
            _resolve(future, value)
        elif request.on_text is not None and not (request.cancelled or future.done()):
            try:
                request.on_text(value)
            except Exception as error:  # noqa: BLE001 - the caller's own fault goes to the caller
                _refuse(future, error)


def _refuse(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
