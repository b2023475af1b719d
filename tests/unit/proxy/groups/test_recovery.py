"""A proxy that was killed or stopped, and the next one on the same journal."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ajet_swarm.episodes.ends
import proxy.servers.facts
from core.events import (
    ClaimedEpisode,
    ClaimIntended,
    EpisodesClaimed,
    GroupOpened,
    GroupSealed,
    SentReward,
)
from core.state import Group
from proxy.groups.recovery import KEY, alert_waited, store_waited, unrated
from tests.support.alerts import cause_of
from tests.support.capped_clock import loop_time
from tests.support.proxy.singles import EpisodeEnded
from tests.support.proxy.world import FAST, World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow


HOLD = settings(rating={"mode": "hold"})


ME = {"client_uuid": "me", "episode_type": "train", "discard_episode_timeout": 240}


@pytest.fixture
async def swarm() -> AsyncIterator[ScriptedSwarm]:
    async with ScriptedSwarm(automatic=False) as made:
        yield made


def lost(w: World) -> str:
    """The messages to the operator."""
    alert = w.state.alerts["recovered:s"]
    assert alert.level == "warning"
    return cause_of(alert)


async def killed_in(tmp_path: Path, swarm: ScriptedSwarm, phase: str) -> str:
    """Start a proxy, run a group until `phase`, kill the proxy; returns the group's id."""
    chosen = HOLD if phase == "AWAITING_RATING" else settings()
    async with world(tmp_path, swarm, chosen) as w:
        if phase in ("CLAIMING", "GENERATING"):
            swarm.delay = 30.0
        if phase == "CLAIMING":
            swarm.fail_next("/claim_episode", "hang_before")
        if phase == "SUBMITTING":
            swarm.fail_always("/end_episode", "hang_before")
        ticket = await w.ask()
        if phase == "CLAIMING":
            await w.until(lambda: len(swarm.claims) == 3)
            await w.until(
                lambda: (
                    sum(candidate.phase == "claimed" for candidate in w.group(ticket).candidates)
                    == 3
                )
            )
        else:
            await w.open(phase)
        await w.context.journal.durable(w.state.seq)
        w.kill()
        group_id = ticket.group_id
    swarm.fail_always("/end_episode", None)
    swarm.delay = 0.0
    return group_id


@pytest.mark.parametrize("phase", ["CLAIMING", "GENERATING", "AWAITING_RATING"])
async def test_a_group_that_was_not_sealed_is_aborted(
    tmp_path: Path, swarm: ScriptedSwarm, phase: str
) -> None:
    group_id = await killed_in(tmp_path, swarm, phase)
    assert swarm.claimed()
    async with world(tmp_path, swarm, recover=False) as w:
        assert w.state.groups[group_id].open
        await w.groups.recover()
        group: Group = w.state.groups[group_id]
        assert (group.phase, group.cause) == ("ABORTED", "the proxy ended")
        await w.until(lambda: not swarm.claimed())
        assert not swarm.ends
        assert (await w.reply(await w.ask("next"))).answer is not None
        await w.closed()


async def test_sealed_rewards_are_sent_exactly_once(tmp_path: Path, swarm: ScriptedSwarm) -> None:
    group_id = await killed_in(tmp_path, swarm, "SUBMITTING")
    async with world(tmp_path, swarm) as w:
        group: Group = w.state.groups[group_id]
        assert (group.phase, group.cause) == ("DONE", "the proxy ended")
        assert [candidate.phase for candidate in group.candidates] == ["ended"] * 4
        assert sorted(swarm.rewards.values()) == [0.0, 0.1, 0.2, 0.3]
        assert {task for _, task, _ in swarm.reward_log} == {group.task_id}
        assert not swarm.claimed()
        assert "4 finished and sent now" in lost(w)
        await w.groups.recover()
    async with world(tmp_path, swarm) as w:
        assert not w.kinds(EpisodeEnded)
        assert "recovered:s" not in w.state.alerts
    assert len(swarm.ends) == 4
    assert swarm.duplicate_ends == 0


async def test_claims_missing_from_the_journal_are_returned(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    for client in ("me", "me", "somebody else"):
        swarm.claim(
            {"client_uuid": client, "episode_type": "train", "discard_episode_timeout": 240}
        )
    async with world(tmp_path, swarm) as w:
        await w.until(lambda: len(swarm.claimed()) == 1)
        assert swarm.claimed()[0].client == "somebody else"


async def test_a_server_that_does_not_answer_is_cleaned_up_when_it_does(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    group_id = await killed_in(tmp_path, swarm, "SUBMITTING")
    async with world(tmp_path, swarm, recover=False) as w:
        w.line.cut = True
        await w.until(lambda: not w.server.watcher.current.reachable)
        began = loop_time()
        await w.groups.recover()
        assert loop_time() - began < 0.4  # the start is not held up
        assert w.state.groups[group_id].open  # still known
        w.line.cut = False
        await w.until(lambda: w.state.groups[group_id].phase == "DONE")
        assert len(swarm.reward_log) == 4
        assert not swarm.claimed()


async def test_recovery_sends_no_rewards_to_a_restarted_engine(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    group_id = await killed_in(tmp_path, swarm, "SUBMITTING")
    swarm.set_state("OFFLINE", 0)
    async with world(tmp_path, swarm) as w:
        group = w.state.groups[group_id]
        assert not group.open
        assert not swarm.reward_log
        assert {candidate.phase for candidate in group.candidates} == {"unknown"}


async def test_requests_are_accepted_at_once_and_only_claims_wait(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    """The server does not report our claims."""
    await killed_in(tmp_path, swarm, "GENERATING")
    claims = len(swarm.claims)
    swarm.fail_always("/get_episode_buffer", "stall")
    async with world(tmp_path, swarm, recover=False, limits={**FAST, "recover": 0.1}) as w:
        began = loop_time()
        await w.groups.recover()
        assert loop_time() - began < 1.0
        ticket = await w.ask()
        await w.server.watcher.refresh(5)
        await w.server.watcher.refresh(5)
        assert w.groups.server_facts["s"].recovering
        assert w.groups.waiting == 1
        assert len(swarm.claims) == claims
        swarm.fail_always("/get_episode_buffer", None)
        swarm.release()
        assert (await w.reply(ticket)).answers
        await w.until(lambda: not w.groups.server_facts["s"].recovering)


async def test_claims_wait_for_the_recovery_for_a_bounded_time(
    tmp_path: Path, swarm: ScriptedSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.servers.facts, "CLEAN_UP", 0.1)
    await killed_in(tmp_path, swarm, "GENERATING")
    swarm.fail_always("/get_episode_buffer", 500)
    async with world(tmp_path, swarm, recover=False, limits={**FAST, "recover": 0.1}) as w:
        await w.groups.recover()
        ticket = await w.ask()
        assert (await w.reply(ticket)).answers
        assert w.groups.server_facts["s"].recovering
        monkeypatch.setattr(proxy.servers.facts, "CLEAN_UP", 60.0)  # no other request waits
        assert (await w.reply(await w.ask("again"))).answers
        await w.closed()
        swarm.fail_always("/get_episode_buffer", None)
        await w.until(lambda: not w.groups.server_facts["s"].recovering)


async def test_recovery_works_after_two_kills_in_a_row(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    first = await killed_in(tmp_path, swarm, "GENERATING")
    async with world(tmp_path, swarm, recover=False) as w:
        w.kill()
    async with world(tmp_path, swarm) as w:
        assert w.state.groups[first].cause == "the proxy ended"
        await w.until(lambda: not swarm.claimed())


async def test_recovery_works_after_a_kill_between_intent_and_claim(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    swarm.fail_always("/claim_episode", "hang_before")
    async with world(tmp_path, swarm) as w:
        ticket = await w.ask()
        await w.until(lambda: swarm.requests["/claim_episode"] == 4)
        assert w.kinds(ClaimIntended)
        w.kill()
    swarm.fail_always("/claim_episode", None)
    async with world(tmp_path, swarm) as w:
        group = w.state.groups[ticket.group_id]
        assert (group.phase, group.cause) == ("ABORTED", "the proxy ended")
        assert "1 group was open on s; they held no episode" in lost(w)
        assert not swarm.claims


async def test_recovery_returns_a_claim_not_recorded_before_the_kill(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    """The server has claimed; no answer arrived, so the journal has the intent only."""
    swarm.fail_always("/claim_episode", "hang")
    async with world(tmp_path, swarm) as w:
        ticket = await w.ask()
        await w.until(lambda: len(swarm.claims) == 4)
        w.kill()
    swarm.fail_always("/claim_episode", None)
    assert len(swarm.claimed()) == 4
    async with world(tmp_path, swarm) as w:
        await w.until(lambda: not swarm.claimed())
        assert w.state.groups[ticket.group_id].phase == "ABORTED"
        assert "4 claimed and not yet noted in the journal, given back" in lost(w)
        assert not swarm.ends


async def test_claims_that_a_frozen_server_makes_later_are_returned_too(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    async with world(tmp_path, swarm) as w:
        swarm.fail_next("/claim_episode", "stall", 4)
        await w.ask()
        await w.until(lambda: swarm.requests["/claim_episode"] == 4)
        w.kill()
    async with world(tmp_path, swarm, recover=False) as w:
        w.server.claimer.ends.search_again = 0.3
        await w.groups.recover()
        assert not swarm.claims
        swarm.release()
        await w.until(lambda: len(swarm.claims) == 4)
        await w.until(lambda: not swarm.claimed())


@pytest.mark.parametrize("noted", [True, False])
async def test_recovery_sends_the_other_rewards_after_a_kill_amid_the_ends(
    tmp_path: Path, swarm: ScriptedSwarm, noted: bool
) -> None:
    async with world(tmp_path, swarm) as w:
        swarm.fail_next("/end_episode", "as usual" if noted else "hang", 2)
        swarm.fail_next("/end_episode", "hang_before", 2)
        ticket = await w.ask()
        await w.until(lambda: swarm.requests["/end_episode"] == 4)
        await w.until(lambda: len(w.kinds(EpisodeEnded)) == 2 * noted)
        await w.context.journal.durable(w.state.seq)
        w.kill()
    assert len(swarm.claimed()) == 2
    async with world(tmp_path, swarm) as w:
        group = w.state.groups[ticket.group_id]
        assert group.phase == "DONE"
        first = "ended" if noted else "unknown"
        assert sorted(candidate.phase for candidate in group.candidates) == sorted(
            ["ended"] * 2 + [first] * 2
        )
        assert sorted(swarm.rewards.values()) == [0.0, 0.1, 0.2, 0.3]
        assert len(swarm.ends) == 4
        assert swarm.duplicate_ends == 0
        assert not swarm.claimed()
        assert "2 finished and sent now" in lost(w)
        assert ("2 finished, perhaps sent before, not confirmed" in lost(w)) is not noted


async def test_an_episode_that_another_client_holds_is_left_alone(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    group_id = await killed_in(tmp_path, swarm, "SUBMITTING")
    for uuid in [one.uuid for one in swarm.claimed()]:
        swarm.expire(uuid)
    while swarm.unclaimed:
        swarm.claim({**ME, "client_uuid": "somebody else"})
    async with world(tmp_path, swarm) as w:
        assert {candidate.phase for candidate in w.state.groups[group_id].candidates} == {"unknown"}
        assert "4 finished, perhaps sent before, not confirmed" in lost(w)
        assert not swarm.ends
        assert not swarm.aborts


async def test_an_episode_claimed_by_a_later_group_is_left_to_that_group(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    """The first group's reward must not end the second one's episode."""
    uuid = swarm.claim(ME)["episode_uuid"]
    async with world(tmp_path, swarm) as w:
        for name in ("first", "second"):
            w.context.bus.publish(
                GroupOpened(
                    server="s",
                    group_id=name,
                    n=1,
                    request_id=name,
                    task_id=f"{name}#1",
                    query="",
                    body={},
                )
            )
            w.context.bus.publish(
                EpisodesClaimed(server="s", group_id=name, episodes=(ClaimedEpisode(0, uuid),))
            )
            reward = SentReward(index=0, reward=0.5, advantage=0.0)
            if name == "first":
                w.context.bus.publish(
                    GroupSealed(server="s", group_id=name, rewards=(reward,), best=0, source="auto")
                )
        await w.context.journal.durable(w.state.seq)
        w.kill()
    async with world(tmp_path, swarm) as w:
        await w.until(lambda: not swarm.claimed())
        assert not swarm.ends
        phases = {group.group_id: group.candidates[0].phase for group in w.state.groups.values()}
        assert phases == {"first": "unknown", "second": "aborted"}


async def test_recovery_repeats_no_end_for_an_episode_of_a_new_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.servers.facts, "CLEAN_UP", 0.1)
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0, 0.0))
    async with ScriptedSwarm(slots=1, repeat=1, automatic=False) as swarm:
        old = await killed_in(tmp_path, swarm, "SUBMITTING")
        swarm.fail_next("/end_episode", "drop")
        async with world(tmp_path, swarm, recover=False, limits={**FAST, "recover": 0.1}) as w:
            before = swarm.requests["/get_episode_buffer"]
            swarm.fail_next("/get_episode_buffer", "as usual")
            swarm.fail_next("/get_episode_buffer", "stall")
            await w.groups.recover()
            await w.until(lambda: swarm.requests["/get_episode_buffer"] == before + 2)
            swarm.expire(swarm.claimed()[0].uuid)
            swarm.delay = 30.0
            ticket = await w.ask("next")
            await w.until(lambda: len(swarm.chats) == 2)
            swarm.release()
            await w.until(lambda: not w.state.groups[old].open)
            assert w.state.groups[old].candidates[0].phase == "expired"
            assert not swarm.reward_log
            assert not swarm.aborts
            assert swarm.claimed()
            ticket.leave()
            await w.closed()


async def test_groups_of_a_removed_server_are_named_in_an_alert(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    await killed_in(tmp_path, swarm, "SUBMITTING")
    async with world(tmp_path, swarm, recover=False) as w:
        w.line.cut = True
        await w.groups.recover()
        assert "stay open until it does" in lost(w)
        w.line.cut = False
        await w.until(lambda: "4 finished and sent now" in lost(w))


OFF = settings()


async def test_a_switched_rating_mode_lasts_until_the_setting_changes(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    async with world(tmp_path, swarm, OFF) as w:
        assert w.state.rating_mode == "off"
        await w.commands.set_mode("answer_first")
        await w.ask()
        await w.open("AWAITING_RATING")
        await w.context.journal.durable(w.state.seq)
        w.kill()
    async with world(tmp_path, swarm, OFF) as w:
        assert w.state.rating_mode == "answer_first"
        assert "1 group was open (1 waiting for a rating)" in cause_of(
            w.state.alerts["recovered:s"]
        )
        await w.commands.set_mode("off")
    for configured, value in ((OFF, "off"), (HOLD, "hold"), (HOLD, "hold"), (OFF, "off")):
        async with world(tmp_path, swarm, configured) as w:
            assert w.state.rating_mode == value


async def test_the_next_start_reports_once_what_happened_to_waiting_groups(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    async with world(tmp_path, swarm, HOLD) as w:
        tickets = [await w.ask(text) for text in ("one", "two")]
        await w.until(lambda: len(unrated(w.state)) == 2)
        waited = unrated(w.state)
        await w.commands.rate(tickets[0].group_id, "tie")
        assert len(unrated(w.state)) == 1
        await w.groups.drain(0.0)
        store_waited(w.context, waited)
    async with world(tmp_path, swarm, HOLD) as w:
        alert_waited(w.context)
        assert w.state.alerts[KEY].level == "info"
        assert cause_of(w.state.alerts[KEY]) == (
            "2 groups waited for a rating when the proxy was stopped: "
            "1 rated in time, 1 sent with the automatic reward"
        )
    async with world(tmp_path, swarm, HOLD) as w:
        alert_waited(w.context)
        assert KEY not in w.state.alerts
