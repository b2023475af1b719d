"""One probe prompt: the answer before and the answer now, side by side, with a word diff."""

from itertools import zip_longest

from ajet_swarm.common.text import one_line
from console.models.progress import PromptChange
from console.text.diff import word_diff
from console.text.format import number
from console.text.lines import EMPTY, Line, line_width
from console.text.wrap import wrapped

_GAP = " │ "
BESIDE = 50
"""Minimum width in cells of two columns; narrower answers are drawn below one another."""
_MOST_REWARDS = 16


def pair_lines(one: PromptChange, step_before: str, step_now: str, width: int) -> list[Line]:
    """Return prompt, reference and both answers.

    In the answer of now, shared words are dimmed, its own are underlined, missing ones are struck
    through.

    Args:
        one: The prompt.
        step_before: Words about the step of the baseline, such as `step 1`.
        step_now: The same for the look.
        width: Total width in cells.
    """
    head = _labelled("prompt", one.prompt, width)
    if one.reference:
        head += _labelled("reference", one.reference, width)
    beside = width >= BESIDE
    room = (width - len(_GAP)) // 2 if beside else width
    left = [
        _title("BEFORE", step_before, one.before),
        *_rewards(one.rewards_before, room),
        *(((text, ""),) for text in wrapped(one.text_before, room) or ["(empty)"]),
    ]
    right = [
        _title("NOW", step_now, one.now, wins=one.before is None),
        *_rewards(one.rewards_now, room),
        *_answer_now(one, room),
    ]
    if not beside:
        return [*head, EMPTY, *left, EMPTY, *right]
    rows = zip_longest(left, right, fillvalue=EMPTY)
    return [*head, EMPTY, *(_joined(before, now, room) for before, now in rows)]


def _answer_now(one: PromptChange, room: int) -> list[Line]:
    if not one.text_now:
        return [(("(empty)", ""),)]
    if not one.text_before:
        return [((text, ""),) for text in wrapped(one.text_now, room)]
    return list(word_diff(one.text_before, one.text_now, room))


def _labelled(label: str, text: str, width: int) -> list[Line]:
    """Return a text behind its label, in at most eight lines."""
    size = len("reference") + 1
    rows = wrapped(text, max(10, width - size))
    if len(rows) > 8:
        rows = [*rows[:7], "…"]
    return [
        (
            (f"{label if at == 0 else '':<{size}}", "$muted"),
            (row, "bold" if label == "prompt" else ""),
        )
        for at, row in enumerate(rows)
    ]


def _title(word: str, step: str, mean: float | None, wins: bool = False) -> Line:
    figures = f"  {'wins ' if wins else ''}{number(mean)}" if mean is not None else ""
    return ((word, "bold $heading"), (f"  {one_line(step, 30)}", "$muted"), (figures, "bold"))


def _rewards(rewards: tuple[float, ...], room: int) -> list[Line]:
    if not rewards:
        return []
    shown = " ".join(number(one) for one in rewards[:_MOST_REWARDS])
    more = " …" if len(rewards) > _MOST_REWARDS else ""
    return [((row, "$muted"),) for row in wrapped(f"rewards {shown}{more}", room)]


def _joined(left: Line, right: Line, room: int) -> Line:
    padding = " " * max(0, room - line_width(left))
    return (*left, (padding, ""), (_GAP, "$faint"), *right)
