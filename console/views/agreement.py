"""Agreement of a rater with the automatic rewards: how often both prefer the same answer.

The automatic rewards of a rated group are computed and stored beside the rating, but not sent.
"""

from collections.abc import Mapping

from ajet_swarm.common.text import one_line, plural
from console.text.format import clock
from console.text.lines import Line, fit
from console.views.rating import share_words
from core.scoring.agreement import only_top
from core.state import Group, PartAgreement, RaterStats, State
from core.state.rating import judged_best

_LABEL = 17
_PARTS = 6
"""Most parts of the rewards in the list."""


def chosen(group: Group) -> int | None:
    """Return the answer with the best sealed reward of the rater; None for none."""
    return only_top({one.index: one.reward for one in group.candidates if one.reward is not None})


def disagreements(state: State, rater: str) -> list[Group]:
    """Return this rater's groups, newest first, where the automatic rewards differ in the best."""
    groups = []
    for group in reversed(state.groups.values()):
        rating = group.rating
        if rating is None or rating.rater != rater or group.source != "human":
            continue
        mine, judge = chosen(group), judged_best(group)
        if mine is not None and judge is not None and mine != judge:
            groups.append(group)
    return groups


def summary_lines(stats: RaterStats | None) -> list[Line]:
    """Return what the votes show, each share with its number and its 95 % interval."""
    if stats is None or not stats.votes:
        return [(("You have not sent a vote yet.", "$muted"),)]
    lines = [_line("votes sent", str(stats.votes), f"{stats.placed} blind with one answer on top")]
    if stats.judged:
        chance = f"by chance {stats.agreed_chance / stats.judged:.0%}".replace("%", " %")
        lines.append(_line("same as rewards", share_words(stats.agreed, stats.judged), chance))
    else:
        lines.append(_line("same as rewards", "–", "no blind vote with an automatic best yet"))
    lines += part_lines(stats.parts)
    if stats.repeats:
        shares = share_words(stats.repeated, stats.repeats)
        lines.append(_line("same as yourself", shares, "second votes on the same group"))
    else:
        lines.append(_line("same as yourself", "–", "no second vote yet"))
    if stats.placed:
        chance = f"by chance {stats.first_chance / stats.placed:.0%}".replace("%", " %")
        lines.append(_line("first place best", share_words(stats.first, stats.placed), chance))
    return lines


def part_lines(parts: Mapping[str, PartAgreement]) -> list[Line]:
    """Return how often each part agreed, most votes first; at most `_PARTS`."""
    most = sorted(parts.items(), key=lambda one: -one[1].judged)[:_PARTS]
    return [
        _line(
            f"  {one_line(name, _LABEL)}",
            share_words(one.agreed, one.judged),
            f"by chance {one.chance / one.judged:.0%}".replace("%", " %"),
        )
        for name, one in most
        if one.judged
    ]


def _line(label: str, value: str, note: str) -> Line:
    return ((fit(label, _LABEL), "$muted"), (f"{value}  ", "bold"), (note, "$muted"))


def list_title(count: int) -> str:
    """Return the title of the list."""
    if not count:
        return "No group on which you and the automatic rewards disagree"
    return f"{plural(count, 'group')} on which you disagree, newest first"


def row_text(group: Group, width: int) -> str:
    """Return `12:31:04  you #2  rewards #4 (0.91)  “…”` in one row."""
    mine, judge = chosen(group), judged_best(group)
    value = group.candidates[judge].auto_reward if judge is not None else None
    head = clock(group.rating.at if group.rating is not None else group.opened_at)
    head += f"  you #{(mine or 0) + 1}  rewards #{(judge or 0) + 1}"
    head += f" ({value:.2f})  " if value is not None else "  "
    tags = (
        f"  [{', '.join(one_line(tag, 16) for tag in group.rating.tags)}]"
        if (group.rating is not None and group.rating.tags)
        else ""
    )
    room = max(8, width - len(head) - len(tags))
    return f"{head}{fit(one_line(group.query, 200), room)}{tags}"
