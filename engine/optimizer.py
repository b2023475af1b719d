"""Adam over one flat vector, with gradient clipping by norm (Kingma and Ba 2014)."""

import numpy as np

from engine.model import Array


class Adam:
    """State of the optimizer.

    Attributes:
        m: Running mean of the gradient.
        v: Running mean of its square.
        t: Steps done.
    """

    def __init__(self, size: int, dtype: str = "float32") -> None:
        self.m = np.zeros(size, dtype)
        self.v = np.zeros(size, dtype)
        self.t = 0

    def step(
        self,
        flat: Array,
        grad: Array,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        decay: float = 0.0,
    ) -> None:
        """Change `flat` in place; `decay` is decoupled (AdamW)."""
        b1, b2 = betas
        self.t += 1
        self.m *= b1
        self.m += (1.0 - b1) * grad
        self.v *= b2
        self.v += (1.0 - b2) * grad * grad
        scale = np.sqrt(self.v / (1.0 - b2**self.t))
        scale += eps
        if decay:
            flat *= 1.0 - lr * decay
        flat -= (lr / (1.0 - b1**self.t)) * (self.m / scale)


def clip_(grad: Array, limit: float) -> float:
    """Scale `grad` in place to a norm of at most `limit`; returns the norm it had."""
    norm = float(np.sqrt(np.dot(grad, grad)))
    if norm > limit > 0:
        grad *= limit / norm
    return norm
