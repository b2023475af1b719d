"""Text from models and users, made safe to display and to store."""

import difflib
import re
import signal
from collections.abc import Iterable
from typing import Any

_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 controls but tab and line feed
    "\u200b-\u200f\u061c\u2028-\u202e\u2060-\u206f\ufeff"  # zero width, direction, line ends
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufff9-\ufffb"  # fillers, joiners
    "\ud800-\udfff\U000e0000-\U000e0fff"  # lone surrogates, tags, variation selectors
)
_HIDDEN = re.compile(f"[{_UNSEEN}]")
_SCRIPT = f"[^\x00-\u02ff\u2000-\u206f{_UNSEEN}]"  # neither Latin nor a sign between words
_JOINERS = re.compile(f"(?<={_SCRIPT})[\u200c\u200d]{{1,2}}|[\u200c\u200d]{{1,2}}(?={_SCRIPT})")
"""Joiners beside an emoji or a joined letter: the text reads the same without them."""
HARMFUL = re.compile(f"[\t\n{_UNSEEN}]")
"""Characters that no cell of a terminal may contain."""
LONGEST_NAME = 200
"""Characters of an unknown name that are compared with the known ones."""


def plain(text: str) -> str:
    """Return `text` with each control or invisible character replaced by a visible one.

    The result cannot move the cursor, change colours, reorder text or hide anything.
    Joiners where a script or an emoji uses them are left out: terminals disagree on their widths.
    """
    if "\u200c" in text or "\u200d" in text:
        text = _JOINERS.sub("", text)
    return _HIDDEN.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def one_line(text: str, limit: int = 200) -> str:
    """Return `text` made safe, on one line, with at most `limit` characters."""
    flat = " ".join(plain(text[: limit * 4]).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def closest(word: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known words most similar to `word`, best first; `Ab-c` is compared as `ab_c`.

    Args:
        word: What was written.
        known: What may be meant.
        count: How many to return at most.
        cutoff: Least similarity, from 0 (anything) to 1 (equal).
    """
    names, word = list(known), word[:LONGEST_NAME]
    folded = difflib.get_close_matches(word.lower().replace("-", "_"), names, count, cutoff)
    return folded or difflib.get_close_matches(word, names, count, cutoff)


def did_you_mean(word: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> str:
    """Return "Did you mean `a` or `b`?" of the closest known words; empty when none is close."""
    names = " or ".join(f"`{name}`" for name in closest(word, known, count, cutoff))
    return f"Did you mean {names}?" if names else ""


def known_names(word: str, known: Iterable[str]) -> str:
    """Return what an unknown name may mean, and the known names."""
    names = list(known)
    return " ".join(filter(None, [did_you_mean(word, names), f"Known: {', '.join(names)}"]))


def content_text(content: Any) -> str:
    """Return the text of a chat message's `content`: a string, a list of blocks, or None."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            block if isinstance(block, str) else str(block.get("text") or "")
            for block in content
            if isinstance(block, str | dict)
        )
    return ""


def ended_words(how: str, cause: str) -> str:
    """Return how a run of the mock user ended: `stopped by operator`, `failed: CAUSE`."""
    if cause == "ordered":
        return f"{how} by operator"
    return f"{how}: {cause}" if cause else how


def plural(count: int, one: str, many: str = "") -> str:
    """Return the number with its noun: `1 group`, `2 groups`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def ago(seconds: float) -> str:
    """Format an age in coarse steps: just now, 40s ago, 12m ago, 3h ago, 5d ago."""
    whole = max(0, int(seconds))
    if whole < 10:
        return "just now"
    if whole < 60:
        return f"{whole // 10 * 10}s ago"
    if whole < 3600:
        return f"{whole // 60}m ago"
    return f"{whole // 3600}h ago" if whole < 48 * 3600 else f"{whole // 86400}d ago"


def signal_name(number: int) -> str:
    """Return the name of a signal, as `SIGKILL`; `signal 99` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
