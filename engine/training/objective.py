"""The GRPO objective per token, in the forms of TRL and VERL.

Sources: Shao et al. 2024 for GRPO, Schulman 2020 for the k3 estimate, Ye et al. 2020 for the second
clip; TRL's `grpo_trainer` (loss type `bnpo`) and VERL's `core_algos` (vanilla loss, token-mean).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.scoring.advantage import is_dead, is_faint
from engine.interface import Hyperparameters, TrainSample
from engine.training.model import Array

STANDARD_DAMPING = 1e-4
"""Added to the deviation in the standard form (TRL; VERL adds 1e-6)."""
_MAX_LOG_RATIO = 20.0
"""Bound of log ratios, as in VERL: late rewards meet weights far from those that sampled."""
_MAX_K3 = 10.0
"""VERL bounds the k3 of a token; beyond the bound, k3 as a loss has no gradient."""
_MAX_WEIGHT = 2.0
"""Bound of the ratio that weights the `k3+` gradient."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """Advantages of a batch."""

    values: Array
    """One per sample."""
    groups: int
    dead: int
    """Groups with equal rewards, whose advantages are 0."""
    faint: int
    """Groups that teach nothing or almost nothing; the dead ones are among them."""
    rewards: Array
    """One per episode."""

    @property
    def signal(self) -> bool:
        """Whether a group has an advantage; without one a batch makes no optimizer step."""
        return self.dead < self.groups


def advantages(samples: Sequence[TrainSample], hyper: Hyperparameters) -> Advantages:
    """Compute how much better each episode was than its group.

    Damped: (reward - mean) / (std + damping) with the population deviation of the group. Standard:
    the sample deviation (n - 1) and `STANDARD_DAMPING`. An episode of several samples counts once.
    A group of one or of equal rewards has advantages of 0: its tokens keep their KL term only.

    Raises:
        ValueError: an unknown form, or different rewards for the samples of one episode.
    """
    if hyper.advantage not in ("damped", "standard"):
        raise ValueError(f"unknown form of the advantage: {hyper.advantage!r}")
    groups: dict[str, dict[str, list[int]]] = {}
    for i, sample in enumerate(samples):
        name = f"e{sample.episode}" if sample.episode else f"s{i}"
        groups.setdefault(sample.task_id, {}).setdefault(name, []).append(i)
    values = np.zeros(len(samples))
    rewards: list[float] = []
    dead = faint = 0
    for episodes in groups.values():
        for members in episodes.values():
            if len({samples[i].reward for i in members}) > 1:
                raise ValueError(f"two rewards for the episode {samples[members[0]].episode!r}")
        group_rewards = np.array([samples[members[0]].reward for members in episodes.values()])
        rewards += group_rewards.tolist()
        if is_dead(group_rewards.tolist()):
            dead += 1
            faint += 1
            continue
        if hyper.advantage == "standard":
            scaled = (group_rewards - group_rewards.mean()) / (
                group_rewards.std(ddof=1) + STANDARD_DAMPING
            )
        else:
            scaled = (group_rewards - group_rewards.mean()) / (group_rewards.std() + hyper.damping)
        faint += is_faint(scaled.tolist())
        for value, members in zip(scaled, episodes.values(), strict=True):
            values[members] = value
    return Advantages(values, len(groups), dead, faint, np.array(rewards))


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The objective at each target, (n,) each; the caller averages over targets."""

    loss: Array
    slope: Array
    """Derivative of `loss` with respect to the new log-prob."""
    kl: Array
    """k3 estimate of KL(policy || reference), at most 10, whatever the form of the loss."""
    clipped: Array
    """Whether the clip removed the policy gradient."""
    cut: Array
    """Whether the second clip removed it: negative advantage, ratio over `dual_clip`."""
    ratio: Array


def token_loss(
    new: Array, old: Array, reference: Array, advantage: Array, hyper: Hyperparameters
) -> TokenLoss:
    """Compute the clipped policy loss and the KL at each target.

    Args:
        new: Log-probs under the policy.
        old: Log-probs when sampled.
        reference: Log-probs under the frozen weights.
        advantage: Advantage of each target's sample.
        hyper: Clip range, weight and form of the KL.

    Raises:
        ValueError: an unknown form of the KL.
    """
    step = new - old
    ratio = np.exp(np.clip(step, -_MAX_LOG_RATIO, _MAX_LOG_RATIO))
    bounded = np.clip(ratio, 1.0 - hyper.clip, 1.0 + hyper.clip)
    plain, bounded_loss = -advantage * ratio, -advantage * bounded
    worse = np.maximum(plain, bounded_loss)
    dual_loss = -advantage * hyper.dual_clip
    cut = (advantage < 0) & (worse > dual_loss)
    clipped = bounded_loss > plain
    loss = np.where(cut, dual_loss, worse)
    slope = np.where(cut | clipped | (np.abs(step) > _MAX_LOG_RATIO), 0.0, plain)
    kl, kl_loss, kl_slope = _kl(new, reference, ratio, hyper.kl_form)
    loss = loss + hyper.kl * kl_loss
    slope = slope + hyper.kl * kl_slope
    return TokenLoss(loss, slope.astype(new.dtype), kl, clipped & ~cut, cut, ratio)


def _kl(new: Array, reference: Array, ratio: Array, form: str) -> tuple[Array, Array, Array]:
    """Return each target's k3, its term of the loss and the derivative by the new log-prob.

    k3 as a loss (`low_var_kl`) pulls by 1 - exp(reference - new), the gradient of another
    divergence (forward KL), which is nearly zero where the policy samples what the reference never
    would. `k3+` has the gradient of the true KL(policy || reference): k3 weighted by the ratio to
    the sampling weights, as in TRL's `use_bias_correction_kl`; at ratio 1 it equals VERL's `k3+`.
    Over `_MAX_WEIGHT` the weight is constant and the gradient continues with it.
    """
    gap = np.clip(reference - new, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    k3 = np.expm1(gap) - gap
    bounded_k3 = np.minimum(k3, _MAX_K3)
    if form == "k3":
        inside = (k3 <= _MAX_K3) & (np.abs(reference - new) <= _MAX_LOG_RATIO)
        return bounded_k3, bounded_k3, np.where(inside, -np.expm1(gap), 0.0)
    if form == "k3+":
        weight = np.minimum(ratio, _MAX_WEIGHT)
        return bounded_k3, weight * k3, -weight * gap
    raise ValueError(f"unknown form of the KL: {form!r}")
