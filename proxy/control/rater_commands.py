"""Commands of raters besides their votes: leases, second votes, corrections, all groups at once."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from core.events import GroupLeased
from core.state import Group
from proxy.admission.registry import find_id
from proxy.context import ProxyContext
from proxy.control.group_commands import GroupCommands
from proxy.control.rating import edit, repeat
from proxy.groups.votes import names_of
from proxy.http.errors import NotNow

LEASE = 20.0
"""Default duration of a lease in seconds; a console renews it while it shows the group."""
LEASE_CAP = 120.0


class RaterCommands:
    """Commands of raters besides their votes.

    Args:
        context: The proxy's shared parts.
        commands: The commands on one group.
    """

    def __init__(self, context: ProxyContext, commands: GroupCommands) -> None:
        self.context = context
        self.commands = commands
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "group.repeat": lambda args: self.repeat(**args),
            "group.lease": lambda args: self.lease(**args),
            "group.edit": lambda args: self.edit(**args),
            "rating.accept_all": lambda args: self.accept_all(**args),
            "rating.abort_all": lambda args: self.abort_all(**args),
        }

    def _group(self, group_id: str) -> Group:
        groups = self.context.bus.state.groups
        return groups[find_id(group_id, groups)]

    async def lease(
        self,
        group_id: str,
        holder: str,
        rater: str = "",
        seconds: float = LEASE,
        take: bool = False,
        idle: float = 0.0,
        shared: bool = False,
    ) -> str:
        """Take, renew or (0 seconds) return the lease of a group that waits for a rating.

        With `rating.overlap` above 1 as many consoles may have one as votes are missing.

        Args:
            group_id: Id of the group.
            holder: Id of the console.
            rater: Name of the rater there.
            seconds: Duration of the lease.
            take: Whether to take it from another console.
            idle: Seconds since the rater's last key.
            shared: Whether others may vote on the group all the same.

        Raises:
            NotNow: other consoles hold all leases and `take` is not set, the rater has voted on the
                group, or the group does not wait for votes.
        """
        group, now = self._group(group_id), self.context.clock()
        if seconds > 0:
            self._require_missing_vote(group, rater, holder)
        if not take and not group.is_free(holder, now):
            others = group.leases_of_others(holder, now)
            names = " and ".join(one.rater or "another console" for one in others)
            todo = "Rate another one, or take it over with `take`"
            verb = "is" if len(others) == 1 else "are"
            raise NotNow(f"{names} {verb} rating group {group.group_id}", todo=todo)
        until = 0.0
        if seconds > 0:
            if group.phase != "AWAITING_RATING":
                raise NotNow(f"group {group.group_id} does not wait for a rating")
            until = now + min(seconds, LEASE_CAP)
            until = until if group.until is None else min(until, group.until)
        elif group.lease is None:
            return f"group {group.group_id} was free"
        self.context.bus.publish(
            GroupLeased(
                server=group.server,
                group_id=group.group_id,
                holder=holder,
                rater=rater,
                until=until,
                key_at=now - max(idle, 0.0),
                shared=shared,
            )
        )
        return f"group {group.group_id} is {'yours to rate' if until else 'free again'}"

    def _require_missing_vote(self, group: Group, rater: str, holder: str) -> None:
        """Check that one of several raters has not voted yet, and that a vote is missing."""
        if group.overlap == 1:
            return
        name, todo = f"group {group.group_id}", "Rate another one"
        if group.vote_of(rater, holder) is not None:
            raise NotNow(f"{rater or 'you'} voted on {name} before", todo=todo)
        if group.rating is not None:
            raise NotNow(f"{name} has its votes, by {names_of(group.votes)}", todo=todo)

    async def repeat(self, group_id: str, rating: str, **more: Any) -> str:
        """Store a second vote."""
        group = self._group(group_id)
        order, scores = more.pop("order", ()), more.pop("scores", ())
        agrees = repeat(self.context, group, rating, tuple(order), tuple(scores), **more)
        return "the same as before" if agrees else "not the same as before"

    async def edit(self, group_id: str, index: int, edited: str, rater: str = "") -> str:
        """Store a correction."""
        group = self._group(group_id)
        edit(self.context, group, index, edited, rater)
        result = "kept, not sent" if edited else "removed"
        return f"the correction of answer {index + 1} is {result}"

    async def accept_all(self, server: str = "") -> str:
        """Seal all waiting groups; those with neither rating nor automatic reward stay open.

        Votes that are missing are not waited for.
        """
        done, failed = await self._each(server, lambda one: self.commands.accept(one, True))
        rest = f"; {failed} without an automatic reward still {_wait(failed)}" if failed else ""
        return f"{_groups(done)} finished{rest}"

    async def abort_all(self, server: str = "", reason: str = "") -> str:
        """Abort all waiting groups that have no rating."""
        done, failed = await self._each(
            server, lambda one: self.commands.abort(one, reason), unrated=True
        )
        rest = f"; {failed} {'was' if failed == 1 else 'were'} ending already" if failed else ""
        return f"{_groups(done)} aborted{rest}"

    async def _each(
        self, server: str, command: Callable[[str], Awaitable[str]], unrated: bool = False
    ) -> tuple[int, int]:
        """Return the number of groups a command was executed on, and the number it failed on."""
        if server and server not in self.context.servers:
            known = ", ".join(self.context.servers)
            raise NotNow(f"there is no swarm server {server}", todo=f"Known: {known}")
        done = failed = 0
        for group in self.context.bus.state.waiting():
            is_rated = group.rating is not None or group.votes
            if (server and group.server != server) or (unrated and is_rated):
                continue
            try:
                await command(group.group_id)
                done += 1
            except AjetError:  # it has just ended, or has no automatic reward: it counts as failed
                failed += 1
        return done, failed


def _groups(count: int) -> str:
    return "1 group is" if count == 1 else f"{count} groups are"


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"
