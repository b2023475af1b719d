"""Playback of a journal: it takes the proxy's place and plays events at a chosen speed."""

import asyncio
import contextlib
import datetime as dt
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from ajet_swarm.common.errors import AjetError
from console.backend.feed import Feed
from console.models.advice import context_of
from console.session.app_state import Reply, Session
from console.views.events import event_line
from core.control_payloads import EpisodeTokens, JobInfo, RewindPlan, ServerDetails
from core.events import AnyEvent, EngineChanged, Event
from core.journal.read_only import JournalFile
from core.journal.reader import HistoryPage
from core.roles import OWNER
from core.state import Group, RunPoint, State

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
LONGEST_WAIT = 2.0
"""Longest wait for an event, in seconds of real time; the rest of an idle time is skipped."""
_PAGE = 500
_LOG_TAIL = 3_000
"""Number of events before the current one that the log shows."""


class ReplayError(AjetError):
    """The request is refused because this is a replay."""


class Reset:
    """Feed item: the position has changed; read the snapshot again."""


class Tempo:
    """The journal's clock: paused, or running at some speed.

    Args:
        at: Start time, Unix seconds.
        speed: Seconds of the journal per second of real time.
        clock: Real time, monotonic.
    """

    def __init__(
        self, at: float, speed: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._at = at
        self._since = clock()
        self.running = False
        self.speed = speed

    def now(self) -> float:
        """Return the current time in the journal, Unix seconds."""
        if not self.running:
            return self._at
        return self._at + (self._clock() - self._since) * self.speed

    def set(
        self, at: float | None = None, *, running: bool | None = None, speed: float | None = None
    ) -> None:
        """Change the time, start or pause the clock, change its speed; None changes nothing."""
        self._at = self.now() if at is None else at
        self._since = self._clock()
        self.running = self.running if running is None else running
        self.speed = speed or self.speed


class _WithoutProxy:
    """The requests of a link that need a live proxy: refused, or without a result."""

    async def groups(self, ids: Sequence[str]) -> Sequence[Group]:
        """Return no group: a snapshot of a replay is complete."""
        return ()

    async def curves(self, numbers: Sequence[int]) -> Mapping[int, Sequence[RunPoint]]:
        """Return no curve: a snapshot of a replay is complete."""
        return {}

    async def tokens(self, episode_uuid: str, server: str) -> EpisodeTokens:
        """Refuse: the engine stores the tokens, not the journal."""
        _refuse("the tokens are in the engine, not in the journal")

    async def server_details(self, server: str) -> ServerDetails:
        """Refuse: the server's present details do not belong to the recorded time."""
        _refuse("no server is queried")

    async def job(self, server: str) -> JobInfo:
        """Refuse: the server's present job does not belong to the recorded time."""
        _refuse("no server is queried for its job")

    async def rewind_plan(self, server: str, path: str = "") -> RewindPlan:
        """Refuse: no server is rewound in a replay."""
        _refuse("no server is rewound")


class Replay(_WithoutProxy):
    """A journal as a session's link, with the controls of its playback.

    It answers everything that the journal contains and refuses everything else.

    Args:
        file: The journal.
        first: Sequence number of the last event before the beginning.
        last: Sequence number of the last event.
        speed: Play from the beginning at this speed; None shows the end.
        clock: Real time, monotonic.
        label: What the status bar calls it.
    """

    identity = OWNER
    """A replay refuses all commands by itself."""

    def __init__(
        self,
        file: JournalFile,
        first: int,
        last: int,
        speed: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        label: str = "REPLAY",
    ) -> None:
        self.file = file
        self._label = label
        self.position = first if speed else last
        """Sequence number of the last event shown."""
        self._first, self._last = first, last
        self.tempo = Tempo(0.0, speed or 1.0, clock)
        self._play = speed is not None
        self._steps = 0
        self._wake = asyncio.Event()
        self._jumped = False
        self._session: Session | None = None
        self._log = _EventLog(file)
        self._reading = _StateReading(file)

    # --- controls ---------------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        """Whether all events are shown."""
        return self.position >= self._last

    @property
    def forms(self) -> Sequence[str]:
        """The text of the status bar, from the longest form to the shortest."""
        if not self.tempo.now():
            return (self._label,)
        at = dt.datetime.fromtimestamp(self.tempo.now()).astimezone()
        how = f"{self.tempo.speed:g}x" if self.tempo.running else "paused"
        how = "end" if self.at_end else how
        return (
            f"{self._label} {how} {at:%Y-%m-%d %H:%M:%S}",
            f"{self._label} {how} {at:%H:%M:%S}",
            f"{self._label} {how}",
        )

    def entries(self) -> Sequence[tuple[str, str, Callable[[], None]]]:
        """Return title, help and action of each control available now, for the palette."""
        controls: list[tuple[str, str, Callable[[], None]]] = []
        if not self.at_end:
            verb = "Pause" if self.tempo.running else "Resume"
            controls = [
                (f"Replay: {verb}", "Pause or resume the replay", self.toggle),
                ("Replay: Step", "Show the next event", self.step),
                ("Replay: To the end", "Jump to the end", self.to_end),
            ]
        return [
            *controls,
            ("Replay: From the beginning", "Play again from the beginning", self.to_begin),
            ("Replay: Faster", f"Now {self.tempo.speed:g}x", self.faster),
            ("Replay: Slower", f"Now {self.tempo.speed:g}x", self.slower),
        ]

    def toggle(self) -> None:
        """Pause or resume; at the end, play from the beginning."""
        if self.at_end:
            self.to_begin()
            return
        self.tempo.set(running=not self.tempo.running)
        self._changed()

    def step(self) -> None:
        """Show the next event that the log mentions, then pause."""
        if not self.at_end:
            self.tempo.set(running=False)
            self._steps = 1
            self._changed()

    def faster(self) -> None:
        """Change to the next higher speed."""
        more = [speed for speed in SPEEDS if speed > self.tempo.speed]
        self.tempo.set(speed=more[0] if more else None)
        self._changed()

    def slower(self) -> None:
        """Change to the next lower speed."""
        less = [speed for speed in SPEEDS if speed < self.tempo.speed]
        self.tempo.set(speed=less[-1] if less else None)
        self._changed()

    def to_begin(self) -> None:
        """Play from the beginning."""
        self._jump_to(self._first, play=True)

    def to_end(self) -> None:
        """Jump to the end and pause."""
        self._jump_to(self._last, play=False)

    def _jump_to(self, position: int, *, play: bool) -> None:
        self.position, self._play, self._steps = position, play, 0
        self._jumped = True
        self._changed()

    def _changed(self) -> None:
        self._wake.set()
        if self._session is not None:
            self._session.touch(("clock",))

    # --- the session's link -----------------------------------------------------------------------

    async def run(self, session: Session) -> None:
        """Feed a session until cancelled."""
        self._session = self._log.session = self._reading.session = session
        session.link = self
        session.step("link", "doing", str(self.file.path), title="read the journal")
        try:
            await Feed(session, self).run()
        finally:
            self._reading.stop()

    async def snapshot(self, *, whole: int | None = None) -> State:
        """Return the state at the current position, with all texts."""
        self._jumped = False
        position = self.position
        state = await self._reading.state(position)
        ended = await asyncio.to_thread(self.file.last_at, position) if position else 0.0
        if not ended:  # before the first event: start the clock at its time
            ended = next((event.at for event in await _page(self.file, 0, 1)), 0.0)
        self.tempo.set(ended, running=self._play and not self.at_end)
        await self._log.add_past(position)
        return state

    async def events(
        self,
        after: int,
        console: bool = False,
        run_id: str = "",
        holder: str = "",
        rater: str = "",
    ) -> AsyncIterator[Any]:
        """Yield each event when its time comes; wait after the last one."""
        waiting: list[AnyEvent] = []
        while True:
            if self._jumped:
                yield Reset()
                return
            if not waiting and not self.at_end:
                waiting = [e for e in await _page(self.file, self.position) if e.seq <= self._last]
                if not waiting:  # the remaining events cannot be read
                    self.position = self._last
            if not waiting:
                self.tempo.set(running=False)
                await self._wait(None)
                continue
            if not await self._due(waiting[0]):
                continue
            event = waiting.pop(0)
            self.position = event.seq
            self._log.add([event])
            yield event

    async def _due(self, event: Event) -> bool:
        """Wait for an event's time; False when a control was used meanwhile."""
        if self._steps:
            line = event_line(event)
            if line is not None and line.level != "debug":
                self._steps -= 1
            self.tempo.set(max(event.at, self.tempo.now()))
            return True
        if not self.tempo.running:
            await self._wait(None)
            return False
        wait = (event.at - self.tempo.now()) / self.tempo.speed
        if wait <= 0:
            return True
        if wait > LONGEST_WAIT:
            self.tempo.set(event.at - LONGEST_WAIT * self.tempo.speed)
            wait = LONGEST_WAIT
        await self._wait(wait)
        return False

    async def _wait(self, seconds: float | None) -> None:
        """Wait until a control is used, for at most `seconds`."""
        if not self._jumped and not self._steps:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
        self._wake.clear()

    async def group_events(self, group_id: str) -> Sequence[Event]:
        """Return all events of one group up to the current position."""
        return await asyncio.to_thread(self.file.group_events, group_id, self.position)

    async def history(self, first: int, limit: int) -> HistoryPage:
        """Return groups of the journal in their state at the current position."""
        return await asyncio.to_thread(self.file.page, first, limit, self.position)

    async def command(self, name: str, args: Mapping[str, Any]) -> Reply:
        """Refuse: a replay runs no command."""
        _refuse("no command can be run")

    async def post_fact(self, fact_id: str, event: Event) -> None:
        """Refuse: a replay writes nothing."""
        _refuse("no event can be added")


def _refuse(reason: str) -> NoReturn:
    raise ReplayError(f"this is a replay: {reason}")


async def _page(file: JournalFile, after: int, limit: int = _PAGE) -> list[AnyEvent]:
    return await asyncio.to_thread(file.events, after, limit)


class _StateReading:
    """Reads the state at a position in a thread; shows how far it is, and ends with the replay."""

    def __init__(self, file: JournalFile) -> None:
        self.session: Session | None = None
        self._file = file
        self._ends = threading.Event()

    def stop(self) -> None:
        """End the reading in progress soon."""
        self._ends.set()

    async def state(self, position: int) -> State:
        """Return the state at a position."""
        advance = partial(self._advance, asyncio.get_running_loop(), position)
        return await asyncio.to_thread(self._file.load_state, position, advance)

    def _advance(self, loop: asyncio.AbstractEventLoop, position: int, seq: int) -> None:
        """Show how far the journal is read; called in the thread that reads it.

        Raises:
            ReplayError: The replay has ended.
        """
        if self._ends.is_set():
            raise ReplayError("the replay has ended")
        if self.session is not None:
            detail = f"{seq:,} of {position:,} events"
            loop.call_soon_threadsafe(self.session.step, "link", "doing", detail)


class _EventLog:
    """Writes the events of a journal to a session's log, each once."""

    def __init__(self, file: JournalFile) -> None:
        self.session: Session | None = None
        self._file = file
        self._last = 0
        """Sequence number of the last event written."""

    async def add_past(self, position: int) -> None:
        """Write the newest events up to `position` that are not in the log yet."""
        after = max(self._last, position - _LOG_TAIL)
        while after < position:
            page = await asyncio.to_thread(self._file.events, after, _PAGE)
            events = [event for event in page if event.seq <= position]
            if not events:
                return
            self.add(events)
            after = events[-1].seq

    def add(self, events: Iterable[Event]) -> None:
        """Write the events that are not in the log yet."""
        session = self.session
        if session is None:
            return
        context = context_of(session)
        for event in events:
            if event.seq <= self._last:
                continue
            self._last = event.seq
            if (line := event_line(event, context)) is not None:
                text = f"{line.about}  {line.text}"
                kind = line.about if isinstance(event, EngineChanged) else ""
                session.log_store.add(line.source, text, event.at, line.level, kind)
        session.touch(("log",))
