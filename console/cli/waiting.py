"""`rating accept-all` and `rating abort-all`: seal or abort all groups that wait for a rating."""

import asyncio
import sys

from console.cli.commands import ABORT_REASON, EXIT, about, send
from console.cli.common import confirm, count, say, snapshot
from console.cli.options import PROXY, YES, Args, flag, option, takes
from core.commands.plan_groups import abort_all_consequences, missing_votes

SERVER = option("--server", "NAME", about("rating.accept_all", "server"))


@takes(SERVER, flag("--yes", "do not ask on a terminal"), PROXY, notes=(EXIT,))
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
        act = (
            f"Send the rewards of {count(len(groups), 'group')} waiting for a rating "
            f"({rated} rated{skips}, the others automatic{missing})"
        )
        if not confirm(act, "", args.yes):
            say("nothing was changed")
            return 1
    return send(args, "rating.accept_all", {"server": args.server})


@takes(SERVER, ABORT_REASON, YES, PROXY, notes=(EXIT,))
def abort_all(args: Args) -> int:
    """Abort all waiting groups without a rating; show their number and ask first."""
    if not args.yes:
        state = asyncio.run(snapshot(args))
        lost = abort_all_consequences(state, [args.server])
        act = "Abort all groups that wait for a rating"
        if not confirm(act, "", args.yes, consequences=lost):
            say("nothing was changed")
            return 1
    values = {"server": args.server, "reason": args.reason}
    return send(args, "rating.abort_all", values)
