"""Shares of a batch."""

import asyncio
import threading
from contextlib import suppress

import pytest

from ajet_swarm import SwarmClient
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.throttle import SwarmThrottlePolicy, Throttle
from ajet_swarm.protocol.errors import GaveUp, SwarmError
from ajet_swarm.protocol.schemas import PoolInfo, RunningEpisode
from engine.app import create_app
from tests.support.engine.client import Driver, driving
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import served


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
    assert not Throttle("me").admit(policy("c"), FULL)
    assert Throttle("me").admit(policy("c", ratio=0.75), FULL)


def test_a_task_already_in_the_batch_is_admitted() -> None:
    throttle = Throttle("me")
    assert throttle.admit(policy("b"), FULL)
    assert throttle.admit(policy("d"), pool({}, {"x": "other"}))
    assert throttle.admit(policy("d"), FULL), "its claim is on its way"
    throttle.end(policy("d"), claimed=True)
    assert throttle.admit(policy("d"), FULL), "it was let through before"


def test_a_claim_in_flight_counts_until_it_is_abandoned() -> None:
    throttle = Throttle("me")
    empty = pool({})
    assert all(throttle.admit(policy(task), empty) for task in "ab")
    assert not throttle.admit(policy("c"), empty), "the share is two tasks"
    assert throttle.admit(policy("a"), empty), "a further episode of one that comes"
    throttle.end(policy("b"), claimed=False)
    assert throttle.admit(policy("c"), empty)
    assert not throttle.admit(policy("b"), empty), "what never came was not let through"


def test_a_reading_older_than_a_claim_does_not_show_it() -> None:
    now = [10.0]
    throttle = Throttle("me", clock=lambda: now[0])
    for task in "ab":
        assert throttle.admit(policy(task), pool({}, {"z": "other"}), read_at=9.0)
        throttle.end(policy(task), claimed=True)
    now[0] = 11.0
    assert not throttle.admit(policy("c"), pool({}, {"z": "other"}), read_at=9.5)
    newer = throttle.admit(policy("c"), pool({}, {"z": "other"}), read_at=10.5)
    assert newer, "it says that they are no more"


def test_of_many_threads_only_as_many_as_the_share_allows_are_admitted() -> None:
    throttle = Throttle("me")
    together = threading.Barrier(16)
    passed: list[str] = []

    def ask(number: int) -> None:
        together.wait()
        for turn in range(20):
            wanted = policy(f"t{number}", ratio=0.75)
            if not throttle.admit(wanted, pool({})):
                continue
            if turn % 2:
                throttle.end(wanted, claimed=False)
            else:
                passed.append(f"t{number}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(passed)) == 3


def test_tasks_shared_with_others_do_not_count() -> None:
    shared = pool({"a": ["other", "me"], "b": ["me", "me"]}, {"z": "other"})
    assert Throttle("me").admit(policy("c"), shared)
    assert not Throttle("me").admit(policy("z"), FULL)
    assert Throttle("me").admit(policy("z"), shared)


def test_an_idle_but_incomplete_batch_admits_a_task() -> None:
    done = pool({"a": ["me", "me"], "b": ["me", "me"]})
    throttle = Throttle("me")
    assert not throttle.admit(policy("c"), done, 1.0)
    assert not throttle.admit(policy("c"), done, 1.4)
    assert throttle.admit(policy("c"), done, 1.5), "or the batch would never end"
    assert not throttle.admit(policy("d"), done, 9.0), "there is one on its way"


@pytest.mark.parametrize(
    "between",
    [
        pool({"a": ["me", "me"], "b": ["me", "me"]}, {"y": "other"}),
        pool({"a": ["me", "me"], "b": ["me", "me"], "y": ["other"]}),
        pool({}),
    ],
)
def test_a_pause_between_two_tasks_admits_no_task(between: PoolInfo) -> None:
    done = pool({"a": ["me", "me"], "b": ["me", "me"]})
    throttle = Throttle("me")
    assert not throttle.admit(policy("c"), done, 1.0)
    if throttle.admit(policy("a"), between, 1.3):
        throttle.end(policy("a"), claimed=False)
    assert not throttle.admit(policy("c"), done, 1.6)
    assert not throttle.admit(policy("c"), done, 2.0)
    assert throttle.admit(policy("c"), done, 2.1)


def test_another_stop_rule_is_an_error() -> None:
    info = PoolInfo(sample_collection_method="rollout_until_finish_enough_episodes")
    with pytest.raises(SwarmError, match="has no effect under the stop rule"):
        Throttle("me").admit(policy("c"), info)


def test_it_forgets_old_tasks() -> None:
    now = [0.0]
    throttle = Throttle("me", clock=lambda: now[0])
    for number in range(100):
        assert throttle.admit(policy(f"t{number}"), pool({}))
        throttle.end(policy(f"t{number}"), claimed=True)
        now[0] += 100
    assert len(throttle._admitted) == 4 * 2 * 3


@pytest.mark.parametrize(
    "wrong",
    [{"current_task_id": ""}, {"expected_batch_size": 0}, {"ratio": 0.0}],
)
def test_a_policy_is_checked(wrong: dict[str, object]) -> None:
    value = {"expected_batch_size": 4, "expected_num_repeat": 2, "current_task_id": "t"} | wrong
    with pytest.raises(SwarmError):
        SwarmThrottlePolicy(**value)  # type: ignore[arg-type]  # on purpose


async def test_a_throttled_claim_waits_and_says_so(
    server: ScriptedSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = FULL

    async def reading(self: AsyncSwarm) -> PoolInfo:
        return result

    monkeypatch.setattr(AsyncSwarm, "get_rollout_stat", reading)
    async with AsyncSwarm(server.url, client_uuid="me") as client:
        with pytest.raises(GaveUp, match="throttled"):
            await client.begin_episode(throttle_policy=policy("c"), timeout=1.0)
        assert not server.claims
        uuid, _ = await client.begin_episode(throttle_policy=policy("b"))
        assert await client.abort_episode(uuid)
        uuid, _ = await client.begin_episode(
            episode_type="eval", throttle_policy=policy("c"), timeout=60
        )
        assert await client.abort_episode(uuid), "an eval episode is never throttled"


def _sixteen_begin(url: str, driver: Driver) -> list[str]:
    """Uuids that sixteen threads of one client claimed in three seconds, each for its own task."""
    together = threading.Barrier(16)
    claimed: list[str] = []

    def begin(number: int) -> None:
        share = SwarmThrottlePolicy(
            ratio=0.25,
            expected_batch_size=8,
            expected_num_repeat=4,
            current_task_id=f"t{number}",
        )
        together.wait()
        with suppress(GaveUp):
            claimed.append(client.begin_episode(throttle_policy=share, timeout=3)[0])

    with SwarmClient(url) as client:
        threads = [threading.Thread(target=begin, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(one.uuid for one in driver.engine.pool.claimed) == sorted(claimed)
    return claimed


@pytest.mark.slow
async def test_sixteen_threads_of_one_client_stay_within_its_share() -> None:
    """At the begin of a batch, when the server shows none of their claims yet."""
    async with driving() as driver:
        await driver.start(batch=8, repeat=4)
        async with served(create_app(driver.engine)) as url:
            claimed = await asyncio.to_thread(_sixteen_begin, url, driver)
        assert len(claimed) == 2
        assert not driver.engine.pool.claimed


async def test_an_unreadable_batch_admits_no_task(server: ScriptedSwarm) -> None:
    async with AsyncSwarm(server.url) as client:
        server.pool_default = True
        with pytest.raises(GaveUp, match="reports nothing about its batch"):
            await client.begin_episode(throttle_policy=policy("c"), timeout=1.0)
    assert not server.claims
