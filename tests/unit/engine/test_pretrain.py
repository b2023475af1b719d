"""Pretraining: its steps and its optimizer."""

from random import Random

import numpy as np
import pytest

from engine import pretrain
from engine.corpus import Corpus
from engine.policy.weights import CONFIG
from engine.pretrain import Pretrainer, ShardFeed
from engine.tokenizer import Tokenizer
from engine.training.model import Params
from engine.training.optimizer import BLOCK, Adam

pytestmark = pytest.mark.slow


def _feed(seed: int) -> ShardFeed:
    return ShardFeed(Tokenizer.shipped(), Corpus(seed), Random(seed))


def test_steps_are_of_a_like_size_with_little_padding() -> None:
    feed = _feed(1)
    cells = used = 0
    for _ in range(60):
        shards = feed.next()
        assert len(shards) == pretrain.SHARDS
        cells += sum(shard.tokens.size for shard in shards)
        used += sum(int((shard.tokens != 259).sum()) for shard in shards)
        assert all(shard.tokens.shape[1] <= CONFIG.context for shard in shards)
    assert 1500 < cells / 60 < 2100
    assert used / cells > 0.85


def test_equal_seeds_give_equal_steps() -> None:
    first, second = _feed(2), _feed(2)
    for _ in range(40):
        for one, other in zip(first.next(), second.next(), strict=True):
            np.testing.assert_array_equal(one.tokens, other.tokens)


def test_a_few_steps_lower_the_loss() -> None:
    trainer = Pretrainer(Params.initial(CONFIG, 0), 1000)
    shards = _feed(3).next()
    try:
        losses = [trainer.step(20, shards) for _ in range(6)]
    finally:
        trainer.close()
    assert abs(losses[0] - np.log(CONFIG.vocab)) < 0.3
    assert losses[-1] < losses[0] - 0.5


def test_adam_is_the_published_formula_from_the_first_element_on() -> None:
    rng = np.random.default_rng(0)
    size, first = BLOCK + 700, 300
    flat = rng.standard_normal(size)
    adam, start = Adam(size, "float64"), flat.copy()
    m, v = np.zeros(size), np.zeros(size)
    wanted = flat.copy()
    for t in (1, 2, 3):
        grad = rng.standard_normal(size)
        adam.step(flat, grad, 0.01, (0.9, 0.99), 1e-3, 0.1, first)
        m, v = 0.9 * m + 0.1 * grad, 0.99 * v + 0.01 * grad**2
        wanted *= 1 - 0.01 * 0.1
        wanted -= 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-3)
    np.testing.assert_allclose(flat[first:], wanted[first:], rtol=1e-12)
    np.testing.assert_array_equal(flat[:first], start[:first])
