"""A paste ends at its mark, in however many pieces it comes, or after a limit of time."""

import pytest
from textual import events
from textual.message import Message

from console.shell.paste_parser import LIMIT, PasteParser


class Line:
    """A parser with a clock of its own, and what it returned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._parser = PasteParser(clock=lambda: self.now)
        self.seen: list[str] = []

    def send(self, *pieces: str) -> None:
        for piece in pieces:
            self._note(self._parser.feed(piece))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._note(self._parser.tick())

    def _note(self, messages: object) -> None:
        assert hasattr(messages, "__iter__")
        for message in messages:
            assert isinstance(message, Message)
            if isinstance(message, events.Paste):
                self.seen.append(f"paste {message.text}")
            elif isinstance(message, events.Key):
                self.seen.append(message.key)


@pytest.mark.parametrize(
    "pieces",
    [
        ["\x1b[200~a\nb\x1b[201~x"],
        ["\x1b[200~a\n", "b\x1b[201~", "x"],
        ["\x1b[200~a\nb\x1b[20", "1~x"],
        [*"\x1b[200~", "a", "\n", "b", *"\x1b[201~", "x"],
    ],
)
def test_a_paste_and_the_key_after_it(pieces: list[str]) -> None:
    line = Line()
    line.send(*pieces)
    assert line.seen == ["paste a\nb", "x"]


def test_a_paste_that_comes_character_by_character_ends_after_the_limit() -> None:
    line = Line()
    line.send("1", *"\x1b[200~abc\x1b[2")
    line.wait(LIMIT)
    line.send(*"01~", "2", *"\x1b[A")
    assert line.seen == ["1", "paste abc", "2", "up"]


def test_the_end_of_a_paste_may_come_late() -> None:
    line = Line()
    line.send("\x1b[200~abc\x1b[20")
    line.wait(LIMIT / 2)
    assert line.seen == []
    line.send("1~", "2")
    assert line.seen == ["paste abc", "2"]


@pytest.mark.parametrize("late", ["1~2", "2"])
def test_a_paste_without_an_end_ends_after_the_limit(late: str) -> None:
    line = Line()
    line.send("\x1b[200~abc\x1b[20")
    line.wait(LIMIT)
    assert line.seen == ["paste abc"]
    line.send(late)  # the rest of the mark, if it comes at all, is no key
    assert line.seen == ["paste abc", "2"]


def test_keys_do_not_keep_a_paste_open() -> None:
    line = Line()
    line.send("\x1b[200~abc")
    for _ in range(4):
        line.wait(LIMIT / 4 - 0.01)
        line.send("q")
    line.wait(0.04)
    assert line.seen == ["paste abcqqqq"]
    line.send("\x11")
    assert line.seen[1:] == ["ctrl+q"]


def test_two_pastes_in_one_read() -> None:
    line = Line()
    line.send("1\x1b[200~a\x00\x1b[201~2\x1b[200~b\x1b[201~")
    assert line.seen == ["1", "paste a", "2", "paste b"]
