"""Rewards whose ends a front with a limit of 60 s cuts off, while the server goes on with them."""

from pathlib import Path
from typing import Any

import pytest

import ajet_swarm.episodes.ends
from ajet_swarm.api.wire import RUNNER, SwarmWire
from ajet_swarm.episodes.holdings import Holdings
from ajet_swarm.protocol.schemas import EndKind, EndOutcome
from tests.support.capped_clock import skip
from tests.support.proxy.world import World, world
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.proxy.groups.test_submit import UNTRAINED, outcomes, seal_held_up

pytestmark = pytest.mark.slow


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every end meets the limit of a front in between after 10 s, while the server goes on with it.

    The loop's clock does not pass these seconds: they would be over for all other requests too.
    """
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0, 0.01))
    plain = Holdings.cut_off

    def cut_off(self: Holdings, uuid: str, took: float) -> None:
        plain(self, uuid, took + 10.0)

    monkeypatch.setattr(Holdings, "cut_off", cut_off)


async def swept(w: World) -> None:
    """Wait for the sweep after the group, then sweep again."""
    await w.server.watcher.refresh(20)
    assert await w.server.claimer.ends.reconcile() == []


@pytest.mark.usefixtures("front")
async def test_a_reward_whose_ends_a_front_cuts_off_is_unknown_and_not_aborted(
    tmp_path: Path,
) -> None:
    """The server is still processing it: it counts in the end."""
    async with ScriptedSwarm(automatic=False) as swarm, world(tmp_path, swarm) as w:
        swarm.fail_always("/end_episode", "front")
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed(600.0)
        assert outcomes(w) == ["unknown"] * 4
        assert w.group(ticket).cause == "0 of 4 rewards taken, 4 unknown"
        await swept(w)
        assert not swarm.requests["/abort_episode"]
        swarm.release()
        await w.until(lambda: len(swarm.reward_log) == 4)
        assert not swarm.claimed()


@pytest.mark.usefixtures("front")
async def test_a_repetition_that_finds_no_server_leaves_the_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may be processing the first request."""
    plain, sent = SwarmWire.end, set[str]()

    async def end(self: SwarmWire, uuid: str, *arguments: Any, **options: Any) -> EndOutcome:
        if uuid in sent:
            return EndOutcome(EndKind.UNREACHABLE, "no connection")
        sent.add(uuid)
        return await plain(self, uuid, *arguments, **options)

    monkeypatch.setattr(SwarmWire, "end", end)
    async with ScriptedSwarm(automatic=False) as swarm, world(tmp_path, swarm) as w:
        swarm.fail_always("/end_episode", "front")
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed()
        assert outcomes(w) == ["unknown"] * 4
        assert w.group(ticket).phase == "DONE"


@pytest.mark.usefixtures("front")
async def test_an_eval_end_that_a_front_cuts_off_is_not_aborted(tmp_path: Path) -> None:
    """Another client may have been granted the episode by then."""
    async with ScriptedSwarm(automatic=False) as swarm, world(tmp_path, swarm) as w:
        swarm.fail_always("/end_episode", "front")
        ticket = await w.ask("hello", UNTRAINED)
        await w.reply(ticket)
        await w.closed(600.0)
        assert outcomes(w) == ["unknown"]
        await swept(w)
        assert swarm.requests["/end_episode"] == 1
        assert not swarm.requests["/abort_episode"]
        swarm.release()
        await w.until(lambda: not swarm.claimed())


@pytest.mark.usefixtures("front")
async def test_an_end_that_a_front_lost_is_aborted_in_the_end(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm, world(tmp_path, swarm) as w:
        swarm.fail_always("/end_episode", 504)
        await w.reply(await w.ask())
        await w.closed(600.0)
        assert outcomes(w) == ["unknown"] * 4
        skip(RUNNER)
        await w.until(lambda: not swarm.claimed())
        assert len(swarm.aborts) == 4


async def test_an_end_that_a_front_cuts_off_after_the_lifetime_is_not_aborted(
    tmp_path: Path,
) -> None:
    """It was sent in time, and the server is still processing it: it counts in the end."""
    async with ScriptedSwarm(automatic=False) as swarm, world(tmp_path, swarm) as w:
        go_on = seal_held_up(w)
        swarm.fail_always("/end_episode", "front")
        ticket = await w.ask()
        await w.reply(ticket)
        swarm.freeze()
        go_on(220.0)
        await w.until(lambda: swarm.arrived["/end_episode"] == 4)
        skip(280.0)
        swarm.unfreeze()
        await w.closed(600.0)
        assert outcomes(w) == ["unknown"] * 4
        await swept(w)
        assert not swarm.requests["/abort_episode"]
        swarm.release()
        await w.until(lambda: len(swarm.reward_log) == 4)
