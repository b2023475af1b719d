"""Room for reading on Rate: where the answers stand, what is dimmed, keys to read all of them."""

import random

import pytest

from console.screens.rate.widgets import AnswerPane, Answers, page_rows
from tests.pilot.rate.test_screen import PLACES, order_of, votes, waiting
from tests.support.console import BY_ENTER, RunningConsole, group_events, run_console, state_of

WORDS = (
    "the sky appears blue because molecules in the air scatter short waves of sunlight much more "
    "than long ones an effect that was first described in full by lord rayleigh"
)
KEYS = 8
"""Most keys to read four answers of 300 words."""


def answer_text(number: int, words: int = 300) -> str:
    """An answer in four paragraphs that begins with `Answer NUMBER`."""
    rng = random.Random(number)
    chosen = [f"Answer {number}", *rng.choices(WORDS.split(), k=words - 2)]
    size = (len(chosen) + 3) // 4
    return "\n\n".join(" ".join(chosen[at : at + size]) for at in range(0, len(chosen), size))


def answers_of(console: RunningConsole) -> Answers:
    return console.app.screen.query_one(Answers)


def painted(console: RunningConsole) -> list[tuple[int, set[int]]]:
    """Place and numbers of the visible lines of each open answer on screen."""
    answers = answers_of(console)
    panes = zip(answers.query_children(AnswerPane), answers.window(), strict=False)
    result = []
    for pane, place in panes:
        first = round(pane.scroll_offset.y)
        if not pane.has_class("-folded"):
            result.append((place, set(range(first, first + page_rows(pane)))))
    return result


@pytest.mark.parametrize(
    ("size", "most"), [((80, 24), KEYS), ((100, 30), 6), ((120, 36), 3), ((160, 48), 2)]
)
async def test_four_answers_of_300_words_are_read_with_few_keys(
    size: tuple[int, int], most: int
) -> None:
    texts = [answer_text(number) for number in range(4)]
    async with run_console(waiting(1, texts=texts), places=PLACES, at="rate", size=size) as console:
        answers = answers_of(console)
        lines = [len(pane.lines) for pane in answers.query_children(AnswerPane)]
        unread = {(place, row) for place in range(4) for row in range(max(lines))}
        keys = 0
        wholes: dict[int, int] = {}
        while True:
            for place, rows in painted(console):
                unread -= {(place, row) for row in rows}
                pane = answers.query_children(AnswerPane)[answers.window().index(place)]
                wholes[place] = len(pane.lines)
            if len(wholes) == 4 and not {
                (place, row) for place, row in unread if row < wholes[place]
            }:
                break
            await console.press("space")
            keys += 1
            assert keys <= most
        assert votes(console) == []
        await console.press("escape")
        assert not answers.zoomed
        assert answers.selected is None


@pytest.mark.parametrize("size", [(80, 24), (100, 24), (120, 36), (160, 48)])
async def test_at_most_three_lines_stand_above_the_first_answer(size: tuple[int, int]) -> None:
    async with run_console(waiting(2), places=PLACES, at="rate", size=size) as console:
        assert answers_of(console).region.y == 3


async def test_answers_stand_beside_each_other_from_100_columns() -> None:
    texts = [f"start{number} " + "word " * 300 for number in range(4)]
    async with run_console(waiting(1, texts=texts), places=PLACES, at="rate") as console:
        starts = [f"start{index}" for index in order_of(1)]

        def rows_of() -> list[int]:
            rows = console.text().splitlines()
            return [next(at for at, row in enumerate(rows) if start in row) for start in starts]

        first = rows_of()
        assert first[1:] == [first[1], first[1] + 1, first[1] + 2], "one line of each other one"
        assert first[1] - first[0] > 10
        await console.press("tab", "tab")
        second = rows_of()
        assert second[1] - second[0] == 2
        assert second[2] - second[1] > 10
        for columns, height in ((100, 30), (160, 48)):
            await console.pilot.resize_terminal(columns, height)
            await console.settle()
            upper, _, lower, _ = rows_of()
            assert rows_of() == [upper, upper, lower, lower]
        await console.pilot.resize_terminal(60, 15)
        await console.settle()
        shown = console.text()
        assert [start in shown for start in starts] == [False, True, False, False]
        assert "2 of 4" in shown
        await console.press("tab")
        assert starts[2] in console.text()
        await console.press("v", "z", "escape")
        assert votes(console) == []


async def test_after_a_short_answer_space_reads_the_next_one() -> None:
    texts = ["Short.", *(f"start{at} " + "word " * 300 for at in (1, 2, 3))]
    async with run_console(waiting(1, texts=texts), places=PLACES, at="rate") as console:
        order = order_of(1)
        await console.press(*["tab"] * (order.index(0) + 1))
        assert all(f"start{at}" in console.text() for at in (1, 2, 3))
        await console.press("space")
        place = min(order.index(0) + 2, 4)
        assert f"{place} of 4" in console.text()
        await console.press("pageup")
        assert f"{place - 1} of 4" in console.text()
        await console.press("escape")
        assert "of 4" not in console.text()


async def test_of_six_answers_one_is_open_beside_a_list() -> None:
    texts = [f"Same opening\n\nstart{index} " + "word " * 300 + f"end{index}" for index in range(6)]
    events = group_events(1, texts=texts, rewards=[0.1] * 6, until="AWAITING_RATING")
    async with run_console(
        state_of(*events), places=PLACES, at="rate", rating=BY_ENTER, size=(120, 36)
    ) as console:
        order = [card.candidate.index for card in answers_of(console).cards]
        shown = console.text()
        assert [shown.count(f"start{index}") for index in order] == [2, 1, 1, 1, 1, 1]
        assert shown.count("Same opening") == 1, "the list shows where answers differ"
        await console.press("tab", "tab", "tab")
        shown = console.text()
        assert [shown.count(f"start{index}") for index in order] == [1, 1, 2, 1, 1, 1]
        await console.press("space", "space", "space")
        assert [f"start{index}" in console.text() for index in order] == [True] * 6
        await console.press("6")
        assert "best" in console.text()


async def test_in_the_grid_lines_of_all_answers_are_dimmed_and_answers_scroll_together() -> None:
    texts = [
        "Shared opening\n\n" + "\n".join(f"{at}-{row}" for row in range(60)) for at in range(4)
    ]
    async with run_console(
        waiting(1, texts=texts), places=PLACES, at="rate", size=(120, 36)
    ) as console:
        panes = list(answers_of(console).query_children(AnswerPane))

        def tops() -> list[int]:
            return [round(pane.scroll_offset.y) for pane in panes]

        for pane in panes:
            assert pane.lines[0] == ((" ", ""), ("Shared opening", "$muted"))
            assert "$muted" not in {tone for _, tone in pane.lines[2]}
        assert [str(pane.border_subtitle) for pane in panes] == [
            "Space ▾ 49 lines",
            *["▾ 49 lines"] * 3,
        ]
        await console.press("down")
        assert tops() == [3] * 4
        assert "▾ 46 lines" in console.text()
        await console.press("tab", "space")
        assert tops() == [16, 3, 3, 3]
        await console.press("escape", "space")
        assert tops() == [13] * 4
        await console.press("pageup")
        assert tops() == [0] * 4
        await console.press("d")
        assert "≡ compared with" in console.text()
        assert panes[0].lines[0] == ((" ", ""), ("Shared opening", ""))
