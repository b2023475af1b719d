"""The tiny policy shipped with the engine: one million parameters, its own vocabulary and template;
sampled and trained by one worker thread."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import tokenizer as bpe
from engine.interface import (
    CheckpointError,
    Completion,
    Hardware,
    Hyperparameters,
    Prompt,
    SamplingParams,
    TrainingRun,
    TrainSample,
    UnknownTokenError,
    UpdateStats,
)
from engine.policy import chat_template, weights
from engine.policy.params_copies import ParamsCopies
from engine.policy.sampler import Sampler
from engine.policy.snapshots import LocalSnapshots
from engine.policy.weights import WeightStore
from engine.policy.worker import PolicyWorker
from engine.storage.training_run import new_run
from engine.tokenizer import CALL, Tokenizer
from engine.training.grpo import Learner
from engine.training.model import BLOCKED, log_softmax, logits_only
from engine.training.state import Base, State

_TAG_NAMES = {
    bpe.SYSTEM: "<system>",
    bpe.USER: "<user>",
    bpe.ANSWER: "<answer>",
    bpe.END: "<end>",
    bpe.TOOL: "<tool>",
    bpe.CALL: "<call>",
}


class TinyTextCodec(Tokenizer):
    """The shipped tokenizer and chat template."""

    @property
    def name(self) -> str:
        """Display name with the number of parameters."""
        return "tiny-0.9m"

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        context: int,
    ) -> Prompt:
        return chat_template.render(self, context, messages, tools, max_tokens)

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id: tags by name, bytes that are no character as `\\xe2`."""
        return [
            _TAG_NAMES.get(token) or self.decode_bytes((token,)).decode("utf-8", "backslashreplace")
            for token in ids
        ]


class TinyPolicy:
    """The tiny policy, trained in place. Create it with `open`.

    The worker admits requests and samples one token for each live answer; before an update it
    finishes the live answers.

    Args:
        base: Base weights.
        state: State from which training continues.
        store: Storage of the state; None saves nothing.
    """

    hardware: Hardware | None = None
    """None: it measures nothing of the CPU."""

    def __init__(self, base: Base, state: State, store: WeightStore | None) -> None:
        self._base = base
        self._state = state
        self._store = store
        self.run: TrainingRun = new_run() if store is None else store.run
        """The training run of the current weights."""
        self._language = language = TinyTextCodec.shipped()
        self._config = state.params.config
        self._sampler = Sampler(state.params, language)
        self._learner = Learner(state, base.params)
        self._worker = PolicyWorker(self._sampler, lambda: self._state.step)
        self._snapshots = LocalSnapshots(
            ParamsCopies(state, language),
            self._worker,
            lambda: self._state.step,
            partial(self._check_ids, limit=self._config.context - 1),
        )
        self._worker.start()

    @classmethod
    def open(
        cls, directory: Path | None, reset: bool = False, start_from: str | None = None
    ) -> "TinyPolicy":
        """Load the saved policy, or the shipped one when nothing is saved.

        Args:
            directory: Folder of the saved state; None saves nothing.
            reset: Set the saved state aside and start from the shipped weights.
            start_from: Checkpoint to restore; the saved state is set aside.

        Raises:
            AjetError: another engine uses the directory, or the weights cannot be read.
        """
        base = weights.shipped()
        if directory is None:
            return cls(base, State.fresh(base), None)
        store = WeightStore(directory)
        try:
            if reset:
                store.reset()
            if start_from is not None:
                store.restore(start_from, base.digest)
            return cls(base, store.load(base), store)
        except BaseException:
            store.close()
            raise

    @property
    def name(self) -> str:
        """Display name of the policy."""
        return self._language.name

    @property
    def context(self) -> int:
        """Window in tokens."""
        return self._config.context

    @property
    def step(self) -> int:
        """Number of policy updates in the current weights."""
        return self._state.step

    @property
    def snapshots(self) -> LocalSnapshots:
        """Copies of the weights."""
        return self._snapshots

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
    ) -> Prompt:
        """Convert chat messages to a prompt."""
        return self._language.render(messages, tools, max_tokens, self.context)

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Return the display text of each token."""
        return self._language.token_texts(tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens`; tags decode to nothing."""
        return self._language.decode(tokens)

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
        self._check_ids(prompt.tokens, self.context - 1)
        return await self._worker.sample(prompt, params, on_text)

    async def logprobs(self, prompt_tokens: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the log-prob of each of `tokens` after those before it, by the current weights.

        As when sampling, a tool call has no probability in an answer to a prompt without tools.

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
            positions = np.arange(start - 1, len(ids) - 1)
            logits = logits_only(self._state.params, np.array([ids]), positions)
            if CALL not in prompt_tokens:
                logits[:, CALL] = BLOCKED
            values: list[float] = log_softmax(logits)[positions - start + 1, ids[start:]].tolist()
            return values

        scored: list[float] = await self._worker.run(score, alone=False)
        return scored

    async def train(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """Run one update on the batch; it is saved before this returns.

        Raises:
            ValueError: the batch is invalid; see `grpo.check`.
            SaveError: the update ran but could not be written; it stays in memory.
            PolicyClosedError: the policy was closed before the update started.
        """

        def update() -> UpdateStats:
            try:
                stats = self._learner.update(samples, hyper)
            finally:
                self._sampler.use(self._state.params)
            if self._store is None:
                return stats
            began = time.perf_counter()
            self._store.save(self._state, self._base)
            saved = {"save_seconds": time.perf_counter() - began}
            return replace(stats, extra={**stats.extra, **saved})

        stats: UpdateStats = await self._worker.run(update, alone=True)
        return stats

    async def checkpoint(self, name: str) -> None:
        """Save the current state under a name; answers being sampled are not delayed.

        Raises:
            SaveError: it could not be written; everything saved before is intact.
            AjetError: the name is invalid, or the policy saves nothing.
            PolicyClosedError: the policy was closed before.
        """
        store = self._store
        if store is None:
            raise CheckpointError(
                "This policy saves nothing", name, "Give the engine a home to save in."
            )
        await self._worker.run(lambda: store.save(self._state, self._base, name), alone=False)

    async def reset(self) -> None:
        """Restore the base weights and step 0; the saved state is set aside.

        Raises:
            AjetError: the saved state could not be moved; nothing changed.
        """

        def back() -> None:
            if self._store is not None:
                self._store.reset()
            self.run = new_run() if self._store is None else self._store.run
            state, fresh = self._state, State.fresh(self._base)
            state.params.flat[...] = fresh.params.flat
            state.adam, state.step = fresh.adam, 0
            self._sampler.use(state.params)

        await self._worker.run(back, alone=True)

    async def close(self) -> None:
        """Stop the worker; pending callers get `PolicyClosedError`. Safe to call again."""
        self._worker.begin_closing()
        await asyncio.to_thread(self._snapshots.close)
        await self._worker.join()
        self._learner.close()
        if self._store is not None:
            self._store.close()

    def _check_ids(self, ids: Sequence[int], limit: int) -> None:
        if not 0 < len(ids) <= limit:
            raise ValueError(f"{len(ids)} tokens, the policy reads 1 to {limit}")
        if unknown := [token for token in ids if not 0 <= token < self._config.vocab]:
            raise UnknownTokenError(
                f"Token id {unknown[0]} is out of vocabulary: token ids range from 0 to "
                f"{self._config.vocab - 1}"
            )
