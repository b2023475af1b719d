"""The canary's prompts on the embedded engine: an update changes their log-probs, nothing else."""

import json
from collections.abc import AsyncIterator

import pytest

from ajet_swarm.api.outcomes import answer_of
from engine.interface import Hyperparameters, PolicyBackend, SamplingParams, TrainSample
from engine.policy.tiny import TinyPolicy
from proxy.evaluation.canary import PROMPTS, TOP, Reading, compare, first_logprobs
from tests.support.engine.client import Driver, driving

pytestmark = pytest.mark.slow


async def shipped(reset: bool) -> PolicyBackend:
    return TinyPolicy.open(None, reset=reset)


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    async with driving(shipped) as value:
        await value.start(batch=64, repeat=1)
        yield value


async def reading(driver: Driver) -> Reading:
    """What the canary reads in one eval episode."""
    episode = await driver.claim(kind="eval")
    values: dict[tuple[int, str], float] = {}
    for number, prompt in enumerate(PROMPTS):
        body = {"max_tokens": 1, "temperature": 0.0, "logprobs": True, "top_logprobs": TOP}
        reply = await driver.chat(episode, prompt, **body)
        answer = answer_of(200, reply.content, json.loads(reply.content))
        values |= {(number, token): one for token, one in first_logprobs(answer).items()}
    await driver.abort(episode)
    return values


async def train(driver: Driver, rewards: tuple[float, ...]) -> None:
    policy = driver.engine.policy_holder.policy
    assert policy is not None
    prompt = policy.render([{"role": "user", "content": "Name a colour."}], None, 20)
    drawn = [
        await policy.sample(prompt, SamplingParams(max_tokens=20, seed=seed))
        for seed in range(len(rewards))
    ]
    await policy.train(
        [
            TrainSample("t", done.prompt_tokens, done.tokens, done.logprobs, reward)
            for done, reward in zip(drawn, rewards, strict=True)
        ],
        Hyperparameters(),
    )


async def test_equal_weights_are_unchanged_and_one_update_changes_them(driver: Driver) -> None:
    first, second, third = [await reading(driver) for _ in range(3)]
    assert len(first) == len(PROMPTS)
    assert compare(first, second, third).outcome == "unchanged"
    await train(driver, (0.0, 0.3, 0.6, 0.9))
    result = compare(second, third, await reading(driver))
    assert result.outcome == "changed"
    assert result.change > 100 * result.noise
