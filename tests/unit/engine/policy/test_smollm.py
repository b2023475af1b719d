"""SmolLM2's form of the network, from a small file with random weights."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ajet_swarm.common.tasks import Tasks
from engine.interface import (
    Completion,
    Hyperparameters,
    Prompt,
    SamplingParams,
    TrainSample,
    WeightsError,
)
from engine.policy.answer import Request
from engine.policy.checkpoint_manager import LocalCheckpoints
from engine.policy.kv_cache import KVCache
from engine.policy.sampler import Sampler
from engine.policy.smollm import CONTEXT, SmolPolicy, load
from engine.policy.weights import WeightStore
from engine.storage import safetensors
from engine.storage.gguf import GgufError
from engine.training.frozen_prefix import FrozenPrefixCache
from engine.training.grpo import Learner
from engine.training.model import Array, Params, frozen_forward, log_softmax, logits_only
from engine.training.optimizer import Adam
from engine.training.state import State
from tests.support.engine.small_gguf import LAYERS, Small, logits, make

pytestmark = pytest.mark.slow

HYPER = Hyperparameters(lr=5e-3)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return make(tmp_path_factory.mktemp("model") / "small.gguf")


@pytest.fixture(scope="module")
def base(small: Small) -> Params:
    return load(small.path, small.digest).base.params


@pytest.fixture
async def policy(small: Small, tmp_path: Path) -> AsyncIterator[SmolPolicy]:
    made = SmolPolicy.open(small.path, tmp_path / "kept", digest=small.digest)
    yield made
    await made.close()


def _ids(count: int, seed: int = 1) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(3, 259, count)]


def _exact(params: Params) -> Params:
    """The same in float64."""
    frozen = {name: value.astype(np.float64) for name, value in params.frozen.items()}
    return Params(params.config, params.flat.astype(np.float64), frozen)


def _ask(policy: SmolPolicy, text: str = "hello") -> Prompt:
    return policy.render([{"role": "user", "content": text}], None, 12)


async def _group(policy: SmolPolicy, text: str = "hello", seed: int = 0) -> list[Completion]:
    prompt = _ask(policy, text)
    params = [SamplingParams(max_tokens=12, temperature=0.7, seed=seed + i) for i in range(4)]
    return await asyncio.gather(*(policy.sample(prompt, one) for one in params))


def _batch(group: list[Completion]) -> list[TrainSample]:
    return [
        TrainSample("t", done.prompt_tokens, done.tokens, done.logprobs, i / 3)
        for i, done in enumerate(group)
    ]


def test_sizes_come_from_the_file(base: Params) -> None:
    config = base.config
    assert (config.width, config.layers, config.heads, config.pairs) == (64, LAYERS, 4, 2)
    assert (config.context, config.theta, config.hidden) == (CONTEXT, 5000.0, 96)
    assert (config.first, config.end, config.blocked) == (LAYERS - 6, 2, (0, 1))
    trained = {name.partition(".")[0] for name in base.names()}
    assert trained == {*map(str, range(LAYERS - 6, LAYERS)), "norm"}
    assert set(base.frozen) >= {"embed", "0.qkv", "1.down"}


def test_the_forward_pass_matches_the_reference(small: Small, base: Params) -> None:
    ids = _ids(11)
    result = logits_only(base, np.array([ids]), np.arange(11))
    wanted = logits(small, ids)
    wanted[:, list(base.config.blocked)] -= 1e9
    spread = float(wanted[:, 3:].std())
    assert spread > 0.5
    np.testing.assert_allclose(result[:, 2:], wanted[:, 2:], atol=2e-4 * spread, rtol=1e-4)
    assert result[:, :2].max() < -1e8


def test_a_token_at_a_time_gives_the_same(base: Params) -> None:
    cache = KVCache(base, 8)
    prompts = [_ids(9, 2), _ids(4, 3)]
    added = np.array([_ids(5, 4), _ids(5, 5)])
    assert cache.reserve(2, 14)
    for row, prompt in enumerate(prompts):
        full = logits_only(base, np.array([prompt]), np.array([len(prompt) - 1]))
        np.testing.assert_allclose(cache.prefill(np.array(prompt), row), full[0], rtol=1e-3)
    for i in range(added.shape[1]):
        if i == 2:
            assert cache.reserve(7, 700)  # the cache keeps its tokens
        body = cache.decode(added[:, i], np.array([len(prompt) + i for prompt in prompts]))
        for row, prompt in enumerate(prompts):
            whole = np.array([[*prompt, *added[row, : i + 1]]])
            full = logits_only(base, whole, np.array([whole.shape[1] - 1]))
            np.testing.assert_allclose(body[row], full[0], rtol=1e-3, atol=1e-3)
            entered = cache.entering(row, whole.shape[1])
            np.testing.assert_allclose(entered, frozen_forward(base, whole), rtol=1e-3, atol=1e-4)
    cache.close()


def test_the_memory_of_answers_is_bounded(base: Params) -> None:
    cache = KVCache(base, 32)
    assert cache.reserve(1, CONTEXT)
    assert cache.reserve(8, CONTEXT)
    assert not cache.reserve(9, CONTEXT)
    assert cache.reserve(32, 512)
    assert not cache.reserve(33, 512)
    cache.close()
    sampler = Sampler(base, _Letters(), prefix_cache=FrozenPrefixCache())
    long = [Request(Prompt((3, 4, 5)), SamplingParams(max_tokens=3000, seed=i)) for i in range(11)]
    for request in long:
        sampler.add(request)
    sampler.step(0)
    assert sampler.live <= 8
    assert sampler.waiting == 3
    for request in long[:6]:
        request.cancelled = True
    sampler.step(0)
    assert sampler.waiting == 0
    sampler.close()


class _Letters:
    """Text is of no matter."""

    def decode_bytes(self, ids: object) -> bytes:
        return b"x"


def _exact_batch(base: Params) -> tuple[Learner, list[TrainSample]]:
    rng = np.random.default_rng(8)
    params = _exact(base)
    reference = Params(params.config, params.flat * 1.02, params.frozen)
    samples = []
    for i, (prompt, length) in enumerate(((3, 6), (5, 4), (3, 9), (8, 2))):
        ids = tuple(_ids(prompt + length, 20 + i))
        where = np.arange(prompt - 1, prompt + length - 1)
        logp = log_softmax(logits_only(params, np.array([ids]), where))
        drawn = logp[np.arange(length), list(ids[prompt:])] + rng.normal(0, 0.1, length)
        samples.append(
            TrainSample("ab"[i // 2], ids[:prompt], ids[prompt:], tuple(drawn), i % 2 * 0.7)
        )
    return Learner(State(params, Adam(params.flat.size, "float64")), reference), samples


def test_the_gradient_of_the_trained_part_equals_finite_differences(base: Params) -> None:
    learner, samples = _exact_batch(base)
    hyper = Hyperparameters(kl_form="k3")
    try:
        _, grad = learner.gradient(samples, hyper)
        params = learner.state.params
        rng = np.random.default_rng(7)
        places = [
            params.offset(name) + int(rng.integers(params[name].size)) for name in params.names()
        ]
        assert grad.shape == params.flat.shape
        for i in places:
            stored, losses = params.flat[i], []
            for change in (1e-5, -1e-5):
                params.flat[i] = stored + change
                losses.append(learner.gradient(samples, hyper)[0])
            params.flat[i] = stored
            assert grad[i] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-4, abs=1e-7)
    finally:
        learner.close()


def test_prompts_read_by_the_sampler_need_no_second_trunk_pass(
    base: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    trunk = FrozenPrefixCache()
    sampler = Sampler(base, _Letters(), prefix_cache=trunk)
    requests = [
        Request(Prompt(tuple(_ids(5 + i % 2, 1))), SamplingParams(max_tokens=9, seed=i))
        for i in range(6)
    ]
    for request in requests:
        sampler.add(request)
    done: list[Completion] = []
    while sampler.live or sampler.waiting:
        done += [one.completion for one in sampler.step(0)]
    sampler.close()
    gradients: list[Array] = []
    computed: list[int] = []

    def counted(params: Params, tokens: Array) -> Array:
        computed.append(len(tokens))
        return frozen_forward(params, tokens)

    monkeypatch.setattr("engine.training.frozen_prefix.frozen_forward", counted)
    state = State(base.copy(), Adam(base.flat.size))
    for held in (trunk, FrozenPrefixCache(0)):
        learner = Learner(state, base, held)
        try:
            gradients.append(learner.gradient(_batch(done), HYPER)[1])
        finally:
            learner.close()
        if held is trunk:
            assert not computed
    assert sum(computed) == len(done)
    scale = float(np.abs(gradients[1]).max())
    np.testing.assert_allclose(gradients[0], gradients[1], atol=2e-3 * scale)


def test_the_trunk_forgets_the_oldest() -> None:
    trunk, rows = FrozenPrefixCache(3 * 64 * 4), np.ones((1, 64), np.float32)
    for i in range(5):
        trunk.keep((i, i), rows)
    trunk.keep((4, 4), rows)
    assert list(trunk._rows) == [(2, 2), (3, 3), (4, 4)]


async def test_sampler_and_trainer_agree_and_an_update_moves_the_trained_part_alone(
    policy: SmolPolicy, base: Params
) -> None:
    before = {name: value.copy() for name, value in base.frozen.items()}
    group = await _group(policy)
    for done in group:
        now = await policy.logprobs(done.prompt_tokens, done.tokens)
        assert done.logprobs == pytest.approx(now, abs=2e-4)
    once = replace(HYPER, epochs=1)
    stats = await policy.train(_batch(group), once)
    assert stats.extra["ratio_max"] == pytest.approx(1, abs=1e-3)
    assert stats.kl == pytest.approx(0, abs=1e-6)
    assert (stats.step, policy.step, policy.name) == (1, 1, "smollm2-135m")
    after = [await policy.logprobs(done.prompt_tokens, done.tokens) for done in group]
    assert sum(after[3]) - sum(after[0]) > sum(group[3].logprobs) - sum(group[0].logprobs)
    for name, value in base.frozen.items():
        np.testing.assert_array_equal(value, before[name])


async def test_the_trained_part_is_saved_resumed_named_and_reset(
    small: Small, tmp_path: Path, base: Params
) -> None:
    stored = tmp_path / "kept"
    first = SmolPolicy.open(small.path, stored, digest=small.digest)
    fresh = await _group(first)
    await first.train(_batch(fresh), HYPER)
    await first.checkpoint("one")
    once = await _group(first)
    await first.train(_batch(once), HYPER)
    twice = await _group(first)
    await first.close()
    size = (stored / "latest.ckpt").stat().st_size
    assert 12 * base.flat.size < size < 12 * base.flat.size + 1000

    second = SmolPolicy.open(small.path, stored, digest=small.digest)
    assert second.step == 2
    assert [d.logprobs for d in await _group(second)] == [d.logprobs for d in twice]
    await second.reset()
    assert [d.logprobs for d in await _group(second)] == [d.logprobs for d in fresh]
    await second.close()

    keeper = LocalCheckpoints(stored, lambda: load(small.path, small.digest).base)
    assert {facts.name for facts in keeper.list_all()} == {"one", "before-reset"}
    keeper.restore("one")
    third = SmolPolicy.open(small.path, stored, digest=small.digest)
    assert third.step == 1
    assert [d.logprobs for d in await _group(third)] == [d.logprobs for d in once]
    await third.close()


async def test_the_trained_part_goes_out_and_in_as_safetensors(
    policy: SmolPolicy, small: Small, tmp_path: Path, base: Params
) -> None:
    await policy.train(_batch(await _group(policy)), HYPER)
    answers = await _group(policy)
    await policy.close()
    keeper = LocalCheckpoints(tmp_path / "kept", lambda: load(small.path, small.digest).base)
    data = keeper.export("latest")
    tensors, facts = safetensors.unpack(data)
    assert tuple(tensors) == base.names()
    assert facts["base"] == small.digest
    other = LocalCheckpoints(tmp_path / "other", lambda: load(small.path, small.digest).base)
    other.import_weights("theirs", data)
    other.restore("theirs")
    imported = SmolPolicy.open(small.path, tmp_path / "other", digest=small.digest)
    assert imported.step == 1
    assert [d.logprobs for d in await _group(imported)] == [d.logprobs for d in answers]
    await imported.close()


async def test_a_checkpoint_of_another_model_is_refused(small: Small, tmp_path: Path) -> None:
    stored = tmp_path / "kept"
    first = SmolPolicy.open(small.path, stored, digest=small.digest)
    await first.train(_batch(await _group(first)), HYPER)
    await first.close()
    other = make(tmp_path / "other.gguf", seed=1)
    with pytest.raises(WeightsError, match="other base weights"):
        SmolPolicy.open(other.path, stored, digest=other.digest)
    WeightStore(stored).close()  # the directory is free again


def test_a_file_with_another_checksum_is_refused(small: Small, tmp_path: Path) -> None:
    data = bytearray(small.path.read_bytes())
    data[-100] ^= 1
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(data)
    with pytest.raises(GgufError, match=r"differs from its checksum.*fetch it again"):
        SmolPolicy.open(changed, tmp_path / "kept", digest=small.digest)
    assert not (tmp_path / "kept").exists()
    with pytest.raises(GgufError, match="cannot be read"):
        load(tmp_path / "gone.gguf")


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"llama.attention.layer_norm_rms_epsilon": 1e-6}, "epsilon"),
        ({"llama.rope.dimension_count": 8}, "heads"),
        ({"llama.attention.head_count_kv": 3}, "heads"),
        ({"llama.block_count": LAYERS + 1}, "is missing"),
        ({"tokenizer.ggml.merges": ["no such"]}, "merge"),
        ({"tokenizer.ggml.tokens": ["a", "b"]}, "of another kind"),
    ],
)
def test_a_model_of_another_form_is_refused(
    tmp_path: Path, change: dict[str, Any], result: str
) -> None:
    odd = make(tmp_path / "odd.gguf", **change)
    with pytest.raises(GgufError, match=result):
        load(odd.path, odd.digest)


async def test_answers_may_be_cancelled_and_others_go_on(policy: SmolPolicy) -> None:
    prompt = _ask(policy)
    async with Tasks("test") as tasks:
        waiting = [
            tasks.spawn(policy.sample(prompt, SamplingParams(max_tokens=900, seed=i)), "answer")
            for i in range(20)
        ]
        await asyncio.sleep(0)
    assert all(task.cancelled() for task in waiting)
    done = await policy.sample(prompt, SamplingParams(max_tokens=3, temperature=0))
    assert 0 < len(done.tokens) <= 3


async def test_an_answer_ends_at_its_end_token(policy: SmolPolicy) -> None:
    prompt = _ask(policy)
    params = [SamplingParams(max_tokens=200, temperature=50, seed=i) for i in range(5)]
    drawn = await asyncio.gather(*(policy.sample(prompt, one) for one in params))
    ended = [done for done in drawn if done.finish_reason == "stop"]
    assert ended
    for done in drawn:
        assert (done.tokens[-1] == 2) == (done.finish_reason == "stop")
        assert not {0, 1} & set(done.tokens)
        assert "<|" not in done.text
