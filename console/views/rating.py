"""The lines of the rating screen around the answers: clock, mode, the last vote."""

from collections.abc import Sequence
from dataclasses import replace

from ajet_swarm.common.text import one_line, plural
from console.models.advice import advice_context
from console.models.alerts import held_up
from console.models.ballot import Ballot
from console.models.rate_queue import RateQueue, SentVote, digit, lease_name, vote_text
from console.session.group_facts import best_of
from console.text.alert_words import AdviceContext
from console.text.format import countdown
from console.text.lines import EMPTY, Line, fit, line_width
from console.views.candidate import Card, cards, compared, mark_same
from console.views.group import user_wait
from console.views.group_detail import held_words, rating_words
from core.events.mock import WAITS_FOR_VOTES
from core.scoring.agreement import wilson
from core.state import Group, RaterStats, State

MODES = {
    "off": "off: no one waits; a scored group can be overridden for a few seconds, then it is sent",
    "answer_first": "answer first: the user is answered at once, you rate until the clock runs out",
    "hold": "hold: the user waits for your rating, within the answer budget",
}
RECENT_SECONDS = 60.0
"""Seconds for which the banner counts groups that were sent unrated."""
URGENT_SECONDS = 10.0
"""Remaining seconds below which the clock is shown in the warning tone."""


def mode_words(mode: str) -> str:
    """Return the display name of a rating mode."""
    return mode.replace("_", " ")


def bar_pieces(share: float | None, width: int, tone: str) -> Line:
    """Return a thin bar of `width` cells, drawn in half cells; None is an unknown share."""
    if width <= 0:
        return ()
    if share is None:
        return (("┈" * width, "$faint"),)
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    filled = "━" * full + "╸" * half
    return ((filled, tone), ("─" * (width - len(filled)), "$faint"))


def title_line(
    waiting: int,
    held: int,
    mode: str,
    width: int,
    more: Sequence[str] = (),
    context: AdviceContext | None = None,
    skipped: int = 0,
) -> Line:
    """Return `Rate  3 to rate  1 rated, held   mode off: …`; a group is counted once.

    Args:
        waiting: Groups that wait for a vote from here.
        held: Rated groups that are not sent yet.
        mode: The rating mode.
        width: Cells.
        more: Further notes about the queue.
        context: Keys to name, and whether commands are enabled; by default the default keys.
        skipped: Skipped groups that are not aborted yet.
    """
    context = context or advice_context()
    pieces: list[tuple[str, str]] = [
        (" Rate ", "bold $heading"),
        (f" {waiting} to rate ", "bold $winner" if waiting else "$muted"),
    ]
    if held:
        pieces.append((f" {held} rated, held ", "$reward-up"))
    if skipped:
        pieces.append((f" {skipped} skipped, held ", "$muted"))
    pieces += [(f" {text} ", "$accent") for text in more]
    used = sum(len(text) for text, _ in pieces)
    words = MODES.get(mode, one_line(mode, 20))
    message_text = f"  mode {words}"
    if used + len(message_text) > width:
        hint = "" if context.read_only else f"  ({context.keys['rating.mode']} switches)"
        message_text = f"  mode {mode_words(mode)}{hint}"
    if used + len(message_text) > width:
        message_text = f"  mode {mode_words(mode)}"
    pieces.append((fit(message_text, max(0, width - used)), "$muted"))
    return tuple(pieces)


def clock_line(group: Group, now: float, width: int) -> Line:
    """Return how long the user waits, how long the group stays open, and what happens then."""
    if group.until is None:
        return ((" no clock", "$muted"),)
    left = max(0.0, group.until - now)
    if now < group.spared < group.until:
        left = group.spared - now
        text = f" a user waited: this group may be sent unrated in {countdown(left)}"
        return ((fit(text, width), "bold $reward-down"),)
    began = group.scored_at or group.opened_at
    share = left / max(group.until - began, 0.1)
    tone = "$reward-down" if left <= URGENT_SECONDS else "$winner"
    then = {
        "accept": "then the automatic reward is sent",
        "abort": "then it is aborted",
        "votes": "then the votes so far are sent",
    }.get(group.fallback, "")
    if group.abstained:
        then = "not scored automatically; " + then
    label = f" {countdown(left)} "
    if group.user_waits:
        label = f" user waits {user_wait(group, now)}  {countdown(left)} left "
    if group.gives_up_at is not None:
        gone = group.gives_up_at - now
        share = min(share, max(0.0, gone) / group.client_timeout)
        tone = "$reward-down" if min(left, gone) <= URGENT_SECONDS else "$winner"
        when = f"gives up in {countdown(gone)}" if gone > 0 else "gave up by its own timeout"
        label = f" user waits {user_wait(group, now)}, its client {when}  {countdown(left)} left "
    tail = fit(f" {then} ", max(0, min(len(then) + 2, width - len(label) - 8)))
    room = max(0, width - len(label) - len(tail))
    return ((label, f"bold {tone}"), *bar_pieces(share, room, tone), (tail, "$muted"))


def rate_cards(group: Group, ballot: Ballot, compact: bool = False) -> list[Card]:
    """Return the answers in the order shown; blind until they are revealed or rated."""
    by_index = {card.index: card for card in cards(group)}
    blind = ballot.blind and not ballot.revealed
    result = [
        replace(
            by_index[index],
            label=str(place),
            rank=_rank(group, ballot, index),
            blind=blind,
            compact=compact,
            figures="" if blind else by_index[index].figures,
        )
        for place, index in enumerate(ballot.shown, 1)
        if index in by_index
    ]
    result = mark_same(result)
    return result if ballot.base is None else compared(result, ballot.base)


def _rank(group: Group, ballot: Ballot, index: int) -> str:
    """Return the label typed for a candidate, and whether it was edited."""
    edited = "✎ edited" if group.edited_index == index and not ballot.second else ""
    return "  ".join(text for text in (ballot.typed(index), edited) if text)


def queue_notes(queue: RateQueue, state: State, now: float, waiting: int) -> list[str]:
    """Return notes about groups outside the queue: `1 with bob`, `unsure only`."""
    notes, others = [], queue.leased_by_others(state, now)
    group = state.groups.get(queue.current or "")
    if group is not None and group.overlap > 1:
        notes.append(f"vote {len(group.votes) + 1} of {group.overlap}")
    if others:
        notes.append(f"{len(others)} with {lease_name(others[0])}")
    if state.mock is not None and state.mock.waiting == WAITS_FOR_VOTES:
        notes.append("the mock user waits")
    if queue.only_unsure:
        left = len(queue.open(state, now)) - len(others) - waiting
        notes.append(f"unsure only, {left} left out" if left else "unsure only")
    return notes


def present_names(state: State, holder: str) -> str:
    """Return the raters at other consoles: `also here: ada, bob +2`; empty without any."""
    consoles = [one for id_, one in state.attached.items() if id_ != holder]
    names = list(dict.fromkeys(one_line(one.rater, 12) or "no name" for one in consoles))
    if not names:
        return ""
    return f"also here: {', '.join(names[:2])}" + (f" +{len(names) - 2}" if names[2:] else "")


def second_words(message: str, stats: RaterStats | None) -> str:
    """Return the message after a repeated vote, with the share of repeats that agreed."""
    text = f"you have rated this group before: {message}; nothing is sent"
    if stats is None or not stats.repeats:
        return text
    return f"{text} · {share_words(stats.repeated, stats.repeats)} the same"


def share_words(hits: int, n: int) -> str:
    """Return `31 of 42, 74 % (59-85 %)`: a share with its 95 % interval."""
    low, high = wilson(hits, n)
    return f"{hits} of {n}, {100 * hits / n:.0f} % ({100 * low:.0f}-{100 * high:.0f} %)"


def banner_line(
    state: State,
    now: float,
    width: int,
    others: Sequence[Group] = (),
    context: AdviceContext | None = None,
) -> Line:
    """Return the stall, else the groups leased by other consoles, with the keys, else how many
    groups were sent unrated lately; may be empty.

    Args:
        state: The state.
        now: Unix seconds.
        width: Cells of the line.
        others: Open groups that other consoles have leased, the most urgent one first.
        context: Keys to name, none if it is read-only; by default the default keys.
    """
    context = context or advice_context()
    held = held_up(state, now)
    if not held:
        text = "" if not others else leased_text(others, now, context)
        if not text and (count := sent_unrated(state, now)):
            was = "was" if count == 1 else "were"
            text = f"no user waits for you: {plural(count, 'group')} {was} sent unrated in 1 min"
            if not context.read_only:
                text += f"  {context.screens['engine']} {context.keys['engine.job']} larger batch"
        return ((fit(f" {text}", width), "$accent"),) if text else EMPTY
    name, cause = next(iter(held.items()))
    message_text = f" ! {one_line(cause, 120)}"
    if len(state.servers) > 1:
        message_text += f" ({one_line(name, 20)})"
    if len(held) > 1:
        message_text += f", {len(held) - 1} more stalled"
    if context.read_only:
        return ((fit(message_text, width), "bold $warning"),)
    waiting = [one for one in state.waiting() if one.server in held]
    unscored = bool(waiting) and all(one.abstained for one in waiting)
    for keys in _stall_keys(unscored, context):
        if line_width(keys) + len(message_text) <= width:
            break
    return ((fit(message_text, max(0, width - line_width(keys))).rstrip(), "bold $warning"), *keys)


def sent_unrated(state: State, now: float) -> int:
    """Return the number of groups that were sent unrated in the last minute."""
    return sum(
        group.unrated and group.sealed_at is not None and now - group.sealed_at < RECENT_SECONDS
        for group in state.groups.values()
    )


def _stall_keys(unscored: bool, context: AdviceContext) -> list[Line]:
    """Return the keys that end the stall and what prevents the next one, from the longest wording
    to the shortest.

    Args:
        unscored: Whether no group that waits has an automatic reward.
        context: Keys and screens to name.
    """
    action, wordings = "rating.accept_all", ["accepts all automatic rewards", "accepts all"]
    if unscored:
        action, wordings = "group.rescore", ["re-scores a group"]
    key, abort = context.keys[action], context.keys["rating.abort_all"]
    aborts = (f"  {abort}", "bold $accent"), (" aborts them", "")
    hand = (f"  {context.screens['engine']} {context.keys['engine.start_hand']}", "bold $accent")
    key_lines: list[Line] = []
    for effect in wordings:
        first = (f"  {key}", "bold $accent"), (f" {effect}", "")
        key_lines += [
            (*first, *aborts, hand, (" or a larger batch prevents it", "")),
            (*first, *aborts, hand, (", larger batch", "")),
            (*first, hand, (", larger batch", "")),
        ]
    return key_lines


def leased_text(others: Sequence[Group], now: float, context: AdviceContext) -> str:
    """Return `root has 1 open group on another console since 0:40; T takes it`."""
    lease = others[0].lease
    assert lease is not None
    mine = [one for one in others if one.lease is not None and one.lease.holder == lease.holder]
    who = lease_name(others[0])
    where = "" if not lease.rater else " on another console"
    since = f" since {countdown(now - lease.since)}" if lease.since else ""
    text = f"{who} has {plural(len(mine), 'open group')}{where}{since}"
    if more := len(others) - len(mine):
        text += f", other consoles {more} more"
    if context.read_only:
        return text
    return f"{text}; {context.keys['rate.take']} takes {'it' if len(others) == 1 else 'the first'}"


def missing_text(group: Group) -> str:
    """Return the candidates that cannot be rated, in words; empty when there are none."""
    missing = sum(not candidate.has_answer for candidate in group.candidates)
    return f"{plural(missing, 'candidate')} failed and cannot be rated" if missing else ""


def last_vote_line(
    group: Group | None, vote: str, now: float, width: int, *, sends: bool = False
) -> Line:
    """Return the state of the last vote: held with its countdown, sent, or too late.

    Args:
        group: The group of the vote; None when it is no longer in memory.
        vote: The vote in words; empty for no vote.
        now: Unix seconds.
        width: Cells of the line.
        sends: Whether Enter would send it now, while it is held.
    """
    if not vote:
        return ()
    fate, tone = vote_fate(group, now)
    query = one_line(group.query, 200) if group is not None else ""
    head = f" last: {vote} · {fate} "
    if sends and fate.startswith("held") and len(head) + 17 <= width:
        head = head.rstrip() + ", Enter sends now "
    room = max(0, width - len(head))
    more = f"“{query}”" if query else ""
    return ((head, tone), (fit(more, room) if room > 8 else "", "$muted"))


def held_row(group: Group, sent: SentVote | None, now: float) -> str:
    """Return one held vote in a list: `sends in 0:03  best 2  “question”`."""
    left = f"in {countdown(group.until - now)}" if group.until is not None else "soon"
    vote = vote_words(group, sent) if sent is not None else rating_words(group)
    verb = "aborts" if group.is_skipped else "sends"
    return f"{verb} {left}  {vote}  “{one_line(group.query, 200)}”"


def vote_fate(group: Group | None, now: float) -> tuple[str, str]:
    """Return the state of a vote and its tone."""
    if group is None:
        return "its group is no longer in memory", "$muted"
    if group.phase == "AWAITING_RATING":
        if group.rating is None and group.votes:
            return f"counted, vote {len(group.votes)} of {group.overlap}", "$winner"
        if group.rating is None:
            return "on its way", "$muted"
        return held_words(group, now), "$winner"
    if group.phase == "ABORTED":
        return "aborted, nothing sent", "$muted"
    if group.lost:
        return f"sent, then lost by {one_line(group.lost, 40)}", "$reward-down"
    if group.source == "human" or (group.sealed_at is None and group.rating is not None):
        return "sent", "$reward-up"
    return "came too late: the automatic reward was sent", "$reward-down"


def vote_words(group: Group, sent: SentVote) -> str:
    """Return the vote beside the choice of the automatic reward, both by the digits shown.

    The candidate numbers of these answers follow: `best 2 = #4`.
    """
    rating, shown = group.rating, sent.shown
    if rating is None or group.overlap > 1:  # then the rating combines several votes
        vote = sent.words
    else:
        vote = vote_text(rating.rating, rating.order, shown)
    if rating is not None and group.overlap == 1 and rating.rating in ("best", "ranking"):
        vote += _by_number(rating.order, shown)
    scored = [one.auto_reward for one in group.candidates]
    if all(value is None for value in scored):
        return f"{vote} (no automatic reward)"
    if rating is not None:
        best = max(
            (one for one in group.candidates if one.auto_reward is not None),
            key=lambda one: (one.auto_reward or 0.0, -one.index),
        ).index
    else:
        best = best_of(group) or 0
    return f"{vote} (automatic: {digit(best, shown)}{_by_number([best], shown)})"


def _by_number(order: Sequence[int], shown: Sequence[int]) -> str:
    """Return ` = #4`: the candidate numbers; empty if they equal the digits."""
    if list(shown) == sorted(shown):
        return ""
    return f" = {' '.join(f'#{index + 1}' for index in order)}"
