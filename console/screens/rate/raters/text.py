"""Lines about raters: presence, pace, agreement with each other and with the automatic rewards."""

from collections.abc import Mapping, Sequence

from ajet_swarm.common.text import one_line, plural
from console.screens.rate.raters.model import RaterAgreement, RaterRow, chosen
from console.session.group_facts import votes_text
from console.text.format import clock
from console.text.lines import Line, fit
from core.scoring.agreement import wilson
from core.state import Group, PartAgreement, RaterStats
from core.state.rating import judged_best

_NAME = 13
_OPEN = 12
_LABEL = 17
_PARTS = 6
"""Most parts of the rewards in the list."""


def share_words(hits: int, n: int) -> str:
    """Return `31 of 42, 74 % (59-85 %)`: a share with its 95 % interval."""
    low, high = wilson(hits, n)
    return f"{hits} of {n}, {100 * hits / n:.0f} % ({100 * low:.0f}-{100 * high:.0f} %)"


def second_words(message: str, stats: RaterStats | None) -> str:
    """Return the message after a repeated vote, with the share of repeats that agreed."""
    text = f"you have rated this group before: {message}; nothing is sent"
    if stats is None or not stats.repeats:
        return text
    return f"{text} · {share_words(stats.repeated, stats.repeats)} the same"


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


# --- votes against automatic rewards -----------------------------------------------------------


def summary_lines(stats: RaterStats | None) -> list[Line]:
    """Return what the votes show, each share with its number and its 95 % interval."""
    if stats is None or not stats.votes:
        return [(("You have no vote on a complete group yet.", "$muted"),)]
    placed = f"{stats.placed} blind with one answer on top"
    lines = [_line("votes counted", str(stats.votes), placed)]
    if stats.judged:
        lines.append(_share("same as rewards", stats.agreed, stats.judged, stats.agreed_chance))
    else:
        lines.append(_line("same as rewards", "–", "no blind vote with an automatic best yet"))
    lines += part_lines(stats.parts)
    if stats.repeats:
        shares = share_words(stats.repeated, stats.repeats)
        lines.append(_line("same as yourself", shares, "second votes on the same group"))
    else:
        lines.append(_line("same as yourself", "–", "no second vote yet"))
    if stats.placed:
        lines.append(_share("first place best", stats.first, stats.placed, stats.first_chance))
    return lines


def part_lines(parts: Mapping[str, PartAgreement]) -> list[Line]:
    """Return how often each part agreed, most votes first; at most `_PARTS`."""
    most = sorted(parts.items(), key=lambda named: -named[1].judged)[:_PARTS]
    return [
        _share(f"  {one_line(name, _LABEL)}", part.agreed, part.judged, part.chance)
        for name, part in most
        if part.judged
    ]


def _share(label: str, hits: int, n: int, expected: float) -> Line:
    return _line(label, share_words(hits, n), f"by chance {100 * expected / n:.0f} %")


def _line(label: str, value: str, note: str) -> Line:
    return ((fit(label, _LABEL), "$muted"), (f"{value}  ", "bold"), (note, "$muted"))


def list_title(count: int) -> str:
    """Return the title of the list."""
    if not count:
        return "No group on which you and the automatic rewards disagree"
    return f"{plural(count, 'group')} on which you disagree, newest first"


def row_text(group: Group, width: int) -> str:
    """Return `12:31:04  you #2  rewards #4 (0.91)  “…”` in one row."""
    mine, judge, rating = chosen(group), judged_best(group), group.rating
    value = group.candidates[judge].auto_reward if judge is not None else None
    head = clock(rating.at if rating is not None else group.opened_at)
    head += f"  you #{(mine or 0) + 1}  rewards #{(judge or 0) + 1}"
    head += f" ({value:.2f})  " if value is not None else "  "
    reasons = ", ".join(one_line(tag, 16) for tag in rating.tags) if rating is not None else ""
    tags = f"  [{reasons}]" if reasons else ""
    return f"{head}{fit(one_line(group.query, 200), max(8, width - len(head) - len(tags)))}{tags}"
