"""GRPO: advantages, and what an update does to the policy."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from engine.corpus import word_lists
from engine.interface import Completion, Hyperparameters, SamplingParams, TrainSample, UpdateStats
from engine.policy import weights
from engine.policy.answer import Request
from engine.policy.chat_template import render
from engine.policy.sampler import Sampler
from engine.tokenizer import Tokenizer
from engine.training import grpo
from engine.training.grpo import Learner, advantages
from engine.training.model import log_softmax, logits_only
from engine.training.state import State

pytestmark = pytest.mark.slow

TOKENIZER = Tokenizer.shipped()
BASE = weights.shipped()
HYPER = Hyperparameters()


def _draw(
    state: State, questions: list[str], repeats: int, seed: int, tokens: int = 60
) -> list[list[Completion]]:
    sampler = Sampler(state.params, TOKENIZER)
    groups = []
    for i, question in enumerate(questions):
        prompt = render(TOKENIZER, 512, [{"role": "user", "content": question}], None, tokens)
        params = [
            SamplingParams(max_tokens=tokens, seed=seed * 10_000 + i * 100 + k)
            for k in range(repeats)
        ]
        groups.append([Request(prompt, p) for p in params])
        for request in groups[-1]:
            sampler.add(request)
    values: dict[Request, Completion] = {}
    while sampler.live or sampler.waiting:
        values |= {done.request: done.completion for done in sampler.step(state.step)}
    return [[values[request] for request in group] for group in groups]


def _sample(task: str, done: Completion, reward: float) -> TrainSample:
    return TrainSample(task, done.prompt_tokens, done.tokens, done.logprobs, reward)


def _log_prob(state: State, sample: TrainSample) -> float:
    ids = np.array([(*sample.prompt_tokens, *sample.tokens)])
    where = np.arange(len(sample.prompt_tokens) - 1, ids.shape[1] - 1)
    logp = log_softmax(logits_only(state.params, ids, where))
    return float(logp[np.arange(len(where)), list(sample.tokens)].sum())


@pytest.fixture(scope="module")
def drawn() -> list[list[Completion]]:
    return _draw(State.fresh(BASE), ["How do I sleep better?", "Tell me a joke."], 4, 1)


def _update(
    state: State, samples: list[TrainSample], hyper: Hyperparameters = HYPER
) -> UpdateStats:
    learner = Learner(state, BASE.params)
    try:
        return learner.update(samples, hyper)
    finally:
        learner.close()


def _bare(task: str, reward: float) -> TrainSample:
    return TrainSample(task, (1,), (2,), (-1.0,), reward)


def test_advantages_are_relative_to_the_group() -> None:
    samples = [_bare("a", 1), _bare("b", 5), _bare("a", 0), _bare("b", 5), _bare("c", 9)]
    result = advantages(samples, HYPER)
    assert (result.groups, result.dead) == (3, 2)
    np.testing.assert_allclose(result.values, [0.5 / 0.7, 0, -0.5 / 0.7, 0, 0])


def test_an_episode_of_several_samples_counts_once_in_its_group() -> None:
    rewards = (("x", 1.0), ("y", 0.0), ("x", 1.0), ("z", 0.0))
    samples = [replace(_bare("a", reward), episode=name) for name, reward in rewards]
    result = advantages(samples, replace(HYPER, damping=0.0))
    assert (result.groups, result.dead) == (1, 0)
    assert sorted(result.rewards) == [0, 0, 1]
    high, low = (2 / 3) / (2 / 9) ** 0.5, (-1 / 3) / (2 / 9) ** 0.5
    np.testing.assert_allclose(result.values, [high, low, high, low])
    with pytest.raises(ValueError, match="two rewards"):
        advantages([samples[0], replace(samples[2], reward=0.5)], HYPER)


def test_an_unknown_form_is_refused() -> None:
    state = State.fresh(BASE)
    for change in ({"advantage": "odd"}, {"kl_form": "odd"}):
        hyper = replace(HYPER, **change)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="unknown form"):
            _update(state, [_bare("t", 1.0), _bare("t", 0.0)], hyper)
    np.testing.assert_array_equal(state.params.flat, BASE.params.flat)


def test_a_rewarded_answer_gets_likelier_and_stands_out(drawn: list[list[Completion]]) -> None:
    state = State.fresh(BASE)
    group = drawn[0]
    texts = [done.text for done in group]
    assert len(set(texts)) > 1
    samples = [_sample("t", done, float(done.text == texts[0])) for done in group]
    before = [_log_prob(state, sample) for sample in samples]
    for sample, old in zip(samples, before, strict=True):
        assert old == pytest.approx(sum(sample.logprobs), abs=1e-2)
    stats = _update(state, samples)
    after = [_log_prob(state, sample) for sample in samples]
    gains = [new - old for old, new in zip(before, after, strict=True)]
    assert gains[0] > 0.1
    for sample, gain in zip(samples, gains, strict=True):
        assert sample.reward > 0 or gain < gains[0]
    assert sum(gains[1:]) / 3 < gains[0] / 2
    assert not np.array_equal(state.params.flat, BASE.params.flat)
    assert (stats.step, stats.samples, stats.groups, stats.dead_groups) == (1, 4, 1, 0)
    assert stats.tokens == sum(len(done.tokens) for done in group)
    assert stats.grad_norm > 0
    assert stats.entropy > 0
    assert state.adam.t == HYPER.epochs
    assert stats.response_tokens == stats.tokens / 4
    assert stats.extra["no_signal"] == 0
    assert stats.extra["ratio_max"] >= 1 - 1e-4


def test_equal_rewards_teach_nothing(drawn: list[list[Completion]]) -> None:
    state = State.fresh(BASE)
    samples = [_sample(str(g), done, 0.7) for g, group in enumerate(drawn) for done in group]
    samples.append(_sample("alone", drawn[0][0], 1.0))
    stats = _update(state, samples)
    assert (stats.groups, stats.dead_groups) == (3, 3)
    assert stats.grad_norm == 0
    np.testing.assert_array_equal(state.params.flat, BASE.params.flat)


def test_batches_without_a_signal_move_no_weight_after_others_have_taught(
    drawn: list[list[Completion]],
) -> None:
    state = State.fresh(BASE)
    taught = [_sample("t", done, float(i == 0)) for i, done in enumerate(drawn[0])]
    for _ in range(3):
        _update(state, taught)
    weights_before, momentum, steps = state.params.flat.copy(), state.adam.m.copy(), state.adam.t
    for number in range(1, 6):
        stats = _update(state, [replace(sample, reward=0.1 * number) for sample in taught])
        assert (stats.step, stats.dead_groups, stats.grad_norm) == (3 + number, 1, 0)
        assert stats.kl > 0
    np.testing.assert_array_equal(state.params.flat, weights_before)
    np.testing.assert_array_equal(state.adam.m, momentum)
    assert state.adam.t == steps


def test_a_group_without_an_advantage_keeps_its_kl_beside_others(
    drawn: list[list[Completion]],
) -> None:
    state = State.fresh(BASE)
    live = [_sample("live", done, float(i == 0)) for i, done in enumerate(drawn[0])]
    dead = [_sample("dead", done, 0.7) for done in drawn[1]]
    for _ in range(2):
        _update(state, live)
    learner = Learner(state, BASE.params)
    try:
        (_, both), (_, first), (_, second), (_, policy_term) = (
            learner.gradient(samples, hyper)
            for samples, hyper in (
                ([*live, *dead], HYPER),
                (live, HYPER),
                (dead, HYPER),
                (dead, replace(HYPER, kl=0.0)),
            )
        )
    finally:
        learner.close()
    assert not policy_term.any()
    assert np.linalg.norm(second) > 1e-4
    counts = [sum(len(sample.tokens) for sample in group) for group in (live, dead)]
    wanted = (counts[0] * first + counts[1] * second) / sum(counts)
    np.testing.assert_allclose(both, wanted, atol=1e-6)


def test_updates_are_the_same_bit_for_bit(drawn: list[list[Completion]]) -> None:
    samples = [
        _sample(str(g), done, i / 3)
        for g, group in enumerate(drawn)
        for i, done in enumerate(group)
    ]
    first, second = State.fresh(BASE), State.fresh(BASE)
    for state in (first, second):
        _update(state, samples)
    np.testing.assert_array_equal(first.params.flat, second.params.flat)


@pytest.mark.parametrize(
    ("change", "words_of_it"),
    [
        ({"reward": math.nan}, "reward is nan"),
        ({"reward": math.inf}, "reward is inf"),
        ({"logprobs": (math.nan,)}, "not a finite"),
        ({"logprobs": ()}, "1 tokens with 0 log-probs"),
        ({"tokens": (5000,)}, "outside"),
        ({"prompt_tokens": (1,) * 600}, "the policy is trained on"),
        ({"prompt_tokens": ()}, "the policy is trained on"),
    ],
)
def test_what_can_not_be_trained_on_is_refused(change: dict[str, object], words_of_it: str) -> None:
    state = State.fresh(BASE)
    bad = replace(_bare("t", 1.0), **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words_of_it):
        _update(state, [_bare("t", 0.0), bad])
    assert state.step == 0
    np.testing.assert_array_equal(state.params.flat, BASE.params.flat)


def test_an_empty_batch_is_refused() -> None:
    for samples in ([], [replace(_bare("t", 1.0), tokens=(), logprobs=())]):
        with pytest.raises(ValueError, match="no sampled tokens"):
            grpo.check(samples, BASE.params)


def _enthusiasm(text: str) -> float:
    hot = ("wow", "love", "yes", "exciting", "amazing", "fantastic", "brilliant", "awesome")
    result = sum(word in text.lower() for word in hot)
    return 0.2 * min(text.count("!"), 3) + 0.2 * min(result, 2)


def _learn(
    reward: Callable[[str], float], steps: int, tasks: int, tokens: int
) -> tuple[float, float]:
    state = State.fresh(BASE)
    learner = Learner(state, BASE.params)
    questions = [entry.questions[0] for entry in word_lists.facts()]
    curve = []
    for step in range(steps):
        batch = [questions[(step * tasks + i) * 7 % len(questions)] for i in range(tasks)]
        groups = _draw(state, batch, 4, step, tokens)
        samples = [
            _sample(f"{step}-{g}", done, reward(done.text))
            for g, group in enumerate(groups)
            for done in group
        ]
        curve.append(learner.update(samples, HYPER).reward_mean)
    learner.close()
    return sum(curve[:3]) / 3, sum(curve[-3:]) / 3


@pytest.mark.parametrize(
    ("steps", "tasks", "tokens"), [(8, 6, 25), pytest.param(13, 8, 60, marks=pytest.mark.soak)]
)
def test_enthusiasm_is_learned_in_a_dozen_updates(steps: int, tasks: int, tokens: int) -> None:
    first, last = _learn(_enthusiasm, steps, tasks, tokens)
    assert last > first + 0.12


@pytest.mark.parametrize("frozen", [0, 2])
def test_frozen_parts_stay_as_shipped(drawn: list[list[Completion]], frozen: int) -> None:
    state = State.fresh(BASE)
    samples = [_sample("t", done, float(i == 0)) for i, done in enumerate(drawn[0])]
    _update(state, samples, replace(HYPER, frozen=frozen))
    for part, name in enumerate(("embed", "0.qkv", "1.down", "2.gate_up")):
        same = np.array_equal(state.params[name], BASE.params[name])
        assert same == (part < frozen)
