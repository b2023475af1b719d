"""Commands for groups: votes on one or a pair, and what is done with several."""

import asyncio
import getpass
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import plain, plural
from console.cli.commands import ABORT_REASON, EXIT, about, rater_of, send, values_of
from console.cli.common import (
    connected,
    filter_of,
    order,
    read_text,
    send_command,
    snapshot,
)
from console.cli.options import (
    PROXY,
    RATER,
    SERVER,
    YES,
    Args,
    Parts,
    argument,
    flag,
    one_of,
    option,
    takes,
)
from console.cli.output import agree, output, say, say_result
from core.commands import COMMANDS, validate
from core.commands.plan import refusal
from core.commands.plan_groups import (
    abort_all_consequences,
    abort_consequences,
    find_group,
    missing_votes,
)
from core.roles import Identity
from core.state import State

if TYPE_CHECKING:
    from console.session.filters import Filter
    from proxy.control.client import ControlClient

_SHOWN = 5
"""Errors printed one by one; the others are counted."""


# --- one group: votes, leases, corrections ------------------------------------------------------

HOLDER = option("--holder NAME", "holder of the lease; else this user and host")


def group_id(command: str) -> click.Parameter:
    """Return the argument that names the group of a command."""
    return argument("group_id", about(command, "group_id"), metavar="GROUP")


def vote(*more: click.Parameter) -> Parts:
    """Return the parameters of a vote; `more` exclude its kinds."""
    return (
        group_id,
        argument("order", "the best, or all, best first", nargs=-1, type=int, metavar="N"),
        one_of(
            option("--scores X...", "one score per candidate", type=float, multiple=True),
            flag("--tie", "all are equal: trains nothing"),
            flag("--bad", "all are bad: trains nothing"),
            flag("--skip", "send no reward: abort the group"),
            *more,
        ),
        RATER,
        option("--note TEXT", "note stored with the rating"),
    )


@takes(
    vote(flag("--undo", COMMANDS["group.unrate"].help)),
    flag("--override", "replace another rater's vote, or ignore a lease"),
    option("--tag REASON", "a reason for the rating; repeatable", multiple=True),
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
    values["rater"] = rater_of(args)
    if name == "group.rate":
        values |= {"note": args.note, "tags": list(args.tag) or None, "holder": _holder(args)}
        values["override"] = args.override or None
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
    return send(args, args.order_name, {**values, "rater": rater_of(args), "note": args.note})


def _holder(args: Args) -> str:
    """Return the holder of leases taken on this command line."""
    return args.holder or f"{getpass.getuser()}@{socket.gethostname()}"


@takes(
    group_id,
    HOLDER,
    RATER,
    PROXY,
    option("--seconds S", "duration of the lease; 0 releases it", type=float),
    notes=(EXIT,),
)
def lease(args: Args) -> int:
    """Lease a group, so that no other rater opens it, or release the lease."""
    values = {"holder": _holder(args), "rater": rater_of(args), "seconds": args.seconds}
    return send(args, "group.lease", {"group_id": args.group_id, **values})


@takes(
    group_id,
    PROXY,
    argument("candidate", "candidate to correct, from 1", type=int, metavar="N"),
    one_of(
        option("--text TEXT", "the complete corrected text"),
        option("--file FILE", "file with that text; - is standard input"),
        flag("--clear", "remove the correction"),
        required=True,
    ),
    option("--rater NAME", "author of the correction"),
    notes=(EXIT,),
)
def edit(args: Args) -> int:
    """Store a correction of one answer, or remove it.

    Raises:
        UsageError: the candidate number or the text is invalid.
    """
    if args.candidate < 1:
        raise UsageError("candidates are numbered from 1", f"edit {args.group_id}")
    text = "" if args.clear else read_text(args.file) if args.text is None else args.text
    if not args.clear and not text.strip():
        raise UsageError("the text is empty", "edit", "--clear removes a correction")
    values = {"index": args.candidate - 1, "edited": text, "rater": rater_of(args)}
    return send(args, "group.edit", {"group_id": args.group_id, **values})


# --- all groups that wait -----------------------------------------------------------------------

ONLY_OF = option("--server NAME", about("rating.accept_all", "server"))


@takes(ONLY_OF, flag("--yes", "do not ask on a terminal"), PROXY, notes=(EXIT,))
def accept_all(args: Args) -> int:
    """Seal all waiting groups; on a terminal, show their number and ask first."""
    if not args.yes and sys.stdin.isatty():
        state = asyncio.run(snapshot(args))
        groups = [group for group in state.waiting() if args.server in (None, group.server)]
        skipped = sum(group.is_skipped for group in groups)
        rated = sum(group.rating is not None or bool(group.votes) for group in groups) - skipped
        skips = f", {skipped} skipped" if skipped else ""
        lacking = sum(bool(missing_votes(state, group)) for group in groups)
        missing = f"; votes are missing on {lacking}" if lacking else ""
        agree(
            f"Send the rewards of {plural(len(groups), 'group')} waiting for a rating "
            f"({rated} rated{skips}, the others automatic{missing})"
        )
    return send(args, args.order_name, values_of(args, args.order_name))


@takes(ONLY_OF, ABORT_REASON, YES, PROXY, notes=(EXIT,))
def abort_all(args: Args) -> int:
    """Abort all waiting groups without a rating; show their number and ask first."""
    if not args.yes:
        lost = abort_all_consequences(asyncio.run(snapshot(args)), [args.server])
        agree("Abort all groups that wait for a rating", lost)
    return send(args, args.order_name, values_of(args, args.order_name))


# --- blind pairs of answers before and now ------------------------------------------------------

_CHOICES = next(arg.choices for arg in COMMANDS["progress.vote"].args if arg.name == "choice")
PAIR_RATER = option("--rater NAME", "name of the rater; else that of the home")


@takes(
    PROXY,
    SERVER,
    PAIR_RATER,
    flag(
        "--newest",
        "compare the newest look, though an earlier one has ratings; the counts begin again",
    ),
    notes=(EXIT,),
)
def pair(args: Args) -> int:
    """Print the open pair of a rater.

    Raises:
        AjetError: no proxy runs, or there is no pair to rate.
    """
    values = {"server": args.server, "rater": rater_of(args), "newest": args.newest}
    reply = asyncio.run(send_command(args, "progress.pair", values))
    if output().dry_run:
        say(reply.message)
        return 0
    return say_result(args, reply.result, _pair_lines(reply.result))


def _pair_lines(data: Mapping[str, Any]) -> Iterator[str]:
    now, before, newest = (
        "an unknown step" if data[name] is None else f"step {data[name]}"
        for name in ("step", "baseline_step", "newest_step")
    )
    later = f"; the newest look is of {newest}" if newest != now else ""
    yield f"pair {data['pair_id']}, {now} against {before}{later}, {data['ratings']} rated"
    for title in ("prompt", "left", "right"):
        yield f"\n{title.upper()}\n{plain(data[title]).strip() or '(empty)'}"
    yield f"\najet-console progress vote {data['pair_id']} left|right|tie|skip"


@takes(
    PROXY,
    argument("pair_id", "id of the pair, from `progress pair`", metavar="PAIR"),
    argument("choice", "the better answer", choices=_CHOICES),
    SERVER,
    PAIR_RATER,
    notes=(EXIT,),
)
def vote_pair(args: Args) -> int:
    """Send a vote; print which answer was which and the ratings so far.

    Raises:
        AjetError: no proxy runs, or the pair is not open.
    """
    values = {"pair_id": args.pair_id, "choice": args.choice, "server": args.server}
    values["rater"] = rater_of(args)
    reply = asyncio.run(send_command(args, "progress.vote", values))
    if output().dry_run:
        say(reply.message)
        return 0
    data = reply.result
    lines = (f"left was {data['left']}, right was {data['right']}", reply.message)
    return say_result(args, data, lines)


# --- several groups -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of the command for one group."""

    group_id: str
    ok: bool
    message: str


def _groups(command: str) -> Parts:
    return (
        argument("groups", about(command, "group_id"), nargs=-1, metavar="GROUP"),
        option(
            "--where FILTER",
            "all groups in memory that match this filter and that the command applies to; the "
            "syntax is that of the console's filter line",
        ),
        PROXY,
    )


@takes(_groups, notes=(EXIT,))
def bare(args: Args) -> int:
    """Send a command that takes nothing but the group."""
    return each(args, {})


@takes(_groups, RATER, notes=(EXIT,))
def unrate(args: Args) -> int:
    """Remove a vote."""
    return each(args, {"rater": args.rater})


@takes(
    _groups,
    flag("--override", "also groups that lack votes of different raters: the votes so far count"),
    notes=(EXIT,),
)
def accept(args: Args) -> int:
    """Finish groups."""
    return each(args, {"override": args.override or None})


@takes(_groups, ABORT_REASON, YES, notes=(EXIT,))
def abort(args: Args) -> int:
    """Abort groups after a question."""
    return each(args, {"reason": args.reason}, asks=not args.yes)


@takes(
    _groups,
    one_of(
        flag("--clear", "remove the mark instead of setting it"),
        flag("--toggle", "set the mark, or remove it where set"),
    ),
    notes=(EXIT,),
)
def mark(args: Args) -> int:
    """Mark groups, or remove their marks."""
    return each(args, {"marked": not args.clear}, toggles=args.toggle)


@takes(
    _groups,
    one_of(option("--text TEXT", "the note"), flag("--clear", "remove the note"), required=True),
    notes=(EXIT,),
)
def note(args: Args) -> int:
    """Write or remove a note."""
    return each(args, {"note": "" if args.clear else args.text})


def each(
    args: Args, values: Mapping[str, Any], *, asks: bool = False, toggles: bool = False
) -> int:
    """Send the command for each group that is named or matches.

    Args:
        args: The parsed command line.
        values: Arguments of the command besides the group.
        asks: Whether the operator is asked first.
        toggles: Whether the mark of each group changes.

    Raises:
        UsageError: no group is named, or the filter cannot be parsed.
    """
    if bool(args.groups) == (args.where is not None):
        raise UsageError(
            "name groups, or choose them with --where"
            if not args.groups
            else "give group ids or --where, not both",
            args.words,
        )
    for name in args.groups or ["g"]:
        validate(args.order_name, {**values, "group_id": name})
    return asyncio.run(_send(args, values, _filter(args), asks, toggles))


def _filter(args: Args) -> "Filter | None":
    if args.where is None:
        return None
    if parsed := filter_of(args.where):
        return parsed
    what = "the filter is empty and would match all groups"
    raise UsageError(what, "--where", "Give a filter")


async def _send(
    args: Args, values: Mapping[str, Any], group_filter: "Filter | None", asks: bool, toggles: bool
) -> int:
    async with connected(args) as client:
        ids: Sequence[str] = args.groups
        orders: Mapping[str, Mapping[str, Any]] = dict.fromkeys(ids, values)
        if group_filter is not None or asks or toggles:
            state = await client.snapshot()
            if group_filter is not None:
                ids = _matching(state, args.order_name, values, client.identity, group_filter)
            groups = [find_group(state, name) for name in ids]
            if asks and ids:
                several = plural(len(groups), "group")
                named = f"group {groups[0].group_id}" if len(groups) == 1 else several
                agree(f"Abort {named}", abort_consequences(state, groups))
            orders = dict.fromkeys(ids, values)
            if toggles:  # what is sent names the result, so that a repetition changes nothing
                orders = {group.group_id: {"marked": not group.marked} for group in groups}
        results = await _send_each(client, args.order_name, orders)
    _print(args, results)
    return 0 if all(result.ok for result in results) else 1


def _matching(
    state: State, name: str, values: Mapping[str, Any], identity: Identity, group_filter: "Filter"
) -> list[str]:
    """Return the ids of the groups that match a filter and that the command applies to."""
    now = time.time()
    return [
        group.group_id
        for group in state.groups.values()
        if group_filter.matches(group)
        and refusal(state, name, {**values, "group_id": group.group_id}, now, identity) is None
    ]


async def _send_each(
    client: "ControlClient", name: str, orders: Mapping[str, Mapping[str, Any]]
) -> list[GroupResult]:
    from proxy.control.client import ControlLost

    results: list[GroupResult] = []
    lost = False
    for group_id, args in orders.items():
        if lost:
            results.append(GroupResult(group_id, False, "not tried: the proxy is gone"))
            continue
        try:
            reply = await order(client, name, {**args, "group_id": group_id})
        except AjetError as error:
            results.append(GroupResult(group_id, False, str(error)))
            lost = isinstance(error, ControlLost)
        else:
            results.append(GroupResult(group_id, reply.ok, reply.message))
    return results


def _print(args: Args, results: Sequence[GroupResult]) -> None:
    refused = [result.message for result in results if not result.ok]
    for message in refused[:_SHOWN]:
        output().refuse(message)
    if len(refused) > _SHOWN:
        output().refuse(f"refused for {plural(len(refused) - _SHOWN, 'more group')}")
    data = {
        "command": args.order_name,
        "ok": not refused,
        "groups": [asdict(result) for result in results],
    }
    done = [plain(result.message) for result in results if result.ok]
    say_result(args, data, done if results else ["no group matches: nothing was changed"])
