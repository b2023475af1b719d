"""`accept-all` and `abort-all`: seal or abort all groups that wait for a rating."""

import argparse
import asyncio
import sys

from console.cli.commands import add_common, send
from console.cli.common import confirm, count, existing_home, say, snapshot
from console.cli.options import add_yes
from core.commands import COMMANDS
from core.commands.plan_groups import abort_all_consequences, missing_votes
from core.commands.table import ABORT_REASONS


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of both commands."""
    command = COMMANDS[parser.get_default("order_name")]
    add_common(parser, abort_all if command.danger else accept_all)
    parser.add_argument("--server", metavar="NAME", help=command.args[0].help)
    if command.danger:
        parser.add_argument("--reason", metavar="TEXT", help=f"such as: {', '.join(ABORT_REASONS)}")
        add_yes(parser)
    else:
        parser.add_argument("--yes", action="store_true", help="do not ask on a terminal")


def accept_all(args: argparse.Namespace) -> int:
    """Seal all waiting groups; on a terminal, show their number and ask first."""
    home = existing_home(args)
    if not args.yes and sys.stdin.isatty():
        state = asyncio.run(snapshot(args, home))
        groups = [group for group in state.waiting() if args.server in (None, group.server)]
        skipped = sum(group.is_skipped for group in groups)
        rated = sum(group.rating is not None or bool(group.votes) for group in groups) - skipped
        skips = f", {skipped} skipped" if skipped else ""
        lacking = sum(bool(missing_votes(state, group)) for group in groups)
        missing = f"; votes are missing on {lacking}" if lacking else ""
        act = (
            f"Send the rewards of {count(len(groups), 'group')} waiting for a rating "
            f"({rated} rated{skips}, the others automatic{missing})"
        )
        if not confirm(act, "", args.yes):
            say("nothing was changed")
            return 1
    return send(args, home, "rating.accept_all", {"server": args.server})


def abort_all(args: argparse.Namespace) -> int:
    """Abort all waiting groups without a rating; show their number and ask first."""
    home = existing_home(args)
    if not args.yes:
        state = asyncio.run(snapshot(args, home))
        lost = abort_all_consequences(state, [args.server])
        act = "Abort all groups that wait for a rating"
        if not confirm(act, "", args.yes, consequences=lost):
            say("nothing was changed")
            return 1
    values = {"server": args.server, "reason": args.reason}
    return send(args, home, "rating.abort_all", values)
