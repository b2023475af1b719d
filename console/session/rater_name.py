"""The name that goes with your ratings: asked for once, then kept in the home."""

import contextlib
import getpass

from ajet_swarm.common.text import one_line
from core.runtime.home import Home

NAME_CAP = 40


def kept_name(home: Home) -> str:
    """The name of an earlier start; empty when there is none."""
    try:
        return clean((home.root / "rater").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""


def was_asked(home: Home) -> bool:
    """Whether the question was answered in this home, be it with no name."""
    return (home.root / "rater").exists()


def keep_name(home: Home, name: str) -> None:
    """Keep the name; one that cannot be kept is asked for again at the next start."""
    with contextlib.suppress(OSError):
        (home.root / "rater").write_text(f"{name}\n", encoding="utf-8")


def clean(given: str) -> str:
    """A name in one line."""
    return one_line(given.strip(), NAME_CAP)


def proposed() -> str:
    """What the system calls who sits here; empty when it does not say."""
    try:
        return clean(getpass.getuser())
    except (OSError, KeyError, ImportError):
        return ""
