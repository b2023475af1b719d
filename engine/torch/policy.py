"""A model of transformers as a policy: one worker thread samples and trains it."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

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
from engine.policy.snapshots import LocalSnapshots
from engine.policy.worker import PolicyWorker
from engine.storage.training_run import new_run
from engine.torch.hardware import budgets
from engine.torch.hardware.devices import is_out_of_memory
from engine.torch.learner import Optimizer, TorchLearner
from engine.torch.loading import Loaded
from engine.torch.memory import OutOfSpaceError
from engine.torch.sampling.batch import GrowingBatch, RowBatch
from engine.torch.sampling.graphs import GraphBatch, usable
from engine.torch.sampling.sampler import TorchSampler
from engine.torch.sampling.snapshots import LONGEST_YIELD, TorchCopies
from engine.torch.store import TorchState, TorchStore
from engine.torch.text import ModelText


class TorchPolicy:
    """A transformers model, trained in place.

    Args:
        loaded: The model.
        store: Storage of the trained part; None saves nothing.
        name: Display name.
        decay: Weight decay of the updates.
    """

    def __init__(
        self, loaded: Loaded, store: TorchStore | None, name: str, decay: float = 0.0
    ) -> None:
        self._loaded, self._store, self._decay = loaded, store, decay
        self._name = name
        self._step = 0
        self.run: TrainingRun = new_run() if store is None else store.run
        """The training run of the current weights."""
        self._text = ModelText(loaded.tokenizer)
        flat = torch.cat([one.detach().float().reshape(-1) for one in loaded.trained])
        optimizer = Optimizer(flat, torch.zeros_like(flat), torch.zeros_like(flat))
        self._learner = TorchLearner(loaded.model, loaded.trained, optimizer, loaded.memory)
        self._budget_key = _budget_key(loaded)
        if store is not None and (known := budgets.read(store.directory, self._budget_key)):
            self._learner.budget = min(self._learner.budget, known)
        self._saved = store is not None
        """The store holds the current state."""
        self._restore(self._stored())
        self._batch = new_batch(loaded)
        self._sampler = TorchSampler(
            self._batch, self._text, loaded.ends, loaded.context, loaded.memory.slots
        )
        self._worker = PolicyWorker(self._sampler, lambda: self._step)
        self._copies: TorchCopies | None = None
        self._snapshots: LocalSnapshots | NoSnapshots = NoSnapshots(
            f"The policy {name} takes no snapshots: all of its weights are trained, and a copy of "
            "them takes too much memory. Eval episodes sample it."
        )
        if loaded.description.kind == "lora":
            self._copies = TorchCopies(loaded, self._text, self._worker.call)
            check = partial(self._check_ids, limit=loaded.context - 1)
            self._snapshots = LocalSnapshots(
                self._copies, self._worker, lambda: self._step, check, LONGEST_YIELD
            )
        self._update_seconds: float | None = None
        self._sync_seconds: float | None = None
        self._worker.start()

    @property
    def name(self) -> str:
        """Display name of the policy."""
        return self._name

    @property
    def context(self) -> int:
        """Window in tokens."""
        return self._loaded.context

    @property
    def step(self) -> int:
        """Number of policy updates in the current weights."""
        return self._step

    @property
    def snapshots(self) -> LocalSnapshots | NoSnapshots:
        """Copies of the weights of LoRA; none where all weights are trained."""
        return self._snapshots

    @property
    def hardware(self) -> Hardware:
        """The device, its memory and the speed."""
        used, total, device = 0, 0, self._loaded.device
        if device.startswith("cuda"):
            total = torch.cuda.mem_get_info(device)[1]
            used = torch.cuda.memory_reserved(device)
            device = f"{device} {torch.cuda.get_device_name(device)}"
        else:
            import psutil

            used = psutil.Process().memory_info().rss
            total = psutil.virtual_memory().total
        speed = self._worker.speed
        return Hardware(
            device=device,
            dtype=self._loaded.dtype,
            memory_used=used,
            memory_total=total,
            memory_estimate=self._loaded.memory.total,
            slots=self._sampler.slots,
            tokens_per_second=speed.tokens_per_second,
            look_tokens_per_second=(
                self._snapshots.speed.tokens_per_second
                if isinstance(self._snapshots, LocalSnapshots)
                else None
            ),
            sampling_seconds=speed.seconds,
            update_seconds=self._update_seconds,
            sync_seconds=self._sync_seconds,
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
    ) -> Prompt:
        """Convert chat messages to a prompt by the model's own template."""
        return self._text.render(messages, tools, max_tokens, self.context)

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
        """
        self._check_ids(prompt.tokens, self.context - 1)
        return await self._worker.sample(prompt, params, on_text)

    async def logprobs(self, prompt_tokens: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the log-prob of each of `tokens` after those before it, by the current weights.

        Raises:
            ValueError: no prompt, too many tokens, or unknown ids.
            OutOfSpaceError: the memory is too small, even without the answers being sampled.
            PolicyClosedError: the policy was closed meanwhile.
        """
        self._check_ids((*prompt_tokens, *tokens), self.context)
        if not prompt_tokens:
            raise ValueError("the prompt has no tokens")
        zeros = (0.0,) * len(tokens)
        sample = TrainSample("", tuple(prompt_tokens), tuple(tokens), zeros, 0.0)
        values = await self._worker.run(lambda: self._scored(sample), alone=False)
        scored: list[float] = values.tolist()
        return scored

    def _scored(self, sample: TrainSample) -> Any:
        """Return the log-probs of a sample; when the memory runs out, try again without the keys
        and values of the answers being sampled, which continue afterwards."""
        reason = ""
        for _ in range(2):
            try:
                return self._learner.logprobs([sample])[0]
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error).partition("\n")[0]
            self._sampler.interrupt()  # behind the handler: the error's traceback holds tensors
            if self._copies is not None:
                self._copies.interrupt()
        raise OutOfSpaceError(
            f"The memory of the device is too small for the log-probs of "
            f"{len(sample.prompt_tokens) + len(sample.tokens)} tokens ({reason})",
            todo="Use a smaller --context or a smaller model, or free memory of the device",
        )

    async def train(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """Run one update on the batch; it is saved before this returns. A failed update leaves the
        weights as they were.

        Raises:
            ValueError: the batch is invalid.
            SaveError: the update ran but could not be written; it stays in memory.
        """
        stats: UpdateStats = await self._worker.run(
            lambda: self._update(samples, hyper), alone=True
        )
        return stats

    def _update(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        large = self._saved and self._loaded.description.kind == "full"
        before = None if large else self._state()  # a large state is read from the store
        self._batch.clear()  # the cache belongs to the old weights; waiting requests stay
        self._sampler.grow()
        if self._loaded.memory.shared:
            self._batch.release()
            if self._copies is not None:
                self._copies.interrupt()
        budget = self._learner.budget
        with contextlib.ExitStack() as failed:
            failed.callback(lambda: self._restore(self._stored() if before is None else before))
            stats = self._learner.update(samples, hyper, self._step + 1, self._decay)
            failed.pop_all()
        if self._store is not None and self._learner.budget < budget:
            budgets.write(self._store.directory, self._budget_key, self._learner.budget)
        self._step += 1
        self._saved = False
        self._worker.speed.restart()
        self._update_seconds = stats.seconds
        began = time.perf_counter()
        if self._store is not None:
            self._store.save(self._state(), self._loaded.description)
            self._saved = True
        saved = time.perf_counter() - began
        self._sync_seconds = stats.extra["publish_seconds"] + saved
        return replace(stats, extra={**stats.extra, "save_seconds": saved})

    async def checkpoint(self, name: str) -> None:
        """Save the current state under a name.

        Raises:
            SaveError: it could not be written; everything saved before is intact.
            AjetError: the name is invalid, or the policy saves nothing.
        """
        store = self._store
        if store is None:
            raise CheckpointError(
                "This policy saves nothing", name, "Give the engine a home to save in."
            )
        description = self._loaded.description
        await self._worker.run(lambda: store.save(self._state(), description, name), alone=False)

    async def reset(self) -> None:
        """Restore the base weights and step 0; the saved state is set aside."""

        def back() -> None:
            if self._store is not None:
                self._store.reset()
            self.run = new_run() if self._store is None else self._store.run
            self._saved = self._store is not None
            self._restore(None)

        await self._worker.run(back, alone=True)

    async def close(self) -> None:
        """Stop the worker; pending callers get `PolicyClosedError`. Safe to call again."""
        self._worker.begin_closing()
        if isinstance(self._snapshots, LocalSnapshots):
            await asyncio.to_thread(self._snapshots.close)
        await self._worker.join()
        if self._store is not None:
            self._store.close()

    def _state(self) -> TorchState:
        optimizer = self._learner.optimizer
        flat, m, v = (
            one.cpu().numpy().copy() for one in (optimizer.flat, optimizer.m, optimizer.v)
        )
        return TorchState(flat, m, v, optimizer.t, self._step)

    def _stored(self) -> TorchState | None:
        """Return the saved state; None when there is none, which is the base."""
        return None if self._store is None else self._store.load(self._loaded.description)

    def _restore(self, state: TorchState | None) -> None:
        """Continue from a state; None is the base."""
        optimizer = self._learner.optimizer
        if state is None:
            optimizer.flat.copy_(self._learner.base)
            optimizer.m.zero_()
            optimizer.v.zero_()
            optimizer.t, self._step = 0, 0
        else:
            for mine, saved in (
                (optimizer.flat, state.flat),
                (optimizer.m, state.m),
                (optimizer.v, state.v),
            ):
                mine.copy_(torch.from_numpy(np.array(saved)))
            optimizer.t, self._step = state.t, state.step
        self._learner.publish()

    def _check_ids(self, ids: Sequence[int], limit: int) -> None:
        if not 0 < len(ids) <= limit:
            raise ValueError(f"{len(ids)} tokens, the policy reads 1 to {limit}")
        vocab = self._loaded.model.config.vocab_size
        if unknown := [token for token in ids if not 0 <= token < vocab]:
            raise UnknownTokenError(
                f"Token id {unknown[0]} is out of vocabulary: token ids range from 0 to {vocab - 1}"
            )


def _budget_key(loaded: Loaded) -> str:
    """Return what the size of a micro-batch depends on beside the model."""
    name = loaded.device
    if name.startswith("cuda"):
        name = torch.cuda.get_device_name(name)
    again = "activations computed again" if loaded.memory.checkpointing else "activations stored"
    form = loaded.description.form
    return f"{name}, {loaded.dtype}, window {loaded.context}, {form}, {again}"


def new_batch(loaded: Loaded) -> RowBatch:
    """Return the batch for a model: recorded graphs on an NVIDIA card where it supports them."""
    memory = loaded.memory
    if memory.graphs and usable(loaded.model):
        return GraphBatch(loaded.model, memory.slots, loaded.context, memory.graphs)
    return GrowingBatch(loaded.model)
