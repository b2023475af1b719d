"""Follows the proxy's control API and keeps the session's state true.

Snapshot first, then events by sequence number; a lost connection is taken up again where it broke.
No widget is told of single events: the reducer's keys are collected and shown at the next flush.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from ajet_swarm.common.errors import AjetError
from console.session.app_state import EVERYTHING, Link, Session
from core.events import Event, GroupEvent
from core.reducer import reduce
from core.version import version

log = logging.getLogger(__name__)

FIRST_DELAY = 0.25
LAST_DELAY = 5.0
YIELD_EVERY = 100
"""Events applied before the screen gets a turn."""


class Feed:
    """One session's connection to one link; `run` until cancelled."""

    def __init__(
        self,
        session: Session,
        link: Link,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        *,
        compare: bool = False,
    ) -> None:
        """`compare` tells of a proxy of another version: one that was not started from here."""
        self._session = session
        self._link = link
        self._sleep = sleep
        self._delay = FIRST_DELAY
        self._snapshot_wanted = True
        self._compared: str | None = "" if compare else None
        """The version of the proxy that was last looked at; None where that is not asked."""

    async def run(self) -> None:
        """Follow for ever; every failure is shown and tried again with a growing pause."""
        while True:
            refused = ""
            try:
                await self._follow()
                trouble = "the proxy closed the feed"
            except AjetError as error:
                trouble = str(error)
                refused = error.what if hasattr(error, "status") else ""
            except Exception as error:  # whatever the feed brings, the console goes on
                log.exception("the feed failed")
                trouble = f"the feed failed: {type(error).__name__}: {error}"
                self._snapshot_wanted = True
            self._lost(trouble, refused)
            await self._sleep(self._delay * random.uniform(0.8, 1.2))
            self._delay = min(self._delay * 2, LAST_DELAY)

    async def _follow(self) -> None:
        """Read until the connection ends; a reset reads the snapshot and goes on."""
        session = self._session
        while True:
            # An observer that does not count as an operator gets no event of its own on
            # connecting; only a snapshot tells it that the proxy is there again.
            if self._snapshot_wanted or session.looks_on:
                await self._read_snapshot()
            if not await self._read_events():
                return
            self._snapshot_wanted = True

    async def _read_events(self) -> bool:
        """Apply events until the connection ends; True when the feed asks for a new snapshot."""
        session = self._session
        state = session.state
        events = self._link.events(state.seq, console=not session.looks_on, run_id=state.run_id)
        try:
            count = 0
            async for item in events:
                self._found()
                if not isinstance(item, Event):
                    return True
                if isinstance(item, GroupEvent) and session.history.forget(item.group_id):
                    session.touch(("groups",))
                if item.seq > session.state.seq:
                    session.touch(reduce(session.state, item))
                count += 1
                if count % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
            return False
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    async def _read_snapshot(self) -> None:
        state = await self._link.snapshot()
        known = self._session.state
        goes_on = state.run_id == known.run_id and state.seq >= known.seq
        if goes_on and not self._snapshot_wanted:
            self._found()  # what was missed comes as events, and nothing on screen jumps
            return
        self._session.state = state
        self._session.history.clear()
        self._session.seen = True
        self._snapshot_wanted = False
        self._session.touch(EVERYTHING)
        self._found()
        if self._compared is not None:
            self._compare(state.proxy_version)

    def _compare(self, there: str) -> None:
        """Say once that both ends are not of one version: what one does not know it cannot show."""
        here = version()
        if there and there not in (here, self._compared):
            self._session.tell(
                f"The proxy is version {there}, this console {here}: what is new in one of them "
                "is not shown. Use the same version on both ends",
                "warning",
            )
        self._compared = there

    def _found(self) -> None:
        self._delay = FIRST_DELAY
        step = self._session.steps.get("link")
        if step is not None and step.phase != "done":
            self._session.step("link", "done", step.detail if step.phase != "failed" else "")
        if self._session.lost_at is not None or self._session.trouble:
            self._session.lost_at = None
            self._session.trouble = ""
            self._session.touch(("link",))

    def _lost(self, trouble: str, refused: str = "") -> None:
        """Note why there is no feed.

        Args:
            trouble: For people.
            refused: What an answer said that will not change by waiting; empty for no answer.
        """
        session = self._session
        if refused and not session.seen and "link" in session.steps:
            session.step("link", "failed", refused)
        if session.seen and session.lost_at is None:
            session.lost_at = session.now()
        if session.trouble != trouble:
            session.trouble = trouble
            log.warning("%s", trouble)
        session.touch(("link",))
