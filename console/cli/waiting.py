"""`accept-all` and `abort-all`: the groups that wait for a rating."""

import argparse
import asyncio
import sys

from console.cli.commands import add_common, send, snapshot
from console.cli.common import confirm, count, look_home, say
from console.cli.options import add_yes
from core.commands import COMMANDS
from core.commands.groups import ABORT_REASONS
from core.state import Candidate, Group


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of both."""
    command = COMMANDS[parser.get_default("order_name")]
    add_common(parser, abort_all if command.danger else accept_all)
    parser.add_argument("--server", metavar="NAME", help=command.args[0].help)
    if command.danger:
        parser.add_argument("--reason", metavar="TEXT", help=f"such as: {', '.join(ABORT_REASONS)}")
        add_yes(parser)
    else:
        parser.add_argument("--yes", action="store_true", help="do not ask on a terminal")


def accept_all(given: argparse.Namespace) -> int:
    """Seal all groups that wait; on a terminal after saying how many and asking."""
    home = look_home(given)
    if not given.yes and sys.stdin.isatty():
        state = asyncio.run(snapshot(given, home))
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
        state = asyncio.run(snapshot(given, home))
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
