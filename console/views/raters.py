"""Lines about several raters: who they are, their pace and agreement, their disagreements."""

from collections.abc import Sequence

from ajet_swarm.common.text import one_line, plural
from console.models.rating.raters import Agreement, RaterRow, votes_text
from console.text.lines import Line, fit
from console.views.rating import share_words
from core.state import Group
from core.verdict.krippendorff import FEWEST, Reliability

_NAME = 13
_OPEN = 12


def rater_head() -> Line:
    """Return the head of the table of raters."""
    text = f"{fit('RATER', _NAME)} {fit('HAS OPEN', _OPEN)} VOTES PER MIN  "
    return ((f"{text}SAME AS OTHERS", "bold"),)


def rater_line(row: RaterRow) -> Line:
    """Return one rater; attached ones have a dot."""
    sign = "●" if row.consoles else " "
    name = one_line(row.name, _NAME) or "(no name)"
    opened = row.open[0][:8] if row.open else ""
    if len(row.open) > 1:
        opened += f" +{len(row.open) - 1}"
    pace = "–" if row.per_minute is None else f"{row.per_minute:.1f}"
    same = share_words(row.same, row.compared) if row.compared else "–"
    return (
        (sign, "$reward-up"),
        (f"{fit(name, _NAME - 1)} ", "bold" if row.consoles else ""),
        (f"{fit(opened, _OPEN)} {row.cast:5} {pace:>7}  ", ""),
        (same, ""),
    )


def alpha_lines(reliability: Agreement) -> list[Line]:
    """Return Krippendorff's alpha with its interval, of the best answers and of the rewards."""
    if not reliability.best.clusters:
        return [(("Krippendorff's alpha: no group has votes of two raters yet", "$muted"),)]
    groups = plural(reliability.best.clusters, "group")
    few = reliability.best.clusters < FEWEST
    interval = f"intervals from {FEWEST} on" if few else "95 % intervals"
    return [
        (("Krippendorff's alpha, best answer  ", "$muted"), (_alpha(reliability.best), "bold")),
        (("                      rewards      ", "$muted"), (_alpha(reliability.rewards), "bold")),
        ((f"over {groups}; {interval}; 1 is perfect agreement, 0 chance", "$muted"),),
    ]


def _alpha(one: Reliability) -> str:
    if one.alpha is None:
        return "not defined: all votes are equal"
    if one.low is None or one.high is None:
        return f"{one.alpha:.2f}"
    return f"{one.alpha:.2f} ({one.low:.2f} to {one.high:.2f})"


def disagreement_title(count: int) -> str:
    """Return the title of the list of disagreements."""
    if not count:
        return "No disagreement to settle"
    return f"{plural(count, 'disagreement')} to settle, those not sent yet first"


def disagreement_row(group: Group, width: int) -> str:
    """Return `3f2a81c0 not sent  ada 2, bob 4  “question”` in one row."""
    head = f"{group.group_id[:8]} {'sent    ' if group.sealed_at is not None else 'not sent'}  "
    head += votes_text(group)
    return f"{head}  {fit(f'“{one_line(group.query, 200)}”', max(8, width - len(head) - 2))}"


def rater_lines(
    rows: Sequence[RaterRow], reliability: Agreement | None, disputed: int
) -> list[Line]:
    """Return all that the lead sees above the list of disagreements.

    Args:
        rows: The raters.
        reliability: Their agreement; None while it is computed.
        disputed: Number of disagreements to settle.
    """
    if not rows:
        return [(("No rater is attached, and nobody has voted yet", "$muted"),)]
    lines = [rater_head(), *(rater_line(row) for row in rows), ()]
    lines += (
        [(("Krippendorff's alpha: …", "$muted"),)]
        if reliability is None
        else alpha_lines(reliability)
    )
    return [*lines, (), ((disagreement_title(disputed), "bold"),)]
