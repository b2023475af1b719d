"""Eval episodes of looks: none is left behind, and no user is affected."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.protocol.errors import ClaimTimedOut
from ajet_swarm.protocol.schemas import Claimed
from core.events import LookEnded, LookStarted
from proxy.evaluation import sampling
from proxy.evaluation.sampling import EpisodeSampler, MeasurementCut, eval_episode
from tests.support.proxy.measured import Policy, ended, measured
from tests.support.proxy.world import World, world
from tests.support.scripted.swarm import ScriptedSwarm

ABORT, CLAIM, CHAT = "/abort_episode", "/claim_episode", "/v1/chat/completions"
QUESTION: Sequence[dict[str, str]] = [{"role": "user", "content": "What is 1 + 1?"}]


def sampler_of(w: World) -> EpisodeSampler:
    return EpisodeSampler(w.server, w.groups.server_facts["s"], lambda: False)


async def occupy(w: World) -> str:
    """Take the only episode; return its uuid."""
    claimed = await w.server.client.claim("eval", 60.0)
    assert isinstance(claimed, Claimed)
    w.server.claimer.ends.holdings.granted(claimed)  # else the proxy gives it back
    return claimed.episode_uuid


@pytest.mark.parametrize("how", ["late", "stall"])
async def test_a_claim_that_is_granted_while_the_look_closes_is_given_back(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path, watched=True) as w:
        w.swarm.fail_always(CLAIM, how)
        sampler = sampler_of(w)
        sampling_task = w.context.tasks.spawn(sampler.sample(QUESTION, 3), "look")
        await w.until(lambda: w.swarm.requests[CLAIM] == 3)
        sampling_task.cancel()
        closing = w.context.tasks.spawn(sampler.close(), "close")
        await closing
        w.swarm.release()
        await w.until(lambda: len(w.swarm.claims) == 3)
        await w.until(lambda: not w.swarm.claimed())
        await w.until(lambda: not w.server.claimer.ends.holdings.by_uuid)


async def test_a_proxy_that_stops_while_a_look_starts_leaves_no_episode(tmp_path: Path) -> None:
    async with measured(tmp_path, Policy(1.0)) as (w, service):
        await ended(w, 1)
        w.swarm.fail_always(CLAIM, "late")
        service.demand("look")
        await w.until(lambda: len(w.kinds(LookStarted)) == 2 and w.swarm.claimed())
        asyncio.get_running_loop().call_later(0.05, w.swarm.release)  # `measured` closes before
    last = w.kinds(LookEnded)[-1]
    assert (last.outcome, last.cause) == ("cut", "the proxy stopped")
    assert not w.swarm.claimed()
    assert not w.server.claimer.ends.holdings.by_uuid


async def test_a_frozen_server_does_not_hold_up_the_end_and_gets_its_episode_back(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, watched=True) as w:
        w.swarm.fail_next(CLAIM, "late")
        sampler = sampler_of(w)
        sampling_task = w.context.tasks.spawn(sampler.sample(QUESTION, 1), "look")
        await w.until(lambda: w.swarm.claimed())
        sampling_task.cancel()
        await sampler.close()
        assert w.swarm.claimed(), "the server has not answered the claim"
        w.swarm.release()
        await w.until(lambda: not w.swarm.claimed())
        await w.until(lambda: not w.server.claimer.ends.holdings.by_uuid)


async def test_a_look_without_a_free_episode_starves_nobody_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "REFUSED_PAUSE", (0.0, 0.01))
    async with ScriptedSwarm(slots=1) as swarm, world(tmp_path, swarm, watched=True) as w:
        await occupy(w)
        facts, wake = w.groups.server_facts["s"], asyncio.Event()
        with facts.window(wake), pytest.raises(ClaimTimedOut):
            await sampler_of(w).sample(QUESTION, 1)
        w.swarm.requests[CLAIM] -= 1
        assert not wake.is_set(), "the window of an operator is closed for users only"
        assert not facts.contended
        assert w.swarm.requests[CLAIM] == sampling.REFUSALS


async def test_an_episode_that_becomes_free_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "REFUSED_PAUSE", (0.0, 0.01))
    async with ScriptedSwarm(slots=1) as swarm, world(tmp_path, swarm, watched=True) as w:
        held = await occupy(w)
        sampler = sampler_of(w)
        taking = w.context.tasks.spawn(sampler.sample(QUESTION, 2), "look")
        await w.until(lambda: w.swarm.requests[CLAIM] >= 4)
        await w.server.client.abort(held)
        assert len(await taking) == 2
        await sampler.close()
        assert not w.swarm.claimed()


async def test_an_episode_that_the_server_granted_to_a_group_meanwhile_is_not_given_back(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, watched=True) as w:
        w.swarm.fail_always(CHAT, "late")
        sampler = sampler_of(w)
        taking = w.context.tasks.spawn(sampler.sample(QUESTION, 1), "look")
        await w.until(lambda: w.swarm.requests[CHAT] == 1)
        (uuid,) = w.server.claimer.ends.holdings.by_uuid
        theirs = w.server.claimer.ends.holdings.add(Holding(uuid))
        taking.cancel()
        await sampler.close()
        assert not w.swarm.aborts
        assert w.server.claimer.ends.holdings.by_uuid == {uuid: theirs}


async def test_an_episode_that_another_look_claims_before_the_return_is_answered_stays_its_own(
    tmp_path: Path,
) -> None:
    async with ScriptedSwarm(slots=1) as swarm, world(tmp_path, swarm, watched=True) as w:
        first = AsyncExitStack()
        swarm.fail_next(ABORT, "late")
        before = await first.enter_async_context(eval_episode(w.server))
        closing = w.context.tasks.spawn(first.aclose(), "close")
        await w.until(lambda: swarm.aborts)
        async with eval_episode(w.server) as claimed:
            assert claimed.episode_uuid == before.episode_uuid
            swarm.release()
            await closing
            assert await w.server.claimer.ends.reconcile() == []
            assert swarm.claimed()
        assert len(swarm.aborts) == 2
        assert not w.server.claimer.ends.holdings.by_uuid


async def test_an_episode_that_another_look_claimed_meanwhile_is_not_given_back(
    tmp_path: Path,
) -> None:
    async with ScriptedSwarm(slots=1) as swarm, world(tmp_path, swarm, watched=True) as w:
        first = AsyncExitStack()
        before = await first.enter_async_context(eval_episode(w.server))
        swarm.expire(before.episode_uuid)
        async with eval_episode(w.server) as claimed:
            assert claimed.episode_uuid == before.episode_uuid
            await first.aclose()
            assert not swarm.aborts
        assert len(swarm.aborts) == 1
        assert not w.server.claimer.ends.holdings.by_uuid


async def test_nothing_is_claimed_after_the_end(tmp_path: Path) -> None:
    async with world(tmp_path, watched=True) as w:
        sampler = sampler_of(w)
        await sampler.close()
        with pytest.raises(MeasurementCut):
            await sampler.sample(QUESTION, 1)
        assert not w.swarm.claims
