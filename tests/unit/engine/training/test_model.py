"""The network: its gradients, and its cache against the full forward pass."""

import numpy as np
import pytest

from engine.policy import weights
from engine.policy.kv_cache import KVCache
from engine.training.backward import backward
from engine.training.model import BLOCKED, Config, Params, forward, log_softmax, logits_only
from engine.training.packing import Sample, pack
from engine.training.threads import Workers

SMALL = Config(vocab=50, width=16, layers=2, heads=2, hidden=12, context=32, blocked=(3,))


def _small() -> Params:
    start = Params.initial(SMALL, 0)
    return Params(SMALL, start.flat.astype(np.float64) * 5)


@pytest.mark.parametrize("name", _small().names())
def test_gradients_equal_finite_differences(name: str) -> None:
    params, rng = _small(), np.random.default_rng(1)
    tokens = rng.integers(4, 50, (3, 9))
    where = np.array([2, 5, 10, 11, 20, 25])
    targets = rng.integers(4, 50, len(where))
    rows = np.arange(len(where))

    def loss() -> float:
        logits, _ = forward(params, tokens, where)
        return -float(log_softmax(logits)[rows, targets].sum())

    logits, tape = forward(params, tokens, where)
    dlogits = np.exp(log_softmax(logits))
    dlogits[rows, targets] -= 1
    grads = params.like()
    backward(params, grads, tape, dlogits)
    values, result = params[name].reshape(-1), grads[name].reshape(-1)
    for i in rng.choice(values.size, min(8, values.size), replace=False):
        stored, tiny = values[i], 1e-5
        values[i] = stored + tiny
        above = loss()
        values[i] = stored - tiny
        below = loss()
        values[i] = stored
        assert result[i] == pytest.approx((above - below) / (2 * tiny), rel=1e-5, abs=1e-7)


@pytest.mark.slow
def test_cached_logits_equal_the_full_forward_pass_to_the_end_of_the_window() -> None:
    params = weights.shipped().params
    rng = np.random.default_rng(2)
    prompts = [rng.integers(0, 1024, 300), rng.integers(0, 1024, 7)]
    added = rng.integers(0, 1024, (2, 12))
    cache = KVCache(params, 2)
    for row, prompt in enumerate(prompts):
        full = logits_only(params, prompt[None], np.array([len(prompt) - 1]))
        np.testing.assert_allclose(cache.prefill(prompt, row), full[0], atol=1e-4)
    for i in range(added.shape[1]):
        logits = cache.decode(added[:, i], np.array([len(prompt) + i for prompt in prompts]))
        for row, prompt in enumerate(prompts):
            whole = np.concatenate([prompt, added[row, : i + 1]])
            full = logits_only(params, whole[None], np.array([len(whole) - 1]))
            np.testing.assert_allclose(logits[row], full[0], atol=1e-4)


def test_padding_does_not_change_a_row() -> None:
    params, rng = _small(), np.random.default_rng(3)
    row = rng.integers(4, 50, 5)
    alone = logits_only(params, row[None], np.array([4]))
    padded = np.concatenate([row, [0, 0, 0]])
    beside = logits_only(params, np.stack([padded, rng.integers(4, 50, 8)]), np.array([4]))
    np.testing.assert_allclose(alone, beside, atol=1e-12)


def test_blocked_tokens_have_no_probability() -> None:
    logits = logits_only(_small(), np.array([[5, 6]]), np.array([1]))
    assert logits[0, 3] < BLOCKED / 2
    assert np.exp(log_softmax(logits))[0, 3] == 0


def test_parameters_of_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="parameters given"):
        Params(SMALL, np.zeros(3, np.float32))


def test_packing_keeps_the_order_of_targets_and_the_bounds_of_shards() -> None:
    rng = np.random.default_rng(4)
    samples = []
    for length in (3, 500, 40, 41, 3, 9):
        ids = rng.integers(0, 50, length).tolist()
        samples.append(Sample(ids, [False] * (length - 2) + [True] * 2))
    samples.append(Sample([1, 2], [False, False]))
    shards, targets = pack(samples)
    wanted = [i for sample in samples[:-1] for i in sample.ids[-2:]]
    zeros = np.zeros(targets, int)
    for shard in shards:
        zeros[shard.index] = shard.targets
        assert (shard.tokens.ravel()[shard.where + 1] == shard.targets).all()
    assert zeros.tolist() == wanted
    assert max(shard.tokens.shape[1] for shard in shards) == 500


def test_workers_deal_evenly_and_always_alike() -> None:
    workers = Workers(2)
    try:
        dealt = workers.deal([5, 1, 1, 1, 1, 1])
        assert dealt == [[0], [1, 2, 3, 4, 5]]
        assert workers.run(lambda worker: worker * 10) == [0, 10]
    finally:
        workers.close()
