"""Leases of the group on screen, so that two consoles do not rate the same group.

A lease also tells the proxy which group its rater is looking at, and when he last pressed a key:
that group is spared when another one can end for a waiting user. The only console has a lease that
keeps nobody from voting.
"""

from typing import Any

from console.screens.base import ConsoleScreen
from console.screens.rate.model import RateQueue
from core.commands.plan_groups import LEASE_SECONDS

RENEW_SECONDS = 8.0
"""A lease is renewed when less than this is left."""
RETRY_SECONDS = 3.0
"""Time between two requests for a lease."""
IDLE_SECONDS = 60.0
"""Time without a key after which the group on screen is released."""


class LeaseKeeper:
    """Leases the group on screen while the operator rates it, and releases it afterwards."""

    def __init__(self, screen: ConsoleScreen, queue: RateQueue) -> None:
        self._screen = screen
        self._session = queue.session
        self._queue = queue
        self._leased: str | None = None
        self._requested_at = float("-inf")
        self._reported_key = float("-inf")
        """Time of the last key when the lease was requested."""
        self._shared = False
        """Whether others may vote on the leased group."""

    @property
    def _in_front(self) -> bool:
        return self._screen.host.front is self._screen

    def update(self) -> None:
        """With a second console attached, or if users are answered first, lease the group on screen
        while keys are pressed."""
        session, queue, now = self._session, self._queue, self._session.now()
        several = session.state.consoles > 1 or session.rating.overlap > 1
        keeps = session.state.rating_mode == "answer_first" and queue.late is None
        leases = (several or keeps) and session.lost_at is None and not session.read_only
        leases = leases and self._in_front and now - session.input_at < IDLE_SECONDS
        target = queue.current if leases and not queue.second else None
        requested = now - self._requested_at < RETRY_SECONDS
        if leases and requested and self._leased and self._leased == queue.next_id:
            return  # taken over: the event of its lease puts it on screen
        if self._leased is not None and self._leased != target:
            self._release(self._leased)
        group = session.group(target) if target is not None else None
        if group is None:
            return
        group = session.state.groups.get(group.group_id, group)  # one read for its texts has none
        own = next((lease for lease in group.leases if lease.holder == session.holder), None)
        fresh = own is not None and own.until - now > RENEW_SECONDS
        fresh = fresh and session.input_at <= self._reported_key
        if self._shared is not several and (fresh or (self._leased == target and requested)):
            return
        self._leased, self._requested_at, self._shared = group.group_id, now, not several
        self._send(group.group_id, LEASE_SECONDS)

    def release_if_covered(self) -> None:
        """Release the group when another screen is in front."""
        if self._leased is not None and not self._in_front:
            self._release(self._leased)

    def take(self, group_id: str) -> None:
        """Take over a group that another console has leased, and put it on screen."""
        self._shared = False
        args = self._args(group_id, LEASE_SECONDS)
        self._screen.run_worker(self._take(args), group="lease", exit_on_error=False)

    async def _take(self, args: dict[str, Any]) -> None:
        now, group_id = self._session.now(), args["group_id"]
        outcome = await self._session.command("group.lease", **args, take=True)
        if not outcome.ok:
            self._screen.host.say(outcome.message, "error")
            return
        if self._leased is not None and self._leased != group_id:
            self._release(self._leased)
        self._leased, self._requested_at = group_id, now
        self._queue.next_id = group_id
        self._session.touch(("groups",))

    def _release(self, group_id: str) -> None:
        self._leased = None
        group = self._session.state.groups.get(group_id)
        if group is not None and group.leases:
            self._send(group_id, 0.0)

    def _send(self, group_id: str, seconds: float) -> None:
        """Request a lease; a refusal needs no message, because the queue skips the group."""
        work = self._session.command("group.lease", **self._args(group_id, seconds))
        self._screen.run_worker(work, group="lease", exit_on_error=False)

    def _args(self, group_id: str, seconds: float) -> dict[str, Any]:
        session = self._session
        args: dict[str, Any] = {"holder": session.holder, "seconds": seconds}
        if session.rater:
            args["rater"] = session.rater
        if seconds:
            self._reported_key = session.input_at
            args |= {"idle": session.now() - self._reported_key, "shared": self._shared}
        return {"group_id": group_id, **args}
