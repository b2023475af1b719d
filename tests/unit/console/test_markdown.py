"""Markdown, code and word differences as lines."""

import random
import time

import pytest
from rich.cells import cell_len

from console.text.diff import GONE, OWN, SHARED, matches, word_diff
from console.text.lines import line_width
from console.text.markdown import CAP, CODE, LONGEST, code_rows, markdown_lines
from tests.support.groups import HOSTILE_TEXTS, text_of
from tests.support.sample import HOSTILE

HARD = [
    HOSTILE,
    "*a " * 60_000,
    "`" * 200_000,
    "[a](" * 50_000,
    "x" * 1_000_000,
    "| a | b |\n|---|---|\n" + "| 漢字 | **x** |\n" * 5_000,
    "**" * 100_000,
    "> " * 100_000,
    "```\n" + "word " * 20_000,
]


def plain_lines(text: str, width: int = 40) -> list[str]:
    """The lines without their tones."""
    return ["".join(piece for piece, _ in line) for line in markdown_lines(text, width)]


def test_markdown_in_lines() -> None:
    text = "# Title\n\nA **b** *c* `d*e*` [f](http://g)\n- h\n  1. i\n- [x] j\n> k\n"
    text += "```py\nl = '*'\n```"
    assert plain_lines(text) == [
        "Title",
        "",
        "A b c d*e* f (http://g)",
        "• h",
        "  1. i",
        "☑ j",
        "▎ k",
        "▏ py",
        "▏ l = '*'",
    ]
    tones = dict(markdown_lines("a **b** `c`", 40)[0])
    assert (tones["a "], tones["b"], tones["c"]) == ("", "bold", "bold $code")


@pytest.mark.parametrize(
    "text", ["2 * 3 * 4 = 24", "snake_case_name", "a ** b", "1 | 2", "#no heading", "**", "*"]
)
def test_what_is_no_markdown_stays_as_it_is(text: str) -> None:
    assert plain_lines(text) == [text]


def test_tables_are_columns_where_they_fit() -> None:
    table = "| a | b |\n|:--|--:|\n| 漢 | longer |"
    assert plain_lines(table) == ["a  │ b     ", "───┼───────", "漢 │ longer"]
    assert plain_lines(table, 8)[0].startswith("| a | b")


@pytest.mark.parametrize("text", HARD)
def test_hard_texts_take_bounded_time_and_keep_their_width(text: str) -> None:
    began = time.process_time()
    for line in markdown_lines(text, 37):
        result = "".join(piece for piece, _ in line)
        assert cell_len(result) <= 37
        assert "\x1b" not in result
    assert time.process_time() - began < 2.0


def test_nothing_of_a_text_is_left_out() -> None:
    words = " ".join(f"w{number}" for number in range(300))
    assert " ".join(" ".join(plain_lines(words)).split()) == words
    assert plain_lines("```") == ["▏ ```"]


def test_a_diff_shows_shared_own_and_missing_words() -> None:
    (line,) = word_diff("the cat sat here", "the dog sat", 60)
    assert line == (
        ("the ", SHARED),
        ("cat", GONE),
        (" ", SHARED),
        ("dog", OWN),
        (" ", SHARED),
        ("sat", SHARED),
        (" ", SHARED),
        ("here", GONE),
    )


def test_the_common_words_are_as_many_as_there_can_be() -> None:
    chance = random.Random(3)
    for _ in range(200):
        one, two = ([chance.choice("abcd") for _ in range(chance.randint(0, 12))] for _ in "12")
        result = matches(one, two)
        assert all(one[i] == two[j] for i, j in result)
        assert result == sorted(result)
        assert len({i for i, _ in result}) == len({j for _, j in result}) == len(result)
        assert len(result) == _longest(one, two)


def _longest(one: list[str], two: list[str]) -> int:
    row = [0] * (len(two) + 1)
    for word in one:
        before = row[:]
        for j, other in enumerate(two):
            row[j + 1] = before[j] + 1 if word == other else max(before[j + 1], row[j])
    return row[-1]


def test_a_diff_of_long_repetitive_texts_is_quick() -> None:
    began = time.process_time()
    lines = word_diff("the cat " * 4_000, "cat the dog " * 4_000, 60)
    assert time.process_time() - began < 1.0
    assert "only the first" in "".join(piece for piece, _ in lines[-1])


PYTHON = ("def blue(wave: float) -> float:", '    """A share."""  # of light', "    return 1.0")


def test_keywords_strings_numbers_and_comments_have_tones_of_their_own() -> None:
    tones = {text: tone for row in code_rows(PYTHON, "python") for text, tone in row}
    assert (tones["def"], tones["blue"]) == ("$code-keyword", "$code-name")
    assert tones['"""A share."""'] == "$code-string"
    assert (tones["# of light"], tones["1.0"]) == ("italic $code-comment", "$code-number")


@pytest.mark.parametrize("language", ["python", "js", "rust", "diff", "yaml", "html", "c++", "sh"])
def test_highlighting_keeps_the_text_of_each_row(language: str) -> None:
    rows = ("", *PYTHON, "", "+ added `x`", "<a href='y'>", "", "")
    assert ["".join(text for text, _ in row) for row in code_rows(rows, language)] == list(rows)


@pytest.mark.parametrize(
    ("rows", "language"),
    [
        (PYTHON, ""),
        (PYTHON, "brainfuck"),
        (("x" * (LONGEST + 1),), "python"),
        (("x = 1",) * CAP, "python"),
    ],
    ids=["no language", "an unknown one", "a long line", "a long block"],
)
def test_code_that_is_not_highlighted_has_the_plain_tone(
    rows: tuple[str, ...], language: str
) -> None:
    assert code_rows(rows, language) == [[(row, CODE)] for row in rows]


def test_a_block_of_an_answer_keeps_its_indent_and_its_bar() -> None:
    lines = markdown_lines("Look:\n```python\n" + "\n".join(PYTHON) + "\n```\nSo.", 60)
    assert text_of(lines).split("\n") == [
        "Look:",
        "▏ python",
        *(f"▏ {row}" for row in PYTHON),
        "So.",
    ]
    assert ("return", "$code-keyword") in lines[4]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
@pytest.mark.parametrize("width", [8, 60])
def test_control_characters_in_code_are_replaced(text: str, width: int) -> None:
    for line in markdown_lines(f"```python\n{text}\n```", width):
        assert line_width(line) <= width
        for piece, _ in line:
            assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in piece)


@pytest.mark.parametrize("sign", ["(", "'", "\\", "<", "${", " ", '"', "[[", "r#", "/*"])
def test_highlighting_takes_bounded_time(sign: str) -> None:
    block = "\n".join([sign * (LONGEST // len(sign))] * 40)
    text = "".join(f"```{name}\n{block}\n```\n" for name in ("c", "python", "rust", "js", "yaml"))
    began = time.process_time()
    markdown_lines(text, 80)
    assert time.process_time() - began < 2
