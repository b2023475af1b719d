"""The objective against the formulas of TRL and VERL, its gradients against finite differences.

The references below are written out from TRL 0.19 (`GRPOTrainer._compute_loss`, loss type `bnpo`)
and VERL 0.5 (`core_algos.compute_policy_loss_vanilla`, `kl_penalty` "low_var_kl", "token-mean").
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.interface import Hyperparameters, TrainSample
from engine.training.grpo import Learner
from engine.training.model import Array, Config, Params, log_softmax, logits_only
from engine.training.objective import advantages, token_loss
from engine.training.optimizer import Adam
from engine.training.state import State

pytestmark = pytest.mark.slow

SMALL = Config(vocab=264, width=16, layers=3, heads=2, hidden=12, context=32, blocked=(3, 261))
FIELD = Hyperparameters(kl_form="k3", advantage="standard", frozen=0, kl=0.3)


def _trl(new: Array, old: Array, ref: Array, adv: Array, mask: Array, hyper: Any) -> float:
    """TRL: rows are completions, `adv` (rows, 1), padded by `mask`.

    With `use_bias_correction_kl` the KL is weighted by the importance ratio.
    """
    per_token_kl = np.exp(ref - new) - (ref - new) - 1
    coef_1 = np.exp(new - old)
    coef_2 = np.clip(coef_1, 1 - hyper.clip, 1 + hyper.clip)
    weight = coef_1 if hyper.kl_form == "k3+" else 1.0
    per_token = -np.minimum(coef_1 * adv, coef_2 * adv) + hyper.kl * weight * per_token_kl
    return float((per_token * mask).sum() / max(mask.sum(), 1))


def _verl(new: Array, old: Array, ref: Array, adv: Array, mask: Array, hyper: Any) -> float:
    """VERL: with the second clip and the bounds of the log ratio, of the gap and of k3."""
    ratio = np.exp(np.clip(new - old, -20, 20))
    losses1 = -adv * ratio
    losses2 = -adv * np.clip(ratio, 1 - hyper.clip, 1 + hyper.clip)
    clip1 = np.maximum(losses1, losses2)
    clip2 = np.minimum(-adv * hyper.dual_clip, clip1)
    losses = np.where(adv < 0, clip2, clip1)
    gap = np.clip(ref - new, -20, 20)
    kld = np.clip(np.exp(gap) - gap - 1, -10, 10)
    mean = mask.sum()
    return float((losses * mask).sum() / mean + hyper.kl * (kld * mask).sum() / mean)


Reference = Callable[[Array, Array, Array, Array, Array, Any], float]


def _fixed(spread: float) -> tuple[Array, Array, Array, Array, Array]:
    """Log-probs of five answers of unlike lengths, away from the edges of the clips."""
    rng = np.random.default_rng(5)
    old = -rng.uniform(0.1, 4.0, (5, 7))
    new = old + rng.normal(0, spread, old.shape)
    ref = old + rng.normal(0, 1.5 * spread, old.shape)
    adv = np.array([[1.3], [-0.7], [0.0], [-1.1], [0.4]])
    mask = (np.arange(7) < np.array([[7], [3], [5], [1], [6]])).astype(float)
    return new, old, ref, adv, mask


@pytest.mark.parametrize(
    ("reference", "form", "spread"),
    [(_trl, "k3", 0.3), (_trl, "k3+", 0.3), (_verl, "k3", 0.3), (_verl, "k3", 2.5)],
)
def test_loss_and_gradient_match_published_grpo(
    reference: Reference, form: str, spread: float
) -> None:
    new, old, ref, adv, mask = _fixed(spread)
    hyper = replace(FIELD, kl_form=form)
    stored = mask.astype(bool)
    wide = np.broadcast_to(adv, new.shape)
    result = token_loss(new[stored], old[stored], ref[stored], wide[stored], hyper)
    assert result.loss.mean() == pytest.approx(reference(new, old, ref, adv, mask, hyper), abs=1e-5)
    wanted = np.zeros_like(new)
    for place in np.ndindex(*new.shape):
        above, below = new.copy(), new.copy()
        above[place] += 1e-6
        below[place] -= 1e-6
        rise = reference(above, old, ref, adv, mask, hyper)
        wanted[place] = (rise - reference(below, old, ref, adv, mask, hyper)) / 2e-6
    assert np.abs(wanted[~stored]).max() == 0
    np.testing.assert_allclose(result.slope / stored.sum(), wanted[stored], atol=1e-5)
    if spread > 1:
        assert result.clipped.any()
        assert result.cut.any()
        assert (result.kl == 10).any()


def test_standard_advantages_match_published_grpo() -> None:
    """TRL: `(rewards - mean) / (std + 1e-4)` with the sample deviation of each group."""
    rewards = {"a": [0.0, 1.0, 0.5, 0.0], "b": [0.2, 0.9], "c": [0.3, 0.3, 0.3]}
    samples, wanted = [], []
    for task, values in rewards.items():
        mean = sum(values) / len(values)
        deviation = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
        wanted += [(v - mean) / (deviation + 1e-4) for v in values]
        samples += [TrainSample(task, (1,), (2,), (-1.0,), v) for v in values]
    result = advantages(samples, FIELD)
    np.testing.assert_allclose(result.values, wanted, atol=1e-9)
    assert (result.groups, result.dead, result.faint) == (3, 1, 1)


def test_groups_that_teach_almost_nothing_are_counted_by_the_form_of_the_advantage() -> None:
    rewards = {"a": [0.52, 0.5, 0.5, 0.5], "b": [1.0, 0.0], "c": [0.3, 0.3]}
    samples = [
        TrainSample(task, (1,), (2,), (-1.0,), value)
        for task, values in rewards.items()
        for value in values
    ]
    damped = advantages(samples, replace(FIELD, advantage="damped", damping=0.2))
    standard = advantages(samples, replace(FIELD, advantage="standard"))
    assert [(form.dead, form.faint) for form in (damped, standard)] == [(1, 2), (1, 1)]


def _small_batch() -> tuple[Learner, list[TrainSample]]:
    rng = np.random.default_rng(6)
    start, other = (Params.initial(SMALL, seed).flat.astype(np.float64) * 5 for seed in (0, 1))
    params = Params(SMALL, start)
    reference = Params(SMALL, start + 0.03 * other)
    samples = []
    for i, (prompt, length) in enumerate(((3, 6), (5, 4), (3, 9), (8, 2))):
        ids = tuple(rng.integers(4, 50, prompt + length).tolist())
        where = np.arange(prompt - 1, prompt + length - 1)
        logp = log_softmax(logits_only(params, np.array([ids]), where))
        drawn = logp[np.arange(length), list(ids[prompt:])] + rng.normal(0, 0.25, length)
        mask = tuple(k != 2 for k in range(length)) if i == 2 else None
        samples.append(
            TrainSample("ab"[i // 2], ids[:prompt], ids[prompt:], tuple(drawn), i % 2 * 0.7, mask)
        )
    return Learner(State(params, Adam(params.flat.size, "float64")), reference), samples


@pytest.mark.parametrize("form", ["k3", "k3+"])
@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_the_gradient_of_an_update_equals_finite_differences(form: str, frozen: int) -> None:
    learner, samples = _small_batch()
    hyper = replace(FIELD, kl_form=form, frozen=frozen)
    try:
        _, grad = learner.gradient(samples, hyper)
        params = learner.state.params
        first = params.offset(f"{frozen - 1}.norm1") if frozen else 0
        assert not grad[:first].any()
        for i in np.random.default_rng(7).integers(first, grad.size, 40):
            stored, losses = params.flat[i], []
            for change in (1e-5, -1e-5):
                params.flat[i] = stored + change
                losses.append(learner.gradient(samples, hyper)[0])
            params.flat[i] = stored
            assert grad[i] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-4, abs=1e-8)
    finally:
        learner.close()


def test_the_loss_of_an_update_matches_published_grpo() -> None:
    """Packed shards against padded rows, each answer through the network alone."""
    learner, samples = _small_batch()
    reference = learner._reference
    longest = max(len(sample.tokens) for sample in samples)
    rows: dict[str, list[Array]] = {name: [] for name in ("new", "old", "ref", "mask")}
    for sample in samples:
        length = len(sample.tokens)
        ids = np.array([(*sample.prompt_tokens, *sample.tokens)])
        where = np.arange(len(sample.prompt_tokens) - 1, ids.shape[1] - 1)
        for name, params in (("new", learner.state.params), ("ref", reference)):
            logp = log_softmax(logits_only(params, ids, where))
            result = logp[np.arange(length), list(sample.tokens)]
            rows[name].append(np.pad(result, (0, longest - length)))
        rows["old"].append(np.pad(np.array(sample.logprobs), (0, longest - length)))
        mask = np.ones(length) if sample.mask is None else np.array(sample.mask, float)
        rows["mask"].append(np.pad(mask, (0, longest - length)))
    new, old, ref, mask = (np.stack(rows[name]) for name in ("new", "old", "ref", "mask"))
    adv = advantages(samples, FIELD).values[:, None]
    try:
        loss, _ = learner.gradient(samples, FIELD)
    finally:
        learner.close()
    assert loss == pytest.approx(_trl(new, old, ref, adv, mask, FIELD), abs=1e-5)
    assert loss == pytest.approx(_verl(new, old, ref, adv, mask, FIELD), abs=1e-5)
