"""Episodes that a group gives back while it claims, and the next client that gets them."""

from pathlib import Path
from typing import Any

import pytest

import ajet_swarm.episodes.claim
from core.events import ClaimsReturned, GroupClosed
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

THEIRS = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 240}


class HungrySwarm(ScriptedSwarm):
    """A server with another client, which claims each episode the moment it is free."""

    hungry = False

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.owners: list[str] = []
        """The owner of each aborted episode at the time of the abort, since `hungry`."""

    def abort(self, body: dict[str, Any]) -> dict[str, Any]:
        episode = self.episodes.get(body["episode_uuid"])
        if self.hungry:
            self.owners.append(episode.client if episode is not None else "gone")
        answer = super().abort(body)
        while self.hungry and self.unclaimed:
            self.claim(THEIRS)
        return answer


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP_AFTER", 0.0)
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP", (20.0, 20.0))


def gathered(w: World) -> bool:
    """Whether the group holds three episodes in a window."""
    (group,) = w.state.open_groups()
    return (
        w.server.claimer.keeping
        and sum(bool(candidate.episode_uuid) for candidate in group.candidates) == 3
    )


@pytest.mark.parametrize("end", ["leave", "deadline"])
async def test_a_group_that_gathers_gives_back_each_episode_once(tmp_path: Path, end: str) -> None:
    seconds = 60.0 if end == "leave" else 0.5
    chosen = settings(proxy={"answer_budget": seconds, "answer_limit": seconds})
    async with HungrySwarm(slots=3) as swarm, world(tmp_path, swarm, chosen) as w:
        ticket = await w.ask()
        await w.until(lambda: gathered(w))
        swarm.hungry = True
        if end == "leave":
            ticket.leave()
        else:
            assert (await w.reply(ticket)).why == "error"
        await w.closed()
        assert await w.server.claimer.ends.tasks.drain(20)
        assert swarm.owners == ["me"] * 3
        assert [one.client for one in swarm.claimed()] == ["other"] * 3
        kinds = [type(kind) for kind in w.kinds(ClaimsReturned, GroupClosed)]
        assert kinds[-2:] == [ClaimsReturned, GroupClosed]


async def test_a_group_with_a_claim_in_flight_gives_back_each_episode_once(tmp_path: Path) -> None:
    async with HungrySwarm(slots=4) as swarm, world(tmp_path, swarm) as w:
        swarm.fail_next("/claim_episode", "late")
        ticket = await w.ask()
        await w.until(
            lambda: (
                sum(bool(candidate.episode_uuid) for candidate in w.group(ticket).candidates) == 3
            )
        )
        swarm.hungry = True
        ticket.leave()
        await w.closed()
        swarm.release()
        assert await w.server.claimer.ends.tasks.drain(20)
        assert swarm.owners == ["me"] * 4
        assert [one.client for one in swarm.claimed()] == ["other"] * 4
