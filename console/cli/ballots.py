"""Orders around a vote that change no reward: second votes, leases, corrections."""

import argparse
import getpass
import socket
import sys
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from console.cli.commands import rating_of, send
from console.cli.common import look_home, settings_of
from console.session.rater_name import kept_name
from core.runtime.home import Home


def repeat(given: argparse.Namespace) -> int:
    """A second vote on a group that was rated and sent."""
    home = look_home(given)
    given.undo = False
    _, args = rating_of(given)
    return send(given, home, "group.repeat", {**args, "rater": _rater(given, home)})


def lease(given: argparse.Namespace) -> int:
    """Keep a group for oneself, or give it back."""
    home = look_home(given)
    args = {
        "group_id": given.group_id,
        "holder": given.holder or f"{getpass.getuser()}@{socket.gethostname()}",
        "rater": _rater(given, home),
        "seconds": given.seconds,
    }
    return send(given, home, "group.lease", args)


def edit(given: argparse.Namespace) -> int:
    """Keep a better text for one answer, or take it back.

    Raises:
        UsageError: there is no such candidate, or no text.
    """
    home = look_home(given)
    if given.candidate < 1:
        raise UsageError("candidates are counted from 1", f"edit {given.group_id}")
    text = "" if given.clear else _text(given)
    if not given.clear and not text.strip():
        raise UsageError("the text is empty", "edit", "--clear removes a correction")
    args = {
        "group_id": given.group_id,
        "index": given.candidate - 1,
        "edited": text,
        "rater": _rater(given, home),
    }
    return send(given, home, "group.edit", args)


def _text(given: argparse.Namespace) -> str:
    if given.text is not None:
        return str(given.text)
    if given.file == "-":
        return sys.stdin.read()
    try:
        return Path(given.file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the text cannot be read: {error}", f"--file {given.file}") from error


def _rater(given: argparse.Namespace, home: Home) -> str | None:
    return given.rater or settings_of(home).console.rater or kept_name(home) or None
