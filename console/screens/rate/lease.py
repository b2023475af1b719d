"""Leases of the group on screen, so that two consoles do not rate the same group.

A lease also tells the proxy which group its rater is looking at, and when he last pressed a key:
that group is spared when another one can end for a waiting user. The only console has a lease that
keeps nobody from voting.
"""

from console.screens.parts import ScreenPart, in_background
from console.screens.rate.context import RatingContext

LEASE_SECONDS = 20.0
"""Duration of a lease; it is renewed while the group stays on screen."""
RENEW_SECONDS = 8.0
"""A lease is renewed when less than this is left."""
RETRY_SECONDS = 3.0
"""Time between two requests for a lease."""
IDLE_SECONDS = 60.0
"""Time without a key after which the group on screen is released."""


class LeaseKeeper(ScreenPart):
    """Leases the group on screen while the operator rates it, and releases it afterwards."""

    def __init__(self, context: RatingContext) -> None:
        super().__init__(context.screen)
        self._context = context
        self._queue = context.queue
        self._leased: str | None = None
        self._requested_at = float("-inf")
        self._reported_key = float("-inf")
        """Time of the last key when the lease was requested."""
        self._shared = False
        """Whether others may vote on the leased group."""

    def obstacle(self) -> str | None:
        """Return why no group can be taken over now; None when one can."""
        others = self._queue.leased_by_others(self.session.state, self.session.now())
        return None if others else "No other console has an open group"

    def update(self, now: float) -> None:
        """With a second console attached, or if users are answered first, lease the group on screen
        while keys are pressed."""
        session, queue = self.session, self._queue
        several = session.state.consoles > 1 or session.rating.overlap > 1
        leases = several or session.state.rating_mode == "answer_first"
        leases = leases and session.lost_at is None and not session.read_only
        in_use = self.host.front is self.screen and now - session.input_at < IDLE_SECONDS
        target = queue.current if leases and in_use and not queue.second else None
        requested = now - self._requested_at < RETRY_SECONDS
        if leases and in_use and requested and self._leased and self._leased == queue.next_id:
            return  # taken over: the event of its lease puts it on screen
        if self._leased is not None and self._leased != target:
            self._release(self._leased)
        group = session.state.groups.get(target) if target is not None else None
        if group is None:
            return
        own = next((one for one in group.leases if one.holder == queue.holder), None)
        fresh = own is not None and own.until - now > RENEW_SECONDS
        fresh = fresh and session.input_at <= self._reported_key
        if self._shared is not several and (fresh or (self._leased == target and requested)):
            return
        self._leased, self._requested_at, self._shared = group.group_id, now, not several
        self._send(group.group_id, LEASE_SECONDS)

    def release_if_covered(self) -> None:
        """Release the group when another screen is in front."""
        if self._leased is not None and self.host.front is not self.screen:
            self._release(self._leased)

    def _release(self, group_id: str) -> None:
        self._leased = None
        group = self.session.state.groups.get(group_id)
        if group is not None and group.leases:
            self._send(group_id, 0.0)

    def _args(self, group_id: str, seconds: float) -> dict[str, object]:
        args: dict[str, object] = {"holder": self._queue.holder, "seconds": seconds}
        if self.session.rater:
            args["rater"] = self.session.rater
        if seconds:
            self._reported_key = self.session.input_at
            args |= {"idle": self.session.now() - self._reported_key, "shared": self._shared}
        return {"group_id": group_id, **args}

    @in_background("lease")
    async def _send(self, group_id: str, seconds: float) -> None:
        """Request a lease; a refusal needs no message, because the queue skips the group."""
        await self.session.command("group.lease", **self._args(group_id, seconds))

    @in_background("lease")
    async def action_take(self) -> None:
        """Take over the first group that another console has leased, and put it on screen."""
        now = self.session.now()
        others = self._queue.leased_by_others(self.session.state, now)
        if not others:
            return
        group_id, self._shared = others[0].group_id, False
        outcome = await self.session.command(
            "group.lease", **self._args(group_id, LEASE_SECONDS), take=True
        )
        if not outcome.ok:
            self.host.say(outcome.message, "error")
            return
        if self._leased is not None and self._leased != group_id:
            self._release(self._leased)
        self._leased, self._requested_at = group_id, now
        self._queue.show_when_waiting(group_id)
        if self.screen.is_mounted:
            self._context.repaint()
