"""Stop rules, what counts, and the books over many batches; driven over HTTP."""

import asyncio
import gc
import random
import tracemalloc
from collections import Counter

import pytest

from ajet_swarm.common.errors import AjetError
from engine.interface import SaveError
from engine.llm.calls import CallStarter
from engine.llm.chat import ChatRequest
from engine.server.episode_keys import parse_key
from engine.server.episodes import EpisodeService
from tests.support.engine.client import Driver, driving, wait_for

pytestmark = pytest.mark.slow


async def test_episodes_rule(idle: Driver) -> None:
    await idle.start("episodes", batch=1, repeat=3)
    for name in "abc":
        await idle.play(name)
    await idle.until("ROLLING", 2)


async def test_non_dummy_rule(idle: Driver) -> None:
    await idle.start("non_dummy", batch=1, repeat=2)
    await idle.group("dummy", (1.0, 1.0))
    pool = await idle.pool()
    assert (pool["completed_tasks"], pool["completed_non_dummy_tasks"]) == (1, 0)
    await idle.play("short")
    await idle.group("real", (1.0, 0.0))
    await idle.until("ROLLING", 2)
    assert {sample.task_id for sample in idle.bench.trained[0]} == {"short", "real"}


async def test_an_unknown_rule_is_enough_tasks(idle: Driver) -> None:
    await idle.start("rollout_until_tea_time", batch=1, repeat=1)
    assert (await idle.pool())["sample_collection_method"] == "rollout_until_finish_enough_tasks"
    await idle.play("a")
    await idle.until("ROLLING", 2)


async def agree(d: Driver, client: str) -> dict[str, object]:
    return dict((await d.post("/agree_sync_weight", client_uuid=client)).json())


async def test_any_client_agrees(idle: Driver) -> None:
    await idle.start("any")
    assert (await agree(idle, "c1"))["success"] is False
    await idle.play("a", client="c1")
    await idle.play("a", client="c2")
    assert await idle.status() == ("ROLLING", 1)
    assert await agree(idle, "c2") == {"success": True, "failure_reason": ""}
    await idle.until("ROLLING", 2)
    assert (await agree(idle, "c2"))["success"] is False, "the list is cleared by the sync"


async def test_all_clients_agree(idle: Driver) -> None:
    await idle.start("all")
    await idle.play("a", client="c1")
    await idle.play("a", client="c2")
    await agree(idle, "c1")
    active = (await idle.pool())["swarm_client_instruction"]["active_clients"]
    assert {
        active_binding["client_uuid"]: active_binding["allowed_sync_weight"]
        for active_binding in active
    } == {"c1": True, "c2": False}
    assert await idle.status() == ("ROLLING", 1)
    idle.clock.now += 601
    idle.engine.sweep()
    assert await idle.status() == ("ROLLING", 1), "nobody is left to agree"
    await idle.play("a", client="c3")
    await agree(idle, "c3")
    await idle.until("ROLLING", 2)


@pytest.mark.parametrize("method", ["any", "all"])
async def test_agreement_alone_fills_no_batch(idle: Driver, method: str) -> None:
    await idle.start(method)
    await idle.abort(await idle.claim())
    assert (await agree(idle, "c1"))["success"] is True
    assert await idle.status() == ("ROLLING", 1), "there is nothing to train on"


async def test_agreement_is_refused_where_no_rule_asks_for_it(d: Driver) -> None:
    refused = await d.post("/agree_sync_weight", client_uuid="c1")
    assert refused.status_code == 400
    assert "rollout_until_finish_enough_tasks" in refused.json()["detail"]


async def test_an_ended_episode_without_a_call_is_not_counted(idle: Driver) -> None:
    await idle.start(batch=1, repeat=1)
    episode = await idle.claim()
    assert (await idle.end(episode, "a")).json()["success"] is True
    assert (await idle.pool())["completed_episodes"] == 0
    assert "without an LLM call" in await idle.logged()
    assert await idle.status() == ("ROLLING", 1)
    assert len(idle.engine.pool) == 1


async def test_the_cache_limit_discards_the_batch(idle: Driver) -> None:
    limit = "swarm_mode_sample_collection_max_cached_episodes"
    await idle.start("tasks", **{"batch": 1, "repeat": 2, limit: 3})
    for name in "abc":
        await idle.play(name)
    assert (await idle.pool())["completed_episodes"] == 3
    await idle.play("d")
    assert (await idle.pool())["completed_episodes"] == 0
    assert "thrown away" in await idle.logged()


async def test_the_cache_limit_is_announced_before_it_is_reached(idle: Driver) -> None:
    limit = "swarm_mode_sample_collection_max_cached_episodes"
    await idle.start("tasks", **{"batch": 1, "repeat": 2, limit: 5})
    for name in "abcd":
        await idle.play(name)
    assert "four fifths" not in await idle.logged()
    await idle.play("e")
    assert (await idle.logged()).count("four fifths") == 1
    assert (await idle.pool())["completed_episodes"] == 5
    await idle.play("f")
    assert (await idle.pool())["completed_episodes"] == 0
    for name in "abcdefg":
        await idle.play(name)
    assert (await idle.logged()).count("four fifths") == 2, "once a fill"


@pytest.mark.parametrize("method", ["episodes", "any", "all"])
async def test_the_cache_limit_is_of_the_task_rules_alone(idle: Driver, method: str) -> None:
    limit = "swarm_mode_sample_collection_max_cached_episodes"
    await idle.start(method, **{"batch": 5, "repeat": 2, limit: 3})
    for name in "abcdef":
        await idle.play(name)
    assert (await idle.pool())["completed_episodes"] == 6


async def test_named_saves(idle: Driver) -> None:
    await idle.start(batch=1, repeat=1, experiment_name="my run/1", trainer_common={"save_freq": 2})
    for step in (1, 2, 3, 4):
        await idle.until("ROLLING", step)
        await idle.play("a")
    await idle.until("ROLLING", 5)
    assert idle.bench.checkpoints == ["my-run-1-step-000002", "my-run-1-step-000004"]


@pytest.mark.parametrize("error", [SaveError("disk full"), AjetError("keeps nothing")])
async def test_a_named_save_that_fails_rolls_on(idle: Driver, error: Exception) -> None:
    idle.bench.checkpoint_error = error
    await idle.start(batch=1, repeat=1, trainer_common={"save_freq": 1})
    await idle.play("a")
    await idle.until("ROLLING", 2)
    detail = (await idle.get("/get_engine_status"))["engine_status_detail"]
    assert f"checkpoint of step 1 was not saved: {error}" in detail
    assert "was not saved" in await idle.logged()


async def test_updates_are_served(idle: Driver) -> None:
    assert await idle.get("/ajetc/updates") == []
    await idle.start(batch=1, repeat=1)
    for step in (1, 2, 3):
        await idle.until("ROLLING", step)
        await idle.play("a", 0.5)
    await idle.until("ROLLING", 4)
    updates = await idle.get("/ajetc/updates?after=1")
    assert [update["step"] for update in updates] == [2, 3]
    assert updates[0]["reward_mean"] == 0.5
    assert updates[0]["kl"] is None, "not a number cannot travel"
    assert updates[0]["sync_seconds"] >= 0
    await idle.post("/stop_engine")
    await idle.http.post("/ajetc/reset")
    assert await idle.get("/ajetc/updates") == []


@pytest.mark.slow
async def test_many_clients_lose_and_double_nothing() -> None:
    """16 clients end, abort, abandon and answer over many batches; the counts agree at the end."""
    episodes_each, clients = 20, 16
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
        assert len(d.bench.trained) >= 10
        assert len(d.engine.pool) == 16
        assert d.engine.pool.claimed == []


async def test_a_refused_job_also_discards_the_previous_one(idle: Driver) -> None:
    """AgentJet's client does not check whether its job was accepted: it starts the engine."""
    await idle.start(batch=1)
    await idle.post("/stop_engine")
    tree = "ajet: {trainer_common: {algorithm: {adv_estimator: gae}}}"
    refused = (await idle.post("/sync_train_config", yaml_as_string=tree)).json()
    assert refused["success"] is False
    started = (await idle.post("/start_engine")).json()
    assert started["success"] is False
    assert refused["error"] in started["error"]
    assert await idle.status() == ("OFFLINE", 0)
    await idle.start(batch=1)
    assert await idle.status() == ("ROLLING", 1)


async def one_episode(d: Driver, episodes: EpisodeService, calls: CallStarter, number: int) -> None:
    """Through the engine without HTTP, whose libraries keep things of their own."""

    async def stay() -> None:
        await asyncio.Event().wait()

    client = f"c{number % 7}"
    episode = episodes.claim(client, "train", 60.0, f"t{number}")
    while isinstance(episode, str):
        await asyncio.sleep(0)
        episode = episodes.claim(client, "train", 60.0, f"t{number}")
    key = parse_key(episodes.episode_status(episode)["openai_api_key"])
    request = ChatRequest(messages=[{"role": "user", "content": f"{number}"}])
    with calls.begin(key, request, stay) as live:
        await live.answer()
    if number % 5 == 0:
        episodes.abort(client, episode.uuid, declare=True)
        return
    reward = number / 10
    episodes.end(client, episode.uuid, f"t{number}", reward, f"t{number}", declare=True)


async def grown(episodes_each: int, rounds: int) -> list[int]:
    """Bytes in use after each round."""
    used = []
    async with driving() as d:
        await d.start("episodes", batch=1, repeat=1)
        episodes, calls = EpisodeService(d.engine), CallStarter(d.engine)
        tracemalloc.start()
        try:
            for turn in range(rounds):
                for number in range(episodes_each):
                    await one_episode(d, episodes, calls, turn * episodes_each + number)
                await wait_for(lambda: d.engine.status == "ENGINE.ROLLING")
                d.bench.trained.clear()
                d.bench.params.clear()
                d.bench.hypers.clear()
                gc.collect()
                used.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        assert d.bench.step == rounds * episodes_each * 4 // 5
    return used


@pytest.mark.slow
async def test_memory_is_constant_once_the_stores_are_full() -> None:
    used = await grown(650, 2)  # more updates than are kept
    assert used[1] - used[0] < 100_000, used


@pytest.mark.soak
async def test_memory_is_flat_over_50000_episodes() -> None:
    used = await grown(5_000, 10)
    assert used[-1] - used[1] < 300_000, used
