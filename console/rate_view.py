"""What the rating screen says around the answers: clock, mode, what became of the last vote."""

from dataclasses import replace

from console.ballot import Ballot
from console.cards import Card, cards
from console.detail_view import held_words, rating_words
from console.views import Line, best_of, fit, has_answer
from console.widgets.words import countdown, plural
from core.state import Group
from core.text import one_line

MODES = {
    "off": "off: nobody waits; a scored group can be overridden for a few seconds, then it is sent",
    "answer_first": "answer first: the user is answered at once, you rate until the clock runs out",
    "hold": "hold: the user waits for your rating, within the answer budget",
}
HURRY = 10.0
"""Seconds left from which the clock is shown in another tone."""


def mode_words(mode: str) -> str:
    """The name of a rating mode as people say it."""
    return mode.replace("_", " ")


def bar_pieces(share: float | None, width: int, tone: str) -> Line:
    """A thin bar of `width` cells, in halves of a cell; None is not known."""
    if width <= 0:
        return ()
    if share is None:
        return (("┈" * width, "$faint"),)
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    filled = "━" * full + "╸" * half
    return ((filled, tone), ("─" * (width - len(filled)), "$faint"))


def title_line(waiting: int, held: int, mode: str, width: int) -> Line:
    """`Rate  3 to rate  1 rated, held   mode off: …`; a group is counted once."""
    pieces: list[tuple[str, str]] = [
        (" Rate ", "bold $heading"),
        (f" {waiting} to rate ", "bold $winner" if waiting else "$muted"),
    ]
    if held:
        pieces.append((f" {held} rated, held ", "$reward-up"))
    used = sum(len(text) for text, _ in pieces)
    words = MODES.get(mode, one_line(mode, 20))
    said = f"  mode {words}"
    if used + len(said) > width:
        said = f"  mode {mode_words(mode)}  (o switches)"
    pieces.append((fit(said, max(0, width - used)), "$muted"))
    return tuple(pieces)


def clock_line(group: Group, now: float, width: int) -> Line:
    """How long the group stays open, and what happens then."""
    if group.until is None:
        return ((" no clock", "$muted"),)
    left = max(0.0, group.until - now)
    began = group.scored_at or group.opened_at
    share = left / max(group.until - began, 0.1)
    tone = "$reward-down" if left <= HURRY else "$winner"
    then = {
        "accept": "then the automatic reward is sent",
        "abort": "then it is aborted",
    }.get(group.fallback, "")
    if group.abstained:
        then = "not scored automatically; " + then
    label = f" {countdown(left)} "
    tail = f" {then} "
    room = max(8, width - len(label) - len(tail))
    return ((label, f"bold {tone}"), *bar_pieces(share, room, tone), (tail, "$muted"))


def rate_cards(group: Group, ballot: Ballot, compact: bool = False) -> list[Card]:
    """The answers in the order shown; blind until they are revealed or rated."""
    by_index = {card.index: card for card in cards(group)}
    blind = ballot.blind and not ballot.revealed
    return [
        replace(
            by_index[index],
            label=str(place),
            rank=ballot.typed(index),
            blind=blind,
            compact=compact,
            figures="" if blind else by_index[index].figures,
        )
        for place, index in enumerate(ballot.shown, 1)
        if index in by_index
    ]


def missing_text(group: Group) -> str:
    """Candidates that cannot be rated, in words; empty when there are none."""
    missing = sum(not has_answer(one) for one in group.candidates)
    return f"{plural(missing, 'candidate')} failed and cannot be rated" if missing else ""


def last_vote_line(group: Group | None, words: str, now: float, width: int) -> Line:
    """What became of the last vote: held with its clock, sent, or gone."""
    if not words:
        return ()
    fate, tone = vote_fate(group, now)
    query = one_line(group.query, 200) if group is not None else ""
    head = f" last: {words} · {fate} "
    room = max(0, width - len(head))
    return ((head, tone), (fit(f"“{query}”", room) if room > 8 and query else "", "$muted"))


def vote_fate(group: Group | None, now: float) -> tuple[str, str]:
    """Where a vote is: words and tone."""
    if group is None:
        return "its group is no longer kept", "$muted"
    if group.phase == "AWAITING_RATING":
        if group.rating is None:
            return "on its way", "$muted"
        return held_words(group, now), "$winner"
    if group.phase == "ABORTED":
        return "aborted, nothing sent", "$muted"
    if group.source == "human" or (group.sealed_at is None and group.rating is not None):
        return "sent", "$reward-up"
    return "came too late: the automatic reward was sent", "$reward-down"


def vote_words(group: Group, ballot_words: str) -> str:
    """The vote with what the automatic reward would have chosen."""
    words = rating_words(group) or ballot_words
    scored = [one.auto_reward for one in group.candidates]
    if all(value is None for value in scored):
        return f"{words} (no automatic reward)"
    if group.rating is not None:
        best = max(
            (one for one in group.candidates if one.auto_reward is not None),
            key=lambda one: (one.auto_reward or 0.0, -one.index),
        ).index
    else:
        best = best_of(group) or 0
    return f"{words} (automatic: #{best + 1})"
