"""Code in tones: nothing added, nothing left out, of bounded cost, harmless."""

import time

import pytest

from console.text.code_tones import CAP, CODE, LONGEST, code_rows
from console.text.lines import line_width
from console.text.markdown import markdown_lines
from tests.support.groups import HOSTILE_TEXTS, text_of

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
