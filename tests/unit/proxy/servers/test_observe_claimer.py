"""Claims of simulated episodes: all at once, or none while others wait or calls are in flight."""

import asyncio
from pathlib import Path

from core.events import ClaimIntended, EpisodesClaimed, GenerationStarted
from proxy.servers.observe_claimer import ObserveClaimer
from tests.support.proxy.observed import Observed, observed


def claimer_of(o: Observed) -> ObserveClaimer:
    claimer = o.world.server.claimer
    assert isinstance(claimer, ObserveClaimer)
    return claimer


async def test_a_group_gets_all_episodes_or_none(tmp_path: Path) -> None:
    async with observed(tmp_path, upstream_settings={"calls": 5}) as o:
        claimer = claimer_of(o)
        claimed = claimer.claim_at_once(3, episode_type="eval", discard_timeout=7.0)
        assert claimed is not None
        assert [(one.episode_type, one.discard_timeout) for one in claimed] == [("eval", 7.0)] * 3
        assert claimer.claim_at_once(3) is None
        held = {record.episode_uuid for record in await o.observe.buffer()}
        assert held == {one.episode_uuid for one in claimed}
        assert claimer.claim_at_once(2) is not None


async def test_a_group_does_not_overtake_one_that_waits(tmp_path: Path) -> None:
    async with observed(tmp_path, upstream_settings={"calls": 4}) as o:
        claimer = claimer_of(o)
        held = claimer.claim_at_once(3)
        assert held is not None
        waiting = o.world.context.tasks.spawn(claimer.claim_group(4), "waiting")
        await o.world.until(lambda: claimer.queue.starved)
        assert claimer.claim_at_once(1) is None
        for one in held:
            await o.observe.abort(one.episode_uuid)
        assert len(await waiting) == 4


async def test_the_event_of_the_claims_announces_the_start(tmp_path: Path) -> None:
    async with observed(tmp_path, proxy={"repeats": 1}) as o:
        o.upstream.gate = asyncio.Event()
        asking = asyncio.gather(o.post(n=3))
        await o.world.until(lambda: o.upstream.running == 3)
        (group,) = o.world.state.groups.values()
        assert (group.phase, group.n, len(group.candidates)) == ("GENERATING", 3, 3)
        assert [len(event.episodes) for event in o.world.kinds(EpisodesClaimed)] == [3]
        assert [one.n for one in o.world.kinds(GenerationStarted)] == [3]
        assert not o.world.kinds(ClaimIntended)
        o.upstream.gate.set()
        (answer,) = await asking
        assert len(answer.json()["choices"]) == 3
