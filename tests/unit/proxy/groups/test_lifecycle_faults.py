"""Candidates that fail and rewards that do not come."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from core.events import CandidateFailed, GroupSealed, ScoringAbstained
from core.journal.file import JournalError
from proxy.rewards.source import GroupContext
from tests.support.capped_clock import skip
from tests.support.proxy.builtin_rewards import score_group
from tests.support.proxy.world import World, sent, settings, texts, world
from tests.support.scripted.chat import completion
from tests.support.scripted.swarm import Denied

pytestmark = pytest.mark.slow

OVERFLOW = "AgentJet: Exceeded max model context length."


# --- 3: candidates that fail --------------------------------------------------------------------


async def builtin(ctx: GroupContext) -> list[float]:
    """Rewards of the built-in model."""
    return [one.reward for one in score_group(ctx)]


def ended(text: str | None, reason: str | None, **message: Any) -> dict[str, Any]:
    """A completion with this text and finish reason."""
    result = completion({"content": text, **message})
    result["choices"][0]["finish_reason"] = reason
    return result


@pytest.mark.parametrize(
    "fault",
    [
        ended("", None),
        ended("  ", ""),
        ended(None, "abort"),
        RuntimeError("worker"),
        OVERFLOW + " cut",
    ],
)
async def test_a_failed_candidate_gets_a_fresh_episode(w: World, fault: Any) -> None:
    w.swarm.answer = texts(fault, "a good answer")
    group, _ = await w.complete()
    (failed,) = w.kinds(CandidateFailed)
    assert failed.retried
    assert len(w.swarm.claims) == 5
    assert len(w.swarm.ends) == 4
    assert len(w.swarm.aborts) == 1
    assert group.phase == "DONE"
    assert group.candidates[failed.index].attempt == 2


@pytest.mark.parametrize(
    "empty",
    [
        ended(None, "stop"),
        ended("", "length"),
        ended(" \n", "stop"),
        ended(None, "length", reasoning="\nThe user wants"),
    ],
)
async def test_empty_answers_are_answered_and_trained_on(w: World, empty: dict[str, Any]) -> None:
    w.source.scorer = builtin
    w.swarm.answer = texts(empty)
    group, reply = await w.complete()
    assert reply.error is None
    assert reply.answer.finish_reason == empty["choices"][0]["finish_reason"]
    assert not w.kinds(CandidateFailed)
    assert len(w.swarm.claims) == len(w.swarm.ends) == 4
    (sealed,) = w.kinds(GroupSealed)
    assert [reward.reward for reward in sealed.rewards] == [0.0] * 4
    assert group.phase == "DONE"


async def test_an_empty_answer_gets_the_lowest_of_the_built_in_rewards(w: World) -> None:
    w.source.scorer = builtin
    w.swarm.answer = texts(ended(None, "stop"), "a poor answer")
    group, reply = await w.complete()
    (sealed,) = w.kinds(GroupSealed)
    rewards = {reward.index: reward.reward for reward in sealed.rewards}
    blank = [candidate.index for candidate in group.candidates if not candidate.text]
    assert len(blank) == 1
    assert (
        rewards[blank[0]] == 0.0 < min(rewards[reward] for reward in rewards if reward not in blank)
    )
    assert reply.answer.text == "a poor answer"


async def test_without_rewards_an_empty_answer_is_returned_only_when_all_are(w: World) -> None:
    w.source.abstains = "the judge is down"
    w.swarm.answer = texts(ended(None, "stop"), ended(None, "stop"), "a poor answer")
    reply = await w.reply(await w.ask())
    assert reply.answer.text == "a poor answer"
    await w.closed()


async def test_no_fresh_episode_is_waited_for_in_rolling_post(w: World) -> None:
    gate = w.hold(0, then=RuntimeError("broken"))
    ticket = await w.ask()
    await w.answered(ticket, 3)
    await w.knows("ROLLING_POST")
    gate.set()
    await w.reply(ticket)
    await w.closed()
    assert [event.retried for event in w.kinds(CandidateFailed)] == [False]
    assert len(w.swarm.claims) == 4
    assert len(w.swarm.ends) == 3
    assert w.group(ticket).phase == "DONE"
    assert "(not retried: the engine is ROLLING_POST)" in w.group(ticket).cause


@pytest.mark.parametrize(("rule", "ends"), [("send", 3), ("abort", 0)])
async def test_a_short_group_is_trained_on_or_aborted_by_the_setting(
    tmp_path: Path, rule: str, ends: int
) -> None:
    chosen = settings(rewards={"short_group": rule, "retries": 0})
    async with world(tmp_path, configured=chosen) as w:
        w.swarm.answer = texts(RuntimeError("broken"), "fine")
        group, reply = await w.complete()
        assert reply.answer is not None
        assert len(w.swarm.ends) == ends
        assert group.phase == ("DONE" if ends else "ABORTED")
        assert group.cause == (
            "short: 3 of 4 candidates answered; candidate 1 failed: Internal Server Error "
            "(not retried: retries are off)"
        )
        assert not w.swarm.claimed()


@pytest.mark.world(settings(rewards={"retries": 0}))
async def test_one_lone_answer_is_returned_and_not_trained_on(w: World) -> None:
    broken = RuntimeError("broken")
    w.swarm.answer = texts(broken, broken, broken, "fine")
    group, reply = await w.complete()
    assert reply.why == "only"
    assert group.cause == (
        "short: 1 of 4 candidates answered; candidates 1, 2, 3 failed: Internal Server Error "
        "(not retried: retries are off)"
    )
    assert not w.swarm.ends


@pytest.mark.parametrize(
    ("fault", "status"), [(RuntimeError("x"), 503), (OVERFLOW, 400), (Denied(404, "gone"), 503)]
)
@pytest.mark.world(settings(rewards={"retries": 1}))
async def test_a_group_without_any_answer_fails(w: World, fault: Any, status: int) -> None:
    w.swarm.answer = texts(fault)
    group, reply = await w.complete()
    assert reply.error.status == status
    assert group.phase == "FAILED"
    assert not w.swarm.ends


@pytest.mark.world(
    settings(
        proxy={"straggler_after": 0.0, "straggler_limit": 0.0}, rating={"discard_timeout": 60.0}
    )
)
async def test_a_straggler_is_cut_off_before_the_others_expire(w: World) -> None:
    w.hold(0)
    ticket = await w.ask()
    await w.answered(ticket, 3)
    skip(55.0)
    assert (await w.reply(ticket, 2.0)).why == "winner"
    await w.closed()
    (failed,) = w.kinds(CandidateFailed)
    assert failed.cause == "timed_out: too late for its group"
    assert (failed.failure, failed.failure_text) == ("timed_out", "too late for its group")
    assert len(w.swarm.ends) == 3
    assert w.group(ticket).phase == "DONE"


@pytest.mark.world(automatic=False)
async def test_an_engine_that_starts_a_new_batch_restarts_the_group(w: World) -> None:
    w.swarm.delay = 30.0
    ticket = await w.ask()
    await w.until(lambda: len(w.swarm.chats) == 4)
    w.swarm.delay = 0.0
    w.swarm.set_state("WEIGHT_SYNCING")
    await w.until(lambda: len(w.kinds(CandidateFailed)) == 4)
    await w.until(lambda: w.groups.waiting == 1)  # a retry may have been on its way
    w.swarm.set_state("ROLLING", 2)
    assert (await w.reply(ticket)).index == 3
    await w.closed()
    assert w.group(ticket).phase == "DONE"
    assert not w.swarm.aborts  # they were not ours any more
    assert len(sent(w.swarm)[w.group(ticket).task_id]) == 4


async def test_no_reward_is_sent_before_all_answers_are_scored(w: World) -> None:
    gate = asyncio.Event()

    async def scorer(ctx: GroupContext) -> list[float]:
        await gate.wait()
        return [1.0, 0.0, 0.0, 0.0]

    w.source.scorer = scorer
    ticket = await w.ask()
    await w.until(lambda: w.source.contexts)
    await asyncio.sleep(0.03)
    assert not w.swarm.ends
    gate.set()
    assert (await w.reply(ticket)).index == 0
    await w.closed()


# --- 4: a reward is never invented --------------------------------------------------------------


async def _raises(ctx: GroupContext) -> list[float]:
    raise ValueError("no taste")


async def _hangs(ctx: GroupContext) -> list[float]:
    await asyncio.sleep(60)
    return []


async def _not_a_number(ctx: GroupContext) -> list[float]:
    return [float("nan")] * 4


@pytest.mark.parametrize("scorer", [_raises, _hangs, _not_a_number])
@pytest.mark.world(settings(rewards={"time_limit": 0.1}))
async def test_a_failing_source_aborts_the_group_and_the_user_is_answered(
    w: World, scorer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.rewards.source.SLACK", 0.0)
    w.source.scorer = scorer
    group, reply = await w.complete()
    assert (reply.index, reply.why) == (0, "provisional")
    assert w.kinds(ScoringAbstained)
    assert group.phase == "ABORTED"
    assert group.cause.startswith("unscored: no console is attached; ")
    assert group.cause_kind == "not_scored"
    assert group.cause.endswith(group.abstained)
    assert not w.swarm.ends


async def test_an_unscored_group_waits_for_the_operator(w: World) -> None:
    w.console()
    w.source.abstains = "the judge is down"
    ticket = await w.ask()
    assert (await w.reply(ticket)).why == "provisional"
    group = await w.open("AWAITING_RATING")
    assert (group.awaiting, group.fallback) == ("abstained", "abort")
    assert group.traceback == "line 1"
    with pytest.raises(AjetError, match="no automatic reward"):
        await w.commands.accept(group.group_id)
    await w.commands.rate(group.group_id[:6], "best", (2,), (), "me")
    await w.commands.accept(group.group_id)
    await w.closed()
    assert (group.source, group.best, group.returned) == ("human", 2, 0)
    assert sorted(w.swarm.rewards.values()) == [0.0, 0.0, 0.0, 1.0]


async def test_without_a_journal_the_user_is_answered_and_nothing_is_trained_on(w: World) -> None:
    w.context.journal.error = "disk full"
    _, reply = await w.complete()
    assert reply.answer is not None
    assert not w.swarm.ends
    assert "journal" in w.state.alerts


async def test_a_journal_failure_before_the_seal_aborts_the_group(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = w.context.bus.publish_durable

    async def breaking(event: Any) -> int:
        if isinstance(event, GroupSealed):
            w.context.bus.publish(event)
            w.context.journal.error = "disk full"
            raise JournalError("disk full")
        return await durable(event)

    monkeypatch.setattr(w.context.bus, "publish_durable", breaking)
    group, reply = await w.complete()
    assert reply.why == "winner"
    assert not w.swarm.ends
    assert group.phase == "ABORTED"
    assert "journal" in w.state.alerts
