"""The votes of this rater as lines: the newest one, those before it, what each of them did."""

from collections.abc import Sequence

from ajet_swarm.common.text import one_line
from console.models.alerts import held_up
from console.screens.group.text import held_words
from console.screens.rate.model import (
    IGNORED,
    VOTES_BETWEEN,
    RateQueue,
    SentVote,
    digit,
    vote_text,
)
from console.screens.rate.text import banner_line
from console.session.group_facts import best_of, rated_best, verdict, verdict_in
from console.text.lines import EMPTY, Line, bar_pieces, fit, line_width
from core.state import Group, Rating, State

UNDO_BAR = 9
"""Cells of the bar of the time in which a vote can be undone."""
NEWEST = VOTES_BETWEEN
"""Votes that are listed beside the answers: none of them is asked again, blind, before the next."""


def last_line(queue: RateQueue, width: int) -> Line:
    """Return the message of the last key, else the state of the last vote and of those before it
    that are held."""
    if queue.message:
        tone = "bold $warning" if queue.message.startswith(IGNORED) else "$muted"
        return ((fit(f" {queue.message}", width), tone),)
    if queue.last is None:
        stalled = held_up(queue.session.state, queue.session.now())
        return EMPTY if stalled else banner_line(queue, width)
    typed = queue.ballot is not None and not queue.ballot.empty
    state, now = queue.session.state, queue.session.now()
    last, words, held = queue.last_voted, last_vote_words(queue), queue.held()
    room = width - line_width(_offer(queue))
    line = last_vote_line(state, last, words, now, room, sends=not typed, held=held)
    return (*_offer(queue), *line)


def last_vote_words(queue: RateQueue) -> str:
    """Return the newest vote in words; empty for none."""
    if queue.last is None:
        return ""
    group = queue.last_voted
    return vote_words(group, queue.last) if group is not None else queue.last.words


def _offer(queue: RateQueue) -> Line:
    """Return the key that writes what a vote without a winner lacks; empty after another vote."""
    last, group = queue.last, queue.last_voted
    if last is None or last.has_winner or group is None or group.edited_index is not None:
        return EMPTY
    return ((" e writes the right answer ", "$accent"),)


def last_vote_line(
    state: State,
    group: Group | None,
    vote: str,
    now: float,
    width: int,
    *,
    sends: bool = False,
    held: Sequence[Group] = (),
) -> Line:
    """Return the state of the last vote: held with a bar of the time left, sent, or too late.

    Args:
        state: The state.
        group: The group of the vote; None when it is no longer in memory.
        vote: The vote in words; empty for no vote.
        now: Unix seconds.
        width: Cells of the line.
        sends: Whether Enter would send it now, while it is held.
        held: All groups whose vote can be undone, newest vote first.
    """
    if not vote:
        return ()
    fate, tone = vote_fate(state, group, now)
    query = one_line(group.query, 200) if group is not None else ""
    last = f"last of {len(held)} held" if len(held) > 1 else "last"
    head = f" {last}: {vote} · {fate} "
    if sends and fate.startswith("held") and len(head) + 17 <= width:
        head = head.rstrip() + ", Enter sends now "
    bar: Line = ()
    if group is not None and group in held and len(head) + UNDO_BAR < width:
        bar = ((" ", ""), *bar_pieces(_share_left(group, now), UNDO_BAR - 1, tone))
    room = max(0, width - len(head) - line_width(bar))
    more = f"“{query}”" if query else ""
    return (*bar, (head, tone), (fit(more, room) if room > 8 else "", "$muted"))


def _share_left(group: Group, now: float) -> float | None:
    """Return the share of the time to undo a vote that is left; None if it is unknown."""
    if group.rating is None or group.until is None:
        return None
    return (group.until - now) / max(group.until - group.rating.at, 0.1)


def vote_rows(queue: RateQueue, most: int = NEWEST) -> list[tuple[str, Line]]:
    """Return the newest votes with the ids of their groups, the newest first, without one that is
    on screen for a second vote: `best 2  trained by update 7: answer 2 gained 0.9  “question”`."""
    state, now = queue.session.state, queue.session.now()
    votes = [] if queue.session.read_only else queue.voted(state.groups.values())
    return [
        (group.group_id, _vote_row(state, vote, group, now))
        for vote, group in votes[: most + 1]
        if group.group_id != queue.current
    ][:most]


def _vote_row(state: State, vote: Rating, group: Group, now: float) -> Line:
    fate, tone = vote_fate(state, group, now, key=False)
    words = vote_text(vote.rating, vote.order, vote.shown)
    query = one_line(group.query, 200)
    return ((f"{words}  ", "bold"), (fate, tone), (f"  “{query}”", "$muted"))


def vote_fate(
    state: State, group: Group | None, now: float, *, key: bool = True
) -> tuple[str, str]:
    """Return what became of a vote, and its tone; with `key` also what undoes it."""
    if group is None:
        return "its group is no longer in memory", "$muted"
    if group.phase == "AWAITING_RATING":
        if group.rating is None and group.votes:
            return f"counted, vote {len(group.votes)} of {group.overlap}", "$winner"
        if group.rating is None:
            return "on its way", "$muted"
        return held_words(group, now, read_only=not key), "$winner"
    if group.votes and group.closed_at is not None and group.votes[-1].at >= group.closed_at:
        return "recorded as a late vote, not sent: it trains nothing", "bold $warning"
    if group.phase == "ABORTED":
        return "aborted, nothing sent", "$muted"
    if group.lost:
        return f"sent, then lost by {one_line(group.lost, 40)}", "$reward-down"
    if group.source == "human" or (group.sealed_at is None and group.rating is not None):
        return _effect(state, group)
    return "came too late: the automatic reward was sent", "$reward-down"


def _effect(state: State, group: Group) -> tuple[str, str]:
    """Return whether a vote that was sent is trained, with the advantage of its best answer."""
    outcome, best = verdict_in(state, group), rated_best(group)
    if outcome.kind != "train":
        return f"sent, {outcome.text}", outcome.tone
    if outcome == verdict(group):  # its update is still to come
        return "sent, not trained yet", outcome.tone
    gain = group.candidates[best].advantage if best is not None else None
    if best is None or gain is None or group.rating is None:
        return outcome.text, outcome.tone
    verb = "lost" if gain < 0 else "gained"
    answer = digit(best, group.rating.shown)
    return f"{outcome.text}: answer {answer} {verb} {abs(gain):.2g}", outcome.tone


def vote_words(group: Group, sent: SentVote) -> str:
    """Return the vote beside the choice of the automatic reward, both by the digits shown.

    The candidate numbers of these answers follow: `best 2 = #4`.
    """
    rating, shown = group.rating, sent.shown
    vote = sent.words
    if rating is not None and group.overlap == 1:  # else the rating combines several votes
        vote = vote_text(rating.rating, rating.order, shown)
        if rating.rating in ("best", "ranking"):
            vote += _by_number(rating.order, shown)
        if rating.tags:  # at 80 columns there is no room for the automatic choice too
            return f"{vote} [{', '.join(one_line(tag, 24) for tag in rating.tags)}]"
    scored = [candidate for candidate in group.candidates if candidate.auto_reward is not None]
    if not scored:
        return f"{vote} (no automatic reward)"
    best = best_of(group) or 0
    if rating is not None:
        best = max(scored, key=lambda scored: (scored.auto_reward or 0.0, -scored.index)).index
    return f"{vote} (automatic: {digit(best, shown)}{_by_number([best], shown)})"


def _by_number(order: Sequence[int], shown: Sequence[int]) -> str:
    """Return ` = #4`: the candidate numbers; empty if they equal the digits."""
    if list(shown) == sorted(shown):
        return ""
    return f" = {' '.join(f'#{index + 1}' for index in order)}"
