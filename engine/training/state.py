"""The weights a policy starts from, and its state in training."""

from dataclasses import dataclass

from engine.training.model import Params
from engine.training.optimizer import Adam


@dataclass(frozen=True, slots=True)
class Base:
    """The shipped weights."""

    params: Params
    digest: str
    """SHA-256 of their file: a checkpoint names the base it was trained from."""


@dataclass(slots=True)
class State:
    """What training goes on from."""

    params: Params
    adam: Adam
    step: int = 0

    @classmethod
    def fresh(cls, base: Base) -> "State":
        """The base weights with a new optimizer."""
        return cls(base.params.copy(), Adam(base.params.flat.size))
