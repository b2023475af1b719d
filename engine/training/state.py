"""The base weights of a policy, and its state in training."""

from dataclasses import dataclass

from engine.training.model import Params
from engine.training.optimizer import Adam


@dataclass(frozen=True, slots=True)
class Base:
    """Weights from which a policy starts."""

    params: Params
    digest: str
    """SHA-256 of their file; a checkpoint names the base it was trained from."""


@dataclass(slots=True)
class State:
    """State from which training continues."""

    params: Params
    adam: Adam
    step: int = 0

    @classmethod
    def fresh(cls, base: Base) -> "State":
        """Return the base weights with a fresh optimizer."""
        return cls(base.params.copy(), Adam(base.params.flat.size))
