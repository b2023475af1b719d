"""The rating screen as lines: title, clock, answers, ballot, last vote, panels of a wide screen."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from rich.cells import cell_len

from ajet_swarm.common.text import one_line, plural
from console.models.advice import context_of
from console.models.alerts import held_up
from console.screens.group.card import (
    Card,
    body,
    cards,
    compared,
    head,
    in_border,
    mark_same,
    shared_lines,
)
from console.screens.group.text import held_words
from console.screens.rate import model
from console.screens.rate.ballot import NO_WINNER, Ballot
from console.session.group_facts import best_of, rated_best, verdict, verdict_in
from console.text.alert_words import AdviceContext
from console.text.format import countdown
from console.text.lines import EMPTY, Line, bar_pieces, fit, line_text, line_width
from console.text.wrap import wrapped
from console.views.group import user_wait
from core.events.mock import WAITS_FOR_VOTES
from core.state import Group, Rating, State

MODES = {
    "off": "off: no one waits; a scored group can be overridden for a few seconds, then it is sent",
    "answer_first": "answer first: the user is answered at once, you rate until the clock runs out",
    "hold": "hold: the user waits for your rating, within the answer budget",
}
RECENT_SECONDS = 60.0
"""Seconds for which the banner counts groups that were sent unrated."""
URGENT_SECONDS = 10.0
"""Remaining seconds below which the clock is shown in the warning tone."""
PROMPT_ROWS = 2
"""Most rows of the question."""
BAR = 43
"""Cells that the clock's bar and what happens then take at least."""
LONGEST_BAR = 40
"""Most cells of the clock's bar."""
UNDO_BAR = 9
"""Cells of the bar of the time in which a vote can be undone."""
NEWEST = model.VOTES_BETWEEN
"""Votes that are listed beside the answers: none of them is asked again, blind, before the next."""


def mode_words(mode: str) -> str:
    """Return the display name of a rating mode."""
    return mode.replace("_", " ")


# --- title, banner, clock ------------------------------------------------------------------------


def header_line(queue: model.RateQueue, clocked: Group | None, width: int) -> Line:
    """Return the line above the question: counts, clock, notes, and what happens then.

    A stall leaves room for the clock only. A group is counted once. Other groups with a cause to
    name stand in the last line as long as that is empty.

    Args:
        queue: The rating queue.
        clocked: The group whose clock is shown; None for none.
        width: Cells.
    """
    now = queue.session.now()
    clock = clock_label(clocked, now) if clocked is not None else EMPTY
    room = width - line_width(clock)
    if held_up(queue.session.state, now):
        return (*clock, *banner_line(queue, room))
    before = _fitting(
        [*_counts(queue), *((f" {note} ", "$accent") for note in queue_notes(queue))], room
    )
    room -= line_width(before)
    if queue.last is not None and (info := banner_line(queue, room)):
        return (*before, *clock, *info)
    mode = _mode(queue, room - (BAR if clocked is not None else 0))
    bar = clock_bar(clocked, now, room - line_width(mode)) if clocked is not None else EMPTY
    return (*before, *clock, *bar, *mode)


def _counts(queue: model.RateQueue) -> Line:
    open_groups, waiting = queue.session.state.waiting(), len(queue.waiting())
    pieces: list[tuple[str, str]] = [
        (" Rate ", "bold $heading"),
        (f" {waiting} to rate ", "bold $winner" if waiting else "$muted"),
    ]
    if held := sum(group.is_rated for group in open_groups):
        pieces.append((f" {held} rated, held ", "$reward-up"))
    if skipped := sum(group.is_skipped for group in open_groups):
        pieces.append((f" {skipped} skipped, held ", "$muted"))
    return tuple(pieces)


def _fitting(pieces: Sequence[tuple[str, str]], room: int) -> Line:
    """Return the pieces that fit into `room` cells, the first ones."""
    ends = accumulate(line_width((piece,)) for piece in pieces)
    return tuple(piece for piece, end in zip(pieces, ends, strict=True) if end <= room)


def queue_notes(queue: model.RateQueue) -> list[str]:
    """Return notes about the queue: `1 with bob`, `unsure only`, pace; the first to be cut last."""
    state, others = queue.session.state, queue.leased_by_others()
    notes, group = [], queue.group
    if group is not None and group.overlap > 1:
        notes.append(f"vote {len(group.votes) + 1} of {group.overlap}")
    if others:
        notes.append(f"{len(others)} with {model.lease_name(others[0])}")
    figures = model.session_figures(queue)
    if progress := progress_words(figures):
        notes.append(progress if figures.goal else f"session: {progress}")
    if state.mock is not None and state.mock.waiting == WAITS_FOR_VOTES:
        notes.append("the mock user waits")
    if queue.only_unsure:
        left = len(queue.open()) - len(others) - len(queue.waiting())
        notes.append(f"unsure only, {left} left out" if left else "unsure only")
    if present := present_names(state, queue.session.holder):
        notes.append(present)
    if inbox := sum(not item.complete for item in state.inbox.values()):
        notes.append(f"{inbox} in the inbox")
    return notes


def progress_words(now: model.RatingFigures) -> str:
    """Return `12 of 60, 3:10 left at this pace`, without a goal `7 rated, 2 skipped, 4.2/min`;
    empty before the first vote of a session without a goal."""
    if now.goal:
        left = now.seconds_left
        words = f"{now.done} of {now.goal}"
        return words if left is None else f"{words}, {countdown(left)} left at this pace"
    if not (now.rated or now.skipped):
        return ""
    words = f"{now.rated} rated" + (f", {now.skipped} skipped" if now.skipped else "")
    return words if now.per_minute is None else f"{words}, {now.per_minute:.1f}/min"


def present_names(state: State, holder: str) -> str:
    """Return the raters at other consoles: `also here: ada, bob +2`; empty without any."""
    raters = [console.rater for name, console in state.attached.items() if name != holder]
    names = list(dict.fromkeys(one_line(rater, 12) or "no name" for rater in raters))
    more = f" +{len(names) - 2}" if names[2:] else ""
    return f"also here: {', '.join(names[:2])}{more}" if names else ""


def banner_line(queue: model.RateQueue, width: int) -> Line:
    """Return the stall, else the groups leased by other consoles, with the keys, else how many
    groups were sent unrated lately; may be empty.
    """
    state, now, context = queue.session.state, queue.session.now(), context_of(queue.session)
    held = held_up(state, now)
    if not held:
        # the empty page already lists the other consoles
        others = queue.leased_by_others() if queue.group is not None else ()
        text = leased_text(others, now, context) if others else _unrated_text(state, now, context)
        return ((fit(f" {text}", width), "$accent"),) if text else EMPTY
    name, cause = next(iter(held.items()))
    text = f" ! {one_line(cause, 120)}"
    if len(state.servers) > 1:
        text += f" ({one_line(name, 20)})"
    if len(held) > 1:
        text += f", {len(held) - 1} more stalled"
    if context.read_only:
        return ((fit(text, width), "bold $warning"),)
    waiting = [group for group in state.waiting() if group.server in held]
    unscored = bool(waiting) and all(group.abstained for group in waiting)
    for keys in _stall_keys(unscored, context):
        if line_width(keys) + len(text) <= width:
            break
    return ((fit(text, max(0, width - line_width(keys))).rstrip(), "bold $warning"), *keys)


def _unrated_text(state: State, now: float, context: AdviceContext) -> str:
    """Return how many groups were sent unrated in the last minute; empty for none."""
    count = sum(
        group.unrated and group.sealed_at is not None and now - group.sealed_at < RECENT_SECONDS
        for group in state.groups.values()
    )
    if not count:
        return ""
    key = f"  F{context.screens['engine']} {context.keys['engine.job']}: larger batch"
    return f"{plural(count, 'group')} sent unrated in 1 min{'' if context.read_only else key}"


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
    engine, start = context.screens["engine"], context.keys["engine.start_hand"]
    hand = (f"  F{engine} {start}", "bold $accent")
    key_lines: list[Line] = []
    for effect in wordings:
        first = (f"  {key}", "bold $accent"), (f" {effect}", "")
        key_lines += [
            (*first, *aborts, hand, (" while the engine is stopped prevents it", "")),
            (*first, *aborts, hand, (", if stopped", "")),
            (*first, hand, (", if stopped", "")),
        ]
    return [*key_lines, first]


def leased_text(others: Sequence[Group], now: float, context: AdviceContext) -> str:
    """Return `root has 1 open group on another console since 0:40; T takes it`."""
    lease = others[0].lease
    assert lease is not None
    mine = [group for group in others if group.lease and group.lease.holder == lease.holder]
    who = model.lease_name(others[0])
    where = "" if not lease.rater else " on another console"
    since = f" since {countdown(now - lease.since)}" if lease.since else ""
    text = f"{who} has {plural(len(mine), 'open group')}{where}{since}"
    if more := len(others) - len(mine):
        text += f", other consoles {more} more"
    if context.read_only:
        return text
    return f"{text}; {context.keys['rate.take']} takes {'it' if len(others) == 1 else 'the first'}"


def _mode(queue: model.RateQueue, room: int) -> Line:
    """Return the rating mode: its meaning, else its name with the key that switches it."""
    session, context = queue.session, context_of(queue.session)
    mode, change = session.state.rating_mode, context.keys["rating.mode"]
    hint = "" if context.read_only else f"  ({change} switches)"
    name = mode_words(mode)
    meaning = MODES.get(mode, one_line(mode, 20))
    forms = [f"  mode {meaning}", f"  mode {name}{hint}", f"  mode {name}", f"  {name}"]
    return ((next((form for form in forms if len(form) <= room), ""), "$muted"),)


def clock_label(group: Group, now: float) -> Line:
    """Return how long the user of a group waits and how long it stays open: ` 0:08 `."""
    if group.until is None:
        return ((" no clock ", "$muted"),)
    left = max(0.0, group.until - now)
    if now < group.spared < group.until:
        text = f" a user waited: this group may be sent unrated in {countdown(group.spared - now)} "
        return ((text, "bold $reward-down"),)
    label = f" {countdown(left)} "
    if group.gives_up_at is not None:
        gone = group.gives_up_at - now
        when = f"gives up in {countdown(gone)}" if gone > 0 else "gave up by its own timeout"
        waits = f"user waits {user_wait(group, now)}, its client {when}"
        label = f" {waits}, open for {countdown(left)} "
        left = min(left, gone)
    elif group.user_waits:
        label = f" user waits {user_wait(group, now)}, open for {countdown(left)} "
    return ((label, f"bold {_clock_tone(left)}"),)


def _clock_tone(left: float) -> str:
    return "$reward-down" if left <= URGENT_SECONDS else "$winner"


def clock_bar(group: Group, now: float, width: int) -> Line:
    """Return the share of its time that a group has left, and what happens then."""
    if group.until is None or now < group.spared < group.until:
        return EMPTY
    left = max(0.0, group.until - now)
    share = left / max(group.until - (group.scored_at or group.opened_at), 0.1)
    if group.gives_up_at is not None:
        gone = group.gives_up_at - now
        share, left = min(share, max(0.0, gone) / group.client_timeout), min(left, gone)
    then = {
        "accept": "then the automatic reward is sent",
        "abort": "then it is aborted",
        "votes": "then the votes so far are sent",
    }.get(group.fallback, "")
    if group.abstained:
        then = "not scored automatically; " + then
    tail = fit(f" {then} ", max(0, min(len(then) + 2, width - 8)))
    bar = bar_pieces(share, min(LONGEST_BAR, width - len(tail)), _clock_tone(left))
    return (*bar, (tail, "$muted"))


# --- question, answers, ballot -------------------------------------------------------------------


def prompt_lines(query: str, width: int, context: str) -> list[Line]:
    """Return the question in at most two rows, the last one with its context and the key for all.

    Args:
        query: The last user message.
        width: Cells.
        context: As `turn 3, 5 tools`; empty before it is known.
    """
    about = f"  {context}" if context else ""
    rows = wrapped(query or "(no text)", max(10, width - 2))
    above, last = rows[: PROMPT_ROWS - 1], " ".join(rows[PROMPT_ROWS - 1 :])
    if len(rows) < PROMPT_ROWS:
        above, last = rows[:-1], rows[-1]
    tails = [(about, "  i shows all"), ("", "  i shows all"), ("", "  i")]
    free = max(10, width - 2) - cell_len(last)
    about, key = next((tail for tail in tails if len("".join(tail)) <= free), tails[0])
    if len(rows) <= PROMPT_ROWS and free < len(about + key):
        about, key = "", ""  # the question is whole
    line = fit(last, max(10, width - 2 - len(about + key)))
    tail = ((about, "$muted"), (key, "$accent"))
    return [*(((f" {row}", "bold"),) for row in above), ((f" {line}", "bold"), *tail)]


def rate_cards(group: Group, ballot: Ballot, compact: bool = False) -> list[Card]:
    """Return the answers in the order shown; blind until they are revealed or rated."""
    blind = not ballot.revealed
    known = [replace(card, blind=blind, compact=compact) for card in cards(group)]
    result = [
        replace(known[index], label=str(place), rank=_rank(group, ballot, index))
        for place, index in enumerate(ballot.shown, 1)
        if index < len(known)
    ]
    result = mark_same(result)
    return result if ballot.base is None else compared(result, ballot.base)


def answer_head(
    card: Card, width: int, chosen: bool, place: str = "", note: str = "", words: str = ""
) -> Line:
    """Return the head of an answer in exactly `width` cells.

    Args:
        card: The answer.
        width: Cells.
        chosen: Whether it is selected.
        place: What stands beside its number: `of 4`.
        note: How much of it is left to read.
        words: Its first words.
    """
    right = f" {note} " if note else ""
    line = head(card, max(1, width - len(right)), chosen, place)
    if words:
        pieces = in_border(line)
        room = max(0, width - len(right) - line_width(tuple(pieces)) - 1)
        line = (*pieces, (" ", ""), (fit(words, room), "$muted"))
    return (*line, (right, "$muted"))


def first_lines(card: Card, beside: tuple[str, ...], width: int) -> Sequence[Line]:
    """Return the lines of an answer from the first one on that not all answers have."""
    shared = shared_lines(beside, max(8, width - 2)) | {""}
    lines = body(card, width)
    first = (at for at, line in enumerate(lines) if line_text(line).strip() not in shared)
    return lines[next(first, 0) :]


def rows_left(left: int, cut: bool, hint: bool) -> str:
    """Return `Space ▾ 12 lines`: the lines of an answer below what is on screen."""
    if not left:
        return "end" if cut else ""
    return f"{'Space ' if hint else ''}▾ {plural(left, 'line')}"


def _rank(group: Group, ballot: Ballot, index: int) -> str:
    """Return the label typed for a candidate, and whether it was edited."""
    edited = "✎ edited" if group.edited_index == index and not ballot.second else ""
    return "  ".join(text for text in (ballot.typed(index), edited) if text)


def ballot_text(group: Group, ballot: Ballot, read_only: bool) -> tuple[str, str]:
    """Return what Enter would send, or the keys of an empty ballot, and its tone."""
    text = "view only: v shows rewards and marks" if read_only else ballot.meaning()
    if missing := sum(not candidate.has_answer for candidate in group.candidates):
        text = f"{plural(missing, 'candidate')} failed and cannot be rated. {text}"
    if ballot.armed in NO_WINNER and not read_only:
        text += " · e: the answer that should have been given, which SFT teaches"
    if ballot.tags:
        text = f"[{', '.join(ballot.tags)}] {text}"
    return text, "$muted" if ballot.empty else ("bold $warning" if ballot.armed else "bold")


def empty_lines(queue: model.RateQueue) -> list[str]:
    """Return the text shown while there is no group to rate."""
    session = queue.session
    if not session.seen:
        return ["No connection to the proxy yet."]
    if session.state.watch_only:
        return [
            "This console is view only: it claims no episodes, so there are no answers here.",
            "F9 shows the servers.",
        ]
    lines = ["No group is waiting for your rating."]
    if unrated := len(queue.open()):
        if others := queue.leased_by_others():
            return [*lines, f"{leased_text(others, session.now(), context_of(session))}."]
        them = "it" if unrated == 1 else "them"
        sure = f"The automatic rewards are sure about {plural(unrated, 'open group')}"
        return [*lines, f"{sure}; f shows {them}."]
    if session.state.rating_mode != "off" and queue.held():
        lines.append("New groups wait until your votes are sent: Enter sends the last one.")
    elif session.state.rating_mode != "off":
        lines.append("The next scored request appears here.")
    elif not session.allows("rating.mode"):
        lines.append("The rating mode is off: scored groups are sent automatically.")
    else:
        key = context_of(session).keys["rating.mode"]
        lines += [
            "The rating mode is off: a scored group is shown here for a few seconds,",
            f"then its automatic reward is sent. {key} switches the mode:",
            "answer first and rate later, or let the user wait for you.",
        ]
    mock = "" if not session.allows("mock.start") else ", F4 sends the questions of a dataset"
    lines.append(f"F2 shows all requests{mock}.")
    if (again := model.asked_next(queue)) is not None and session.allows("group.rerun"):
        key = context_of(session).keys["group.rerun"]
        lines.append(f"{key} asks one now: “{one_line(again.query, 50)}”")
    return lines


# --- the votes of this rater: the newest one, those before it, what each of them did -------------


def last_line(queue: model.RateQueue, width: int) -> Line:
    """Return the message of the last key, else the state of the last vote: held with a bar of the
    time left, sent, or too late; and how many before it are held."""
    if queue.message:
        tone = "bold $warning" if queue.message.startswith(model.IGNORED) else "$muted"
        return ((fit(f" {queue.message}", width), tone),)
    if queue.last is None:
        stalled = held_up(queue.session.state, queue.session.now())
        return EMPTY if stalled else banner_line(queue, width)
    state, now, group = queue.session.state, queue.session.now(), queue.last_voted
    typed, held = queue.ballot is not None and not queue.ballot.empty, queue.held()
    offer = _offer(queue)
    room = width - line_width(offer)
    fate, tone = vote_fate(state, group, now)
    last = f"last of {len(held)} held" if len(held) > 1 else "last"
    head = f" {last}: {last_vote_words(queue)} · {fate} "
    if not typed and fate.startswith("held") and len(head) + 17 <= room:
        head = head.rstrip() + ", Enter sends now "
    bar: Line = ()
    if group is not None and group in held and len(head) + UNDO_BAR < room:
        bar = ((" ", ""), *bar_pieces(_share_left(group, now), UNDO_BAR - 1, tone))
    room = max(0, room - len(head) - line_width(bar))
    query = f"“{one_line(group.query, 200)}”" if group is not None and group.query else ""
    return (*offer, *bar, (head, tone), (fit(query, room) if room > 8 else "", "$muted"))


def last_vote_words(queue: model.RateQueue) -> str:
    """Return the newest vote in words; empty for none."""
    if queue.last is None:
        return ""
    group = queue.last_voted
    return vote_words(group, queue.last) if group is not None else queue.last.words


def _offer(queue: model.RateQueue) -> Line:
    """Return the key that writes what a vote without a winner lacks; empty after another vote."""
    last, group = queue.last, queue.last_voted
    if last is None or last.vote.rating not in NO_WINNER:
        return EMPTY
    if group is None or group.edited_index is not None:
        return EMPTY
    return ((" e writes the right answer ", "$accent"),)


def _share_left(group: Group, now: float) -> float | None:
    """Return the share of the time to undo a vote that is left; None if it is unknown."""
    if group.rating is None or group.until is None:
        return None
    return (group.until - now) / max(group.until - group.rating.at, 0.1)


def vote_rows(queue: model.RateQueue, most: int = NEWEST) -> list[tuple[str, Line]]:
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
    words = model.vote_text(vote.rating, vote.order, vote.shown)
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
    answer = model.digit(best, group.rating.shown)
    return f"{outcome.text}: answer {answer} {verb} {abs(gain):.2g}", outcome.tone


def vote_words(group: Group, sent: model.SentVote) -> str:
    """Return the vote beside the choice of the automatic reward, both by the digits shown.

    The candidate numbers of these answers follow: `best 2 = #4`.
    """
    rating, shown = group.rating, sent.ballot.shown
    vote = sent.words
    if rating is not None and group.overlap == 1:  # else the rating combines several votes
        vote = model.vote_text(rating.rating, rating.order, shown)
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
    return f"{vote} (automatic: {model.digit(best, shown)}{_by_number([best], shown)})"


def _by_number(order: Sequence[int], shown: Sequence[int]) -> str:
    """Return ` = #4`: the candidate numbers; empty if they equal the digits."""
    if list(shown) == sorted(shown):
        return ""
    return f" = {' '.join(f'#{index + 1}' for index in order)}"
