"""When a scored group is sealed, and with which rewards: one pure function of the situation.

The rules:

- `group.accept` seals at once: with the rating if there is one, else with the automatic reward.
- A rating can be undone for a while. Mode off: 2 s, or until the window ends if that is later, and
  no longer than ROLLING lasts. Rating modes: `rating.window` seconds. A vote that replaces another
  one restarts this time, up to `EXTENSION` times of it after the first vote.
- Mode off without a rating: sealed when the window ends; the window is open only while a console is
  attached, the server is ROLLING and no other request waits for the episodes it holds.
- answer_first and hold: open until the clock of the episodes runs out, then the fallback.
- A group without automatic rewards is open to the operator until the clock runs out, then aborted;
  with nobody at a console it is aborted at once. It is also aborted if unscored groups would hold
  more than half of the pool, and in mode off if the weight update waits for its episodes.
- Nothing outlives the clock. When the engine has wiped its episodes nothing can be sent any more.
"""

import msgspec

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
    """Attached now."""
    attended_until: float
    """Until then an operator is assumed to be at a console that was detached."""
    rolling: bool
    """The server is ROLLING and no drain is under way."""
    crowded: bool
    """Another request waits for its turn or for a free episode."""
    gone: bool
    """The engine has wiped its episodes."""
    closing: bool
    """The proxy is about to stop: no more waiting."""
    scored: bool
    scored_at: float
    clock: float
    window: float
    fallback: str
    rated_at: float | None
    first_rated_at: float | None = None
    """When the first of the votes came that replaced each other; None for `rated_at`."""
    skip: bool
    accepted: bool
    over_half: bool = False
    """With this unscored group, unscored groups hold more than half of the episodes of the pool."""
    blocks_update: bool = False
    """The engine is in ROLLING_POST: the weight update waits for every claimed episode."""


class Wait(msgspec.Struct, frozen=True):
    """Stay open; decide again at `wake` at the latest."""

    until: float
    """When the window closes, for people."""
    wake: float
    fallback: str
    why: str


class Seal(msgspec.Struct, frozen=True):
    """Fix the rewards: `human` or `auto`."""

    source: str


class Drop(msgspec.Struct, frozen=True):
    """Abort the whole group."""

    cause: str
    unscored: bool = False
    """It has no automatic rewards and no rating."""


Decision = Wait | Seal | Drop


def decide(now: Situation) -> Decision:
    """Decide what to do with a scored (or abstained) group now."""
    if now.gone:
        return Drop("lost: the engine left rolling")
    if now.rated_at is not None:
        return _rated(now, now.rated_at)
    if not now.scored:
        return _unscored(now)
    if now.accepted:
        return Seal("auto")
    if now.mode == "off":
        end = min(now.scored_at + now.window, now.clock)
        looked_at = now.consoles > 0 and now.rolling and not (now.closing or now.crowded)
        if looked_at and now.now < end:
            return Wait(end, end, "accept", "window")
        return Seal("auto")
    if now.now < now.clock and not now.closing:
        return Wait(now.clock, now.clock, now.fallback, now.mode)
    return Seal("auto") if now.fallback == "accept" else Drop("not rated in time")


def held_until(
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


def _rated(now: Situation, rated_at: float) -> Decision:
    due = held_until(
        rated_at=rated_at,
        first_rated_at=now.first_rated_at,
        mode=now.mode,
        window=now.window,
        scored_at=now.scored_at,
        rolling=now.rolling,
        clock=now.clock,
    )
    if now.now < due and not now.accepted and not now.closing:
        return Wait(due, due, now.fallback, _why(now))
    return Drop("skipped by the operator") if now.skip else Seal("human")


def _unscored(now: Situation) -> Decision:
    if now.closing:
        return Drop("unscored: the proxy stops", unscored=True)
    if now.now >= now.clock:
        return Drop("unscored: nobody rated it in time", unscored=True)
    if now.over_half:
        return Drop("unscored: open unscored groups hold half of the pool", unscored=True)
    if now.mode == "off" and now.blocks_update:
        return Drop("unscored: the weight update waits for its episodes", unscored=True)
    if now.consoles > 0:
        return Wait(now.clock, now.clock, "abort", "abstained")
    if now.now < now.attended_until:
        return Wait(now.clock, min(now.clock, now.attended_until), "abort", "abstained")
    return Drop("unscored: no console is attached", unscored=True)


def _why(now: Situation) -> str:
    if not now.scored:
        return "abstained"
    return "window" if now.mode == "off" else now.mode
