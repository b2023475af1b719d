"""Figures of updates: from the server if it reports them, else from its pool."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.protocol.schemas import PoolInfo
from core.events import UpdateDone
from proxy.servers.reader import ServerReader, figures, pool_stats
from tests.support.proxy.world import World, world
from tests.support.scripted.ajetc_transport import AjetcTransport
from tests.support.scripted.swarm import ScriptedSwarm

TOLD: dict[str, Any] = {
    "step": 1,
    "samples": 16,
    "kl": 0.02,
    "clip_fraction": None,
    "no_signal_share": 0.25,
    "step_seconds": 4.5,
    "sync_seconds": 0.3,
    "at": 1.0,
    "extra": {"loss": -0.1},
}


@asynccontextmanager
async def reading(home: Path, keeps: bool) -> AsyncIterator[tuple[World, AjetcTransport]]:
    """A proxy with a reader on its server."""
    async with ScriptedSwarm(batch=1, repeat=2) as swarm, world(home, swarm) as made:
        client, watcher = made.server.client, made.server.watcher
        stored = AjetcTransport(client.transport, made.swarm)
        if keeps:
            client.transport = stored
            await client.features(again=True)
        reader = ServerReader(made.context, made.server)
        watcher.add_listener(reader.on_status)
        watcher.add_pool_listener(reader.on_pool)
        made.context.tasks.spawn(reader.run(), "reader")
        await made.until(lambda: watcher.current.reachable and watcher.current.step == 1)
        yield made, stored


def published(made: World) -> list[tuple[int, str]]:
    return [(kind.step, kind.source) for kind in made.kinds(UpdateDone)]


async def test_each_update_is_published_once_with_all_its_figures(tmp_path: Path) -> None:
    async with reading(tmp_path, keeps=True) as (made, value):
        value.updates = [TOLD]
        made.swarm.set_state("ROLLING", 2)
        await made.until(lambda: made.server.watcher.current.step == 2)
        await made.until(lambda: published(made) == [(1, "engine")])
        value.updates.append({**TOLD, "step": 2})
        made.swarm.set_state("ROLLING", 3)
        await made.until(lambda: published(made) == [(1, "engine"), (2, "engine")])
        stats = made.kinds(UpdateDone)[0].stats
        assert (stats["step_seconds"], stats["loss"]) == (4.5, -0.1)
        await made.until(lambda: made.state.servers["s"].checkpoints)


async def test_updates_after_a_restored_step_are_read_again(tmp_path: Path) -> None:
    async with reading(tmp_path, keeps=True) as (made, value):
        value.updates = [{**TOLD, "step": step} for step in (1, 2, 3)]
        made.swarm.set_state("ROLLING", 4)
        await made.until(lambda: len(published(made)) == 3)
        value.updates = value.updates[:1]
        made.swarm.set_state("ROLLING", 2)
        await made.until(lambda: made.server.watcher.current.step == 2)
        value.updates.append({**TOLD, "step": 2, "kl": 0.5})
        made.swarm.set_state("ROLLING", 3)
        await made.until(lambda: len(published(made)) == 4)
        assert published(made)[-1] == (2, "engine")
        assert made.kinds(UpdateDone)[-1].stats["kl"] == 0.5


async def test_updates_of_a_server_without_the_route_come_from_its_pool(tmp_path: Path) -> None:
    async with reading(tmp_path, keeps=False) as (made, _):
        ticket = await made.ask("hello")
        await made.reply(ticket)
        await made.closed()
        await made.until(lambda: published(made))
        (event,) = made.kinds(UpdateDone)
        assert (event.step, event.source) == (1, "pool")
        assert event.stats["reward_mean"] == pytest.approx(0.05)
        assert event.stats["no_signal_share"] == 0


def test_null_values_are_dropped() -> None:
    result = figures(TOLD)
    assert result == {
        "samples": 16.0,
        "kl": 0.02,
        "no_signal_share": 0.25,
        "step_seconds": 4.5,
        "sync_seconds": 0.3,
        "loss": -0.1,
    }


def test_statistics_of_a_pool_computed_by_hand() -> None:
    pool = PoolInfo(
        completed_tasks_rewards={"a": [0.0, 1.0], "b": [0.5, 0.5], "c": [None], "d": []}
    )
    assert pool_stats(pool) == {
        "samples": 4.0,
        "groups": 2.0,
        "dead_groups": 1.0,
        "no_signal_share": 0.5,
        "reward_mean": 0.5,
        "reward_std": pytest.approx(0.125**0.5),
    }
    assert pool_stats(PoolInfo()) == {}
    assert pool_stats(PoolInfo(completed_tasks_rewards={"a": [None]})) == {}
