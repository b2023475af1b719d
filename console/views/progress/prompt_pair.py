"""Answers of before and now side by side: with a word diff, or blind for a rater."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from ajet_swarm.common.text import one_line
from console.models.progress.prompts import PromptChange
from console.text.diff import word_diff
from console.text.format import number
from console.text.lines import EMPTY, Line, line_width
from console.text.wrap import wrapped

_GAP = " │ "
BESIDE = 50
"""Minimum width in cells of two columns; narrower answers are drawn below one another."""
_MOST_REWARDS = 16
BLIND_BESIDE = 100
"""The same for the answers of a blind pair."""
_MOST_ROWS = 8
"""Maximum rows of a prompt or a reference."""
_SIGNS = {
    "now": ("▲ you chose the answer of now", "bold $reward-up"),
    "before": ("▼ you chose the answer of before", "bold $reward-down"),
    "tie": ("= neither is better", "bold"),
    "skip": ("· skipped", "$muted"),
}


def pair_lines(change: PromptChange, step_before: str, step_now: str, width: int) -> list[Line]:
    """Return prompt, reference and both answers.

    In the present answer, shared words are dimmed, its own are underlined, missing ones are struck
    through.

    Args:
        change: The prompt.
        step_before: Words about the step of the baseline, such as `step 1`.
        step_now: The same for the look.
        width: Total width in cells.
    """
    head = _labelled("prompt", change.prompt, width)
    if change.reference:
        head += _labelled("reference", change.reference, width)
    beside = width >= BESIDE
    room = (width - len(_GAP)) // 2 if beside else width
    left = [
        _title("BEFORE", step_before, change.before),
        *_rewards(change.rewards_before, room),
        *(((text, ""),) for text in wrapped(change.text_before, room) or ["(empty)"]),
    ]
    right = [
        _title("NOW", step_now, change.now, wins=change.before is None),
        *_rewards(change.rewards_now, room),
        *_answer_now(change, room),
    ]
    if not beside:
        return [*head, EMPTY, *left, EMPTY, *right]
    rows = zip_longest(left, right, fillvalue=EMPTY)
    return [*head, EMPTY, *(_joined(before, now, room) for before, now in rows)]


def _answer_now(change: PromptChange, room: int) -> list[Line]:
    if not change.text_now:
        return [(("(empty)", ""),)]
    if not change.text_before:
        return [((text, ""),) for text in wrapped(change.text_now, room)]
    return list(word_diff(change.text_before, change.text_now, room))


def _labelled(label: str, text: str, width: int) -> list[Line]:
    """Return a text behind its label, in at most eight lines."""
    size = len("reference") + 1
    rows = wrapped(text, max(10, width - size))
    if len(rows) > _MOST_ROWS:
        rows = [*rows[: _MOST_ROWS - 1], "…"]
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
    shown = " ".join(number(reward) for reward in rewards[:_MOST_REWARDS])
    more = " …" if len(rewards) > _MOST_REWARDS else ""
    return [((row, "$muted"),) for row in wrapped(f"rewards {shown}{more}", room)]


def _joined(left: Line, right: Line, room: int) -> Line:
    padding = " " * max(0, room - line_width(left))
    return (*left, (padding, ""), (_GAP, "$faint"), *right)


# --- blind pairs -------------------------------------------------------------------------------


def blind_title(pair: Mapping[str, Any], vote: Mapping[str, Any] | None, width: int) -> list[Line]:
    """Return what is compared and, after the vote, what was chosen and the ratings so far.

    Args:
        pair: Data of the command `progress.pair`.
        vote: Data of the command `progress.vote`; None before the vote.
        width: Width in cells.
    """
    steps = f"{_step(pair['step'])} and {_step(pair['baseline_step'])}, in random order"
    if pair["newest_step"] != pair["step"]:
        steps += f"; the newest look is of {_step(pair['newest_step'])}"
    done = pair["ratings"] if vote is None else vote["ratings"]
    head = (f" {steps}, {done} rated", "$muted")
    lines: list[Line] = [(("BLIND PAIR ", "bold $heading"), head)]
    if vote is None:
        return lines
    lines.append((_SIGNS[vote["result"]], (_automatic(vote), "$muted")))
    return [*lines, *(((row, ""),) for row in wrapped(vote["sentence"], max(10, width)))]


def blind_answers(
    pair: Mapping[str, Any], vote: Mapping[str, Any] | None, width: int
) -> list[Line]:
    """Return the prompt and both answers; arguments as of `blind_title`."""
    rows = wrapped(pair["prompt"], max(10, width - 8))
    if len(rows) > _MOST_ROWS:
        rows = [*rows[: _MOST_ROWS - 1], "…"]
    head: list[Line] = [
        (("prompt  " if at == 0 else " " * 8, "$muted"), (row, "bold"))
        for at, row in enumerate(rows)
    ]
    beside = width >= BLIND_BESIDE
    room = (width - len(_GAP)) // 2 if beside else width
    sides: list[list[Line]] = []
    for key, side in (("1", "left"), ("2", "right")):
        which = "" if vote is None else f"  {vote[side].upper()}, {_step_of(vote, vote[side])}"
        text = wrapped(pair[side], room) or ["(empty)"]
        sides.append(
            [(("ANSWER ", "bold $heading"), (key, "bold $accent"), (which, "bold $heading"))]
            + [((row, ""),) for row in text]
        )
    first, second = sides
    if not beside:
        return [*head, EMPTY, *first, EMPTY, *second]
    return [
        *head,
        EMPTY,
        *(_joined(a, b, room) for a, b in zip_longest(first, second, fillvalue=EMPTY)),
    ]


def _automatic(vote: Mapping[str, Any]) -> str:
    words = {1.0: "now", 0.5: "neither", 0.0: "before"}
    return f"   by its reward: {words[vote['automatic']]}" if vote["automatic"] is not None else ""


def _step_of(vote: Mapping[str, Any], which: str) -> str:
    return _step(vote["step"] if which == "now" else vote["baseline_step"])


def _step(step: int | None) -> str:
    return "an unknown step" if step is None else f"step {step}"
