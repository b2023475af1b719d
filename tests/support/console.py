"""Console apps on a fake link: no sockets, no processes, a clock that only tests advance."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from textual._compositor import LayoutUpdate
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from ajet_swarm.common.errors import AjetError
from console.app import ConsoleApp
from console.backend.feed import Feed
from console.models.screen_registry import SCREENS, ScreenSpec
from console.session.app_state import Session
from core.control_payloads import EpisodeTokens, JobInfo, RewindPlan, ServerDetails
from core.events import Event
from core.journal.reader import HistoryPage
from core.roles import OWNER
from core.settings import RatingSettings
from core.state import Group, RunPoint, State, reduce
from core.state.brief import brief_groups, brief_runs
from tests.support.sample import (
    HOSTILE,
    NOW,
    group_events,
    sample_events,
    sample_state,
    stamp,
    state_of,
)

__all__ = [
    "BY_ENTER",
    "HOSTILE",
    "NOW",
    "Clock",
    "FakeChild",
    "FakeLink",
    "FakeProcessManager",
    "FakeReply",
    "RunningConsole",
    "build_app",
    "group_events",
    "rest",
    "run_console",
    "sample_events",
    "sample_state",
    "screen_rows",
    "screen_text",
    "stamp",
    "state_of",
]


@dataclass
class FakeReply:
    ok: bool = True
    message: str = "done"
    result: Mapping[str, Any] = field(default_factory=dict)


class FakeLink:
    """A control API in memory; `publish` is what the proxy would do."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state or State()
        self.identity = OWNER
        self.commands: list[tuple[str, dict[str, Any]]] = []
        """Commands in order, without those of `on_screen`."""
        self.on_screen: list[dict[str, Any]] = []
        """Reports of the group that the only console shows."""
        self.reply = FakeReply()
        self.refuse: AjetError | None = None
        self.broken: AjetError | None = None
        self.snapshots = 0
        self.text_pages: list[int] = []
        """Number of groups of each request for texts."""
        self.curve_pages: list[int] = []
        self.after: list[int] = []
        self.detail: list[Event] = []
        self.journal: list[Group] = []
        self.pruned = 0
        """Groups of it that were deleted, the oldest ones."""
        """Groups that only the journal has, oldest first; those of state follow."""
        self.facts: list[str] = []
        self.token_log: EpisodeTokens | None = None
        self.token_requests: list[tuple[str, str]] = []
        self.job_sheet: JobInfo | None = None
        self.rewind_plans: list[RewindPlan] = []
        self.rewind_paths: list[str] = []
        self.looks: dict[str, ServerDetails] = {}
        self.looked: list[str] = []
        self._queues: list[asyncio.Queue[Any]] = []
        self._sent: list[Event] = []

    def publish(self, *events: Event) -> None:
        """Make events true and send them to all followers."""
        for event in events:
            stamped = stamp(event, self.state.seq + 1)
            reduce(self.state, stamped)
            self._sent.append(stamped)
            for queue in self._queues:
                queue.put_nowait(stamped)

    def reset(self) -> None:
        """Make all followers read the snapshot again."""
        for queue in self._queues:
            queue.put_nowait(object())

    def cut(self, error: AjetError) -> None:
        """Break all connections, and refuse new ones until `mend`."""
        self.broken = error
        for queue in self._queues:
            queue.put_nowait(error)

    @property
    def followers(self) -> int:
        """Connections that are open."""
        return len(self._queues)

    def mend(self) -> None:
        """Take connections again."""
        self.broken = None

    async def snapshot(self, *, whole: int | None = None) -> State:
        if self.broken is not None:
            raise self.broken
        self.snapshots += 1
        state = self.state
        if whole is not None:
            state = msgspec.structs.replace(
                state,
                groups=brief_groups(state.groups, whole),
                engine_runs=brief_runs(state.engine_runs),
            )
        return msgspec.json.decode(msgspec.json.encode(state), type=State)

    async def groups(self, ids: Sequence[str]) -> Sequence[Group]:
        if self.broken is not None:
            raise self.broken
        self.text_pages.append(len(ids))
        found = [
            self.state.groups[identifier] for identifier in ids if identifier in self.state.groups
        ]
        return msgspec.json.decode(msgspec.json.encode(found), type=list[Group])

    async def curves(self, numbers: Sequence[int]) -> Mapping[int, Sequence[RunPoint]]:
        self.curve_pages.append(len(numbers))
        known = map(self.state.engine_runs.numbered, numbers)
        return {other.number: list(other.curve) for other in known if other is not None}

    async def events(
        self,
        after: int,
        console: bool = False,
        run_id: str = "",
        holder: str = "",
        rater: str = "",
    ) -> AsyncIterator[Any]:
        if self.broken is not None:
            raise self.broken
        self.after.append(after)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for event in self._sent:
            if event.seq > after:
                queue.put_nowait(event)
        self._queues.append(queue)
        try:
            while True:
                item = await queue.get()
                if isinstance(item, AjetError):
                    raise item
                yield item
        finally:
            self._queues.remove(queue)

    async def command(self, name: str, args: Mapping[str, Any]) -> FakeReply:
        if args.get("shared"):
            self.on_screen.append(dict(args))
            return FakeReply()
        self.commands.append((name, dict(args)))
        if self.refuse is not None:
            raise self.refuse
        return self.reply

    async def group_events(self, group_id: str) -> Sequence[Event]:
        return self.detail

    async def server_details(self, server: str) -> ServerDetails:
        if self.broken is not None:
            raise self.broken
        self.looked.append(server)
        return self.looks.get(server) or ServerDetails(server=server, at=NOW)

    async def tokens(self, episode_uuid: str, server: str) -> EpisodeTokens:
        self.token_requests.append((episode_uuid, server))
        if self.token_log is None:
            raise AjetError("this server has no token log", server, "Only the embedded engine has")
        return msgspec.structs.replace(self.token_log, episode_uuid=episode_uuid)

    async def job(self, server: str) -> JobInfo:
        if self.job_sheet is None:
            raise AjetError("there is no such server", server)
        return msgspec.structs.replace(self.job_sheet, server=server)

    async def rewind_plan(self, server: str, path: str = "") -> RewindPlan:
        self.rewind_paths.append(path)
        return self.rewind_plans[min(len(self.rewind_paths), len(self.rewind_plans)) - 1]

    async def history(self, first: int, limit: int) -> HistoryPage:
        if self.broken is not None:
            raise self.broken
        whole = [*self.journal, *self.state.groups.values()]
        begin, since = max(first, self.pruned), NOW - 5_000 if self.pruned else 0.0
        page = whole[begin : first + limit]
        return HistoryPage(begin, len(whole), page, self.pruned, since)

    async def post_fact(self, fact_id: str, event: Event) -> None:
        if fact_id not in self.facts:
            self.facts.append(fact_id)
            self.publish(event)


@dataclass
class FakeChild:
    role: str
    phase: str = "running"
    pid: int | None = 4242
    url: str = "http://127.0.0.1:8000"
    exit_code: int | None = None
    detail: str = ""
    tail: tuple[str, ...] = ()


@dataclass
class FakeProcessManager:
    children: dict[str, FakeChild] = field(default_factory=dict)
    commands: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    stopped: bool = False

    async def command(self, name: str, args: Mapping[str, Any]) -> str:
        self.commands.append((name, dict(args)))
        return f"{name} done"

    async def stop_all(self, *, now: bool = False) -> None:
        self.stopped = True
        for child in self.children.values():
            child.pid, child.phase = None, "exited"


class Clock:
    """Time that changes only when a test sets it."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class PatientConsole(ConsoleApp):
    """A console whose messages stay on screen however slow the machine is.

    Attributes:
        messages: All messages, oldest first, those that are gone from the screen included.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.messages: list[str] = []

    def notify(self, message: str, *, timeout: float | None = None, **more: Any) -> None:
        self.messages.append(message)
        super().notify(message, timeout=600 if timeout is None else 100 * timeout, **more)


PAINT = Screen._compositor_refresh
"""Paints what changed; the pilots' own leaves that to `rest`."""
OPENED_LATER = ("rewards", "mock", "engine")
"""Screens that put their cursor where the state is when they open; the others open at the start."""


@dataclass
class RunningConsole:
    """A running app and what it is connected to."""

    app: PatientConsole
    pilot: Pilot[Any]
    session: Session
    link: FakeLink
    clock: Clock

    async def settle(self) -> None:
        """Let the feed, the workers and the painting catch up."""
        with self.app._context():  # Textual's active app is that of the test's newest console
            for _ in range(2):
                await asyncio.sleep(0)
                self.app.flush()
                await self.pilot.pause()
                await rest(self.app)

    async def press(self, *keys: str) -> None:
        """Keys, then settle."""
        await self.pilot.press(*keys)
        await self.settle()

    async def until(self, check: Callable[[], object], what: str = "") -> None:
        """Wait for a result that `settle` alone does not reach, as of a file read in a thread."""
        for _ in range(1_000):
            if check():
                return
            await asyncio.sleep(0.02)
            await self.settle()
        raise AssertionError(f"{what or check} never came:\n{self.text()}")

    async def shows(self, words: str) -> None:
        """Wait until `words` are on screen."""
        await self.until(lambda: words in self.text(), repr(words))

    def text(self) -> str:
        """Everything on the screen, line by line."""
        return screen_text(self.app)

    @property
    def messages(self) -> list[str]:
        """All messages so far, whole: on screen they are wrapped, and go."""
        return self.app.messages


async def rest(app: ConsoleApp) -> None:
    """Wait until nothing is to be handled, laid out or painted, however slow the machine is.

    On a busy machine the pilot mistakes a process without processor time for an idle one.
    """
    for _ in range(4_000):
        if _work(app):
            await asyncio.sleep(0.005)
        elif app.is_running and app.screen._compositor._dirty_regions:
            PAINT(app.screen)
        else:
            return
    raise AssertionError(f"the app does not come to rest: {_work(app)}")


def _work(app: ConsoleApp) -> str:
    """Return what the app still has to do; empty for nothing."""
    if not app.is_running:
        return ""
    screen = app.screen
    if app._resize_event is not None or app._resize_timer is not None:
        return "a new size, which no screen has yet"
    if not app.keys_ahead.idle:
        return f"a key, with {screen} in front"
    if screen._layout_widgets or screen._dirty_widgets or screen._callbacks:
        return f"{screen} is not painted"
    for child in screen.walk_children(Widget, with_self=True):
        if child.message_queue_size:
            return f"{child} has messages"
    unplaced = next((widget for widget in _displayed(screen) if widget._layout_required), None)
    return f"{unplaced} is not laid out" if unplaced else ""


def _displayed(widget: Widget) -> Iterator[Widget]:
    """The visible nodes from this one down; hidden ones get their layout when they are shown."""
    yield widget
    for child in widget.displayed_children:
        yield from _displayed(child)


def screen_text(app: ConsoleApp) -> str:
    """What the terminal shows now, as plain text; lines without any are left out."""
    return "\n".join(line for line in screen_rows(app) if line)


def screen_rows(app: ConsoleApp) -> list[str]:
    """Every row of the terminal as plain text."""
    painted = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    assert isinstance(painted, LayoutUpdate)
    return ["".join(piece.text for piece in row).rstrip() for row in painted.strips]


def build_app(
    state: State | None = None,
    *,
    link: FakeLink | None = None,
    processes: FakeProcessManager | None = None,
    clock: Clock | None = None,
    read_only: bool = False,
    rater: str = "anna",
    theme: str = "dark",
    keys: Mapping[str, str] | None = None,
    first: str = "",
    places: Sequence[ScreenSpec] = SCREENS,
    rating: RatingSettings | None = None,
) -> PatientConsole:
    """An app that follows a fake link; give `places` to run without some screens."""
    link = link or FakeLink(state)
    session = Session(
        link=link,
        processes=processes,
        read_only=read_only,
        rater=rater,
        rating=rating,
        clock=clock or Clock(),
    )

    async def short(_: float) -> None:
        await asyncio.sleep(0.01)

    async def follow(session: Session) -> None:
        await Feed(session, link, sleep=short).run()

    return PatientConsole(session, follow, theme=theme, keys=keys, first=first, places=places)


BY_ENTER = RatingSettings(confirm="enter")
"""Settings with which a digit on Rate waits for Enter."""


@asynccontextmanager
async def run_console(
    state: State | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    at: str = "",
    **more: Any,
) -> AsyncIterator[RunningConsole]:
    """A running console on `state`; fails at the end when a screen could not be painted.

    Args:
        at: Name of the screen to open first.
    """
    link = more.pop("link", None) or FakeLink(state)
    clock = more.pop("clock", None) or Clock()
    app = build_app(link=link, clock=clock, first="" if at in OPENED_LATER else at, **more)
    async with app.run_test(size=size, notifications=True) as pilot:
        running = RunningConsole(app, pilot, app.session, link, clock)
        for _ in range(50):
            await pilot.pause()
            if app.session.seen or (isinstance(link, FakeLink) and link.broken):
                break
        if at in OPENED_LATER:
            app.action_go(at)
        await running.settle()
        yield running
    assert not app.view_faults, app.view_faults
