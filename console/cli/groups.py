"""One order for one group or for several: by their ids, or all that a filter fits."""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import did_you_mean, one_line
from console.cli.commands import add_common, find_group
from console.cli.common import (
    cert_of,
    confirm,
    count,
    look_home,
    need_proxy,
    say,
    say_json,
    token_of,
)
from console.cli.options import add_yes
from console.cli.votes import group_help
from core.commands import validate
from core.commands.groups import ABORT_REASONS
from core.runtime.home import Home
from core.state import Group, State

if TYPE_CHECKING:
    from proxy.control.client import ControlClient

_SHOWN = 5
"""Errors told one by one; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Done:
    """How the order ended for one group."""

    group_id: str
    ok: bool
    message: str


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that is sent for several groups."""
    command = parser.get_default("order_name")
    add_common(parser, each)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=group_help(command))
    parser.add_argument(
        "--where",
        metavar="FILTER",
        help="all groups on screen that it fits and the order makes sense for, in the words "
        "of the console's filter line",
    )
    if command == "group.unrate":
        parser.add_argument("--rater", metavar="NAME", help="who rates")
    elif command == "group.abort":
        parser.add_argument("--reason", metavar="TEXT", help=f"such as: {', '.join(ABORT_REASONS)}")
        add_yes(parser)
    elif command == "group.mark":
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--clear", action="store_true", help="clear it; set when left out")
        how.add_argument("--toggle", action="store_true", help="set it where it is not, and back")
    elif command == "group.note":
        text = parser.add_mutually_exclusive_group(required=True)
        text.add_argument("--text", metavar="TEXT", help="the note")
        text.add_argument("--clear", action="store_true", help="remove the note")


def each(given: argparse.Namespace) -> int:
    """Give one order to each group that is named or fits.

    Raises:
        UsageError: no group is named, or the filter cannot be read.
    """
    if bool(given.groups) == (given.where is not None):
        raise UsageError(
            "name groups, or say which with --where"
            if not given.groups
            else "not both: groups by their ids, or those of --where",
            given.command,
        )
    home = look_home(given)
    args = _arguments(given)
    for group_id in given.groups or ["g"]:
        validate(given.order_name, {**args, "group_id": group_id})
    wanted = _filter(given)
    return asyncio.run(_give(given, home, args, wanted))


def _arguments(given: argparse.Namespace) -> dict[str, Any]:
    """What the order takes besides the group."""
    name = given.order_name
    if name == "group.note":
        return {"note": "" if given.clear else given.text}
    if name == "group.mark":
        return {} if given.toggle else {"marked": not given.clear}
    if name == "group.abort":
        return {"reason": given.reason}
    if name == "group.unrate":
        return {"rater": given.rater}
    return {}


def _filter(given: argparse.Namespace) -> Any:
    if given.where is None:
        return None
    from console.session.filters import parse

    found = parse(given.where)
    if not found:
        raise UsageError("the filter is empty: it would be all groups", "--where", "Say which")
    return found


async def _give(given: argparse.Namespace, home: Home, args: dict[str, Any], wanted: Any) -> int:
    from proxy.control.client import ControlClient

    url = need_proxy(given, home)
    async with ControlClient(url, token_of(given, home), cert=cert_of(home)) as client:
        asks = given.order_name == "group.abort" and not given.yes
        ids: Sequence[str] = given.groups
        if wanted is not None or asks:
            state = await client.snapshot()
            if wanted is not None:
                ids = _fitting(state, given.command, wanted)
            elif asks:
                _check_exist(state, ids)
            if asks and ids and not confirm(*loss(state, ids), False):
                say("left as it is")
                return 1
        done = await _each(client, given.order_name, ids, args)
    _tell(given, done)
    return 0 if all(one.ok for one in done) else 1


def _check_exist(state: State, ids: Sequence[str]) -> None:
    """See that there is something to ask about.

    Raises:
        AjetError: one of the groups is not there.
    """
    for one in ids:
        if find_group(state, one) is None:
            todo = did_you_mean(one, state.groups)
            raise AjetError(f"there is no group `{one_line(one, 60)}`", todo=todo)


def _fitting(state: State, verb: str, wanted: Any) -> list[str]:
    """Ids of the groups that a filter fits and the verb makes sense for, oldest first."""
    from console.models.group_obstacles import obstacle

    now = time.time()
    return [
        group.group_id
        for group in state.groups.values()
        if wanted.matches(group) and obstacle(verb, group, now) is None
    ]


async def _each(
    client: "ControlClient", name: str, ids: Sequence[str], args: Mapping[str, Any]
) -> list[Done]:
    from proxy.control.client import ControlLost

    done: list[Done] = []
    for group_id in dict.fromkeys(ids):
        checked = validate(name, {**args, "group_id": group_id})
        try:
            reply = await client.command(name, checked)
        except ControlLost as error:  # the others would wait for it in vain
            done.append(Done(group_id, False, str(error)))
            break
        except AjetError as error:
            done.append(Done(group_id, False, str(error)))
        else:
            done.append(Done(group_id, reply.ok, reply.message))
    left = list(dict.fromkeys(ids))[len(done) :]
    return [*done, *(Done(one, False, "not tried: the proxy is gone") for one in left)]


def _tell(given: argparse.Namespace, done: Sequence[Done]) -> None:
    if given.json:
        say_json(
            {
                "command": given.order_name,
                "ok": all(one.ok for one in done),
                "groups": [asdict(one) for one in done],
            }
        )
        return
    if not done:
        say("no group fits: nothing is done")
    for one in done:
        if one.ok:
            say(one.message)
    refused = [one for one in done if not one.ok]
    for one in refused[:_SHOWN]:
        sys.stderr.write(f"ajet-console: {one.message}\n")
    if len(refused) > _SHOWN:
        more = count(len(refused) - _SHOWN, "group")
        sys.stderr.write(f"ajet-console: {more} more refused\n")


def loss(state: State, ids: Sequence[str]) -> tuple[str, str]:
    """What an abort does and what it loses."""
    found = [group for one in ids if (group := find_group(state, one)) is not None]
    named = f"group {found[0].group_id}" if len(found) == 1 else count(len(ids), "group")
    if not found:
        return f"Abort {named if len(ids) > 1 else f'group {ids[0]}'}", ""
    held = sum(one.phase in ("claimed", "answered") for group in found for one in group.candidates)
    rated = sum(group.rating is not None for group in found)
    ratings = ("its rating and " if len(found) == 1 else f"{count(rated, 'rating')} and ") * (
        rated > 0
    )
    return f"Abort {named}", f"{ratings}{count(held, 'episode')} ({_fate(state, found)})"


def _fate(state: State, groups: Sequence[Group]) -> str:
    """What becomes of the episodes."""
    where = {state.servers[one.server].state for one in groups if one.server in state.servers}
    if where == {"ROLLING"}:
        return "they go back to the pool"
    if where == {"ROLLING_POST"}:
        return "they are deleted: the update continues without them"
    return "what becomes of them depends on the engine"
