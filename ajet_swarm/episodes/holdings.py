"""What one client holds at one server, and what is leaving it."""

import asyncio
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from ajet_swarm.api.wire import RUNNER
from ajet_swarm.protocol.schemas import Claimed
from ajet_swarm.runtime import Clock

REMEMBERED = 10.0
"""Seconds for which a holding is kept after its lifetime."""
BROKEN_EARLY = 5.0
"""Seconds within which a connection breaks because the server or a front in between restarts, or
because it was stale. One that breaks later has met the limit of a front, while the server goes on.
"""


@dataclass(slots=True, eq=False)
class Holding:
    """One claim of an episode, from the grant to its end or abort; times are in seconds."""

    uuid: str
    idle: float = math.inf
    """Time without a call after which the server takes the episode back."""
    lifetime: float = math.inf
    """Time from the claim after which an end becomes an abort."""
    counts: bool = True
    """False for an eval episode, whose reward is not trained on."""
    claimed_at: float = 0.0
    """When it was granted, on the monotonic clock."""
    claimed_on_wall: float = 0.0
    """The same on the wall clock: the other one stands still while a machine is suspended."""
    active_after: float = 0.0
    """Time from the claim to the last call, as far as its owner knows of calls."""
    doubtful: bool = False
    """A call has shown that the server may no longer hold the episode for this claim."""
    superseded: bool = False
    """The server has granted the episode to this client again."""
    left_by: Literal["", "end", "abort"] = ""
    """What was begun to be sent for it; empty while it is held."""


class Holdings:
    """The holding of each uuid that a client holds, and the uuids that are on their way back.

    Args:
        clock: The clocks of the process.
        on_free: Called when an episode is no longer set aside.

    Attributes:
        by_uuid: The holdings.
        ever_claimed: There was a holding.
        abort_timeout: Seconds after which a server has processed an end or an abort.
        leaving: Uuids whose abort is in flight, each with a future of its own that is done when it
            is over; one that is claimed again meanwhile leaves the dict.
    """

    def __init__(self, clock: Clock, on_free: Callable[[], None]) -> None:
        self.monotonic, self.wall = clock.monotonic, clock.wall
        self.by_uuid: dict[str, Holding] = {}
        self.ever_claimed = False
        self.abort_timeout = RUNNER
        self.leaving: dict[str, asyncio.Future[None]] = {}
        self._on_free = on_free
        self._set_aside: dict[str, asyncio.TimerHandle] = {}
        """Uuids whose end or abort the server may still process, with the end of that."""

    def granted(self, claimed: Claimed) -> Holding:
        """Record a claim that the server has just granted."""
        return self.add(
            Holding(
                claimed.episode_uuid,
                claimed.discard_timeout,
                counts=claimed.episode_type != "eval",
                claimed_at=self.monotonic(),
                claimed_on_wall=claimed.at,
            )
        )

    def add(self, holding: Holding) -> Holding:
        """Record a claim; the one before it of the same uuid is superseded."""
        uuid, self.ever_claimed = holding.uuid, True
        if uuid in self.leaving:
            del self.leaving[uuid]
        if uuid in self._set_aside:
            self._set_aside.pop(uuid).cancel()
        if uuid in self.by_uuid:
            self.by_uuid[uuid].superseded = True
        self.by_uuid[uuid] = holding
        return holding

    def forget(self, holding: Holding) -> None:
        """Remove a claim that this client no longer holds; keep a later claim of its uuid."""
        uuid = holding.uuid
        if uuid in self.by_uuid and self.by_uuid[uuid] is holding:
            del self.by_uuid[uuid]

    def forget_expired(self) -> None:
        """Remove what passed its lifetime long ago, even if the server still holds it."""
        for holding in tuple(self.by_uuid.values()):
            if self.age(holding) > holding.lifetime + REMEMBERED and not holding.left_by:
                del self.by_uuid[holding.uuid]

    def forget_all(self) -> None:
        """Remove all, but for those whose end is in flight."""
        held = self.by_uuid.items()
        self.by_uuid = {uuid: holding for uuid, holding in held if holding.left_by == "end"}

    def is_expired(self, holding: Holding) -> bool:
        """Return whether the lifetime has passed."""
        return self.age(holding) >= holding.lifetime

    def age(self, holding: Holding) -> float:
        """Return the seconds since the claim."""
        age = self.monotonic() - holding.claimed_at
        on_wall = self.wall() - holding.claimed_on_wall
        return age if age > on_wall else on_wall

    def known(self) -> set[str]:
        """Return the uuids that are no lost claims."""
        held = {holding.uuid for holding in self.by_uuid.values() if holding.left_by != "abort"}
        return held | self.leaving.keys() | self._set_aside.keys()

    def leave_all(self, uuids: Collection[str]) -> "dict[str, asyncio.Future[None]]":
        """Record that episodes are aborted, but for those whose end or abort is in flight."""
        aborts = {uuid: self.leave(uuid) for uuid in uuids if not self.in_flight(uuid)}
        for uuid in aborts:
            if (holding := self.by_uuid.pop(uuid, None)) is not None:
                holding.left_by = "abort"
        return aborts

    async def returned(self, uuids: Collection[str], seconds: float) -> None:
        """Wait until none of these episodes is being aborted, at most some seconds."""
        leaving = [self.leaving[uuid] for uuid in uuids if uuid in self.leaving]
        if leaving:
            await asyncio.wait(leaving, timeout=seconds)

    def in_flight(self, uuid: str) -> bool:
        """Return whether the end or abort of an episode is in flight."""
        holding = self.by_uuid.get(uuid)
        return uuid in self.leaving or (holding is not None and holding.left_by == "end")

    def leave(self, uuid: str) -> "asyncio.Future[None]":
        """Record that the abort of an episode is in flight, until `left`."""
        future = self.leaving[uuid] = asyncio.get_running_loop().create_future()
        return future

    def left(self, uuid: str, leaving: "asyncio.Future[None]") -> bool:
        """Record that it is over; return False if the episode was claimed again meanwhile."""
        leaving.set_result(None)
        if self.leaving.get(uuid) is not leaving:
            return False
        del self.leaving[uuid]
        return True

    def set_aside(self, uuid: str, seconds: float) -> None:
        """Count an episode as known for some seconds, and call `on_free` afterwards.

        It is for one whose end or abort the server may still process.
        """
        if (before := self._set_aside.get(uuid)) is not None:
            before.cancel()
        loop = asyncio.get_running_loop()
        self._set_aside[uuid] = loop.call_later(seconds, self._end_set_aside, uuid)

    def _end_set_aside(self, uuid: str) -> None:
        del self._set_aside[uuid]
        self._on_free()

    def cut_off(self, uuid: str, took: float) -> None:
        """Set an episode aside whose end or abort got no answer, while the server may go on.

        Args:
            uuid: The episode.
            took: Seconds from the request to the end of its connection, or to a front's answer.
        """
        if BROKEN_EARLY < took < self.abort_timeout:
            self.set_aside(uuid, self.abort_timeout - took)

    def is_set_aside(self, uuid: str) -> bool:
        """Return whether the server may still process the end or abort of an episode."""
        return uuid in self._set_aside

    def close(self) -> None:
        """Call `on_free` no more."""
        for timer in self._set_aside.values():
            timer.cancel()


def may_be_taken(holding: Holding, age: float) -> bool:
    """Return whether the server may have taken an episode back, `age` seconds after its claim."""
    return holding.doubtful or age - holding.active_after >= holding.idle
