"""The session that all screens share: state, clock, log and commands.

Screens see the proxy only through a `Link`, and the child processes through a `ProcessManager`.
"""

import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from ajet_swarm.common.errors import AjetError
from console.session.history import CURVE_PAGE, TEXT_PAGE, History, Unread
from console.session.logs import LogLine, LogStore
from core.commands import COMMANDS, validate
from core.commands.plan import permitted
from core.control_payloads import EpisodeTokens, JobInfo, RewindPlan, ServerDetails
from core.events import Event
from core.journal.reader import HistoryPage
from core.roles import OWNER, Identity
from core.settings import RatingSettings
from core.state import Group, RunPoint, State, apply

log = logging.getLogger(__name__)

EVERYTHING = frozenset({"*"})
"""The keys for a complete repaint, as of a screen that is shown again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command, with a message for the operator."""

    ok: bool
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)
    """What the command returns besides the message."""


class Reply(Protocol):
    """A link's response to a command."""

    @property
    def ok(self) -> bool: ...
    @property
    def message(self) -> str: ...
    @property
    def result(self) -> Mapping[str, Any]: ...


class Link(Protocol):
    """The proxy's control API, or a substitute for it."""

    identity: Identity
    """Name and role of its token; known after the first snapshot."""

    async def snapshot(self, *, whole: int | None = None) -> State: ...
    async def groups(self, ids: Sequence[str]) -> Sequence[Group]: ...
    async def curves(self, numbers: Sequence[int]) -> Mapping[int, Sequence[RunPoint]]: ...
    def events(
        self,
        after: int,
        console: bool = False,
        run_id: str = "",
        holder: str = "",
        rater: str = "",
    ) -> AsyncIterator[Any]: ...
    async def command(self, name: str, args: Mapping[str, Any]) -> Reply: ...
    async def group_events(self, group_id: str) -> Sequence[Event]: ...
    async def history(self, first: int, limit: int) -> HistoryPage: ...
    async def post_fact(self, fact_id: str, event: Event) -> None: ...
    async def tokens(self, episode_uuid: str, server: str) -> EpisodeTokens: ...
    async def server_details(self, server: str) -> ServerDetails: ...
    async def job(self, server: str) -> JobInfo: ...
    async def rewind_plan(self, server: str, path: str = "") -> RewindPlan: ...


class ChildProcess(Protocol):
    """The state of a child process."""

    @property
    def role(self) -> str:
        """proxy, engine or mock."""

    @property
    def phase(self) -> str:
        """stopped, starting, running, stopping, exited or attached (started elsewhere)."""

    @property
    def pid(self) -> int | None: ...
    @property
    def url(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def detail(self) -> str:
        """Its last log line or why it ended; one line, may be empty."""

    @property
    def tail(self) -> Sequence[str]:
        """Its last log lines."""


class ProcessManager(Protocol):
    """The supervisor of the child processes, or a substitute for it."""

    @property
    def children(self) -> Mapping[str, ChildProcess]: ...

    async def command(self, name: str, args: Mapping[str, Any]) -> str:
        """Carry out a console command and return a message for the operator.

        Raises:
            AjetError: the command failed; the error contains the reason.
        """

    async def stop_all(self, *, now: bool = False) -> None:
        """Stop all running children, one after the other.

        Args:
            now: Kill those that do not end at once; otherwise they may finish what they do.
        """


class ReplayStatus(Protocol):
    """The position of a journal replay, and its controls."""

    @property
    def forms(self) -> Sequence[str]:
        """The text of the status bar, from the longest form to the shortest."""

    def entries(self) -> Sequence[tuple[str, str, Callable[[], None]]]:
        """Return title, help and action of each control available now."""


@dataclass(slots=True)
class StartStep:
    """One step of the startup, before the console follows the feed."""

    title: str
    phase: str = "waiting"
    """waiting, doing, done or failed."""
    detail: str = ""
    lines: tuple[str, ...] = ()
    """Last log lines of a process that failed to start."""
    began: float | None = None
    ended: float | None = None


class Session:
    """One operator's view of one proxy.

    Attributes:
        state: The proxy's state; only the feed changes it, through the reducer.
        lost_at: When the feed was lost; None while connected or never connected.
        seen: Whether a snapshot was ever read; before that, `state` is empty.
        steps: The steps of the startup, by name, in order.
        trouble: Why there is no feed now; empty while connected.
    """

    def __init__(
        self,
        *,
        link: Link | None = None,
        processes: ProcessManager | None = None,
        read_only: bool = False,
        rater: str = "",
        rating: RatingSettings | None = None,
        save_rater: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.state = State()
        self.link = link
        self.processes = processes
        self.observing = read_only
        """Started read-only: sends no command, whatever the proxy would accept."""
        self.identity = OWNER
        """Name and role of this console's token."""
        self.rater = rater
        self.holder = secrets.token_hex(4)
        """Id of this console, in its leases and at the proxy."""
        self.rater_asked = bool(rater)
        """The rater's name is known, or the operator was asked for it in this home."""
        self.rating = rating or RatingSettings()
        self.save_rater = save_rater
        """Saves the rater's name for the next start; None where nothing is saved."""
        self.keymap: Mapping[str, str] = {}
        """Keys that the operator has changed and that are in use: id of an action -> its keys."""
        self.home: Path | None = None
        """The home of this console; None when it has none."""
        self.offers_setup = False
        """Whether this is the first start of a home without settings: the setup is offered."""
        self.journal: Path | None = None
        """The journal of the proxy, or of the replay; None when it is on another machine."""
        self.replay: ReplayStatus | None = None
        """Set while a journal is shown instead of a proxy."""
        self.log_store = LogStore()
        self.history = History()
        self.read_ahead: dict[str, Group] = {}
        """Groups of the inbox that are shown next, by id."""
        self.unread_texts = Unread[str](TEXT_PAGE)
        """Ids of the brief groups of `state`."""
        self.unread_curves = Unread[int](CURVE_PAGE)
        """Numbers of the engine runs of `state` without their curves."""
        self.lost_at: float | None = None
        self.seen = False
        self.steps: dict[str, StartStep] = {}
        self.trouble = ""
        self.refused = ""
        """Why the proxy refuses this console's token, in a few words; empty if it does not."""
        self.messages: list[tuple[str, str]] = []
        """Messages to show at the next flush: text and level."""
        self.input_at = clock()
        """When the operator pressed the key that is handled now, or last pressed one or clicked."""
        self._clock = clock
        self._dirty: set[str] = set()

    @property
    def read_only(self) -> bool:
        """Whether it was started read-only, its token is a viewer's, or its proxy watch-only."""
        return self.observing or self.state.watch_only or not self.identity.permits("rater")

    def allows(self, name: str) -> bool:
        """Return whether this console may send a command of the registry at all."""
        return not self.observing and permitted(self.state, name, self.identity)

    def now(self) -> float:
        """Return Unix seconds of the session's clock; comparable with the `at` of events."""
        return self._clock()

    @property
    def stale_for(self) -> float | None:
        """Seconds since the feed was lost; None while connected."""
        return None if self.lost_at is None else max(0.0, self.now() - self.lost_at)

    @property
    def as_of(self) -> float:
        """The time up to which the state is current: now, or when the feed was lost."""
        return self.now() if self.lost_at is None else self.lost_at

    @property
    def children(self) -> Mapping[str, ChildProcess]:
        """Child processes by role; empty when this console started none."""
        return self.processes.children if self.processes is not None else MappingProxyType({})

    @property
    def crashed(self) -> list[ChildProcess]:
        """Processes that ended on their own with an error."""
        return [
            child
            for child in self.children.values()
            if child.phase == "exited" and child.exit_code != 0
        ]

    @property
    def mock_running(self) -> bool:
        """Whether the mock user runs: it reported no end, and its process was not seen to end."""
        mock = self.state.mock
        if mock is None or mock.ended_at is not None:
            return False
        child = self.children.get("mock")
        return child is None or child.pid is not None

    @property
    def failed_steps(self) -> list[StartStep]:
        """The startup steps that failed."""
        return [step for step in self.steps.values() if step.phase == "failed"]

    def step(
        self, name: str, phase: str, detail: str = "", lines: Iterable[str] = (), title: str = ""
    ) -> None:
        """Record the progress of a startup step; the first call sets its title."""
        step = self.steps.setdefault(name, StartStep(title or name))
        if phase == "doing" and step.phase != "doing":
            step.began, step.ended = self.now(), None
        if phase in ("done", "failed"):
            step.ended = self.now()
        step.phase, step.detail, step.lines = phase, detail, tuple(lines)
        self.touch(("starting",))

    def touch(self, keys: Iterable[str]) -> None:
        """Mark what `keys` name as changed; the next flush repaints it."""
        self._dirty.update(keys)

    def take_dirty(self) -> frozenset[str]:
        """Return the keys changed since the last call: the reducer's, and link, children, log."""
        dirty = frozenset(self._dirty)
        self._dirty.clear()
        return dirty

    async def command(self, name: str, /, **args: Any) -> Outcome:
        """Run a command of `core.commands` and return its outcome; never raises."""
        try:
            checked = validate(name, args)
            if not self.allows(name):
                mode = "read-only" if self.observing else "watch-only"
                role, own = COMMANDS[name].role, self.identity
                why = f"this console is {mode}"
                if not own.permits(role):
                    why = f"it needs the role {role}; yours is {own.role}"
                return Outcome(False, f"{COMMANDS[name].title}: {why}")
            if COMMANDS[name].where == "console":
                if self.processes is None:
                    why = "this console started no process"
                    return Outcome(False, f"{COMMANDS[name].title}: {why}")
                return Outcome(True, await self.processes.command(name, checked))
            reply = await self.proxy.command(name, checked)
        except AjetError as error:
            return Outcome(False, str(error))
        except Exception as error:  # a bug in a link or supervisor must not end the console
            log.exception("command %s failed", name)
            return Outcome(False, f"{name} failed: {type(error).__name__}: {error}")
        return Outcome(reply.ok, reply.message, reply.result)

    @property
    def proxy(self) -> Link:
        """The proxy, for what only it can read; its methods raise AjetError.

        Raises:
            AjetError: there is no connection yet.
        """
        if self.link is None:
            raise AjetError("there is no connection to the proxy yet")
        return self.link

    async def group_events(self, group_id: str) -> list[Event]:
        """Return all events of one group, with complete texts.

        Raises:
            AjetError: the proxy cannot be reached.
        """
        return list(await self.proxy.group_events(group_id))

    async def read_group(self, group_id: str) -> Group | None:
        """Return a group built from its events in the journal; None when it has no events.

        Raises:
            AjetError: the proxy cannot be reached.
        """
        state = State()
        for event in await self.group_events(group_id):
            apply(state, event)
        return state.groups.get(group_id)

    def group(self, group_id: str) -> Group | None:
        """Return a group that is in state or was read from the journal."""
        group = self.state.groups.get(group_id)
        if group is None or group.brief:
            group = self.read_ahead.get(group_id, group)
        return group or self.history.group(group_id)

    async def read_history(self, first: int, limit: int) -> tuple[int, list[Group]]:
        """Return groups of the journal by rank (0 is the oldest), and the rank of the first one.

        That rank is above `first` when older groups were pruned.

        Raises:
            AjetError: the proxy cannot be reached.
        """
        page = await self.proxy.history(first, limit)
        self.history.set_start(page.start, page.since)
        return max(first, page.start), page.groups

    def logs(self, source: str | None = None) -> Sequence[LogLine]:
        """Return the lines of one source (proxy, engine, mock, console) or of all, oldest first."""
        return self.log_store.lines(source)

    def notify(self, text: str, level: str = "info") -> None:
        """Show the operator a message once, and add it to the log."""
        self.note("console", text, level)
        self.messages.append((text, level))

    def note(self, source: str, text: str, level: str = "info") -> None:
        """Add a line to the log."""
        self.log_store.add(source, text, self.now(), level)
        self.touch(("log",))


Starter = Callable[[Session], Awaitable[None]]
"""Starts or finds the session's processes and follows the proxy until cancelled."""
