"""Common part of the policies on this machine: text, sampling, updates and checkpoints."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from engine.interface import (
    CheckpointError,
    Completion,
    Hardware,
    Hyperparameters,
    NoSnapshots,
    Prompt,
    SamplingParams,
    TrainingRun,
    TrainSample,
    UnknownTokenError,
    UpdateStats,
)
from engine.policy.snapshots import LONGEST_YIELD, LocalSnapshots, WeightCopies
from engine.policy.worker import PolicyWorker, TokenSampler
from engine.storage.checkpoint_store import CheckpointStore
from engine.storage.training_run import new_run


class TextCodec(Protocol):
    """Chat messages to token ids, and ids to text."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        context: int,
    ) -> Prompt:
        """Convert chat messages to a prompt that leaves room for `max_tokens` in `context`."""

    def token_texts(self, ids: Sequence[int], /) -> list[str]:
        """Return the display text of each id."""

    def decode(self, ids: Sequence[int], /) -> str:
        """Return the text of ids; control tokens decode to nothing."""


class LocalPolicy(ABC):
    """A policy whose worker thread samples and trains it.

    The worker admits requests and samples one token for each live answer; before an update it
    finishes the live answers. A backend implements the abstract methods, which run on the worker.

    Args:
        name: Display name.
        context: Window in tokens.
        vocab: Number of token ids.
        text: Conversion between text and ids.
        sampler: Used by the worker alone.
        store: Storage of the state; None saves nothing.
    """

    def __init__(
        self,
        name: str,
        context: int,
        vocab: int,
        text: TextCodec,
        sampler: TokenSampler,
        store: CheckpointStore | None,
    ) -> None:
        self._name, self._context, self._vocab = name, context, vocab
        self._text, self._files = text, store
        self.run: TrainingRun = new_run() if store is None else store.run
        """The training run of the current weights."""
        self._worker = PolicyWorker(sampler, lambda: self.step)
        self._snapshots: LocalSnapshots | NoSnapshots = NoSnapshots(
            f"The policy {name} takes no snapshots: all of its weights are trained, and a copy of "
            "them takes too much memory. Eval episodes sample it."
        )

    def _start(self, copies: WeightCopies | None, longest_yield: float = LONGEST_YIELD) -> None:
        """Start the worker.

        Args:
            copies: Copies of the weights; None for a policy that takes no snapshots.
            longest_yield: Bound of the wait of a snapshot for the worker, in seconds.
        """
        if copies is not None:
            check = partial(self._check_ids, limit=self._context - 1)
            self._snapshots = LocalSnapshots(
                copies, self._worker, lambda: self.step, check, longest_yield
            )
        self._worker.start()

    @property
    def name(self) -> str:
        """Display name of the policy."""
        return self._name

    @property
    def context(self) -> int:
        """Window in tokens."""
        return self._context

    @property
    @abstractmethod
    def step(self) -> int:
        """Number of policy updates in the current weights."""

    @property
    def snapshots(self) -> LocalSnapshots | NoSnapshots:
        """Copies of the weights."""
        return self._snapshots

    @property
    def hardware(self) -> Hardware | None:
        """The device, its memory and the speed; None if they are not measured."""
        return None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
    ) -> Prompt:
        """Convert chat messages to a prompt by the model's own template."""
        return self._text.render(messages, tools, max_tokens, self._context)

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Return the display text of each token."""
        return self._text.token_texts(tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens`; control tokens decode to nothing."""
        return self._text.decode(tokens)

    async def sample(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Sample one answer; concurrent calls are batched. Cancelling frees the slot.

        Raises:
            ValueError: the prompt is empty, leaves no room for an answer, or contains unknown ids.
            PolicyClosedError: the policy was closed meanwhile.
            Exception: any error of `on_text`, which ends the answer.
        """
        self._check_ids(prompt.tokens, self._context - 1)
        return await self._worker.sample(prompt, params, on_text)

    async def logprobs(self, prompt_tokens: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the log-prob of each of `tokens` after those before it, by the current weights.

        Raises:
            ValueError: no prompt, too many tokens, or unknown ids.
            OutOfSpaceError: the memory is too small, even without the answers being sampled.
            PolicyClosedError: the policy was closed meanwhile.
        """
        prompt, answer = tuple(prompt_tokens), tuple(tokens)
        self._check_ids((*prompt, *answer), self._context)
        if not prompt:
            raise ValueError("the prompt has no tokens")
        scored: list[float] = await self._worker.run(
            lambda: self._score(prompt, answer), alone=False
        )
        return scored

    async def train(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """Run one update on the batch; it is saved before this returns. A failed update leaves the
        weights as they were.

        Raises:
            ValueError: the batch is invalid.
            SaveError: the update ran but could not be written; it stays in memory.
            PolicyClosedError: the policy was closed before the update started.
        """
        stats: UpdateStats = await self._worker.run(
            lambda: self._update(samples, hyper), alone=True
        )
        return stats

    async def checkpoint(self, name: str) -> None:
        """Save the current state under a name; answers being sampled are not delayed.

        Raises:
            SaveError: it could not be written; everything saved before is intact.
            AjetError: the name is invalid, or the policy saves nothing.
            PolicyClosedError: the policy was closed before.
        """
        if self._files is None:
            raise CheckpointError(
                "This policy saves nothing", name, "Give the engine a home to save in."
            )
        await self._worker.run(lambda: self._save(name), alone=False)

    async def reset(self) -> None:
        """Restore the base weights and step 0; the saved state is set aside.

        Raises:
            AjetError: the saved state could not be moved; nothing changed.
        """

        def back() -> None:
            if self._files is not None:
                self._files.reset()
            self.run = new_run() if self._files is None else self._files.run
            self._restore_base()

        await self._worker.run(back, alone=True)

    async def close(self) -> None:
        """Stop the worker; pending callers get `PolicyClosedError`. Safe to call again."""
        self._worker.begin_closing()
        if isinstance(self._snapshots, LocalSnapshots):
            await asyncio.to_thread(self._snapshots.close)
        await self._worker.join()
        if self._files is not None:
            self._files.close()

    @abstractmethod
    def _score(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> list[float]:
        """Return the log-probs of `tokens` after a prompt."""

    @abstractmethod
    def _update(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """Update the weights and save them."""

    @abstractmethod
    def _save(self, name: str) -> None:
        """Save the current state under a name."""

    @abstractmethod
    def _restore_base(self) -> None:
        """Continue from the base weights, at step 0."""

    def _check_ids(self, ids: Sequence[int], limit: int) -> None:
        if not 0 < len(ids) <= limit:
            raise ValueError(f"{len(ids)} tokens, the policy reads 1 to {limit}")
        if unknown := [token for token in ids if not 0 <= token < self._vocab]:
            raise UnknownTokenError(
                f"Token id {unknown[0]} is out of vocabulary: token ids range from 0 to "
                f"{self._vocab - 1}"
            )
