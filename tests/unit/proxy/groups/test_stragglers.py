"""Candidates that are late: the rule for stragglers, hedging, the ledger."""

import asyncio
from pathlib import Path
from typing import Any

from core.events import CandidateFailed, GroupClosed
from tests.support.proxy.world import World, settings, world


def rule(**more: Any) -> Any:
    return settings(proxy={"straggler_after": 0.05, **more}, rewards={"retries": 0})


class Slow:
    """Holds the answers of some episodes back."""

    def __init__(self, w: World, *places: int) -> None:
        self.w, self.places = w, places
        self.gate = asyncio.Event()
        w.swarm.answer = self.answer

    async def answer(self, name: str, body: dict[str, Any], index: int) -> str:
        claims = self.w.swarm.claims
        if any(name == claims[place] for place in self.places if place < len(claims)):
            await self.gate.wait()
        return f"fine {name[:6]}"


async def test_the_user_is_answered_and_the_group_completes(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule()) as w:
        slow = Slow(w, 0)
        ticket = await w.ask()
        reply = await w.reply(ticket)
        assert (reply.index, reply.why) == (1, "provisional")
        assert w.group(ticket).phase == "GENERATING"
        slow.gate.set()
        await w.closed()
        assert len(w.swarm.ends) == 4
        assert not w.kinds(CandidateFailed)


async def test_late_candidates_are_cut_and_the_best_earlier_one_is_the_answer(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, configured=rule(straggler="cut")) as w:
        Slow(w, 0)
        ticket = await w.ask()
        reply = await w.reply(ticket)
        await w.closed()
        assert (reply.index, reply.why) == (3, "winner")
        (failed,) = w.kinds(CandidateFailed)
        assert (failed.index, failed.cause) == (0, "timed_out: no answer 0.05 s after the other 3")
        assert len(w.swarm.ends) == 3
        assert len(w.swarm.aborts) == 1
        assert not w.swarm.claimed()
        assert w.group(ticket).phase == "DONE"


async def test_a_group_with_cut_candidates_counts_as_short(tmp_path: Path) -> None:
    chosen = settings(
        proxy={"straggler_after": 0.05, "straggler": "cut"},
        rewards={"retries": 0, "short_group": "abort"},
    )
    async with world(tmp_path, configured=chosen) as w:
        Slow(w, 0)
        ticket = await w.ask()
        assert (await w.reply(ticket)).answer is not None
        await w.closed()
        assert w.group(ticket).cause == (
            "short: 3 of 4 candidates answered; candidate 1 aborted: no answer 0.05 s after the "
            "other 3 (not retried: its group goes on without it)"
        )
        assert not w.swarm.ends
        assert not w.swarm.claimed()


async def test_no_candidate_is_late_before_the_first_answers(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule(straggler="cut", straggler_after=0.01)) as w:
        slow = Slow(w, 0, 1)
        ticket = await w.ask()
        await w.until(lambda: len([c for c in w.group(ticket).candidates if c.text]) == 2)
        await asyncio.sleep(0.05)
        assert w.group(ticket).phase == "GENERATING"
        slow.gate.set()
        assert (await w.reply(ticket)).why == "winner"
        await w.closed()
        assert len(w.swarm.ends) == 4


async def test_a_held_answer_is_not_given_early(tmp_path: Path) -> None:
    chosen = settings(proxy={"straggler_after": 0.02}, rating={"mode": "hold"})
    async with world(tmp_path, configured=chosen) as w:
        slow = Slow(w, 0)
        ticket = await w.ask()
        await w.until(lambda: len([c for c in w.group(ticket).candidates if c.text]) == 3)
        await asyncio.sleep(0.05)
        assert await ticket.next(0.01) is None
        slow.gate.set()
        group = await w.open("AWAITING_RATING")
        await w.commands.accept(group.group_id)
        assert (await w.reply(ticket)).index == 3
        await w.closed()


async def test_hedging_replaces_a_late_candidate_by_a_fresh_episode(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule(straggler="replace")) as w:
        Slow(w, 0)
        ticket = await w.ask()
        reply = await w.reply(ticket)
        await w.closed()
        assert reply.why == "winner"
        (failed,) = w.kinds(CandidateFailed)
        assert (failed.index, failed.retried) == (0, True)
        assert failed.cause == "timed_out: late: a fresh episode takes its place"
        assert w.group(ticket).candidates[0].attempt == 2
        assert len(w.swarm.ends) == 4
        assert len(w.swarm.claims) == 5
        assert not w.swarm.claimed()


async def test_a_hedged_candidate_can_be_late_too(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule(straggler="replace")) as w:
        slow = Slow(w, 0, 4)
        ticket = await w.ask()
        assert (await w.reply(ticket)).why == "provisional"
        slow.gate.set()
        await w.closed()
        assert [event.retried for event in w.kinds(CandidateFailed)] == [True]
        assert len(w.swarm.ends) == 4
        assert not w.swarm.claimed()


async def test_no_candidate_is_hedged_in_rolling_post(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule(straggler="replace", straggler_after=0.1)) as w:
        Slow(w, 0)
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.chats) == 4)
        w.swarm.set_state("ROLLING_POST")
        await w.until(lambda: w.server.watcher.current.state == "ROLLING_POST")
        assert (await w.reply(ticket)).why == "winner"
        await w.closed()
        (failed,) = w.kinds(CandidateFailed)
        assert not failed.retried  # it was given back: the batch waited for it
        assert len(w.swarm.ends) == 3
        assert not w.swarm.claimed()


async def test_a_stop_while_hedging_ends_the_group(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule(straggler="replace")) as w:
        Slow(w, 0, 4)
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.claims) == 5)
        await w.commands.abort(ticket.group_id)
        await w.closed()
        assert w.group(ticket).phase == "ABORTED"
        assert not w.swarm.claimed()


# --- the ledger ---------------------------------------------------------------------------------


async def test_the_latency_lists_the_time_of_each_phase(tmp_path: Path) -> None:
    async with world(tmp_path, configured=settings(proxy={"keepalive": 0.02})) as w:
        w.swarm.delay = 0.1
        ticket = await w.ask(stream=True)
        while (result := await ticket.next(0.02)) is None:
            ticket.count_keepalive()
        assert result is not None
        await w.closed()
        (closed,) = w.kinds(GroupClosed)
        latency = closed.latency
        phases = ("queue", "claim", "generate", "score", "rate", "submit")
        assert set(latency) == {*phases, "slowest", "answered", "keepalives"}
        assert latency["generate"] >= latency["slowest"] >= 0.1
        assert latency["answered"] >= latency["claim"] + latency["generate"]
        assert latency["keepalives"] == ticket.keepalives > 2


async def test_a_stopped_group_has_the_latency_of_its_phases(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.delay = 30.0
        ticket = await w.ask()
        await w.open("GENERATING")
        await asyncio.sleep(0.03)
        ticket.leave()
        await w.closed()
        (closed,) = w.kinds(GroupClosed)
        assert closed.latency["generate"] >= 0.03
        assert "submit" not in closed.latency
