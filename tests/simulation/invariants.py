"""What must hold in each run, derived from the log of the server and the faults of the seed.

No rule asks the state of the proxy when an episode became useless. That follows from what the
server and the users saw: a call that ended, a user who left, a reward that arrived, an engine that
left ROLLING, a kill.
"""

from collections.abc import Iterator
from itertools import groupby

from tests.simulation.plan import Act
from tests.simulation.server import ME, Claim, End
from tests.simulation.world import Asked, Outcome

PROMPT = 1.0
"""Seconds in which an episode that is of no more use is returned."""
RECOVERED = 10.0
"""Seconds after a fault in which the proxy finds out what it holds."""
LEAVE_GRACE = 0.4
"""Seconds for which a group waits for the retry of a user who left."""
KEPT = 4.0
"""Seconds for which a group may hold a part of its episodes while the engine rolls: the longest
window, `KEEP` of `ajet_swarm.episodes.claim`, and `PROMPT`."""
PART = 2.0
"""The same after the engine has left ROLLING."""
RATED = 25.0
"""Seconds from the last answer to the end in rating mode off: scoring (at most 10) and window."""
STRAGGLER_AFTER = 10.0
"""Setting `proxy.straggler_after`."""
LONGEST_WAIT = 282.0
"""Seconds after which each user has an answer or an error: `proxy.answer_limit`, and some slack."""


def violations(outcome: Outcome) -> list[str]:
    """Return what is wrong in a run that has ended; empty if nothing is."""
    checks = (_unreturned, _late, _rewards, _users, _answers, _short_groups, _others, _journal)
    return [text for check in checks for text in check(outcome)]


# --- episodes -----------------------------------------------------------------------------------


def _claims(outcome: Outcome) -> list[Claim]:
    return [claim for claim in outcome.server.claims if claim.client == ME]


def _unreturned(outcome: Outcome) -> Iterator[str]:
    """Only what the proxy cannot know or reach may be left to the janitor."""
    for claim in _claims(outcome):
        if claim.released_by not in ("janitor", "") or not claim.delivered:
            continue
        end = claim.released_at or outcome.log[-1][0]
        if _overlaps(outcome, ("frozen", "proxy down"), claim.at, end):
            continue
        how = "taken back by the janitor" if claim.released_at else "still claimed at the end"
        yield f"{_name(claim)} is {how}"


def _late(outcome: Outcome) -> Iterator[str]:
    """Each episode is returned soon after it became useless."""
    for claim in _claims(outcome):
        for due, why in _useless(outcome, claim):
            limit = _allowed(outcome, due)
            if claim.released_at is None or claim.released_at > limit:
                at = f"at {claim.released_at:.2f}" if claim.released_at else "never"
                yield f"{_name(claim)}: {why} at {due:.2f} s, returned {at}, allowed {limit:.2f}"
                break


def _useless(outcome: Outcome, claim: Claim) -> Iterator[tuple[float, str]]:
    """Yield the times from which an episode was useless to us, with the reason."""
    if not claim.delivered:
        return
    held = claim.released_at if claim.released_at is not None else outcome.log[-1][0]
    if not claim.chats:
        yield claim.at + KEPT, "it was not used"
        if (left := _left_rolling(outcome, claim.at)) is not None and left < held:
            yield left + PART - PROMPT, "the engine left ROLLING before it was used"
    for asked in outcome.asked:
        left_at = asked.ended if asked.outcome == "left" else None
        if asked.prompt == claim.prompt and left_at is not None and claim.at <= left_at:
            yield left_at + LEAVE_GRACE, "its user left"
    for end in outcome.server.ends:
        prompt = end.claim.prompt if end.accepted and end.claim is not None else ""
        if prompt and prompt == claim.prompt and claim.at <= end.at <= held:
            yield end.at, "its group was sent"
    for (_, died), (born, _) in zip(outcome.lives, outcome.lives[1:], strict=False):
        if died is not None and claim.at <= died:
            yield born, "the proxy was started again"
    if (late := _late_in_post(outcome, claim, held)) is not None:
        yield late, "the batch waited for its call"
    if _rates_nothing(outcome) and claim.chats and (done := claim.chats[-1][1]) is not None:
        yield done + RATED, "its answer was complete"


def _late_in_post(outcome: Outcome, claim: Claim, held: float) -> float | None:
    """Return when a call is late: `straggler_after` seconds after the others of its group, while
    the engine is in ROLLING_POST."""
    open_since = [began for began, done in claim.chats if done is None]
    if not open_since:
        return None
    siblings = [
        other
        for other in _claims(outcome)
        if other.prompt == claim.prompt and other.at <= held and (other.released_at or held) >= held
    ]
    others = [other for other in siblings if other is not claim and other.chats]
    ends = [(other.chats[-1][1], other.answered_at) for other in others]
    done = [max(end, answered_at) for end, answered_at in ends if end is not None]
    if len(siblings) < outcome.server.pool.repeat or len(done) < len(siblings) - 1:
        return None
    since = max(*done, open_since[-1]) + STRAGGLER_AFTER
    state = "OFFLINE"
    for at, name in outcome.server.states:
        if name == "ROLLING_POST":
            since = max(since, at)
        state = name if at <= since else state
    return since if state == "ROLLING_POST" else None


def _left_rolling(outcome: Outcome, since: float) -> float | None:
    """Return when the engine first was in another state than ROLLING at or after a time."""
    state = "OFFLINE"
    for at, name in outcome.server.states:
        if at <= since:
            state = name
        elif name != "ROLLING" and state == "ROLLING":
            return at
        else:
            state = name
    return None


def _rates_nothing(outcome: Outcome) -> bool:
    plan = outcome.plan
    slow = {"straggler", "silent", "failing"}
    return (
        plan.mode == "off"
        and plan.source in ("score", "equal", "slow")
        and not any(isinstance(happening, Act) for happening in plan.happenings)
        and not any(trouble.kind in slow for trouble in outcome.server.troubles)
    )


def _allowed(outcome: Outcome, due: float) -> float:
    """Return until when an episode may be returned that is useless from `due` on."""
    limit = due + PROMPT
    for trouble in sorted(outcome.server.troubles, key=lambda trouble: trouble.at):
        if trouble.at <= limit and trouble.until + RECOVERED > due:
            limit = max(limit, trouble.until + RECOVERED)
    return limit


def _overlaps(outcome: Outcome, kinds: tuple[str, ...], begin: float, end: float) -> bool:
    return any(
        trouble.kind in kinds and trouble.at <= end and begin <= trouble.until
        for trouble in outcome.server.troubles
    )


def _name(claim: Claim) -> str:
    use = f"for “{claim.prompt}”" if claim.prompt else "unused"
    return f"episode {claim.uuid[:6]} ({claim.episode_type}, {use}), claimed at {claim.at:.2f} s"


# --- rewards ------------------------------------------------------------------------------------


def _rewards(outcome: Outcome) -> Iterator[str]:
    """Each reward was durable before it was sent, and is sent once."""
    seen: dict[int, End] = {}
    for end in outcome.server.ends:
        if end.claim is None or end.claim.client != ME or end.claim.episode_type != "train":
            continue
        what = f"the reward of {_name(end.claim)}"
        if not end.durable:
            yield f"{what} was sent at {end.sent_at:.2f} s before it was durable"
        first = seen.get(id(end.claim))
        if first is not None and end.sent_at > first.at + _unaware(outcome, first, end):
            yield f"{what} was accepted at {first.at:.2f} s and sent again at {end.sent_at:.2f} s"
        if end.accepted:
            seen[id(end.claim)] = end


def _unaware(outcome: Outcome, first: End, again: End) -> float:
    """Return for how many seconds a second end is sent by a proxy that cannot know of the first.

    The end of a killed proxy may wait in a frozen server. The server takes it after it has read the
    episodes for the next proxy, and that answer is still on its way.
    """
    if first.sender is again.sender:
        return 0.0
    return 10.0 if _overlaps(outcome, ("slow",), first.at, again.sent_at) else 0.1


def _short_groups(outcome: Outcome) -> Iterator[str]:
    """A group of which fewer rewards arrived than its size says so."""
    groups = outcome.file.state().groups
    accepted = [end for end in outcome.server.ends if end.accepted]
    accepted = [end for end in accepted if end.claim and end.claim.episode_type == "train"]
    for task, ends in groupby(sorted(accepted, key=_task), key=_task):
        count, group = len(list(ends)), groups.get(task.rpartition("#")[2])
        if group is not None and count < outcome.server.pool.repeat and not group.cause:
            yield f"group {group.group_id} sent {count} of {group.n} rewards and names no cause"


def _task(end: End) -> str:
    return end.task_id


def _others(outcome: Outcome) -> Iterator[str]:
    """No episode of another client is ended or aborted by us.

    What a proxy sent before its kill may wait in a slow front, while the next proxy returns the
    episode and another client claims it: no proxy can know of it.
    """
    for claim in outcome.server.claims:
        if claim.client == ME or (sender := claim.released_for) is None:
            continue
        if not (sender.killed and claim.release_sent_at < claim.at):
            yield f"{_name(claim)} of another client was returned by {sender.name}"


# --- users and journal --------------------------------------------------------------------------


def _users(outcome: Outcome) -> Iterator[str]:
    """Each user got an answer, an error, or left; nobody waited longer than the rules allow."""
    for asked in outcome.asked:
        if asked.ended is None or not asked.outcome:
            yield f"{asked.prompt}, sent at {asked.began:.2f} s, got nothing"
        elif asked.ended - asked.began > LONGEST_WAIT:
            yield f"{asked.prompt} waited {asked.ended - asked.began:.0f} s"
    if not outcome.server.troubles and _rates_nothing(outcome):
        yield from _refused_without_cause(outcome.asked)


def _answers(outcome: Outcome) -> Iterator[str]:
    """Each answer is one that the server gave to the question."""
    for asked in outcome.asked:
        given = (asked.prompt, asked.text) in outcome.server.answers
        if asked.outcome == "answered" and not given:
            yield f"{asked.prompt} got “{asked.text}”, which is no answer to it"


def _refused_without_cause(asked: list[Asked]) -> Iterator[str]:
    for request in asked:
        if request.outcome == "refused":
            yield f"{request.prompt} was refused without any fault: {request.text}"


def _journal(outcome: Outcome) -> Iterator[str]:
    """The journal replays, and no group is left open in it."""
    left = [group.group_id for group in outcome.file.state().open_groups()]
    if left:
        yield f"groups are open in the journal: {', '.join(left)}"
