"""A journal in the place of a proxy: the same feed, at its end or played at some speed."""

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from console.backend.feed import Feed
from console.models.advice import context_of
from console.replay.link import JournalLink
from console.session.app_state import Session
from console.views.events import event_line
from core.events import AnyEvent, Event
from core.journal.read_only import JournalFile
from core.state import State

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
LONGEST_WAIT = 2.0
"""Seconds of ours after which an idle time of the journal is left out."""
_PAGE = 500
_LOG_TAIL = 3_000
"""Events before the present one that are told in the log."""


class Reset:
    """The feed goes on from elsewhere: read the snapshot again."""


class Tempo:
    """The journal's clock: stands, or runs at a speed.

    Args:
        at: Where it begins, Unix seconds.
        speed: Seconds of the journal in one of ours.
        clock: Ours, monotonic.
    """

    def __init__(
        self, at: float, speed: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._at = at
        self._since = clock()
        self._running = False
        self._speed = speed

    @property
    def running(self) -> bool:
        return self._running

    @property
    def speed(self) -> float:
        return self._speed

    def now(self) -> float:
        """Unix seconds in the journal."""
        if not self._running:
            return self._at
        return self._at + (self._clock() - self._since) * self._speed

    def set(
        self, at: float | None = None, *, running: bool | None = None, speed: float | None = None
    ) -> None:
        """Move it, let it run or stand, change its speed."""
        self._at = self.now() if at is None else at
        self._since = self._clock()
        self._running = self._running if running is None else running
        self._speed = speed or self._speed


class Replay(JournalLink):
    """Plays one journal; a session's link, and what moves it.

    Args:
        file: The journal.
        first: Number of the last event before the beginning.
        last: Number of the event it ends with.
        speed: Played from the beginning at this speed; None shows the end.
        clock: Ours, monotonic.
    """

    def __init__(
        self,
        file: JournalFile,
        first: int,
        last: int,
        speed: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(file, first if speed else last)
        self._first, self._last = first, last
        self.tempo = Tempo(0.0, speed or 1.0, clock)
        self._play = speed is not None
        self._steps = 0
        self._moved = asyncio.Event()
        self._jump = False
        self._session: Session | None = None
        self._logged = 0

    # --- moving -----------------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        """Everything is shown."""
        return self.position >= self._last

    @property
    def forms(self) -> Sequence[str]:
        """What the status bar says, from long to short."""
        if not self.tempo.now():
            return ("REPLAY",)
        at = dt.datetime.fromtimestamp(self.tempo.now()).astimezone()
        how = f"{self.tempo.speed:g}x" if self.tempo.running else "paused"
        how = "end" if self.at_end else how
        return (
            f"REPLAY {how} {at:%Y-%m-%d %H:%M:%S}",
            f"REPLAY {how} {at:%H:%M:%S}",
            f"REPLAY {how}",
        )

    def entries(self) -> Sequence[tuple[str, str, Callable[[], None]]]:
        """What can be done now, for the palette."""
        found: list[tuple[str, str, Callable[[], None]]] = []
        if not self.at_end:
            verb = "Pause" if self.tempo.running else "Go on"
            found = [
                (f"Replay: {verb}", "Pause or resume the replay", self.toggle),
                ("Replay: Step", "Show the next event", self.step),
                ("Replay: To the end", "Jump to the end", self.to_end),
            ]
        return [
            *found,
            ("Replay: From the beginning", "Play it again from the beginning", self.to_begin),
            ("Replay: Faster", f"Now {self.tempo.speed:g}x", self.faster),
            ("Replay: Slower", f"Now {self.tempo.speed:g}x", self.slower),
        ]

    def toggle(self) -> None:
        """Pause, or go on; at the end play it again."""
        if self.at_end:
            self.to_begin()
            return
        self.tempo.set(running=not self.tempo.running)
        self._move()

    def step(self) -> None:
        """Show the next event that has something to say, and stand."""
        if not self.at_end:
            self.tempo.set(running=False)
            self._steps = 1
            self._move()

    def faster(self) -> None:
        """The next higher speed."""
        more = [one for one in SPEEDS if one > self.tempo.speed]
        self.tempo.set(speed=more[0] if more else None)
        self._move()

    def slower(self) -> None:
        """The next lower speed."""
        less = [one for one in SPEEDS if one < self.tempo.speed]
        self.tempo.set(speed=less[-1] if less else None)
        self._move()

    def to_begin(self) -> None:
        """Play it from the beginning."""
        self._go(self._first, play=True)

    def to_end(self) -> None:
        """Show the state at the end."""
        self._go(self._last, play=False)

    def _go(self, position: int, *, play: bool) -> None:
        self.position, self._play, self._steps = position, play, 0
        self._jump = True
        self._move()

    def _move(self) -> None:
        self._moved.set()
        if self._session is not None:
            self._session.touch(("clock",))

    # --- as the session's link --------------------------------------------------------------------

    async def run(self, session: Session) -> None:
        """Drive a session until cancelled."""
        self._session = session
        session.link = self
        session.step("link", "doing", str(self.file.path), title="read the journal")
        await Feed(session, self).run()

    async def snapshot(self) -> State:
        """The state at the present place."""
        self._jump = False
        position = self.position
        state = await asyncio.to_thread(self.file.state, position)
        ended = await asyncio.to_thread(self.file.last_at, position) if position else 0.0
        if not ended:  # before the first event: the clock begins with it
            ended = next((one.at for one in await self._page(0, 1)), 0.0)
        self.tempo.set(ended, running=self._play and not self.at_end)
        await self._tell_past(position)
        return state

    async def events(
        self, after: int, console: bool = False, run_id: str = ""
    ) -> AsyncIterator[Any]:
        """Events behind `after` when their time comes; after the last one it waits."""
        waiting: list[AnyEvent] = []
        while True:
            if self._jump:
                yield Reset()
                return
            if not waiting and not self.at_end:
                waiting = [e for e in await self._page(self.position) if e.seq <= self._last]
                if not waiting:  # what is left cannot be read
                    self.position = self._last
            if not waiting:
                self.tempo.set(running=False)
                await self._rest(None)
                continue
            if not await self._due(waiting[0]):
                continue
            event = waiting.pop(0)
            self.position = event.seq
            self._tell([event])
            yield event

    async def _page(self, after: int, limit: int = _PAGE) -> list[AnyEvent]:
        return await asyncio.to_thread(self.file.events, after, limit)

    async def _due(self, event: Event) -> bool:
        """Wait for an event's time; False when something was moved meanwhile."""
        if self._steps:
            line = event_line(event)
            if line is not None and line.level != "debug":
                self._steps -= 1
            self.tempo.set(max(event.at, self.tempo.now()))
            return True
        if not self.tempo.running:
            await self._rest(None)
            return False
        wait = (event.at - self.tempo.now()) / self.tempo.speed
        if wait <= 0:
            return True
        if wait > LONGEST_WAIT:
            self.tempo.set(event.at - LONGEST_WAIT * self.tempo.speed)
            wait = LONGEST_WAIT
        await self._rest(wait)
        return False

    async def _rest(self, seconds: float | None) -> None:
        """Wait until something is moved, or for so long."""
        if not self._jump and not self._steps:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._moved.wait()
        self._moved.clear()

    # --- the log ----------------------------------------------------------------------------------

    async def _tell_past(self, position: int) -> None:
        after = max(self._logged, position - _LOG_TAIL)
        while after < position:
            found = [one for one in await self._page(after) if one.seq <= position]
            if not found:
                return
            self._tell(found)
            after = found[-1].seq

    def _tell(self, events: Iterable[Event]) -> None:
        """Say in the log what happened, once each."""
        session = self._session
        if session is None:
            return
        context = context_of(session)
        for event in events:
            if event.seq <= self._logged:
                continue
            self._logged = event.seq
            if (line := event_line(event, context)) is not None:
                session.store.add(line.source, f"{line.about}  {line.text}", event.at, line.level)
        session.touch(("log",))
