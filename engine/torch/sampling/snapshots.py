"""Copies of the weights of LoRA, and samplers that compute with them.

The model of the policy computes for a copy as well, on the policy's worker: a call of it gets other
tensors for its trained part, and its own parameters stay as they are. So nothing that trains, saves
or samples the policy meets a copy, and the addresses that recorded graphs hold remain valid.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import torch

from engine.interface import PolicyClosedError
from engine.policy.answer import AnswerFailedError, Request, SampledAnswer
from engine.policy.snapshots import SLOTS
from engine.torch.hardware.devices import is_out_of_memory
from engine.torch.loading import Loaded
from engine.torch.sampling.batch import GrowingBatch, RowBatch
from engine.torch.sampling.sampler import TorchSampler
from engine.torch.text import ModelText

LONGEST_YIELD = 2.0
"""Bound, in seconds, of the wait for a working policy before a token step of a snapshot: steps of a
large model are slower than those of the tiny policy."""

T = TypeVar("T")
Weights = tuple[Any, ...]
"""Tensors in the order of the trained parameters."""


class CallOnWorker(Protocol):
    """Runs a function on the policy's worker and returns its result."""

    def __call__(self, run: Callable[[], T]) -> T: ...


class TorchCopies:
    """`WeightCopies` of a model with LoRA.

    The copies stand in the memory of the processor; the one sampled last stands on the device too.

    Args:
        loaded: The model.
        text: Ids to text.
        call: Runs a function on the policy's worker.
        new_batch: Returns the batch for a model.
    """

    def __init__(
        self,
        loaded: Loaded,
        text: ModelText,
        call: CallOnWorker,
        new_batch: Callable[[Any], RowBatch] = GrowingBatch,
    ) -> None:
        self._loaded, self._text = loaded, text
        self._call, self._new_batch = call, new_batch
        names = {id(parameter): name for name, parameter in loaded.model.named_parameters()}
        self._names = [names[id(parameter)] for parameter in loaded.trained]
        self._room = loaded.memory.snapshot_ids
        """Ids, of prompt and answer, that have memory at the same time; fewer after it ran out,
        until another copy is sampled."""
        self._copy: Weights | None = None
        self._on_device: dict[str, Any] = {}
        """`_copy` on the device, by the names of the parameters."""
        self._sampler: TorchSampler | None = None
        """That of the call in progress."""

    def copy(self) -> Weights:
        """Return a copy of the present weights."""
        return tuple(parameter.detach().to("cpu", copy=True) for parameter in self._loaded.trained)

    def equal(self, weights: Weights, other: Weights) -> bool:
        """Return whether two copies are of the same weights."""
        return all(map(torch.equal, weights, other))

    def sampler(self, copy: Weights, requests: Sequence[Request]) -> "CallSampler":
        """Return a sampler without requests.

        Raises:
            AnswerFailedError: the copy does not fit on the device.
            PolicyClosedError: the policy was closed meanwhile.
        """
        try:
            sampler = self._call(partial(self._begin, copy))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise AnswerFailedError(
                requests[0],
                "The memory of the device is too small for the weights of a snapshot",
                todo="Free memory of the device, or give a smaller --max-memory.",
            ) from None
        return CallSampler(sampler, self._call, partial(self._end, sampler))

    def interrupt(self) -> None:
        """Free the memory of the answers in progress, which continue with the next token step; only
        on the worker."""
        if self._sampler is not None:
            self._sampler.interrupt()

    def _begin(self, copy: Weights) -> TorchSampler:
        loaded = self._loaded
        if copy is not self._copy:
            self._copy = None
            self._on_device.clear()
            on_device = [array.to(loaded.device) for array in copy]
            self._on_device = dict(zip(self._names, on_device, strict=True))
            self._copy, self._room = copy, loaded.memory.snapshot_ids
        batch = self._new_batch(OtherWeights(loaded.model, self._on_device))
        sampler = TorchSampler(
            batch,
            self._text,
            loaded.ends,
            loaded.context,
            SLOTS,
            kind="answers of a snapshot",
            room=self._room,
        )
        self._sampler = sampler
        return sampler

    def _end(self, sampler: TorchSampler) -> None:
        """Drop the requests; with this copy, what did not fit is not tried again."""
        self._room = self._room * sampler.slots // SLOTS
        sampler.clear()
        self._sampler = None


class CallSampler:
    """`CopySampler` that works on the policy's worker.

    Args:
        sampler: Does the work.
        call: Runs a function on the policy's worker.
        end: Drops the requests of `sampler`; called on the worker.
    """

    def __init__(self, sampler: TorchSampler, call: CallOnWorker, end: Callable[[], None]) -> None:
        self._sampler, self._call, self._end = sampler, call, end

    @property
    def live(self) -> int:
        """Number of answers being sampled."""
        return self._sampler.live

    def add(self, request: Request) -> None:
        """Queue a request; before the first step only."""
        self._sampler.add(request)

    def step(self, number: int) -> list[SampledAnswer]:
        """Sample one token for every answer that has a slot; return the finished ones."""
        return self._call(lambda: self._sampler.step(number))

    def clear(self) -> None:
        """Drop all requests; when the policy is closed, they end with it."""
        with contextlib.suppress(PolicyClosedError):
            self._call(self._end)


class OtherWeights:
    """A model with adapters that computes with other tensors in place of some parameters.

    Args:
        model: In evaluation mode.
        weights: By the names of the parameters.
    """

    def __init__(self, model: Any, weights: dict[str, Any]) -> None:
        self._model, self._weights = model, weights
        self.config = model.config
        self.parameters = model.parameters
        self.get_base_model = model.get_base_model

    def __call__(self, **arguments: Any) -> Any:
        """Return the result of the model."""
        call = torch.func.functional_call
        return call(self._model, self._weights, (), arguments, tie_weights=False)
