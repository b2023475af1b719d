"""Commands about groups, the rating mode and a running mock user: all go to the proxy."""

import argparse
import asyncio
import sys
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.common import cert_of, confirm, count, look_home, need_proxy, order, say, token_of
from console.session.rater_name import kept_name
from core.commands import COMMANDS, validate
from core.jsonio import encode_full
from core.runtime.home import Home
from core.settings import load
from core.state import Candidate, Group, State


def plain_order(given: argparse.Namespace) -> int:
    """A command whose arguments are those of the registry."""
    names = [arg.name for arg in COMMANDS[given.order_name].args]
    args = {name: getattr(given, name, None) for name in names}
    return send(given, look_home(given), given.order_name, args)


def rate(given: argparse.Namespace) -> int:
    """Rate a group, or take a rating back."""
    home = look_home(given)
    name, args = rating_of(given)
    args["rater"] = given.rater or load(home.config).console.rater or kept_name(home) or None
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


def accept_all(given: argparse.Namespace) -> int:
    """Seal all groups that wait; on a terminal after saying how many and asking."""
    home = look_home(given)
    if not given.yes and sys.stdin.isatty():
        state = asyncio.run(_snapshot(given, home))
        groups = [one for one in state.waiting() if given.server in (None, one.server)]
        rated = sum(one.rating is not None for one in groups)
        act = (
            f"Send the rewards of {count(len(groups), 'group')} that wait for a rating "
            f"({rated} rated, the others automatic)"
        )
        if not confirm(act, "", given.yes):
            say("left as it is")
            return 1
    return send(given, home, "rating.accept_all", {"server": given.server})


def abort_all(given: argparse.Namespace) -> int:
    """Abort all groups that wait without a rating, after saying how many."""
    home = look_home(given)
    if not given.yes:
        state = asyncio.run(_snapshot(given, home))
        groups = [
            one
            for one in state.waiting()
            if one.rating is None and given.server in (None, one.server)
        ]
        held = sum(one.phase in ("claimed", "answered") for one in _candidates(groups))
        loss = f"{count(len(groups), 'group')} with {count(held, 'episode')}"
        if not confirm("Abort all groups that wait for a rating", loss, given.yes):
            say("left as it is")
            return 1
    args = {"server": given.server, "reason": given.reason}
    return send(given, home, "rating.abort_all", args)


def _candidates(groups: list[Group]) -> list[Candidate]:
    return [one for group in groups for one in group.candidates]


def find_group(state: State, group_id: str) -> Group | None:
    """The one group whose id begins so.

    Raises:
        AjetError: there are several.
    """
    if group_id in state.groups:
        return state.groups[group_id]
    found = [group for known, group in state.groups.items() if known.startswith(group_id)]
    if len(found) > 1:
        raise AjetError(
            f"{len(found)} groups begin with `{group_id}`", todo="Give more of the group's id"
        )
    return found[0] if found else None


async def _snapshot(given: argparse.Namespace, home: Home) -> State:
    from proxy.control.client import ControlClient

    async with ControlClient(
        need_proxy(given, home), token_of(given, home), cert=cert_of(home)
    ) as client:
        return await client.snapshot()


def send(given: argparse.Namespace, home: Home, name: str, args: dict[str, Any]) -> int:
    """Give one order and tell how it went."""
    validate(name, args)
    told = asyncio.run(
        order(need_proxy(given, home), token_of(given, home), name, args, cert_of(home))
    )
    if getattr(given, "json", False):
        say_json({"command": name, "ok": True, "message": told})
    else:
        say(told)
    return 0


def say_json(data: Any) -> None:
    """Data for a script, on standard output."""
    say(msgspec.json.format(encode_full(data), indent=2).decode())
