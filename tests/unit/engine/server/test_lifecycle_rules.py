"""Stop rules, what counts, and the books over many batches; driven over HTTP."""

import asyncio
import random
from collections import Counter

import pytest

from ajet_swarm.common.errors import AjetError
from engine.interface import SaveError
from tests.support.engine.client import Driver, driving, wait_for

pytestmark = pytest.mark.slow


async def test_episodes_rule(d: Driver) -> None:
    await d.start("episodes", batch=1, repeat=3)
    for name in "abc":
        await d.play(name)
    await d.until("ROLLING", 2)


async def test_non_dummy_rule(d: Driver) -> None:
    await d.start("non_dummy", batch=1, repeat=2)
    await d.group("dummy", (1.0, 1.0))
    pool = await d.pool()
    assert (pool["completed_tasks"], pool["completed_non_dummy_tasks"]) == (1, 0)
    await d.group("real", (1.0, 0.0))
    await d.until("ROLLING", 2)
    assert {sample.task_id for sample in d.bench.trained[0]} == {"real"}


async def test_an_unknown_rule_is_enough_tasks(d: Driver) -> None:
    await d.start("rollout_until_tea_time", batch=1, repeat=1)
    assert (await d.pool())["sample_collection_method"] == "rollout_until_finish_enough_tasks"
    await d.play("a")
    await d.until("ROLLING", 2)


async def agree(d: Driver, client: str) -> dict[str, object]:
    return dict((await d.post("/agree_sync_weight", client_uuid=client)).json())


async def test_any_client_agrees(d: Driver) -> None:
    await d.start("any")
    assert (await agree(d, "c1"))["success"] is False
    await d.play("a", client="c1")
    await d.play("a", client="c2")
    assert await d.status() == ("ROLLING", 1)
    assert await agree(d, "c2") == {"success": True, "failure_reason": ""}
    await d.until("ROLLING", 2)
    assert (await agree(d, "c2"))["success"] is False, "the list is cleared by the sync"


async def test_all_clients_agree(d: Driver) -> None:
    await d.start("all")
    await d.play("a", client="c1")
    await d.play("a", client="c2")
    await agree(d, "c1")
    active = (await d.pool())["swarm_client_instruction"]["active_clients"]
    assert {
        active_binding["client_uuid"]: active_binding["allowed_sync_weight"]
        for active_binding in active
    } == {"c1": True, "c2": False}
    assert await d.status() == ("ROLLING", 1)
    d.clock.now += 601
    d.engine.sweep()
    assert await d.status() == ("ROLLING", 1), "nobody is left to agree"
    await d.play("a", client="c3")
    await agree(d, "c3")
    await d.until("ROLLING", 2)


async def test_agreement_is_refused_where_no_rule_asks_for_it(d: Driver) -> None:
    await d.start()
    refused = await d.post("/agree_sync_weight", client_uuid="c1")
    assert refused.status_code == 400
    assert "rollout_until_finish_enough_tasks" in refused.json()["detail"]


async def test_an_ended_episode_without_a_call_is_not_counted(d: Driver) -> None:
    await d.start(batch=1, repeat=1)
    episode = await d.claim()
    assert (await d.end(episode, "a")).json()["success"] is True
    assert (await d.pool())["completed_episodes"] == 0
    assert "without an LLM call" in await d.logged()
    assert await d.status() == ("ROLLING", 1)
    assert len(d.engine.pool) == 1


async def test_the_cache_limit_discards_the_batch(d: Driver) -> None:
    limit = "swarm_mode_sample_collection_max_cached_episodes"
    await d.start("tasks", **{"batch": 1, "repeat": 2, limit: 3})
    for name in "abc":
        await d.play(name)
    assert (await d.pool())["completed_episodes"] == 3
    await d.play("d")
    assert (await d.pool())["completed_episodes"] == 0
    assert "thrown away" in await d.logged()


async def test_the_cache_limit_is_announced_before_it_is_reached(d: Driver) -> None:
    limit = "swarm_mode_sample_collection_max_cached_episodes"
    await d.start("tasks", **{"batch": 1, "repeat": 2, limit: 5})
    for name in "abcd":
        await d.play(name)
    assert "four fifths" not in await d.logged()
    await d.play("e")
    assert (await d.logged()).count("four fifths") == 1
    assert (await d.pool())["completed_episodes"] == 5
    await d.play("f")
    assert (await d.pool())["completed_episodes"] == 0
    for name in "abcdefg":
        await d.play(name)
    assert (await d.logged()).count("four fifths") == 2, "once a fill"


@pytest.mark.parametrize("method", ["episodes", "any", "all"])
async def test_the_cache_limit_is_of_the_task_rules_alone(d: Driver, method: str) -> None:
    limit = "swarm_mode_sample_collection_max_cached_episodes"
    await d.start(method, **{"batch": 5, "repeat": 2, limit: 3})
    for name in "abcdef":
        await d.play(name)
    assert (await d.pool())["completed_episodes"] == 6


async def test_named_saves(d: Driver) -> None:
    await d.start(batch=1, repeat=1, experiment_name="my run/1", trainer_common={"save_freq": 2})
    for step in (1, 2, 3, 4):
        await d.until("ROLLING", step)
        await d.play("a")
    await d.until("ROLLING", 5)
    assert d.bench.checkpoints == ["my-run-1-step-000002", "my-run-1-step-000004"]


@pytest.mark.parametrize("error", [SaveError("disk full"), AjetError("keeps nothing")])
async def test_a_named_save_that_fails_rolls_on(d: Driver, error: Exception) -> None:
    d.bench.checkpoint_error = error
    await d.start(batch=1, repeat=1, trainer_common={"save_freq": 1})
    await d.play("a")
    await d.until("ROLLING", 2)
    detail = (await d.get("/get_engine_status"))["engine_status_detail"]
    assert f"checkpoint of step 1 was not saved: {error}" in detail
    assert "was not saved" in await d.logged()


async def test_updates_are_served(d: Driver) -> None:
    assert await d.get("/ajetc/updates") == []
    await d.start(batch=1, repeat=1)
    for step in (1, 2, 3):
        await d.until("ROLLING", step)
        await d.play("a", 0.5)
    await d.until("ROLLING", 4)
    updates = await d.get("/ajetc/updates?after=1")
    assert [update["step"] for update in updates] == [2, 3]
    assert updates[0]["reward_mean"] == 0.5
    assert updates[0]["kl"] is None, "not a number cannot travel"
    assert updates[0]["sync_seconds"] >= 0
    await d.post("/stop_engine")
    await d.http.post("/ajetc/reset")
    assert await d.get("/ajetc/updates") == []


@pytest.mark.slow
async def test_many_clients_lose_and_double_nothing() -> None:
    """10 clients end, abort, abandon and answer over many batches; the counts agree at the end."""
    episodes_each, clients = 12, 10
    accepted: Counter[tuple[str, float]] = Counter()
    uuids: set[str] = set()
    async with driving() as d:
        await d.start("episodes", batch=4, repeat=4)

        async def client(name: str) -> None:
            draw = random.Random(name)
            done = 0
            while done < episodes_each:
                episode = await d.claim(name)
                if not episode["success"]:
                    await asyncio.sleep(0)
                    continue
                if (await d.chat(episode)).status_code != 200:
                    continue
                if draw.random() < 0.2:
                    assert (await d.abort(episode, name)).json()["success"]
                    continue
                reward = draw.random()
                task = f"{name}-{done // 4}"
                ended = await d.end(episode, task, reward, name)
                assert ended.json()["success"] is True, ended.text
                assert episode["episode_uuid"] not in uuids
                uuids.add(episode["episode_uuid"])
                accepted[task, reward] += 1
                again = await d.end(episode, task, reward, name)
                assert again.status_code == 400
                done += 1

        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(client(f"client{number}"))
        await wait_for(lambda: d.engine.status == "ENGINE.ROLLING")
        trained = Counter(
            (sample.task_id, sample.reward) for batch in d.bench.trained for sample in batch
        )
        for group_left in d.engine.pool.finished.values():
            trained.update((sample.task_id, sample.reward) for sample in group_left)
        assert trained == accepted
        assert accepted.total() == episodes_each * clients
        assert len(d.bench.trained) >= 5
        assert len(d.engine.pool) == 16
        assert d.engine.pool.claimed == []


async def test_a_refused_job_also_discards_the_previous_one(d: Driver) -> None:
    """AgentJet's client does not check whether its job was accepted: it starts the engine."""
    await d.start(batch=1)
    await d.post("/stop_engine")
    tree = "ajet: {trainer_common: {algorithm: {adv_estimator: gae}}}"
    refused = (await d.post("/sync_train_config", yaml_as_string=tree)).json()
    assert refused["success"] is False
    started = (await d.post("/start_engine")).json()
    assert started["success"] is False
    assert refused["error"] in started["error"]
    assert await d.status() == ("OFFLINE", 0)
    await d.start(batch=1)
    assert await d.status() == ("ROLLING", 1)
