"""Figures of a policy update, the same for all learners."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.interface import TrainSample, UpdateStats
from engine.training.objective import Advantages, TokenLoss


@dataclass(slots=True)
class LossSums:
    """Sums over the targets of one epoch, or of a part of it."""

    loss: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    cut: float = 0.0
    entropy: float = 0.0
    ratio: float = 0.0
    """The highest one."""

    def add(self, other: "LossSums") -> None:
        """Add the sums of another part."""
        self.loss += other.loss
        self.kl += other.kl
        self.clipped += other.clipped
        self.cut += other.cut
        self.entropy += other.entropy
        self.ratio = max(self.ratio, other.ratio)

    def count(self, losses: TokenLoss, entropy: float) -> None:
        """Add targets, and the sum of their entropies."""
        self.loss += float(losses.loss.sum(dtype=np.float64))
        self.kl += float(losses.kl.sum(dtype=np.float64))
        self.clipped += float(np.count_nonzero(losses.clipped))
        self.cut += float(np.count_nonzero(losses.cut))
        self.entropy += entropy
        self.ratio = max(self.ratio, float(losses.ratio.max()))


def update_stats(
    samples: Sequence[TrainSample],
    group: Advantages,
    epochs: Sequence[LossSums],
    *,
    targets: int,
    norm: float,
    seconds: float,
    step: int,
    extra: Mapping[str, float] | None = None,
) -> UpdateStats:
    """Return the figures of an update.

    Args:
        samples: The batch.
        group: Its advantages.
        epochs: Sums of each epoch, at least one.
        targets: Number of sampled ids.
        norm: Of the last gradient, before clipping.
        seconds: Duration.
        step: Global step after the update.
        extra: Further figures of the learner.
    """
    last, passes = epochs[-1], targets * len(epochs)
    return UpdateStats(
        step=step,
        samples=len(samples),
        tokens=targets,
        groups=group.groups,
        dead_groups=group.dead,
        reward_mean=float(group.rewards.mean()),
        reward_std=float(group.rewards.std()),
        kl=last.kl / targets,
        clip_fraction=sum(sums.clipped for sums in epochs) / passes,
        entropy=epochs[0].entropy / targets,
        grad_norm=norm,
        response_tokens=targets / len(samples),
        seconds=seconds,
        extra={
            "loss": last.loss / targets,
            "ratio_max": max(sums.ratio for sums in epochs),
            "advantage_max": float(np.abs(group.values).max()),
            "dual_clip_fraction": sum(sums.cut for sums in epochs) / passes,
            "no_signal": group.faint / group.groups,
            **(extra or {}),
        },
    )
