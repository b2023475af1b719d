"""Votes on one group, and related commands: second votes, leases, corrections."""

import getpass
import socket
import sys
from pathlib import Path
from typing import Any

import click

from ajet_swarm.common.errors import UsageError
from console.cli.commands import EXIT, about, send
from console.cli.common import existing_home
from console.cli.options import PROXY, RATER, Args, Parts, argument, flag, one_of, option, takes
from console.session.rater_name import saved_name
from core.commands import COMMANDS

HOLDER = option("--holder", "NAME", "holder of the lease; else this user and host")


def group_id(command: str) -> click.Parameter:
    """Return the argument that names the group of a command."""
    return argument("group_id", about(command, "group_id"), metavar="GROUP")


def vote(*more: click.Parameter) -> Parts:
    """Return the parameters of a vote; `more` exclude its kinds."""
    return (
        group_id,
        argument("order", "the best, or all, best first", nargs=-1, type=int, metavar="N"),
        one_of(
            option("--scores", "X...", "one score per candidate", type=float, multiple=True),
            flag("--tie", "all are equal: trains nothing"),
            flag("--bad", "all are bad: trains nothing"),
            flag("--skip", "send no reward: abort the group"),
            *more,
        ),
        RATER,
        option("--note", "TEXT", "note stored with the rating"),
    )


@takes(
    vote(flag("--undo", COMMANDS["group.unrate"].help)),
    flag("--override", "replace another rater's vote, or ignore a lease"),
    option("--tag", "REASON", "a reason for the rating; repeatable", multiple=True),
    HOLDER,
    PROXY,
    notes=(
        "Candidates are numbered from 1. `rate GROUP 3`: candidate 3 is the best. `rate GROUP 3 1 "
        "2 4`: a ranking, best first.",
        EXIT,
    ),
)
def rate(args: Args) -> int:
    """Rate a group, or remove its rating."""
    name, values = rating_of(args)
    values["rater"] = _rater(args)
    if name == "group.rate":
        values |= {
            "note": args.note,
            "tags": list(args.tag) or None,
            "override": args.override or None,
        }
        values["holder"] = args.holder or _holder()
    return send(args, name, values)


def rating_of(args: Args) -> tuple[str, dict[str, Any]]:
    """Return the command and its arguments; candidates count from 1 here, from 0 on the wire.

    Raises:
        UsageError: there is no rating, more than one, or an impossible candidate number.
    """
    values: dict[str, Any] = {"group_id": args.group_id}
    flags = [name for name in ("tie", "bad", "skip", "undo") if getattr(args, name, False)]
    if args.order and (flags or args.scores):
        raise UsageError("give one rating, not two", f"rate {args.group_id}")
    if flags == ["undo"]:
        return "group.unrate", values
    if flags:
        return "group.rate", {**values, "rating": flags[0]}
    if args.scores:
        return "group.rate", {**values, "rating": "scores", "scores": list(args.scores)}
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


@takes(vote(), PROXY, notes=("Arguments as for `rate`: the best, or all, best first.", EXIT))
def vote_later(args: Args) -> int:
    """Decide a group on which raters disagree, or vote again on one that was sent."""
    _, values = rating_of(args)
    values |= {"rater": _rater(args), "note": args.note}
    return send(args, args.order_name, values)


def _holder() -> str:
    """Return the holder of leases taken on this command line."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


@takes(
    group_id,
    HOLDER,
    RATER,
    PROXY,
    option("--seconds", "S", "duration of the lease; 0 releases it", type=float),
    notes=(EXIT,),
)
def lease(args: Args) -> int:
    """Lease a group, so that no other rater opens it, or release the lease."""
    values = {
        "group_id": args.group_id,
        "holder": args.holder or _holder(),
        "rater": _rater(args),
        "seconds": args.seconds,
    }
    return send(args, "group.lease", values)


@takes(
    group_id,
    PROXY,
    argument("candidate", "candidate to correct, from 1", type=int, metavar="N"),
    one_of(
        option("--text", "TEXT", "the complete corrected text"),
        option("--file", "FILE", "file with that text; - is standard input"),
        flag("--clear", "remove the correction"),
        required=True,
    ),
    option("--rater", "NAME", "author of the correction"),
    notes=(EXIT,),
)
def edit(args: Args) -> int:
    """Store a correction of one answer, or remove it.

    Raises:
        UsageError: the candidate number or the text is invalid.
    """
    if args.candidate < 1:
        raise UsageError("candidates are numbered from 1", f"edit {args.group_id}")
    text = "" if args.clear else _text(args)
    if not args.clear and not text.strip():
        raise UsageError("the text is empty", "edit", "--clear removes a correction")
    values = {
        "group_id": args.group_id,
        "index": args.candidate - 1,
        "edited": text,
        "rater": _rater(args),
    }
    return send(args, "group.edit", values)


def _text(args: Args) -> str:
    if args.text is not None:
        return str(args.text)
    if args.file == "-":
        return sys.stdin.read()
    try:
        return Path(args.file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the text cannot be read: {error}", f"--file {args.file}") from error


def _rater(args: Args) -> str | None:
    return args.rater or saved_name(existing_home(args)) or None
