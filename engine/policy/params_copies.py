"""Copies of the tiny policy's weights, with a sampler of its own for them."""

from collections.abc import Sequence

import numpy as np

from engine.interface import Decoder
from engine.policy.answer import Request
from engine.policy.sampler import Sampler
from engine.policy.snapshots import SLOTS
from engine.training.model import Params
from engine.training.state import State


class ParamsCopies:
    """`WeightCopies` of the tiny policy.

    Args:
        state: The policy's state; read on the worker only.
        language: Ids to text.
    """

    def __init__(self, state: State, language: Decoder) -> None:
        self._state, self._language = state, language
        self._sampler: Sampler | None = None
        self._loaded: Params | None = None
        """Weights of the sampler."""

    def copy(self) -> Params:
        """Return a copy of the present weights."""
        return self._state.params.copy()

    def equal(self, params: Params, other: Params) -> bool:
        """Return whether two copies are of the same weights."""
        return np.array_equal(params.flat, other.flat)

    def sampler(self, copy: Params, requests: Sequence[Request]) -> Sampler:
        """Return the sampler with these weights; there is one, as its cache takes 36 MB."""
        if self._sampler is None:
            self._sampler = Sampler(copy, self._language, SLOTS)
        elif self._loaded is not copy:
            self._sampler.use(copy)
        self._loaded = copy
        return self._sampler
