"""When a scored group is sealed: the wait for the operator, and the event that fixes the rewards.

The task of a group waits in `Sealing.decided`. Whenever something changes (a vote, the engine, the
rating mode, a console, a user who waits), `run.wake` is set and `seal_policy.decide` is asked again
with the new `Situation`. It says `Wait` until a time, `Seal` or `Drop`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Container, Sequence

from core.events import GroupSealed, RatingAwaited, SentReward
from core.scoring.advantage import advantages, lacks_signal, spread
from core.state import Group
from proxy.groups.gate import GivingWay, capacity_of
from proxy.groups.rating import rate_with, waits_for_decision
from proxy.groups.run import Run
from proxy.groups.score import carry_out
from proxy.groups.seal_policy import Decision, Drop, Seal, Situation, Wait, decide, seals_at_once
from proxy.servers.facts import ROLLING, ROLLING_POST, has_lost_all


class Sealing:
    """Decides when groups are sealed; one object for all groups.

    Args:
        draining: Returns whether new requests are refused.
        closing: Returns whether groups no longer wait for the operator.
        attended_until: Returns until when an operator is assumed to be at a console.

    Attributes:
        giving_way: Which groups end because a user's request waits.
    """

    def __init__(
        self,
        *,
        draining: Callable[[], bool],
        closing: Callable[[], bool],
        attended_until: Callable[[], float],
    ) -> None:
        self._draining = draining
        self._closing = closing
        self._attended_until = attended_until
        self.giving_way = GivingWay()

    async def decided(self, run: Run) -> Seal | Drop:
        """Wait for the operator as long as the rules allow; return what to do with the group."""
        published: tuple[float, str, str, float] | None = None
        try:
            while True:
                run.wake.clear()
                if run.refill is not None:
                    await carry_out(run)
                    published = None
                now = run.context.clock()
                decision = self._decision(run, now)
                if isinstance(decision, Seal | Drop):
                    return decision
                run.phase = "AWAITING_RATING"
                shown = (decision.until, decision.fallback, decision.why, run.votes.kept_until)
                if shown != published:
                    published = shown
                    self._publish_wait(run, decision)
                with (
                    run.facts.window(run.wake),
                    self.giving_way.open(run),
                    contextlib.suppress(TimeoutError),
                ):
                    async with asyncio.timeout(max(decision.wake - now, 0.001)):
                        await run.wake.wait()
        finally:
            run.facts.unscored.pop(run.group_id, None)

    def _decision(self, run: Run, now: float) -> Decision:
        """Return what the rules say now; the votes so far are the rating if they are sent."""
        state = run.context.bus.state
        if seals_at_once(
            mode=state.rating_mode,
            consoles=state.consoles,
            scored=run.scores.sheet is not None,
            voted=bool(run.votes.ballots),
            gone=has_lost_all(run.facts.server.watcher.current),
        ):
            return Seal("auto")
        decision = decide(self._situation(run, now))
        if decision == Seal("human") and run.votes.rating is None:
            rate_with(run, run.votes.ballots)
        return decision

    def _publish_wait(self, run: Run, decision: Wait) -> None:
        run.context.bus.publish(
            RatingAwaited(
                server=run.facts.server.name,
                group_id=run.group_id,
                until=decision.until,
                fallback=decision.fallback,
                why=decision.why,
                overlap=run.votes.needed,
                spared=run.votes.kept_until,
            )
        )

    def _situation(self, run: Run, now: float) -> Situation:
        state, settings = run.context.bus.state, run.context.settings.rating
        status, votes = run.facts.server.watcher.current, run.votes
        return Situation(
            now=now,
            mode=state.rating_mode,
            consoles=state.consoles,
            attended_until=self._attended_until(),
            rolling=status.is_in(ROLLING) and not self._draining(),
            contended=run.facts.contended,
            gone=has_lost_all(status),
            closing=self._closing(),
            scored=run.scores.sheet is not None,
            scored_at=run.scores.at,
            clock=run.slots.clock,
            window=settings.window,
            fallback=settings.fallback,
            rated_at=votes.rating.at if votes.rating is not None else None,
            first_rated_at=votes.first_at,
            skip=_only_skips(run),
            disputed=settings.disagreements == "wait" and waits_for_decision(run),
            voted_at=votes.ballots[-1].at if votes.ballots else None,
            accepted=votes.accepted,
            over_half=self._count_unscored(run),
            gives_way=run.votes.gives_way,
            blocks_update=status.is_in(ROLLING_POST),
        )

    def _count_unscored(self, run: Run) -> bool:
        """Count an unscored group in `ServerFacts.unscored`, unless unscored groups would then hold
        more than half of the pool; return whether they would.

        In a rating mode one is always allowed: the operator needs something to rate where one group
        is the whole pool.
        """
        unscored = run.facts.unscored
        unscored.pop(run.group_id, None)
        if run.scores.sheet is not None or run.votes.ballots:
            return False
        others = sum(unscored.values())
        room = capacity_of(run.facts.server)
        held = len(run.slots.held)
        rates = others == 0 and run.context.bus.state.rating_mode != "off"
        if room is not None and 2 * (others + held) > room and not rates:
            return True
        unscored[run.group_id] = held
        return False


def _only_skips(run: Run) -> bool:
    """Return whether the rating, or each vote on a group that lacks votes, is a skip."""
    votes = [run.votes.rating] if run.votes.rating is not None else run.votes.ballots
    return bool(votes) and all(vote.rating == "skip" for vote in votes)


# --- the rewards ---------------------------------------------------------------------------------


def sealed(
    server: str,
    group_id: str,
    values: Sequence[tuple[int, float]],
    best: int,
    source: str,
    damping: float,
    version: str,
    unrated: bool = False,
) -> GroupSealed:
    """Return the event that fixes the rewards of a group; see `GroupSealed`.

    Args:
        server: Server of the group.
        group_id: Its id.
        values: Index and reward of each candidate.
        best: Index of the best one.
        source: human or auto.
        damping: Term that the engine adds to the standard deviation of the rewards.
        version: Version of the automatic rewards.
        unrated: Whether nobody rated or accepted it in a rating mode.
    """
    rewards = [reward for _, reward in values]
    return GroupSealed(
        server=server,
        group_id=group_id,
        rewards=tuple(
            [
                SentReward(index=index, reward=reward, advantage=advantage)
                for (index, reward), advantage in zip(
                    values, advantages(rewards, damping), strict=True
                )
            ]
        ),
        best=best,
        source=source,
        dead=lacks_signal(rewards, damping),
        spread=spread(rewards),
        version=version,
        unrated=unrated,
    )


def sealed_by_vote(group: Group, held: Container[str]) -> GroupSealed | None:
    """Return the event that fixes the rewards of the committed vote of a group, from state alone.

    Args:
        group: Not sealed.
        held: Episodes that can still be ended.

    Returns:
        None if no vote gives rewards, or one of its episodes cannot be ended.
    """
    answered = [candidate for candidate in group.candidates if candidate.phase == "answered"]
    rewards = group.rating.rewards if group.rating is not None else ()
    if not rewards or len(rewards) != len(answered):
        return None
    if any(candidate.episode_uuid not in held for candidate in answered):
        return None
    values = [
        (candidate.index, reward) for candidate, reward in zip(answered, rewards, strict=True)
    ]
    best = max(values, key=lambda value: (value[1], -value[0]))[0]
    return sealed(group.server, group.group_id, values, best, "human", group.damping, group.version)
