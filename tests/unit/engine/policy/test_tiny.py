"""The tiny policy as a backend: sampling, training and saving through coroutines."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from engine.interface import (
    Completion,
    Hyperparameters,
    PolicyClosedError,
    Prompt,
    SamplingParams,
    SaveError,
    TrainSample,
)
from engine.policy.tiny import TinyPolicy
from tests.support.engine.full_disk import full_disk

pytestmark = pytest.mark.slow

HYPER = Hyperparameters()


@pytest.fixture
async def policy(tmp_path: Path) -> AsyncIterator[TinyPolicy]:
    made = TinyPolicy.open(tmp_path / "policy")
    yield made
    await made.close()


def _ask(policy: TinyPolicy, text: str) -> Prompt:
    return policy.render([{"role": "user", "content": text}], None, 60)


async def _group(policy: TinyPolicy, text: str, seed: int = 0) -> list[Completion]:
    prompt = _ask(policy, text)
    return await asyncio.gather(
        *(policy.sample(prompt, SamplingParams(max_tokens=60, seed=seed + i)) for i in range(4))
    )


def _batch(group: list[Completion]) -> list[TrainSample]:
    return [
        TrainSample("t", done.prompt_tokens, done.tokens, done.logprobs, i / 3)
        for i, done in enumerate(group)
    ]


async def test_reset_is_the_shipped_policy_again(policy: TinyPolicy) -> None:
    before = await _group(policy, "Hello")
    for _ in range(2):
        await policy.train(_batch(before), HYPER)
    assert [d.logprobs for d in await _group(policy, "Hello")] != [d.logprobs for d in before]
    await policy.reset()
    assert [d.logprobs for d in await _group(policy, "Hello")] == [d.logprobs for d in before]


async def test_an_update_lets_running_answers_end_with_the_old_weights(policy: TinyPolicy) -> None:
    batch = _batch(await _group(policy, "Hi"))
    prompt = _ask(policy, "Write a story about the sea.")
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(policy.sample(prompt, SamplingParams())) for _ in range(6)]
        await asyncio.sleep(0)
        update = group.create_task(policy.train(batch, HYPER))
    assert update.result().step == 1
    assert {task.result().step for task in running} <= {0, 1}
    assert (await policy.sample(prompt, SamplingParams())).step == 1


async def test_cancelling_frees_the_slot(policy: TinyPolicy) -> None:
    prompt = _ask(policy, "Write a story about the sea.")
    async with Tasks("test") as tasks:
        waiting = [
            tasks.spawn(policy.sample(prompt, SamplingParams(max_tokens=300)), "answer")
            for _ in range(40)
        ]
        await asyncio.sleep(0)
    assert all(task.cancelled() for task in waiting)
    assert (await policy.sample(prompt, SamplingParams(max_tokens=3, seed=1))).tokens
    assert not policy._worker._waiters


async def test_a_failed_save_keeps_the_update_in_memory(policy: TinyPolicy) -> None:
    batch = _batch(await _group(policy, "Hi"))
    with full_disk("fsync"), pytest.raises(SaveError, match="No space left"):
        await policy.train(batch, HYPER)
    assert policy.step == 1
    assert (await policy.train(batch, HYPER)).step == 2


async def test_bad_batches_and_prompts_are_refused_and_the_worker_continues(
    policy: TinyPolicy,
) -> None:
    with pytest.raises(ValueError, match="no sampled tokens"):
        await policy.train([], HYPER)
    for tokens in ((), (1,) * 512, (5000,), (-1,)):
        with pytest.raises(ValueError, match="token"):
            await policy.sample(Prompt(tokens), SamplingParams())
    assert (await _group(policy, "Hi"))[0].text


async def test_a_failure_while_sampling_is_raised_and_the_worker_continues(
    policy: TinyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no memory for the cache")

    with monkeypatch.context() as patch:
        patch.setattr(policy._sampler, "_start", broken)
        with pytest.raises(MemoryError, match="no memory"):
            await policy.sample(_ask(policy, "Hi"), SamplingParams())
    assert (await _group(policy, "Hi"))[0].text


async def test_closing_raises_an_error_to_waiting_callers() -> None:
    policy = TinyPolicy.open(None)
    waiting = asyncio.gather(
        *(policy.sample(_ask(policy, "Hi"), SamplingParams(max_tokens=400)) for _ in range(99)),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    await policy.close()
    await policy.close()
    assert any(isinstance(value, PolicyClosedError) for value in await waiting)
    with pytest.raises(PolicyClosedError):
        await policy.sample(_ask(policy, "Hi"), SamplingParams())
    with pytest.raises(PolicyClosedError):
        await policy.reset()


async def test_text_comes_piece_by_piece_on_the_loop(policy: TinyPolicy) -> None:
    prompt = _ask(policy, "Write a story about the sea.")
    rows: list[list[str]] = [[] for _ in range(6)]
    thread = threading.get_ident()

    def listener(mine: list[str]) -> Callable[[str], None]:
        def on_piece(piece: str) -> None:
            assert threading.get_ident() == thread
            mine.append(piece)

        return on_piece

    answers = await asyncio.gather(
        *(
            policy.sample(prompt, SamplingParams(seed=i), on_text=listener(mine))
            for i, mine in enumerate(rows)
        )
    )
    assert ["".join(mine) for mine in rows] == [done.text for done in answers]
    assert max(map(len, rows)) > 3


async def test_a_listener_that_fails_gets_its_own_error(policy: TinyPolicy) -> None:
    def broken(piece: str) -> None:
        raise LookupError(piece)

    prompt = _ask(policy, "Write a story about the sea.")
    with pytest.raises(LookupError):
        await policy.sample(prompt, SamplingParams(seed=1), on_text=broken)
    assert (await _group(policy, "Hi"))[0].text


async def test_nothing_is_sent_after_the_caller_left(policy: TinyPolicy) -> None:
    lines: list[str] = []
    begun = asyncio.Event()

    def on_piece(piece: str) -> None:
        lines.append(piece)
        begun.set()

    async with Tasks("test") as tasks:
        prompt = _ask(policy, "Write a story about the sea.")
        answer = tasks.spawn(policy.sample(prompt, SamplingParams(seed=1), on_piece), "answer")
        await begun.wait()
        answer.cancel()
        await asyncio.wait([answer])
        count = len(lines)
        await _group(policy, "Hi")
        assert len(lines) == count


async def test_log_probs_of_now_are_those_of_sampling_until_an_update(policy: TinyPolicy) -> None:
    group = await _group(policy, "Tell me a joke.")
    first = group[0]
    now = await policy.logprobs(first.prompt_tokens, first.tokens)
    assert now == pytest.approx(first.logprobs, abs=1e-4)
    await policy.train(_batch(group), HYPER)
    after = await policy.logprobs(first.prompt_tokens, first.tokens)
    assert after != pytest.approx(first.logprobs, abs=1e-4)
    assert len(after) == len(first.tokens)
    fresh = (await _group(policy, "Tell me a joke.", 9))[0]
    now = await policy.logprobs(fresh.prompt_tokens, fresh.tokens)
    assert now == pytest.approx(fresh.logprobs, abs=1e-4), "the sampler has the new weights"
    for prompt, tokens in (((), (1,)), ((1,), (9999,)), ((1,) * 500, (1,) * 13)):
        with pytest.raises(ValueError, match="token"):
            await policy.logprobs(prompt, tokens)


async def test_a_checkpoint_does_not_wait_for_answers(policy: TinyPolicy) -> None:
    begun = asyncio.Event()
    async with Tasks("test") as tasks:
        prompt = _ask(policy, "Write a story about the sea.")
        params = SamplingParams(seed=1, max_tokens=400, temperature=50.0)
        answer = tasks.spawn(policy.sample(prompt, params, lambda _: begun.set()), "answer")
        await begun.wait()
        await policy.checkpoint("now")
        assert not answer.done()
        await answer


async def test_a_policy_that_saves_nothing_has_no_checkpoints() -> None:
    policy = TinyPolicy.open(None)
    with pytest.raises(AjetError, match="saves nothing"):
        await policy.checkpoint("now")
    await policy.close()


def test_one_blas_thread_is_set_before_numpy() -> None:
    program = (
        "from engine.training import threads as numerics; import os, sys; "
        "assert 'numpy' not in sys.modules;"
        "assert numerics.prepare(); assert os.environ['OPENBLAS_NUM_THREADS'] == '1';"
        "import engine.policy.tiny; assert not numerics.prepare()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=110)
