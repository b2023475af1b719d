"""A vote that was acknowledged survives a kill, and the next start seals its group with it."""

from pathlib import Path

import pytest

import core.journal.writer
from core.commands.spec import NotNow
from core.events import GroupClosed, GroupRated, GroupSealed, RatingUndone
from tests.support.alerts import cause_of
from tests.support.proxy.singles import EpisodeEnded
from tests.support.proxy.world import settings, world
from tests.support.scripted.swarm import ScriptedSwarm

HOLD = settings(rating={"mode": "hold", "window": 60.0})


async def test_a_vote_is_acknowledged_once_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, configured=HOLD) as w:
        await w.ask()
        group = await w.open("AWAITING_RATING")
        await w.context.journal.committed(w.state.seq)
        monkeypatch.setattr(
            core.journal.writer, "LINGER", 30.0
        )  # nothing is committed unless waited for
        await w.commands.rate(group.group_id, "best", (2,), rater="ada")
        on_disk = w.context.journal.group_events(group.group_id)
        assert [one.rater for one in on_disk if isinstance(one, GroupRated)] == ["ada"]
        await w.commands.unrate(group.group_id)
        kinds = [type(one) for one in w.context.journal.group_events(group.group_id)]
        assert RatingUndone in kinds


async def test_a_vote_that_cannot_be_committed_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path, configured=HOLD) as w:
        await w.ask()
        group = await w.open("AWAITING_RATING")
        w.context.journal.error = "the disk is full"
        with pytest.raises(NotNow, match=r"nothing is changed: .* disk is full"):
            await w.commands.rate(group.group_id, "best", (2,))
        w.context.journal.error = ""
        assert group.rating is None


async def test_the_abort_of_a_rated_group_is_acknowledged_after_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, configured=HOLD) as w:
        await w.ask()
        group = await w.open("AWAITING_RATING")
        await w.commands.rate(group.group_id, "best", (2,))
        monkeypatch.setattr(core.journal.writer, "LINGER", 30.0)
        await w.commands.abort(group.group_id)
        on_disk = w.context.journal.group_events(group.group_id)
        assert any(isinstance(one, GroupClosed) for one in on_disk)


async def killed_after_the_vote(tmp_path: Path, swarm: ScriptedSwarm) -> str:
    """Rate a group within its undo window and kill the proxy; returns the group's id."""
    async with world(tmp_path, swarm, HOLD) as w:
        await w.ask()
        group = await w.open("AWAITING_RATING")
        await w.commands.rate(group.group_id, "ranking", (2, 0, 1, 3), rater="ada")
        w.kill()
    return group.group_id


@pytest.mark.slow
async def test_a_rated_group_is_finished_with_its_vote(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        group_id = await killed_after_the_vote(tmp_path, swarm)
        async with world(tmp_path, swarm, HOLD) as w:
            group = w.state.groups[group_id]
            assert (group.phase, group.cause) == ("DONE", "the proxy ended")
            assert (group.source, group.best) == ("human", 2)
            sent = [swarm.rewards[one.episode_uuid] for one in group.candidates]
            assert sent == pytest.approx([2 / 3, 1 / 3, 1.0, 0.0])
            (seal,) = w.kinds(GroupSealed)
            assert [one.advantage for one in seal.rewards] != [0.0] * 4
            assert w.state.raters["ada"].votes == 1
            assert not swarm.claimed()
            assert "lost" not in cause_of(w.state.alerts["recovered:s"])
        async with world(tmp_path, swarm, HOLD) as w:
            assert not w.kinds(EpisodeEnded)
        assert swarm.duplicate_ends == 0


async def test_a_vote_whose_episodes_are_lost_is_named_in_the_alert(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        group_id = await killed_after_the_vote(tmp_path, swarm)
        swarm.set_state("OFFLINE", 0)
        async with world(tmp_path, swarm, HOLD) as w:
            group = w.state.groups[group_id]
            assert (group.phase, group.source) == ("ABORTED", "")
            assert not swarm.ends
            result = cause_of(w.state.alerts["recovered:s"])
            assert "1 vote is lost, the server no longer holds the episodes" in result
            assert f"ada on {group_id}" in result
            assert "(ranking 3 1 2 4)" in result
