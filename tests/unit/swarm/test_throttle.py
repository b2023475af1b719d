"""Shares of a batch."""

import pytest

from swarm.asynchronous import AsyncSwarm
from swarm.errors import GaveUp, SwarmError
from swarm.schemas import PoolInfo, RunningEpisode
from swarm.throttle import SwarmThrottlePolicy, Throttle
from tests.support.scripted_swarm import ScriptedSwarm


def policy(task: str, ratio: float = 0.5) -> SwarmThrottlePolicy:
    return SwarmThrottlePolicy(
        ratio=ratio, expected_batch_size=4, expected_num_repeat=2, current_task_id=task
    )


def pool(finished: dict[str, list[str]], running: dict[str, str] | None = None) -> PoolInfo:
    """Finished: task -> clients. Running: task -> client."""
    return PoolInfo(
        sample_collection_method="rollout_until_finish_enough_tasks",
        completed_tasks_client_uuids=finished,
        running_episode_details={
            f"e{n}": RunningEpisode(client_uuid=client, optional_task_id=task)
            for n, (task, client) in enumerate((running or {}).items())
        }
        or None,
    )


FULL = pool({"a": ["me", "me"], "b": ["me", "me"]}, {"b": "me"})


def test_a_new_task_waits_when_the_share_is_full() -> None:
    assert not Throttle("me").lets(policy("c"), FULL)
    assert Throttle("me").lets(policy("c", ratio=0.75), FULL)


def test_a_task_that_is_there_goes_on() -> None:
    throttle = Throttle("me")
    assert throttle.lets(policy("b"), FULL)
    assert throttle.lets(policy("d"), pool({}, {"x": "other"}))
    assert throttle.lets(policy("d"), FULL), "it was let through before"


def test_tasks_shared_with_others_do_not_count() -> None:
    shared = pool({"a": ["other", "me"], "b": ["me", "me"]}, {"z": "other"})
    assert Throttle("me").lets(policy("c"), shared)
    assert Throttle("me").lets(policy("z"), FULL) is False
    assert Throttle("me").lets(policy("z"), shared)


def test_nothing_runs_and_the_batch_is_not_full() -> None:
    done = pool({"a": ["me", "me"], "b": ["me", "me"]})
    assert Throttle("me").lets(policy("c"), done), "or the batch would never end"


def test_another_stop_rule_is_an_error() -> None:
    told = PoolInfo(sample_collection_method="rollout_until_finish_enough_episodes")
    with pytest.raises(SwarmError, match="means nothing under the stop rule"):
        Throttle("me").lets(policy("c"), told)


def test_it_forgets_old_tasks() -> None:
    throttle = Throttle("me")
    for number in range(100):
        assert throttle.lets(policy(f"t{number}"), pool({}))
    assert len(throttle._passed) == 4 * 2 * 3


@pytest.mark.parametrize(
    "wrong",
    [{"current_task_id": ""}, {"expected_batch_size": 0}, {"ratio": 0.0}],
)
def test_a_policy_is_checked(wrong: dict[str, object]) -> None:
    given = {"expected_batch_size": 4, "expected_num_repeat": 2, "current_task_id": "t"} | wrong
    with pytest.raises(SwarmError):
        SwarmThrottlePolicy(**given)  # type: ignore[arg-type]  # on purpose


async def test_a_throttled_claim_waits_and_says_so(
    server: ScriptedSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = FULL

    async def reading(self: AsyncSwarm) -> PoolInfo:
        return told

    monkeypatch.setattr(AsyncSwarm, "get_rollout_stat", reading)
    async with AsyncSwarm(server.url, client_uuid="me") as client:
        with pytest.raises(GaveUp, match="throttled"):
            await client.begin_episode(throttle_policy=policy("c"), timeout=0.4)
        assert not server.claims
        uuid, _ = await client.begin_episode(throttle_policy=policy("b"))
        assert await client.abort_episode(uuid)
        uuid, _ = await client.begin_episode(
            episode_type="eval", throttle_policy=policy("c"), timeout=2
        )
        assert await client.abort_episode(uuid), "an eval episode is never throttled"
