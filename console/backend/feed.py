"""Follows the proxy's control API and keeps the session's state up to date.

It reads a snapshot first, then events by sequence number; after a lost connection it continues
with the next event. Widgets do not receive single events: the reducer's keys are collected, and
the next flush repaints what they name.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from ajet_swarm.common.errors import AjetError
from console.session.app_state import EVERYTHING, Link, Session
from console.session.history import WHOLE
from core.events import Event, GroupEvent
from core.roles import Identity
from core.state import reduce
from core.version import version

log = logging.getLogger(__name__)

FIRST_DELAY = 0.25
LAST_DELAY = 5.0
YIELD_EVERY = 100
"""Events applied before the screen gets a turn."""


class Feed:
    """The event feed of one session over one link; `run` it until cancelled."""

    def __init__(
        self,
        session: Session,
        link: Link,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        *,
        compare: bool = False,
    ) -> None:
        """`compare` warns when the proxy's version differs; for a proxy not started from here."""
        self._session = session
        self._link = link
        self._sleep = sleep
        self._delay = FIRST_DELAY
        self._snapshot_needed = True
        self._compared: str | None = "" if compare else None
        """The proxy version that was compared last; None when versions are not compared."""

    async def run(self) -> None:
        """Follow the feed forever; show each failure and retry after a growing delay."""
        while True:
            refused = ""
            try:
                await self._follow()
                trouble = "the proxy closed the feed"
            except AjetError as error:
                trouble = str(error)
                refused = error.what if hasattr(error, "status") else ""
                if getattr(error, "status", 0) == 401:
                    trouble = self._note_refused(error)
            except Exception as error:  # no event may end the console
                log.exception("the feed failed")
                trouble = f"the feed failed: {type(error).__name__}: {error}"
                self._snapshot_needed = True
            self._note_lost(trouble, refused)
            await self._sleep(self._delay * random.uniform(0.8, 1.2))
            self._delay = min(self._delay * 2, LAST_DELAY)

    async def _follow(self) -> None:
        """Read until the connection ends; after a reset, read the snapshot and continue."""
        session = self._session
        while True:
            # Connecting as an observer creates no event, so only a snapshot shows an observer
            # that the proxy is reachable again.
            if self._snapshot_needed or session.observing:
                await self._read_snapshot()
            if not await self._read_events():
                return
            self._snapshot_needed = True

    async def _read_events(self) -> bool:
        """Apply events until the connection ends; True when a new snapshot must be read."""
        session = self._session
        state = session.state
        events = self._link.events(
            state.seq,
            console=not session.observing,
            run_id=state.run_id,
            holder=session.holder,
            rater=session.rater,
        )
        try:
            count = 0
            async for item in events:
                self._note_connected()
                if not isinstance(item, Event):
                    return True
                if isinstance(item, GroupEvent):
                    session.unread_texts.note(item.group_id)
                    if session.history.forget(item.group_id):
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
        state = await self._link.snapshot(whole=WHOLE)
        self._identify(self._link.identity)
        known = self._session.state
        continues = state.run_id == known.run_id and state.seq >= known.seq
        if continues and not self._snapshot_needed:
            self._note_connected()  # missed changes arrive as events, so no screen jumps
            return
        self._session.state = state
        self._session.history.clear()
        self._session.unread_texts.begin(
            group.group_id for group in state.groups.values() if group.brief
        )
        self._session.unread_curves.begin(run.number for run in state.engine_runs.runs if run.brief)
        self._session.seen = True
        self._snapshot_needed = False
        self._session.touch(EVERYTHING)
        self._note_connected()
        if self._compared is not None:
            self._compare(state.proxy_version)

    def _identify(self, identity: Identity) -> None:
        """Note the role of this console's token; a named token also names the rater."""
        session = self._session
        if identity != session.identity:
            session.identity = identity
            session.touch(EVERYTHING)
        if identity.name:
            session.rater, session.rater_asked = identity.name, True

    def _compare(self, proxy_version: str) -> None:
        """Warn once when proxy and console differ in version: one may not show what is new."""
        own_version = version()
        if proxy_version and proxy_version not in (own_version, self._compared):
            self._session.notify(
                f"The proxy is version {proxy_version}, this console {own_version}: features that "
                "only one of them has are not shown. Use the same version on both ends",
                "warning",
            )
        self._compared = proxy_version

    def _note_connected(self) -> None:
        self._delay = FIRST_DELAY
        step = self._session.steps.get("link")
        if step is not None and step.phase != "done":
            self._session.step("link", "done", step.detail if step.phase != "failed" else "")
        if self._session.lost_at is not None or self._session.trouble:
            self._session.lost_at = None
            self._session.trouble = self._session.refused = ""
            self._session.touch(("link",))

    def _note_refused(self, error: AjetError) -> str:
        """Record that the proxy refuses the token, show it once, and return what to do."""
        session, text = self._session, str(error)
        short = "the proxy refuses the token"
        if name := session.identity.name:
            short = f"the token {name} was revoked or has expired"
            text = f"{short}. Ask for a new one, and start again with it (--token-file)"
        if session.seen and not session.refused:
            session.notify(text[:1].upper() + text[1:], "error")
        session.refused = short
        return text

    def _note_lost(self, trouble: str, refused: str = "") -> None:
        """Record why there is no feed.

        Args:
            trouble: The reason, for the operator.
            refused: The reason in an answer that waiting will not change; empty without an answer.
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
