"""What every screen sees: the state, the clock, the log and one way to order something.

Screens reach no further: the proxy is behind a `Link`, the child processes behind a
`ProcessManager`.
"""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from ajet_swarm.common.errors import AjetError
from console.session.history import History
from console.session.logs import LogLine, LogStore
from core.commands import COMMANDS, validate
from core.control_payloads import EpisodeTokens, JobInfo, ServerDetails
from core.events import Event
from core.journal.history import HistoryPage
from core.reducer import reduce
from core.settings import RatingSettings
from core.state import Group, State

log = logging.getLogger(__name__)

EVERYTHING = frozenset({"*"})
"""Handed to a screen that is shown again: nothing it painted before can be relied on."""


WATCHER_MAY = frozenset({"alert.dismiss", "proxy.restart"})
"""What is left to order of a proxy that only looks on: itself, and what it says."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an order ended, in words for the operator."""

    ok: bool
    message: str


class Reply(Protocol):
    """What a link answers to a command."""

    @property
    def ok(self) -> bool: ...
    @property
    def message(self) -> str: ...


class Link(Protocol):
    """The proxy's control API, or a stand-in for it."""

    async def snapshot(self) -> State: ...
    def events(self, after: int, console: bool = False, run_id: str = "") -> AsyncIterator[Any]: ...
    async def command(self, name: str, args: Mapping[str, Any]) -> Reply: ...
    async def group_events(self, group_id: str) -> Sequence[Event]: ...
    async def history(self, first: int, limit: int) -> HistoryPage: ...
    async def post_fact(self, fact_id: str, event: Event) -> None: ...
    async def tokens(self, episode_uuid: str, server: str) -> EpisodeTokens: ...
    async def look(self, server: str) -> ServerDetails: ...
    async def job(self, server: str) -> JobInfo: ...


class ChildProcess(Protocol):
    """A child process as the supervisor knows it."""

    @property
    def role(self) -> str:
        """proxy, engine or mock."""
        ...

    @property
    def phase(self) -> str:
        """stopped, starting, running, stopping, exited or attached (started elsewhere)."""
        ...

    @property
    def pid(self) -> int | None: ...
    @property
    def url(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def detail(self) -> str:
        """What it is doing or why it ended, one line; may be empty."""
        ...

    @property
    def tail(self) -> Sequence[str]:
        """Its last log lines."""
        ...


class ProcessManager(Protocol):
    """The supervisor of the child processes, or a stand-in for it."""

    @property
    def children(self) -> Mapping[str, ChildProcess]: ...

    async def command(self, name: str, args: Mapping[str, Any]) -> str:
        """Carry out a console command; returns what to tell the operator.

        Raises:
            AjetError: it could not be done; says why.
        """
        ...

    async def stop_all(self) -> None:
        """Stop every child that runs, in order."""
        ...


class ReplayStatus(Protocol):
    """Where a replay of a journal is."""

    @property
    def forms(self) -> Sequence[str]:
        """What the status bar says of it, from long to short."""
        ...

    def entries(self) -> Sequence[tuple[str, str, Callable[[], None]]]:
        """Title, help and action of what can be done with it now."""
        ...


@dataclass(slots=True)
class StartStep:
    """One thing that is done before the feed is followed."""

    title: str
    phase: str = "waiting"
    """waiting, doing, done or failed."""
    detail: str = ""
    lines: tuple[str, ...] = ()
    """Last log lines of a process that would not start."""
    began: float | None = None
    ended: float | None = None


class Session:
    """One operator's view of one proxy.

    Attributes:
        state: What is known; only the feed changes it, through the reducer.
        lost_at: When the feed was lost; None while it is followed or was never there.
        seen: Whether a snapshot was ever read; before that nothing in `state` is known.
        steps: What is done at the start, by name, in order.
        trouble: Why there is no feed now; empty while there is.
    """

    def __init__(
        self,
        *,
        link: Link | None = None,
        processes: ProcessManager | None = None,
        read_only: bool = False,
        rater: str = "",
        rating: RatingSettings | None = None,
        keep_rater: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.state = State()
        self.link = link
        self.processes = processes
        self.looks_on = read_only
        """Asked to order nothing, whatever the proxy would take."""
        self.rater = rater
        self.rater_asked = bool(rater)
        """The name was given, or asked for: once in a home is enough."""
        self.rating = rating or RatingSettings()
        self.keep_rater = keep_rater
        """Keeps the name for the next start; None where nothing is kept."""
        self.keymap: Mapping[str, str] = {}
        """Keys that the operator has changed and that are in use: id of an action -> its keys."""
        self.home: Path | None = None
        """The home of this console; None where it has none."""
        self.replay: ReplayStatus | None = None
        """Set while a journal is shown instead of a proxy."""
        self.store = LogStore()
        self.history = History()
        self.lost_at: float | None = None
        self.seen = False
        self.steps: dict[str, StartStep] = {}
        self.trouble = ""
        self.told: list[tuple[str, str]] = []
        """What the operator is told at the next flush: text and level."""
        self.input_at = clock()
        """When the operator last pressed a key or clicked."""
        self._clock = clock
        self._dirty: set[str] = set()

    @property
    def read_only(self) -> bool:
        """Nothing is ordered from here: it was asked so, or the proxy itself only looks on."""
        return self.looks_on or self.state.watch_only

    def may(self, name: str) -> bool:
        """Whether a command of the registry may be given at all from this console."""
        if self.looks_on:
            return False
        return not self.state.watch_only or name in WATCHER_MAY

    def now(self) -> float:
        """Unix seconds by the session's clock; compare with the `at` of events."""
        return self._clock()

    @property
    def stale_for(self) -> float | None:
        """Seconds since the feed was lost; None while it is followed."""
        return None if self.lost_at is None else max(0.0, self.now() - self.lost_at)

    @property
    def as_of(self) -> float:
        """The time up to which things are known: now, or when the feed was lost."""
        return self.now() if self.lost_at is None else self.lost_at

    @property
    def children(self) -> Mapping[str, ChildProcess]:
        """Child processes by role; empty when this console started none."""
        return self.processes.children if self.processes is not None else MappingProxyType({})

    @property
    def fallen(self) -> list[ChildProcess]:
        """Processes that ended unasked and not in order."""
        return [
            child
            for child in self.children.values()
            if child.phase == "exited" and child.exit_code != 0
        ]

    @property
    def mock_lives(self) -> bool:
        """Whether the mock user runs: it has not told its end and its process was not seen dead."""
        mock = self.state.mock
        if mock is None or mock.ended_at is not None:
            return False
        child = self.children.get("mock")
        return child is None or child.pid is not None

    @property
    def failed_steps(self) -> list[StartStep]:
        """What could not be started."""
        return [step for step in self.steps.values() if step.phase == "failed"]

    def step(
        self, name: str, phase: str, detail: str = "", lines: Iterable[str] = (), title: str = ""
    ) -> None:
        """Note how far one thing that is done at the start is; the first call names it."""
        step = self.steps.setdefault(name, StartStep(title or name))
        if phase == "doing" and step.phase != "doing":
            step.began, step.ended = self.now(), None
        if phase in ("done", "failed"):
            step.ended = self.now()
        step.phase, step.detail, step.lines = phase, detail, tuple(lines)
        self.touch(("starting",))

    def touch(self, keys: Iterable[str]) -> None:
        """Note that what `keys` name has changed; shown at the next flush."""
        self._dirty.update(keys)

    def take_dirty(self) -> frozenset[str]:
        """What has changed since the last call: the reducer's keys, and link, children, log."""
        dirty = frozenset(self._dirty)
        self._dirty.clear()
        return dirty

    async def command(self, name: str, /, **args: Any) -> Outcome:
        """Order something from `core.commands`; never raises, says how it went."""
        try:
            checked = validate(name, args)
            if not self.may(name):
                why = "this console is read-only" if self.looks_on else "this console is watch-only"
                return Outcome(False, f"{COMMANDS[name].title}: {why}")
            if COMMANDS[name].where == "console":
                if self.processes is None:
                    return Outcome(False, f"{COMMANDS[name].title}: nothing was started from here")
                return Outcome(True, await self.processes.command(name, checked))
            if self.link is None:
                return Outcome(False, "there is no connection to the proxy yet")
            reply = await self.link.command(name, checked)
        except AjetError as error:
            return Outcome(False, str(error))
        except Exception as error:  # a link or supervisor at fault must not end the console
            log.exception("command %s failed", name)
            return Outcome(False, f"{name} failed: {type(error).__name__}: {error}")
        return Outcome(reply.ok, reply.message)

    async def group_events(self, group_id: str) -> list[Event]:
        """Everything that happened to one group, with whole texts.

        Raises:
            AjetError: the proxy cannot be asked now.
        """
        if self.link is None:
            raise AjetError("there is no connection to the proxy yet")
        return list(await self.link.group_events(group_id))

    async def read_group(self, group_id: str) -> Group | None:
        """A group as its events in the journal make it; None when there is none.

        Raises:
            AjetError: the proxy cannot be asked now.
        """
        state = State()
        for event in await self.group_events(group_id):
            reduce(state, event)
        return state.groups.get(group_id)

    def group(self, group_id: str) -> Group | None:
        """A group that is in state, or that was read from the journal."""
        return self.state.groups.get(group_id) or self.history.group(group_id)

    async def older(self, first: int, limit: int) -> tuple[int, list[Group]]:
        """Groups of the whole journal by rank, 0 for the oldest, and the rank of the first.

        It is above the one asked for where the older ones were pruned.

        Raises:
            AjetError: the proxy cannot be asked now.
        """
        if self.link is None:
            raise AjetError("there is no connection to the proxy yet")
        page = await self.link.history(first, limit)
        self.history.starts(page.start, page.since)
        return max(first, page.start), page.groups

    async def look(self, server: str) -> ServerDetails:
        """Everything a swarm server tells, read now.

        Raises:
            AjetError: the proxy cannot be asked now.
        """
        if self.link is None:
            raise AjetError("there is no connection to the proxy yet")
        return await self.link.look(server)

    async def job(self, server: str) -> JobInfo:
        """The jobs of a server: saved, running, presets.

        Raises:
            AjetError: the proxy cannot be asked now.
        """
        if self.link is None:
            raise AjetError("there is no connection to the proxy yet")
        return await self.link.job(server)

    async def tokens(self, episode_uuid: str, server: str) -> EpisodeTokens:
        """The token log of an episode.

        Raises:
            AjetError: its server gives none, does not have it any more, or cannot be asked now.
        """
        if self.link is None:
            raise AjetError("there is no connection to the proxy yet")
        return await self.link.tokens(episode_uuid, server)

    def logs(self, source: str | None = None) -> Sequence[LogLine]:
        """The lines kept of one source (proxy, engine, mock, console), or of all, oldest first."""
        return self.store.lines(source)

    def tell(self, text: str, level: str = "info") -> None:
        """Say something to the operator once, and keep it in the log."""
        self.note("console", text, level)
        self.told.append((text, level))

    def note(self, source: str, text: str, level: str = "info") -> None:
        """Add a line to the log."""
        self.store.add(source, text, self.now(), level)
        self.touch(("log",))


Starter = Callable[[Session], Awaitable[None]]
"""Starts or finds what the session needs and follows it until cancelled."""
