"""Commands for one or several groups: given by id, or all that match a filter."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import plain, plural
from console.cli.commands import ABORT_REASON, EXIT, about
from console.cli.common import confirm, connected, count, say, say_result
from console.cli.options import (
    PROXY,
    RATER,
    YES,
    Args,
    Parts,
    argument,
    flag,
    one_of,
    option,
    takes,
)
from console.cli.output import output
from console.cli.output.dry_run import order
from core.commands import validate
from core.commands.plan import refusal
from core.commands.plan_groups import abort_consequences, find_group
from core.roles import Identity
from core.state import Group, State

if TYPE_CHECKING:
    from proxy.control.client import ControlClient

_SHOWN = 5
"""Errors printed one by one; the others are counted."""


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
            "--where",
            "FILTER",
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
    return each(args, {"override": True} if args.override else {})


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
    one_of(option("--text", "TEXT", "the note"), flag("--clear", "remove the note"), required=True),
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
    for group_id in args.groups or ["g"]:
        validate(args.order_name, {**values, "group_id": group_id})
    return asyncio.run(_send(args, values, _filter(args), asks, toggles))


def _filter(args: Args) -> Any:
    if args.where is None:
        return None
    from console.session.filters import parse

    parsed = parse(args.where)
    if not parsed:
        raise UsageError(
            "the filter is empty and would match all groups", "--where", "Give a filter"
        )
    return parsed


async def _send(
    args: Args, values: Mapping[str, Any], group_filter: Any, asks: bool, toggles: bool
) -> int:
    async with connected(args) as client:
        ids: Sequence[str] = args.groups
        orders: Mapping[str, Mapping[str, Any]] = dict.fromkeys(ids, values)
        if group_filter is not None or asks or toggles:
            state = await client.snapshot()
            if group_filter is not None:
                ids = _matching(state, args.order_name, values, client.identity, group_filter)
            groups = [find_group(state, group_id) for group_id in ids]
            if asks and ids and not confirm_abort(state, groups):
                say("nothing was changed")
                return 1
            orders = dict.fromkeys(ids, values)
            if toggles:  # what is sent names the result, so that a repetition changes nothing
                orders = {group.group_id: {"marked": not group.marked} for group in groups}
        results = await _send_each(client, args.order_name, orders)
    _print(args, results)
    return 0 if all(result.ok for result in results) else 1


def confirm_abort(state: State, groups: Sequence[Group]) -> bool:
    """Ask before groups are aborted, with what is lost."""
    named = f"group {groups[0].group_id}" if len(groups) == 1 else plural(len(groups), "group")
    lost = abort_consequences(state, groups)
    return confirm(f"Abort {named}", "", False, consequences=lost)


def _matching(
    state: State, name: str, values: Mapping[str, Any], identity: Identity, group_filter: Any
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
    for group_id, args in orders.items():
        checked = validate(name, {**args, "group_id": group_id})
        try:
            reply = await order(client, name, checked)
        except ControlLost as error:  # the proxy is gone for the other groups, too
            results.append(GroupResult(group_id, False, str(error)))
            break
        except AjetError as error:
            results.append(GroupResult(group_id, False, str(error)))
        else:
            results.append(GroupResult(group_id, reply.ok, reply.message))
    rest = list(orders)[len(results) :]
    return [
        *results,
        *(GroupResult(group_id, False, "not tried: the proxy is gone") for group_id in rest),
    ]


def _print(args: Args, results: Sequence[GroupResult]) -> None:
    refused = [result.message for result in results if not result.ok]
    for message in refused[:_SHOWN]:
        output().refuse(message)
    if len(refused) > _SHOWN:
        output().refuse(f"refused for {count(len(refused) - _SHOWN, 'more group')}")
    data = {
        "command": args.order_name,
        "ok": all(result.ok for result in results),
        "groups": [asdict(result) for result in results],
    }
    done = [plain(result.message) for result in results if result.ok]
    say_result(args, data, done if results else ["no group matches: nothing was changed"])
