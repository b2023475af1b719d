"""Lines about several raters: who they are, their pace and agreement, their disagreements."""

from collections.abc import Sequence

from ajet_swarm.common.text import one_line, plural
from console.models.rating.raters import RaterAgreement, RaterRow, votes_text
from console.text.lines import Line, fit
from console.views.rating import share_words
from core.state import Group

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


def agreement_lines(agreement: RaterAgreement) -> list[Line]:
    """Return how often two raters agree, of the best answers and of the order of two answers."""
    if agreement.best is None:
        return [(("Agreement: no group has votes of two raters yet", "$muted"),)]
    groups = plural(agreement.best.compared, "group")
    order = agreement.order
    return [
        (("Same best answers  ", "$muted"), (agreement.best.text, "bold")),
        (("Same order of two  ", "$muted"), (order.text if order is not None else "–", "bold")),
        ((f"of two raters over {groups}, with 95 % intervals", "$muted"),),
    ]


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
    rows: Sequence[RaterRow], agreement: RaterAgreement | None, disputed: int
) -> list[Line]:
    """Return all that the lead sees above the list of disagreements.

    Args:
        rows: The raters.
        agreement: Their agreement; None while it is computed.
        disputed: Number of disagreements to settle.
    """
    if not rows:
        return [(("No rater is attached, and nobody has voted yet", "$muted"),)]
    lines = [rater_head(), *(rater_line(row) for row in rows), ()]
    lines += [(("Agreement: …", "$muted"),)] if agreement is None else agreement_lines(agreement)
    return [*lines, (), ((disagreement_title(disputed), "bold"),)]
