"""Many clients at once, and many episodes after each other: books and memory."""

import asyncio
import gc
import random
import tracemalloc
from collections import Counter
from typing import Any

import pytest

from engine.llm.calls import CallStarter
from engine.llm.chat import ChatRequest
from engine.server.episode_keys import parse_key
from engine.server.episodes import EpisodeService
from tests.support.engine.client import Driver, driving, wait_for

HELD = 8


@pytest.mark.slow
@pytest.mark.parametrize("clients", [16, pytest.param(64, marks=pytest.mark.soak)])
async def test_many_clients_with_all_episodes_running(clients: int) -> None:
    """All slots are claimed at once, in every batch; exactly the ended episodes are trained on."""
    sent: Counter[tuple[str, str, float]] = Counter()
    async with driving() as d:
        await d.start(
            "episodes",
            batch=clients * HELD // 4,
            repeat=4,
            rollout={"num_repeat": 4, "max_env_worker": clients * HELD},
        )
        for step in (1, 2):
            await d.until("ROLLING", step)
            await whole_batch(d, step, clients, sent)
        await d.until("ROLLING", 3)
        trained = Counter(
            (one.episode, one.task_id, one.reward) for batch in d.bench.trained for one in batch
        )
        assert trained == sent
        assert [len(batch) for batch in d.bench.trained] == [clients * HELD] * 2


async def whole_batch(
    d: Driver, step: int, clients: int, sent: Counter[tuple[str, str, float]]
) -> None:
    """Every client claims its share, then all are answered and ended; the last client late."""
    names = [f"c{number}" for number in range(clients)]

    async def claim_all(name: str) -> list[dict[str, Any]]:
        return [await d.claim(name, task=f"{name}-t") for _ in range(HELD)]

    held = dict(zip(names, await asyncio.gather(*map(claim_all, names)), strict=True))
    claimed = [other["episode_uuid"] for mine in held.values() for other in mine]
    assert len(set(claimed)) == clients * HELD
    assert "No available episodes" in (await d.claim("late"))["fail_cause"]
    running = (await d.pool())["running_episode_details"]
    assert Counter(one["client_uuid"] for one in running.values()) == dict.fromkeys(names, HELD)

    async def finish(name: str) -> None:
        draw = random.Random(f"{name}{step}")
        for number, episode in enumerate(held[name]):
            assert (await d.chat(episode)).status_code == 200
            task, reward = f"{name}-{number // 4}", draw.random()
            ended = await d.end(episode, task, reward, name)
            assert ended.json()["success"] is True
            sent[episode["episode_uuid"], task, reward] += 1

    await asyncio.gather(*map(finish, names[:-1]))
    pool = await d.pool()
    assert pool["completed_episodes"] == (clients - 1) * HELD
    groups = pool["completed_tasks_client_uuids"].values()
    owners = Counter(client for group in groups for client in group)
    assert owners == dict.fromkeys(names[:-1], HELD)
    active = pool["swarm_client_instruction"]["active_clients"]
    assert {active_binding["client_uuid"] for active_binding in active} == set(owners)
    await finish(names[-1])


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
