"""The proxy names no key and no screen: the console has both, and its keys can be changed.

It sends alerts as kinds with parameters (`core.events.alerts`), and its errors name commands and
settings.
"""

import re

import pytest

from console.models.screen_registry import SCREENS
from tests.guards.test_words import ROOT, shown

_TITLES = "|".join(place.title for place in SCREENS)
NAMES = {
    r"`[^`\s\w/.:]?[A-Za-z0-9]`": "a single key in backticks",
    r"\b[Pp]ress(es)?\b": "a key to press",
    r"\b([Cc]trl|[Aa]lt|[Ss]hift)\s?[+-]\s?\w": "a key with a modifier",
    r"\b(Enter|Esc|Tab)\b": "a key by its name",
    rf"\b({_TITLES}) ?\([1-9]\)": "a screen with its digit",
    rf"\b(opens?|on|see|See|under) ({_TITLES})\b": "a screen by its title",
    r"(^|[.:;,(] ?)[1-9] (there )?(opens|shows)\b": "the digit of a screen",
    r" \([1-9](\)| shows| opens)": "the digit of a screen",
    r"(^|[.:;,(] ?)[A-Za-z] (there )?"
    r"(opens|shows|starts|stops|aborts|accepts|re-scores|asks|takes|undoes)\b": "a bare key",
}
"""Pattern of what names a key or a screen -> what it is."""


def named(text: str) -> list[str]:
    """What a text names, in words."""
    return [what for pattern, what in NAMES.items() if re.search(pattern, text)]


def test_no_text_of_the_proxy_names_a_key_or_a_screen() -> None:
    result = [
        f"{path.relative_to(ROOT)}:{line}: {text[:100]!r}: {what}"
        for path in sorted((ROOT / "proxy").rglob("*.py"))
        for line, text in shown(path.read_text(encoding="utf-8"))
        for what in named(text)
    ]
    assert not result, "\n".join(result)


@pytest.mark.parametrize(
    "text",
    [
        "5 opens Engine: `s` starts it",
        "3 opens Rate: `A` accepts all automatic rewards",
        "`X` aborts them, or go on rating",
        "Users are answered 503 until it rolls again. 5 opens Engine: `s` starts it",
        "Enter opens them: no update trains on finished ones",
        "Enter opens them: each group says what it was",
        "no update trains on finished ones, A asks one again",
        "Users without an answer were cut off. Enter opens the groups",
        "stop the proxy (Ctrl+Q, then s) and start again",
        "Correct the file and save it: it is loaded again at once. 6 shows its fault",
        "correct what ends it and save the file; 6 shows the fault",
        "6 shows its counts, e there opens the file",
        "open groups are re-scored with it (6 shows the fault)",
        "On a group (2): `S` re-scores, `x` aborts, or rate it by hand",
        "is the winner better, or just longer? See Rewards (6)",
        "6 shows the values of each part: let one tell answers apart",
        "Check on Rewards that weights sum to 1 and that hooks return 0 to 1",
        "5 opens Engine, `i` shows who is on it",
        "Press 5 for its last log lines",
    ],
)
def test_the_guard_sees_the_texts_that_it_is_made_for(text: str) -> None:
    assert named(text)
