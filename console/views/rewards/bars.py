"""The parts of each answer's reward as one stacked bar, all bars on one scale."""

from collections.abc import Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.session.group_facts import known_rewards, rated_best
from console.text.format import UNKNOWN, difference, number, places_of
from console.text.lines import Line, fit
from core.state import Candidate, Group

ROWS = 8
"""Most answers with a bar; the best ones."""
TONES = 6
"""Colours of parts in the themes; a later part reuses the colour of an earlier one."""
_HEAD = 7
_NOTE = 30
"""Most cells of the text after a bar."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The contribution of each part to the automatic reward of one answer."""

    index: int
    reward: float
    parts: tuple[tuple[str, float], ...]
    """Name and share of the reward of each weighted part: gates x weight x value."""
    closed: tuple[tuple[str, float], ...]
    """Name and value of the gates that reduce it."""


def shares_of(candidate: Candidate) -> Shares | None:
    """Return the parts of one answer's automatic reward; None where it has none."""
    if not candidate.parts or candidate.auto_reward is None:
        return None
    gates = 1.0
    for part in candidate.parts:
        gates *= part.value if part.gate else 1.0
    return Shares(
        candidate.index,
        candidate.auto_reward,
        tuple(
            (one_line(part.name, 40), gates * part.weight * part.value)
            for part in candidate.parts
            if not part.gate
        ),
        tuple(
            (one_line(part.name, 40), part.value)
            for part in candidate.parts
            if part.gate and part.value < 1
        ),
    )


def bar_lines(group: Group, width: int) -> list[Line]:
    """Return the deciding parts, then a bar for each scored answer; empty without parts."""
    scored = [
        shares for candidate in group.candidates if (shares := shares_of(candidate)) is not None
    ]
    names = list(dict.fromkeys(name for shares in scored for name, _ in shares.parts))
    if len(scored) < 2 or not names:
        return []
    order = sorted(scored, key=lambda shares: (-shares.reward, shares.index))
    shown = {shares.index for shares in order[:ROWS]}
    places = places_of([shares.reward for shares in scored])
    notes = [_note(shares, places) for shares in scored]
    room = max(10, width - _HEAD - min(_NOTE, max(map(len, notes))) - 1)
    top = max(sum(max(0.0, share) for _, share in shares.parts) for shares in scored)
    voted = group.rating is not None and group.source != "auto"
    lines: list[Line] = [_voted(group, width) if voted else _decided(order, width)]
    winner = rated_best(group) if voted else order[0].index
    for shares, note in zip(scored, notes, strict=True):
        if shares.index in shown:
            best = shares.index == winner
            lines.append(_bar(shares, names, top, room, note, best=best))
    return lines


def _voted(group: Group, width: int) -> Line:
    """Return the rewards of the vote: the automatic order decides nothing then."""
    rater = group.rating.rater if group.rating is not None else ""
    head = "✓ the vote" + (f" of {one_line(rater, 24)}" if rater else "") + " decides"
    rewards = known_rewards(group)
    figures = " ".join(UNKNOWN if reward is None else number(reward) for reward in rewards)
    text = f": rewards {figures}; the bars are the automatic ones"
    return (
        (fit(head, width).rstrip(), "bold $reward-up"),
        (fit(text, max(0, width - len(head))).rstrip(), ""),
    )


def _decided(order: Sequence[Shares], width: int) -> Line:
    """Return `▲ #3 is 0.12 above #1: reference +0.10, length +0.02`: winner and next best."""
    first, second = order[0], order[1]
    by = first.reward - second.reward
    if by < 1e-9:
        text = f"#{first.index + 1} and #{second.index + 1} have the same automatic reward"
        return ((fit(text, width).rstrip(), "$muted"),)
    before = dict(second.parts)
    changes = [(name, share - before.get(name, 0.0)) for name, share in first.parts]
    changes = sorted(changes, key=lambda change: -abs(change[1]))
    text = ", ".join(
        f"{name} {'-' if change < 0 else '+'}{difference(abs(change))}"
        for name, change in changes
        if abs(change) >= min(0.005, by / 2)
    )
    head = f"▲ #{first.index + 1} is {difference(by)} above #{second.index + 1}"
    return (
        (head, "bold $winner"),
        (fit(f": {text}" if text else "", width - len(head)).rstrip(), ""),
    )


def _note(shares: Shares, places: int) -> str:
    """Return its reward, the gates that reduce it, and the sum of its negative parts."""
    text = f" {number(shares.reward, places)}"
    for name, value in shares.closed:
        text += f" × {name} {number(value)}"
    if lost := sum(share for _, share in shares.parts if share < 0):
        text += f" ({lost:+.2f} below 0)"
    return text


def _bar(
    shares: Shares, names: Sequence[str], top: float, room: int, note: str, *, best: bool
) -> Line:
    mark = f"#{shares.index + 1}" + (" ▲" if best else "")
    pieces: list[tuple[str, str]] = [(fit(mark, _HEAD - 1), "bold $winner" if best else "bold")]
    pieces.append((" ", ""))
    total, used = 0.0, 0
    for name, share in shares.parts:
        if share <= 0 or top <= 0:
            continue
        total += share
        size = round(total / top * room) - used
        used += size
        tone = f"$pill-text on $part-{names.index(name) % TONES + 1}"
        pieces.append((_label(name, share, size), tone))
    if not used:
        pieces.append(("▏", "$faint"))
    tone = "bold $reward-down" if shares.closed else "bold"
    pieces.append((fit(note, min(_NOTE, len(note))), tone))
    return tuple(pieces)


def _label(name: str, share: float, size: int) -> str:
    """Return name and share as far as they fit into `size` cells of the bar."""
    for text in (f" {name} {number(share)}", f" {name}", name[:1]):
        if len(text) <= size:
            return fit(text, size)
    return " " * size
