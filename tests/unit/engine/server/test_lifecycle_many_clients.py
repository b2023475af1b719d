"""Many clients at once, and many episodes after each other: books and memory."""

import asyncio
import gc
import tracemalloc

import pytest

from engine.llm.calls import CallStarter
from engine.llm.chat import ChatRequest
from engine.server.episode_keys import parse_key
from engine.server.episodes import EpisodeService
from tests.support.engine.client import Driver, driving, wait_for


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
