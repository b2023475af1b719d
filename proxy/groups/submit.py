"""Rewards and returns of one group: what is sent to the server, and what the journal says of it.

How an episode is ended or returned, once, is said in `ajet_swarm.episodes.ends`. Before an end the
caller has made the reward durable, see `Lifecycle`.
"""

from collections.abc import Iterable

from ajet_swarm.api.outcomes import EndKind, EndOutcome
from ajet_swarm.common.tasks import run_all
from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.protocol.schemas import WireOutput
from core.events import EndedEpisode, EpisodeAborted
from proxy.groups.run import Candidate, Run

ACCEPTED = frozenset({"ended", "recorded"})
"""Outcomes of a reward that the server has accepted."""

_OUTCOMES = dict.fromkeys(EndKind, "refused") | {
    EndKind.ENDED: "ended",
    EndKind.RECORDED: "recorded",
    EndKind.NOT_CLAIMED: "expired",
    EndKind.OTHER_CLIENT: "expired",
    EndKind.EXPIRED: "expired",
    EndKind.UNKNOWN_OUTCOME: "unknown",
}


def named(outcome: EndOutcome) -> tuple[str, str]:
    """Return the outcome of an end as in `EndedEpisode`, and its reason as text."""
    name = _OUTCOMES[outcome.kind]
    if name in ACCEPTED:
        return name, ""
    never = "never sent: " if outcome.kind is EndKind.UNREACHABLE else ""
    return name, never + outcome.text


async def submit(run: Run, rewards: dict[int, float]) -> list[str]:
    """Send the sealed rewards, all at once.

    Returns:
        One outcome for each reward, as in `EndedEpisode`.
    """
    return await run_all(
        *[_end(run, candidate, rewards[candidate.index]) for candidate in run.slots.usable]
    )


async def _end(run: Run, candidate: Candidate, reward: float) -> str:
    output = WireOutput(reward=reward, metadata=run.task.metadata)
    ends = run.facts.server.claimer.ends
    outcome, text = named(await ends.end(_holding(run, candidate), run.task.id, output))
    run.events.add(EndedEpisode(candidate.index, outcome, text))
    run.slots.release(candidate)
    return outcome


async def release(run: Run, candidates: Iterable[Candidate], reason: str) -> None:
    """Return the episodes of these candidates; one whose end is in flight is left to that end."""
    run.events.flush()
    holding = [candidate for candidate in candidates if candidate.uuid]
    server = run.facts.server
    away = server.claimer.ends.server_is_away
    holdings = [_holding(run, candidate) for candidate in holding]
    returned = await server.claimer.ends.abort(holdings, reason)
    for candidate in holding:
        uuid, why = candidate.uuid, ""
        if candidate.ending:
            why = " (its end may have arrived)"
        elif away:
            why = " (the server is not there)"
        elif uuid not in returned:
            why = " (the server had taken it back)"
        run.slots.release(candidate)
        run.context.bus.publish(
            EpisodeAborted(
                server=server.name,
                group_id=run.group_id,
                index=candidate.index,
                episode_uuid=uuid,
                reason=reason + why,
            )
        )


def _holding(run: Run, candidate: Candidate) -> Holding:
    """Return the holding of a candidate, with what the group knows of its calls."""
    holding = candidate.holding
    assert holding is not None
    holding.doubtful = candidate.lost
    holding.lifetime = 2 * run.slots.discard_timeout
    if candidate.active_at:
        holding.active_after = candidate.active_at - holding.claimed_on_wall
    return holding
