"""Text for a terminal: without control characters, invisible ones and secrets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ajet_swarm.common.text import LONGEST_NAME, closest, one_line, plain


@pytest.mark.slow
@given(st.text())
def test_plain_text_holds_no_control_and_nothing_invisible(text: str) -> None:
    shown = plain(text)
    assert not any(ord(char) < 0x20 and char not in "\n\t" for char in shown)
    assert not any(0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set("\u202e\u200b\u2066\ufeff")


def test_text_keeps_what_is_harmless() -> None:
    assert plain("Grüße 日本 🎉\n\t[b]x[/b]") == "Grüße 日本 🎉\n\t[b]x[/b]"
    assert plain("\x1b[31mred") == "␛[31mred"
    assert one_line("a\nb\n\nc") == "a b c"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"


def test_a_long_name_is_compared_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def noted(word: str, *_: object) -> list[str]:
        compared.append(word)
        return []

    monkeypatch.setattr("difflib.get_close_matches", noted)
    assert closest("x" * 100_000, ["embedded"]) == []
    assert {len(word) for word in compared} == {LONGEST_NAME}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("👩\u200d👩\u200d👧", "👩👩👧"),
        ("🏳\ufe0f\u200d🌈", "🏳\ufe0f🌈"),
        ("می\u200cخواهم", "میخواهم"),
        ("USB\u200cها", "USBها"),
        ("क्\u200dष", "क्ष"),
    ],
)
def test_joiners_of_scripts_and_emoji_are_removed(text: str, shown: str) -> None:
    assert plain(text) == one_line(text) == shown
    bare = shown.replace("\ufe0f", "")
    assert cell_len(bare) == sum(map(cell_len, bare))


@pytest.mark.parametrize(
    "text", ["\u200d", "ig\u200dnore", "a\u200c b", "م\u200c\u200c\u200cx", "م\u202ea", "👩\u2066"]
)
def test_joiners_where_nothing_is_joined_and_directions_are_shown(text: str) -> None:
    assert "\ufffd" in plain(text)
    assert not set(plain(text)) & set("\u200c\u200d\u202e\u2066")
