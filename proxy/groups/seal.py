"""When a scored group is sealed, and with which rewards: pure functions of the situation.

The rules:

- `group.accept` seals at once: with the rating if there is one, else with the automatic reward.
- A rating can be undone for a while. Mode off: 2 s, or until the window ends if that is later, and
  no longer than ROLLING lasts. Rating modes: `rating.window` seconds. A vote that replaces another
  one restarts this time, up to `EXTENSION` times of it after the first vote. It is over at once if
  the group gives way or the proxy stops.
- Mode off without a rating: sealed when the window ends; the window is open only while a console is
  attached, the server is ROLLING and no other request waits for the episodes it holds.
- answer_first and hold: open until the clock of the episodes runs out, then the fallback. A group
  whose user is answered ends earlier if it has to give way to a waiting user, see `claim`:
  with its votes so far, else with the fallback.
- A group without automatic rewards is open to the operator until the clock runs out, then aborted;
  without an operator at a console it is aborted at once. It is also aborted if unscored groups
  would hold more than half of the pool, and in mode off if the weight update waits for its
  episodes.
- With `rating.disagreements: wait`, a group whose raters disagree stays open until a decisive vote
  or the clock (not in mode off); then the mean of the votes is sent.
- With `rating.overlap` above 1, a group that lacks votes stays open until the clock (mode off: for
  the undo time of the newest vote). Then the votes so far are its rating.
- No group stays open after its clock. Nothing can be sent once the engine has wiped its episodes.
"""

from collections.abc import Container, Sequence

import msgspec

from core.events import GroupSealed, SentReward
from core.scoring.advantage import advantages, lacks_signal, spread
from core.state import Group

UNDO = 2.0
"""Seconds in which a rating can be undone in mode off."""


EXTENSION = 3.0
"""Limit of the undo time, counted from the first vote, however often the vote is replaced."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of the decision. Times are Unix seconds."""

    now: float
    mode: str
    """off, answer_first or hold."""
    consoles: int
    """Number of attached consoles."""
    attended_until: float
    """Until then an operator is assumed to be at a console that was detached."""
    rolling: bool
    """The server is ROLLING and no drain is under way."""
    contended: bool
    """Another request waits for its turn or for a free episode."""
    gone: bool
    """The engine has wiped its episodes."""
    closing: bool
    """The proxy is about to stop: groups no longer wait."""
    scored: bool
    scored_at: float
    clock: float
    window: float
    fallback: str
    rated_at: float | None
    first_rated_at: float | None = None
    """When the first vote was cast that later votes replaced; None for `rated_at`."""
    skip: bool
    """The rating, or each of the votes so far, is a skip."""
    voted_at: float | None = None
    """When the newest vote was cast, of a group that lacks votes; None for any other group."""
    accepted: bool
    disputed: bool = False
    """Its raters disagree, nobody has decided, and it shall wait for that."""
    over_half: bool = False
    """With this unscored group, unscored groups hold more than half of the episodes of the pool."""
    gives_way: bool = False
    """It ends now because another user's request waits."""
    blocks_update: bool = False
    """The engine is in ROLLING_POST: the weight update waits for every claimed episode."""


class Wait(msgspec.Struct, frozen=True):
    """Stay open; decide again at `wake` at the latest."""

    until: float
    """When the window closes, as displayed."""
    wake: float
    fallback: str
    why: str


class Seal(msgspec.Struct, frozen=True):
    """Fix the rewards: `human` or `auto`."""

    source: str
    unrated: bool = False
    """Nobody rated or accepted it: this is the fallback of a rating mode."""


class Drop(msgspec.Struct, frozen=True):
    """Abort the whole group."""

    cause: str
    unscored: bool = False
    """It has no automatic rewards and no rating."""


Decision = Wait | Seal | Drop


def decide(situation: Situation) -> Decision:
    """Decide what to do with a scored (or abstained) group now."""
    if situation.gone:
        return Drop("lost: the engine left rolling")
    if situation.rated_at is not None:
        return _rated(situation, situation.rated_at)
    if situation.voted_at is not None:
        return _lacks_votes(situation, situation.voted_at)
    if not situation.scored:
        return _unscored(situation)
    if situation.accepted:
        return Seal("auto")
    if situation.mode == "off":
        end = min(situation.scored_at + situation.window, situation.clock)
        watched = (
            situation.consoles > 0
            and situation.rolling
            and not (situation.closing or situation.contended)
        )
        if watched and situation.now < end:
            return Wait(end, end, "accept", "window")
        return Seal("auto")
    if situation.now < situation.clock and not _must_end(situation):
        return Wait(situation.clock, situation.clock, situation.fallback, situation.mode)
    if situation.fallback == "accept":
        return Seal("auto", unrated=True)
    return Drop("not rated: a user waited" if situation.gives_way else "not rated in time")


def _must_end(situation: Situation) -> bool:
    return situation.closing or situation.gives_way


def seals_at_once(*, mode: str, consoles: int, scored: bool, voted: bool, gone: bool) -> bool:
    """Return whether `decide` seals the automatic reward, whatever else the situation is.

    It does for the usual group: scored, and nobody looks at it. The rest of its situation is then
    not needed. `voted` is whether there is a rating or a vote; the other arguments are those of
    `Situation`.
    """
    return scored and mode == "off" and not (consoles or voted or gone)


def undo_deadline(
    *,
    rated_at: float,
    first_rated_at: float | None,
    mode: str,
    window: float,
    scored_at: float,
    rolling: bool,
    clock: float,
) -> float:
    """Return the Unix seconds until which a vote can be undone; `rated_at` if it is sent at once.

    The arguments are those of `Situation`.
    """
    undo = UNDO if mode == "off" else window
    first = rated_at if first_rated_at is None else first_rated_at
    due = min(rated_at + undo, first + EXTENSION * undo)
    if mode == "off":
        due = max(due, scored_at + window) if rolling else rated_at
    return min(due, clock)


def _rated(situation: Situation, rated_at: float) -> Decision:
    undo_until = undo_deadline(
        rated_at=rated_at,
        first_rated_at=situation.first_rated_at,
        mode=situation.mode,
        window=situation.window,
        scored_at=situation.scored_at,
        rolling=situation.rolling,
        clock=situation.clock,
    )
    waits = situation.disputed and situation.mode != "off"
    due = situation.clock if waits else undo_until
    if situation.now < due and not (situation.accepted or _must_end(situation)):
        return Wait(due, due, situation.fallback, _why(situation))
    return Drop("skipped by the operator") if situation.skip else Seal("human")


def _lacks_votes(situation: Situation, voted_at: float) -> Decision:
    due = situation.clock
    if situation.mode == "off":
        due = undo_deadline(
            rated_at=voted_at,
            first_rated_at=None,
            mode=situation.mode,
            window=situation.window,
            scored_at=situation.scored_at,
            rolling=situation.rolling,
            clock=situation.clock,
        )
    if situation.now < due and not (situation.accepted or _must_end(situation)):
        return Wait(due, due, "votes", _why(situation))
    return Drop("skipped by the operator") if situation.skip else Seal("human")


def _unscored(situation: Situation) -> Decision:
    if situation.closing:
        return Drop("unscored: the proxy stops", unscored=True)
    if situation.now >= situation.clock:
        return Drop("unscored: nobody rated it in time", unscored=True)
    if situation.gives_way:
        return Drop("unscored: a user waited for its episodes", unscored=True)
    if situation.over_half:
        return Drop("unscored: open unscored groups hold half of the pool", unscored=True)
    if situation.mode == "off" and situation.blocks_update:
        return Drop("unscored: the weight update waits for its episodes", unscored=True)
    if situation.consoles > 0:
        return Wait(situation.clock, situation.clock, "abort", "abstained")
    if situation.now < situation.attended_until:
        return Wait(
            situation.clock, min(situation.clock, situation.attended_until), "abort", "abstained"
        )
    return Drop("unscored: no console is attached", unscored=True)


def _why(situation: Situation) -> str:
    if not situation.scored:
        return "abstained"
    return "window" if situation.mode == "off" else situation.mode


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
