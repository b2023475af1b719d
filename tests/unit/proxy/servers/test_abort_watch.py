"""Stops and aborts of other clients: detected, and named as far as possible."""

from pathlib import Path

import msgspec

from core.events import AlertRaised
from proxy.servers.losses import AbortWatch
from tests.support.alerts import cause_of
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

CLAIM = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}


def abort_causes(made: World) -> list[str]:
    return [cause_of(kind) for kind in made.kinds(AlertRaised) if kind.key == "taken:s"]


async def test_an_abort_by_another_client_raises_an_alert_with_its_group(tmp_path: Path) -> None:
    """While a group waits for its rating nothing else detects them."""
    hold = settings(rating={"mode": "hold"})
    async with (
        ScriptedSwarm(batch=2, repeat=2) as swarm,
        world(tmp_path, swarm, hold, watched=True) as made,
    ):
        made.console()
        await made.ask("hello")
        group = await made.open("AWAITING_RATING")
        await made.until(lambda: len(swarm.claimed()) == 2)
        await made.server.watcher.poll_pool()
        victim = swarm.claimed()[0].uuid
        swarm.abort({"client_uuid": "other", "episode_uuid": victim})
        await made.until(lambda: abort_causes(made), 8)
        (cause,) = abort_causes(made)
        assert f"an episode of group {group.group_id[:12]} on s: aborted after 0 s" in cause


async def test_one_reading_without_an_episode_raises_no_alert(tmp_path: Path) -> None:
    """An end or an abort of the proxy in progress may be absent from one reading of the pool."""
    hold = settings(rating={"mode": "hold"})
    async with world(tmp_path, configured=hold) as made:
        made.console()
        await made.ask("hello")
        await made.open("AWAITING_RATING")
        held = await made.server.watcher.poll_pool()
        assert held is not None
        taken = msgspec.structs.replace(held, running_episode_details={})
        watch = AbortWatch(made.context, made.server)
        for pool in (held, taken, held, taken):
            watch.on_pool(pool)
        assert not abort_causes(made)
        watch.on_pool(taken)
        assert abort_causes(made)


async def test_the_alert_of_a_stopped_server_names_the_other_clients(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm, world(tmp_path, swarm, watched=True) as made:
        swarm.claim(CLAIM)
        await made.server.watcher.poll_pool()
        await made.until(lambda: made.state.servers["s"].pool.other_clients == ("other",))
        swarm.set_state("OFFLINE")
        await made.until(lambda: "off:s" in made.state.alerts)
        cause = cause_of(made.state.alerts["off:s"])
        assert cause.startswith("s is off: stopped by someone else")
        assert cause.endswith("; on it then: other")
