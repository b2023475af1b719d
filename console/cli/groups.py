"""Commands for one or several groups: given by id, or all that match a filter."""

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import plain, plural
from console.cli.commands import add_common
from console.cli.common import (
    cert_of,
    confirm,
    count,
    existing_home,
    need_proxy,
    say,
    say_json,
    token_of,
)
from console.cli.options import add_yes
from console.cli.output import output
from console.cli.output.dry_run import order
from console.cli.votes import group_help
from core.commands import validate
from core.commands.plan import refusal
from core.commands.plan_groups import abort_consequences, find_group
from core.commands.table import ABORT_REASONS
from core.roles import Identity
from core.runtime.home import Home
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


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that takes several groups."""
    command = parser.get_default("order_name")
    add_common(parser, each)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=group_help(command))
    parser.add_argument(
        "--where",
        metavar="FILTER",
        help="all groups in memory that match this filter and that the command applies to; the "
        "syntax is that of the console's filter line",
    )
    if command == "group.unrate":
        parser.add_argument("--rater", metavar="NAME", help="name of the rater")
    elif command == "group.accept":
        parser.add_argument(
            "--override",
            action="store_true",
            help="also groups that lack votes of different raters: the votes so far count",
        )
    elif command == "group.abort":
        parser.add_argument("--reason", metavar="TEXT", help=f"such as: {', '.join(ABORT_REASONS)}")
        add_yes(parser)
    elif command == "group.mark":
        how = parser.add_mutually_exclusive_group()
        how.add_argument(
            "--clear", action="store_true", help="remove the mark instead of setting it"
        )
        how.add_argument(
            "--toggle", action="store_true", help="set the mark, or remove it where set"
        )
    elif command == "group.note":
        text = parser.add_mutually_exclusive_group(required=True)
        text.add_argument("--text", metavar="TEXT", help="the note")
        text.add_argument("--clear", action="store_true", help="remove the note")


def each(args: argparse.Namespace) -> int:
    """Send the command for each group that is named or matches.

    Raises:
        UsageError: no group is named, or the filter cannot be parsed.
    """
    if bool(args.groups) == (args.where is not None):
        raise UsageError(
            "name groups, or choose them with --where"
            if not args.groups
            else "give group ids or --where, not both",
            args.command,
        )
    home = existing_home(args)
    values = _arguments(args)
    for group_id in args.groups or ["g"]:
        validate(args.order_name, {**values, "group_id": group_id})
    group_filter = _filter(args)
    return asyncio.run(_send(args, home, values, group_filter))


def _arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of the command besides the group."""
    name = args.order_name
    if name == "group.note":
        return {"note": "" if args.clear else args.text}
    if name == "group.mark":
        return {"marked": not args.clear}
    if name == "group.accept":
        return {"override": True} if args.override else {}
    if name == "group.abort":
        return {"reason": args.reason}
    if name == "group.unrate":
        return {"rater": args.rater}
    return {}


def _filter(args: argparse.Namespace) -> Any:
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
    args: argparse.Namespace, home: Home, values: dict[str, Any], group_filter: Any
) -> int:
    from proxy.control.client import ControlClient

    url = need_proxy(args, home)
    async with ControlClient(url, token_of(args, home), cert=cert_of(home)) as client:
        confirms = args.order_name == "group.abort" and not args.yes
        ids: Sequence[str] = args.groups
        toggles = args.order_name == "group.mark" and args.toggle
        orders: Mapping[str, Mapping[str, Any]] = dict.fromkeys(ids, values)
        if group_filter is not None or confirms or toggles:
            state = await client.snapshot()
            if group_filter is not None:
                ids = _matching(state, args.order_name, values, client.identity, group_filter)
            groups = [find_group(state, group_id) for group_id in ids]
            if confirms and ids and not confirm_abort(state, groups):
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


def _print(args: argparse.Namespace, results: Sequence[GroupResult]) -> None:
    refused = [result.message for result in results if not result.ok]
    for message in refused[:_SHOWN]:
        output().refuse(message)
    if len(refused) > _SHOWN:
        output().refuse(f"refused for {count(len(refused) - _SHOWN, 'more group')}")
    if args.json:
        say_json(
            {
                "command": args.order_name,
                "ok": all(result.ok for result in results),
                "groups": [asdict(result) for result in results],
            }
        )
        return
    if not results:
        say("no group matches: nothing was changed")
    for result in results:
        if result.ok:
            say(plain(result.message))
