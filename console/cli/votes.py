"""Votes on one group, and what goes with them: second votes, leases, corrections."""

import argparse
import getpass
import socket
import sys
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import UsageError
from console.cli.commands import add_common, send
from console.cli.common import look_home, settings_of
from console.session.rater_name import saved_name
from core.commands import COMMANDS
from core.runtime.home import Home
from core.settings import load


def add_rate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rate`."""
    add_common(parser, rate)
    parser.description = (
        f"{COMMANDS['group.rate'].help}.\n\nCandidates are counted from 1. `rate GROUP 3`: the "
        "third is best. `rate GROUP 3 1 2 4`: a ranking, best first."
    )
    kinds = _add_vote(parser)
    kinds.add_argument("--undo", action="store_true", help=COMMANDS["group.unrate"].help)
    parser.add_argument("--note", metavar="TEXT", help="why")
    parser.add_argument(
        "--override",
        action="store_true",
        help="replace another rater's vote, or ignore a lease",
    )
    parser.add_argument(
        "--tag", action="append", metavar="REASON", help="a reason; repeat it for several"
    )


def add_repeat(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `repeat`."""
    add_common(parser, repeat)
    about = COMMANDS["group.repeat"].help
    parser.description = f"{about}.\n\nGiven as with `rate`: the best, or all, best first."
    _add_vote(parser)


def add_lease(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `lease`."""
    add_common(parser, lease)
    parser.add_argument("group_id", metavar="GROUP", help=group_help("group.lease"))
    parser.add_argument(
        "--holder", metavar="NAME", help="name of the console; else this user and host"
    )
    parser.add_argument("--rater", metavar="NAME", help="who looks")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long; 0 gives it back")


def add_edit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `edit`."""
    add_common(parser, edit)
    parser.add_argument("group_id", metavar="GROUP", help=group_help("group.edit"))
    parser.add_argument("candidate", type=int, metavar="N", help="candidate it corrects, from 1")
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--text", metavar="TEXT", help="the whole better text")
    text.add_argument("--file", metavar="FILE", help="holds that text; - is standard input")
    text.add_argument("--clear", action="store_true", help="remove the correction")
    parser.add_argument("--rater", metavar="NAME", help="who wrote it")


def group_help(command: str) -> str:
    """Return the help of the argument that names the group."""
    return next(arg.help for arg in COMMANDS[command].args if arg.name == "group_id")


def _add_vote(parser: argparse.ArgumentParser) -> Any:
    """Add the arguments of a vote; return the group of those that exclude each other."""
    parser.add_argument("group_id", metavar="GROUP", help=group_help("group.rate"))
    parser.add_argument(
        "order", nargs="*", type=int, default=[], metavar="N", help="best, or all, best first"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--scores", nargs="+", type=float, metavar="X", help="one score a candidate")
    kinds.add_argument("--tie", action="store_true", help="all are equal: teaches nothing")
    kinds.add_argument("--bad", action="store_true", help="all are bad: teaches nothing")
    kinds.add_argument("--skip", action="store_true", help="send no reward: the group is aborted")
    parser.add_argument("--rater", metavar="NAME", help="who rates")
    return kinds


def rate(given: argparse.Namespace) -> int:
    """Rate a group, or take a rating back."""
    home = look_home(given)
    name, args = rating_of(given)
    args["rater"] = given.rater or load(home.config).console.rater or saved_name(home) or None
    if name == "group.rate":
        args |= {"note": given.note, "tags": given.tag, "override": given.override or None}
    return send(given, home, name, args)


def rating_of(given: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Command and arguments meant; people count candidates from 1, the wire from 0.

    Raises:
        UsageError: no rating, more than one, or a candidate that cannot be.
    """
    args: dict[str, Any] = {"group_id": given.group_id}
    flags = [name for name in ("tie", "bad", "skip", "undo") if getattr(given, name)]
    if given.order and (flags or given.scores):
        raise UsageError("say one rating, not two", f"rate {given.group_id}")
    if flags == ["undo"]:
        return "group.unrate", args
    if flags:
        return "group.rate", {**args, "rating": flags[0]}
    if given.scores:
        return "group.rate", {**args, "rating": "scores", "scores": given.scores}
    if not given.order:
        raise UsageError(
            "there is no rating in it",
            f"rate {given.group_id}",
            "Give its number, all numbers best first, --scores, --tie, --bad, --skip or --undo",
        )
    if min(given.order) < 1 or len(set(given.order)) < len(given.order):
        raise UsageError(
            "candidates are counted from 1, each at most once",
            f"rate {given.group_id} {' '.join(map(str, given.order))}",
        )
    kind = "best" if len(given.order) == 1 else "ranking"
    return "group.rate", {**args, "rating": kind, "order": [number - 1 for number in given.order]}


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
    return given.rater or settings_of(home).console.rater or saved_name(home) or None
