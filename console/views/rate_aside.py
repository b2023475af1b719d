"""The panels of a wide rating screen as lines: guidelines, reference, session.

No lines means that the panel has no content and is hidden.
"""

from collections.abc import Sequence

from ajet_swarm.common.text import one_line
from console.models.ballot import Ballot
from console.models.rating.progress import RatingFigures
from console.text.lines import EMPTY, Line, fit
from console.text.markdown import markdown_lines
from console.text.wrap import wrapped
from core.state import Group

MINUTES = 15
"""Minutes that the pace is drawn for."""
_CAP = 4_000


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
    hidden = ballot is not None and ballot.blind and not ballot.revealed
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
    now: RatingFigures, minutes: Sequence[int], sent: int, waiting: int, rater: str, width: int
) -> list[Line]:
    """Return the number of votes, their pace, and how many groups wait.

    Args:
        now: The figures of the session.
        minutes: Votes in each of the last minutes, oldest first.
        sent: Votes of the rater that were sent, of all sessions.
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
    if sent:
        lines.append((("sent      ", "$muted"), (str(sent), "bold"), (" in all", "$muted")))
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
    return "".join(("·" if not one else "▁▂▃▄▅▆▇█"[one * 7 // top]) * size for one in counts)


def _muted(text: str, width: int) -> list[Line]:
    return [((row, "$muted"),) for row in wrapped(text, width)]
