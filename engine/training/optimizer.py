"""Adam over one flat vector, with gradient clipping by norm (Kingma and Ba 2014)."""

import numpy as np

from engine.training.model import Array

BLOCK = 1 << 15
"""Elements per block: temporaries stay in a core's cache."""


class Adam:
    """Adam optimizer with its state.

    Attributes:
        m: Running mean of the gradient.
        v: Running mean of its square.
        t: Number of steps.
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
        first: int = 0,
    ) -> None:
        """Update `flat` in place from index `first` on; `decay` is decoupled (AdamW)."""
        b1, b2 = betas
        self.t += 1
        for start in range(first, flat.size, BLOCK):
            part = slice(start, start + BLOCK)
            m, v, slope = self.m[part], self.v[part], grad[part]
            m *= b1
            m += (1.0 - b1) * slope
            v *= b2
            v += (1.0 - b2) * slope * slope
            scale = np.sqrt(v / (1.0 - b2**self.t))
            scale += eps
            if decay:
                flat[part] *= 1.0 - lr * decay
            flat[part] -= (lr / (1.0 - b1**self.t)) * (m / scale)


def clip_(grad: Array, limit: float) -> float:
    """Scale `grad` in place to a norm of at most `limit`; return the original norm."""
    norm = float(np.sqrt(np.dot(grad, grad)))
    if norm > limit > 0:
        grad *= limit / norm
    return norm
