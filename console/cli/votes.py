"""Votes on one group, and related commands: second votes, leases, corrections."""

import argparse
import getpass
import socket
import sys
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import UsageError
from console.cli.commands import add_common, send
from console.cli.common import existing_home
from console.session.rater_name import saved_name
from core.commands import COMMANDS
from core.runtime.home import Home


def add_rate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rate`."""
    add_common(parser, rate)
    parser.description = (
        f"{COMMANDS['group.rate'].help}.\n\nCandidates are numbered from 1. `rate GROUP 3`: "
        "candidate 3 is the best. `rate GROUP 3 1 2 4`: a ranking, best first."
    )
    kinds = _add_vote(parser)
    kinds.add_argument("--undo", action="store_true", help=COMMANDS["group.unrate"].help)
    parser.add_argument(
        "--override",
        action="store_true",
        help="replace another rater's vote, or ignore a lease",
    )
    parser.add_argument(
        "--tag", action="append", metavar="REASON", help="a reason for the rating; repeatable"
    )
    _add_holder(parser)


def _add_holder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--holder", metavar="NAME", help="holder of the lease; else this user and host"
    )


def add_later_vote(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `settle` and `repeat`."""
    add_common(parser, vote_later)
    about = COMMANDS[parser.get_default("order_name")].help
    parser.description = f"{about}.\n\nArguments as for `rate`: the best, or all, best first."
    _add_vote(parser)


def add_lease(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `lease`."""
    add_common(parser, lease)
    parser.add_argument("group_id", metavar="GROUP", help=group_help("group.lease"))
    _add_holder(parser)
    parser.add_argument("--rater", metavar="NAME", help="name of the rater")
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="duration of the lease; 0 releases it"
    )


def add_edit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `edit`."""
    add_common(parser, edit)
    parser.add_argument("group_id", metavar="GROUP", help=group_help("group.edit"))
    parser.add_argument("candidate", type=int, metavar="N", help="candidate to correct, from 1")
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--text", metavar="TEXT", help="the complete corrected text")
    text.add_argument("--file", metavar="FILE", help="file with that text; - is standard input")
    text.add_argument("--clear", action="store_true", help="remove the correction")
    parser.add_argument("--rater", metavar="NAME", help="author of the correction")


def group_help(command: str) -> str:
    """Return the help of the argument that names the group."""
    return next(arg.help for arg in COMMANDS[command].args if arg.name == "group_id")


def _add_vote(parser: argparse.ArgumentParser) -> Any:
    """Add the arguments of a vote; return the group of mutually exclusive options."""
    parser.add_argument("group_id", metavar="GROUP", help=group_help("group.rate"))
    parser.add_argument(
        "order", nargs="*", type=int, default=[], metavar="N", help="the best, or all, best first"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--scores", nargs="+", type=float, metavar="X", help="one score per candidate"
    )
    kinds.add_argument("--tie", action="store_true", help="all are equal: trains nothing")
    kinds.add_argument("--bad", action="store_true", help="all are bad: trains nothing")
    kinds.add_argument("--skip", action="store_true", help="send no reward: abort the group")
    parser.add_argument("--rater", metavar="NAME", help="name of the rater")
    parser.add_argument("--note", metavar="TEXT", help="note stored with the rating")
    return kinds


def rate(args: argparse.Namespace) -> int:
    """Rate a group, or remove its rating."""
    home = existing_home(args)
    name, values = rating_of(args)
    values["rater"] = _rater(args, home)
    if name == "group.rate":
        values |= {"note": args.note, "tags": args.tag, "override": args.override or None}
        values["holder"] = args.holder or _holder()
    return send(args, home, name, values)


def rating_of(args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return the command and its arguments; candidates count from 1 here, from 0 on the wire.

    Raises:
        UsageError: there is no rating, more than one, or an impossible candidate number.
    """
    values: dict[str, Any] = {"group_id": args.group_id}
    flags = [name for name in ("tie", "bad", "skip", "undo") if getattr(args, name)]
    if args.order and (flags or args.scores):
        raise UsageError("give one rating, not two", f"rate {args.group_id}")
    if flags == ["undo"]:
        return "group.unrate", values
    if flags:
        return "group.rate", {**values, "rating": flags[0]}
    if args.scores:
        return "group.rate", {**values, "rating": "scores", "scores": args.scores}
    if not args.order:
        raise UsageError(
            "the rating is missing",
            f"rate {args.group_id}",
            "Give the best candidate's number, all numbers best first, --scores, --tie, --bad, "
            "--skip or --undo",
        )
    if min(args.order) < 1 or len(set(args.order)) < len(args.order):
        raise UsageError(
            "candidates are numbered from 1, and each may occur once",
            f"rate {args.group_id} {' '.join(map(str, args.order))}",
        )
    kind = "best" if len(args.order) == 1 else "ranking"
    return "group.rate", {**values, "rating": kind, "order": [number - 1 for number in args.order]}


def vote_later(args: argparse.Namespace) -> int:
    """Decide a group on which raters disagree, or vote again on one that was sent."""
    home = existing_home(args)
    args.undo = False
    _, values = rating_of(args)
    values |= {"rater": _rater(args, home), "note": args.note}
    return send(args, home, args.order_name, values)


def _holder() -> str:
    """Return the holder of leases taken on this command line."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def lease(args: argparse.Namespace) -> int:
    """Lease a group, so that no other rater opens it, or release the lease."""
    home = existing_home(args)
    values = {
        "group_id": args.group_id,
        "holder": args.holder or _holder(),
        "rater": _rater(args, home),
        "seconds": args.seconds,
    }
    return send(args, home, "group.lease", values)


def edit(args: argparse.Namespace) -> int:
    """Store a correction of one answer, or remove it.

    Raises:
        UsageError: the candidate number or the text is invalid.
    """
    home = existing_home(args)
    if args.candidate < 1:
        raise UsageError("candidates are numbered from 1", f"edit {args.group_id}")
    text = "" if args.clear else _text(args)
    if not args.clear and not text.strip():
        raise UsageError("the text is empty", "edit", "--clear removes a correction")
    values = {
        "group_id": args.group_id,
        "index": args.candidate - 1,
        "edited": text,
        "rater": _rater(args, home),
    }
    return send(args, home, "group.edit", values)


def _text(args: argparse.Namespace) -> str:
    if args.text is not None:
        return str(args.text)
    if args.file == "-":
        return sys.stdin.read()
    try:
        return Path(args.file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the text cannot be read: {error}", f"--file {args.file}") from error


def _rater(args: argparse.Namespace, home: Home) -> str | None:
    return args.rater or saved_name(home) or None
