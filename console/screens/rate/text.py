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
from console.screens.rate.ballot import NO_WINNER, Ballot
from console.screens.rate.model import (
    RateQueue,
    RatingFigures,
    asked_next,
    lease_name,
    session_figures,
)
from console.text.alert_words import AdviceContext
from console.text.format import countdown
from console.text.lines import EMPTY, Line, bar_pieces, fit, line_text, line_width
from console.text.markdown import markdown_lines
from console.text.wrap import wrapped
from console.views.group import user_wait
from core.events.mock import WAITS_FOR_VOTES
from core.state import Group, State

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
MINUTES = 15
"""Minutes that the pace is drawn for."""
_CAP = 4_000


def mode_words(mode: str) -> str:
    """Return the display name of a rating mode."""
    return mode.replace("_", " ")


# --- title, banner, clock ------------------------------------------------------------------------


def header_line(queue: RateQueue, clocked: Group | None, width: int) -> Line:
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


def _counts(queue: RateQueue) -> Line:
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


def queue_notes(queue: RateQueue) -> list[str]:
    """Return notes about the queue: `1 with bob`, `unsure only`, pace; the first to be cut last."""
    state, others = queue.session.state, queue.leased_by_others()
    notes, group = [], queue.group
    if group is not None and group.overlap > 1:
        notes.append(f"vote {len(group.votes) + 1} of {group.overlap}")
    if others:
        notes.append(f"{len(others)} with {lease_name(others[0])}")
    figures = session_figures(queue)
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


def progress_words(now: RatingFigures) -> str:
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
    if not names:
        return ""
    return f"also here: {', '.join(names[:2])}" + (f" +{len(names) - 2}" if names[2:] else "")


def banner_line(queue: RateQueue, width: int) -> Line:
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
    text = f"{plural(count, 'group')} sent unrated in 1 min"
    if context.read_only:
        return text
    return text + f"  F{context.screens['engine']} {context.keys['engine.job']}: larger batch"


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
    who = lease_name(others[0])
    where = "" if not lease.rater else " on another console"
    since = f" since {countdown(now - lease.since)}" if lease.since else ""
    text = f"{who} has {plural(len(mine), 'open group')}{where}{since}"
    if more := len(others) - len(mine):
        text += f", other consoles {more} more"
    if context.read_only:
        return text
    return f"{text}; {context.keys['rate.take']} takes {'it' if len(others) == 1 else 'the first'}"


def _mode(queue: RateQueue, room: int) -> Line:
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
    by_index = {card.index: card for card in cards(group)}
    blind = not ballot.revealed
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


def answer_head(card: Card, width: int, chosen: bool, words: str = "", note: str = "") -> Line:
    """Return the head of an answer in exactly `width` cells.

    Args:
        card: The answer.
        width: Cells.
        chosen: Whether it is selected.
        words: What stands beside its number: its place, or its first words.
        note: How much of it is left to read.
    """
    right = f" {note} " if note else ""
    line = head(card, max(1, width - len(right)), chosen)
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


def empty_lines(queue: RateQueue) -> list[str]:
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
    if (again := asked_next(queue)) is not None and session.allows("group.rerun"):
        key = context_of(session).keys["group.rerun"]
        lines.append(f"{key} asks one now: “{one_line(again.query, 50)}”")
    return lines


# --- panels of a wide screen: no lines means that a panel has no content and is hidden ------------


def guideline_lines(text: str, named: bool, width: int) -> list[Line]:
    """Return the guidelines; `named` is whether the settings name a file."""
    if text.strip():
        return markdown_lines(text, width, _CAP * 5)
    if named:
        return _muted("The guidelines are empty or cannot be read; g shows why.", width)
    return []


def reference_lines(
    group: Group | None, ballot: Ballot | None, last: Group | None, vote: str, width: int
) -> list[Line]:
    """Return the reference of the question on screen, or of the one that was rated last.

    A reference must not influence a blind vote: that of the question on screen is hidden until `v`
    shows it, and that of the last vote is omitted if it is the same.

    Args:
        last: The group of the last vote.
        vote: That vote in words.
    """
    hidden = ballot is not None and not ballot.revealed
    if group is not None and not hidden:
        return _reference(group.reference, width) if group.reference is not None else []
    lines: list[Line] = []
    if group is not None and group.reference is not None:
        text = "This question has a reference: it appears after your vote, v shows it now."
        lines += _muted(text, width)
    if last is not None and _may_show(last, group):
        lines += [EMPTY] if lines else []
        lines.append((("last vote ", "$heading"), (fit(vote, width - 10).rstrip(), "$muted")))
        lines += [((row, "bold"),) for row in wrapped(last.query, width, 400)[:2]]
        lines += _reference(last.reference or "", width)
    return lines


def _may_show(last: Group, group: Group | None) -> bool:
    """Return whether the reference of the last vote may be shown beside the question on screen."""
    if last.reference is None or last.rating is None:
        return False
    return group is None or (
        group.group_id != last.group_id
        and group.query != last.query
        and group.reference != last.reference
    )


def _reference(text: str, width: int) -> list[Line]:
    rows = wrapped(text, width, _CAP) or ["(empty)"]
    return [((row, "$returned"),) for row in rows]


def session_lines(
    now: RatingFigures, minutes: Sequence[int], counted: int, waiting: int, rater: str, width: int
) -> list[Line]:
    """Return the number of votes, their pace, and how many groups wait.

    Args:
        now: The figures of the session.
        minutes: Votes in each of the last minutes, oldest first.
        counted: Votes of the rater on complete groups, sent or late, of all sessions.
        waiting: Groups that wait for a vote.
        rater: The rater's name; empty before it is known.
        width: Cells of a line.
    """
    named = f" by {one_line(rater, 20)}" if rater else ""
    lines: list[Line] = [
        (("rated     ", "$muted"), (str(now.rated), "bold $reward-up"), (named, "$muted")),
        (("waiting   ", "$muted"), (str(waiting), "bold $winner" if waiting else "bold")),
    ]
    if now.skipped:
        lines.insert(1, (("skipped   ", "$muted"), (str(now.skipped), "bold")))
    if now.goal:
        goal = progress_words(now).removesuffix(" at this pace")
        lines.insert(1, (("goal      ", "$muted"), (goal, "bold")))
    if counted:
        lines.append((("counted   ", "$muted"), (str(counted), "bold"), (" in all", "$muted")))
    pace = "–" if now.per_minute is None else f"{now.per_minute:.1f}"
    lines += [
        (("pace      ", "$muted"), (pace, "bold"), (" a minute", "$muted")),
        EMPTY,
        ((_bars(minutes, width), "$curve"),),
        ((fit(f"the last {len(minutes)} minutes", width).rstrip(), "$muted"),),
    ]
    return lines


def _bars(counts: Sequence[int], width: int) -> str:
    """Return a bar for each count, as wide as the width allows."""
    top = max(1, *counts)
    size = max(1, min(3, width // len(counts)))
    bars = ("▁▂▃▄▅▆▇█"[count * 7 // top] if count else "·" for count in counts)
    return "".join(bar * size for bar in bars)


def _muted(text: str, width: int) -> list[Line]:
    return [((row, "$muted"),) for row in wrapped(text, width)]
