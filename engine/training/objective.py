"""The GRPO objective token by token, in the forms that TRL and VERL use.

Sources: Shao et al. 2024 for GRPO, Schulman 2020 for the k3 estimate, Ye et al. 2020 for the second
clip; TRL's `grpo_trainer` (loss type `bnpo`) and VERL's `core_algos` (vanilla loss, token-mean).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.interface import Hyperparameters, TrainSample
from engine.training.model import Array

STANDARD_DAMPING = 1e-4
"""What the field's standard form adds to the deviation (TRL; VERL adds 1e-6)."""
_MAX_LOG_RATIO = 20.0
"""Bound of log ratios, as in VERL: late rewards meet weights far from those that drew them."""
_MAX_K3 = 10.0
"""VERL bounds the k3 of a token here; beyond it, k3 as a loss has no gradient."""
_MAX_WEIGHT = 2.0
"""Bound of the ratio that weighs the `k3+` gradient."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """Advantages of a batch."""

    values: Array
    """One for each sample."""
    groups: int
    dead: int
    """Groups whose rewards are all alike: no signal."""
    rewards: Array
    """One for each episode."""


def advantages(samples: Sequence[TrainSample], hyper: Hyperparameters) -> Advantages:
    """How much better each episode was than its group.

    Damped: (reward - mean) / (std + damping) with the deviation of the group as it is. Standard:
    the sample deviation (n - 1) and `STANDARD_DAMPING`. An episode of several samples counts once.
    A group of one has no signal.

    Raises:
        ValueError: an unknown form, or samples of one episode with unlike rewards.
    """
    if hyper.advantage not in ("damped", "standard"):
        raise ValueError(f"unknown form of the advantage: {hyper.advantage!r}")
    groups: dict[str, dict[str, list[int]]] = {}
    for i, sample in enumerate(samples):
        name = f"e{sample.episode}" if sample.episode else f"s{i}"
        groups.setdefault(sample.task_id, {}).setdefault(name, []).append(i)
    values = np.zeros(len(samples))
    rewards: list[float] = []
    dead = 0
    for episodes in groups.values():
        for members in episodes.values():
            if len({samples[i].reward for i in members}) > 1:
                raise ValueError(f"two rewards for the episode {samples[members[0]].episode!r}")
        found = np.array([samples[members[0]].reward for members in episodes.values()])
        rewards += found.tolist()
        if np.ptp(found) <= 1e-9:
            dead += 1
            continue
        if hyper.advantage == "standard":
            scaled = (found - found.mean()) / (found.std(ddof=1) + STANDARD_DAMPING)
        else:
            scaled = (found - found.mean()) / (found.std() + hyper.damping)
        for value, members in zip(scaled, episodes.values(), strict=True):
            values[members] = value
    return Advantages(values, len(groups), dead, np.array(rewards))


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The objective at each target, (n,) each; means over targets are taken by the caller."""

    loss: Array
    slope: Array
    """Derivative of `loss` by the new log-prob."""
    kl: Array
    """k3 estimate of KL(policy || reference), at most 10, whatever form the loss has."""
    clipped: Array
    """Whether the clip took the policy gradient away."""
    cut: Array
    """Whether the second clip did: negative advantage, ratio over `dual_clip`."""
    ratio: Array


def token_loss(
    new: Array, old: Array, reference: Array, advantage: Array, hyper: Hyperparameters
) -> TokenLoss:
    """Clipped policy loss and KL at each target.

    Args:
        new: Log-probs by the policy.
        old: Those when sampled.
        reference: Those by the frozen weights.
        advantage: Of each target's sample.
        hyper: Clip range, weight and form of the KL.

    Raises:
        ValueError: an unknown form of the KL.
    """
    step = new - old
    ratio = np.exp(np.clip(step, -_MAX_LOG_RATIO, _MAX_LOG_RATIO))
    bounded = np.clip(ratio, 1.0 - hyper.clip, 1.0 + hyper.clip)
    plain, held = -advantage * ratio, -advantage * bounded
    worse = np.maximum(plain, held)
    most = -advantage * hyper.dual_clip
    cut = (advantage < 0) & (worse > most)
    clipped = held > plain
    loss = np.where(cut, most, worse)
    slope = np.where(cut | clipped | (np.abs(step) > _MAX_LOG_RATIO), 0.0, plain)
    kl, kl_loss, kl_slope = _kl(new, reference, ratio, hyper.kl_form)
    loss = loss + hyper.kl * kl_loss
    slope = slope + hyper.kl * kl_slope
    return TokenLoss(loss, slope.astype(new.dtype), kl, clipped & ~cut, cut, ratio)


def _kl(new: Array, reference: Array, ratio: Array, form: str) -> tuple[Array, Array, Array]:
    """The k3 of each target, the term of the loss and its derivative by the new log-prob.

    k3 as a loss (`low_var_kl`) pulls by 1 - exp(reference - new): the gradient of another
    divergence (forward KL), nearly nothing where the policy says what the reference never would.
    `k3+` has the gradient of the true KL(policy || reference): k3 weighted by the ratio to the
    weights that sampled, as in TRL's `use_bias_correction_kl`; at ratio 1 that of VERL's `k3+`.
    Over `_MAX_WEIGHT` the weight is constant and the gradient goes on with it.
    """
    gap = np.clip(reference - new, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    k3 = np.expm1(gap) - gap
    held = np.minimum(k3, _MAX_K3)
    if form == "k3":
        inside = (k3 <= _MAX_K3) & (np.abs(reference - new) <= _MAX_LOG_RATIO)
        return held, held, np.where(inside, -np.expm1(gap), 0.0)
    if form == "k3+":
        weight = np.minimum(ratio, _MAX_WEIGHT)
        return held, weight * k3, -weight * gap
    raise ValueError(f"unknown form of the KL: {form!r}")
