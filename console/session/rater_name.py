"""The rater's name, recorded with each rating: requested once, then stored in the home."""

import contextlib
import getpass

from ajet_swarm.common.text import one_line
from core.runtime.home import Home

NAME_CAP = 40


def saved_name(home: Home) -> str:
    """Return the name stored by an earlier start; empty when there is none."""
    try:
        return clean((home.root / "rater").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""


def was_asked(home: Home) -> bool:
    """Return whether the question was answered in this home, possibly with an empty name."""
    return (home.root / "rater").exists()


def save_name(home: Home, name: str) -> None:
    """Store the name; after a failure, the next start asks for it again."""
    with contextlib.suppress(OSError):
        (home.root / "rater").write_text(f"{name}\n", encoding="utf-8")


def clean(name: str) -> str:
    """Return the name in one line."""
    return one_line(name.strip(), NAME_CAP)


def proposed() -> str:
    """Return the user name of the operating system; empty when it is unknown."""
    try:
        return clean(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return ""
