"""A model of transformers as a policy: one worker thread samples and trains it."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from engine.interface import LATEST, Hardware, Hyperparameters, TrainSample, UpdateStats
from engine.policy.local import LocalPolicy
from engine.policy.snapshots import LocalSnapshots
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


class TorchPolicy(LocalPolicy):
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
        self._step = 0
        text = ModelText(loaded.tokenizer)
        flat = torch.cat([weights.detach().float().reshape(-1) for weights in loaded.trained])
        optimizer = Optimizer(flat, torch.zeros_like(flat), torch.zeros_like(flat))
        self._learner = TorchLearner(loaded.model, loaded.trained, optimizer, loaded.memory)
        self._budget_key = _budget_key(loaded)
        if store is not None and (known := budgets.read(store.directory, self._budget_key)):
            self._learner.budget = min(self._learner.budget, known)
        self._saved = store is not None
        """The store holds the current state."""
        self._restore(None if store is None else store.load(loaded.description))
        self._batch = new_batch(loaded)
        self._sampler = TorchSampler(
            self._batch, text, loaded.ends, loaded.context, loaded.memory.slots
        )
        vocab = loaded.model.config.vocab_size
        super().__init__(name, loaded.context, vocab, text, self._sampler, store)
        self._copies: TorchCopies | None = None
        if loaded.description.kind == "lora":
            self._copies = TorchCopies(loaded, text, self._worker.call)
        self._update_seconds: float | None = None
        self._sync_seconds: float | None = None
        self._start(self._copies, LONGEST_YIELD)

    @property
    def step(self) -> int:
        return self._step

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

    def _score(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> list[float]:
        """Return the log-probs; when the memory runs out, try again without the keys and values of
        the answers being sampled, which continue afterwards."""
        sample = TrainSample("", prompt, tokens, (0.0,) * len(tokens), 0.0)
        reason = ""
        for _ in range(2):
            try:
                scored: list[float] = self._learner.logprobs([sample])[0].tolist()
                return scored
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error).partition("\n")[0]
            self._sampler.interrupt()  # behind the handler: the error's traceback holds tensors
            if self._copies is not None:
                self._copies.interrupt()
        raise OutOfSpaceError(
            f"The memory of the device is too small for the log-probs of "
            f"{len(prompt) + len(tokens)} tokens ({reason})",
            todo="Use a smaller --context or a smaller model, or free memory of the device",
        )

    def _update(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        store, description = self._store, self._loaded.description
        large = self._saved and description.kind == "full"
        before = None if large else self._state()  # a large state is read from the store

        def restore() -> None:
            saved = store.load(description) if large and store is not None else before
            self._restore(saved)

        self._batch.clear()  # the cache belongs to the old weights; waiting requests stay
        self._sampler.grow()
        if self._loaded.memory.shared:
            self._batch.release()
            if self._copies is not None:
                self._copies.interrupt()
        budget = self._learner.budget
        with contextlib.ExitStack() as failed:
            failed.callback(restore)
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
            self._save(LATEST)
            self._saved = True
        saved = time.perf_counter() - began
        self._sync_seconds = stats.extra["publish_seconds"] + saved
        return replace(stats, extra={**stats.extra, "save_seconds": saved})

    def _save(self, name: str) -> None:
        if self._store is not None:
            self._store.save(self._state(), self._loaded.description, name)

    def _restore_base(self) -> None:
        self._saved = self._store is not None
        self._restore(None)

    def _state(self) -> TorchState:
        optimizer = self._learner.optimizer
        flat, m, v = (
            array.cpu().numpy().copy() for array in (optimizer.flat, optimizer.m, optimizer.v)
        )
        return TorchState(flat, m, v, optimizer.t, self._step)

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
