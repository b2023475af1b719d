"""Starts or finds the engine and the proxy, connects to the proxy and reads the logs.

Everything here runs in one background worker after the first screen was painted, and writes its
results into the session. httpx is imported only here, off the event loop.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.secrets import redact
from ajet_swarm.runtime import SYSTEM
from console.backend.attach import (
    check_may_follow,
    engine_differences,
    may_follow,
    option_differences,
    read_token,
)
from console.backend.feed import Feed
from console.backend.mock_process import (
    REMEDY,
    CrashedMockReporter,
    check_target,
    mock_args,
    mock_collision,
)
from console.backend.supervisor import Supervisor
from console.session.app_state import ChildProcess, Link, Session, Starter
from console.session.logs import LogTail, parse
from console.session.rater_name import save_name, saved_name, was_asked
from core.runtime.home import Home, RunInfo, running
from core.runtime.sockets import is_free
from core.runtime.tls import absolute_path
from core.state.proxy import STARTS_WITHIN

if TYPE_CHECKING:
    from console.backend.options import ConsoleOptions

Connect = Callable[[str, str], AbstractAsyncContextManager[Link]]

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""Seconds between two polls of the child processes and their logs."""
LEAVE_SECONDS = 1.0
"""Seconds the feed gets to end before the processes are stopped."""
FIRST_STATE_LIMIT = 60.0
"""Seconds in which an engine that was just started must report its state."""


def open_session(options: "ConsoleOptions") -> tuple[Session, Starter]:
    """Return an empty session and the coroutine function that starts and follows the backend."""
    settings = options.settings
    session = Session(
        read_only=options.read_only,
        rater=saved_name(options.home),
        rating=settings.rating,
        save_rater=partial(save_name, options.home),
    )
    session.rater_asked = bool(session.rater) or was_asked(options.home)
    session.home = None if options.in_browser else options.home.root
    session.offers_setup = is_first_start(options)
    if options.attach is None or _is_own(options.home, options.attach):
        session.journal = options.home.journal
    return session, Backend(options).run


def is_first_start(options: "ConsoleOptions") -> bool:
    """Return whether the home has no settings and nothing ran in it yet."""
    home = options.home
    starts_processes = options.attach is None and not options.read_only
    return starts_processes and not (home.config.exists() or home.journal.exists())


def _is_own(home: Home, url: str) -> bool:
    """Return whether a proxy to attach to runs in this home."""
    info = running(home, "proxy")
    return info is not None and info.url.rstrip("/") == url.rstrip("/").removesuffix("/v1")


class Backend:
    """The processes and the link of one console.

    Unless the console attaches to a proxy, this is also the session's process manager.

    Args:
        options: The options the console was started with.
        supervisor: Starts and polls the processes of the home.
        connect: Opens a link to a proxy, from its URL and token.
    """

    def __init__(
        self,
        options: "ConsoleOptions",
        supervisor: Supervisor | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._options = options
        self._supervisor = supervisor or Supervisor(options.home, options.settings)
        self._connect = connect or _client(
            absolute_path(options.settings.proxy.tls_cert), options.read_only
        )
        self._embedded = next(
            (name for name, url in options.settings.servers().items() if url == "embedded"), ""
        )
        self._roles = ["proxy", "mock"]
        if self._embedded and options.start_engine:
            self._roles.insert(0, "engine")
        self._children: dict[str, ChildProcess] = {}
        self._poll_lock = asyncio.Lock()
        self._tails = {
            role: LogTail(self._supervisor.log(role)) for role in ("engine", *self._roles)
        }
        self._last_at: dict[str, float] = {}
        self._fresh_engine = asyncio.Event()
        self._leaving = asyncio.Event()
        self._left = asyncio.Event()
        self._session: Session | None = None
        self._crash_reporter = CrashedMockReporter(options.home)

    # --- the process manager ---------------------------------------------------------------------

    @property
    def children(self) -> Mapping[str, ChildProcess]:
        """Processes of this home that run, or that ended on their own."""
        return self._children

    async def command(self, name: str, args: Mapping[str, Any]) -> str:
        """Carry out a command that `core.commands` assigns to the console."""
        supervisor = self._supervisor
        if name == "mock.start":
            if (await asyncio.to_thread(supervisor.state, "mock")).alive:
                raise AjetError("the mock user already runs", todo="Stop it first")
            await asyncio.to_thread(check_target, str(args.get("target") or ""))
            await supervisor.start("mock", mock_args(args))
            await self._poll_now()
            return "The mock user is starting"
        role = {"proxy.restart": "proxy", "engine.restart_process": "engine"}.get(name)
        if role is None:
            raise AjetError(f"the console cannot carry out `{name}`")
        info = await self._restart(role)
        if role == "engine":
            self._fresh_engine.set()
        return f"The {role} runs again, pid {info.pid}, {info.url}"

    async def _restart(self, role: str) -> RunInfo:
        """Restart a process; before the first snapshot, its start step shows the progress."""
        session = self._session
        shown = session is not None and not session.seen and role in session.steps
        if session is not None and shown:
            session.step(role, "doing")
        try:
            await self._supervisor.restart(role)
            info = await self._supervisor.wait_ready(role)
        except AjetError as error:
            if session is not None and shown:
                await self._show_failure(session, role, error)
            raise
        finally:
            await self._poll_now()
        if session is not None and shown:
            session.step(role, "done", f"started, pid {info.pid}, {info.url}")
        return info

    async def stop_all(self, *, now: bool = False) -> None:
        """Close the feed, which would delay the proxy's shutdown, and stop the processes.

        Args:
            now: Kill those that do not end at once.
        """
        self._leaving.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._left.wait()
        await self._supervisor.stop_all(0.0 if now else None)

    # --- start and run ---------------------------------------------------------------------------

    async def run(self, session: Session) -> None:
        """Start or find all processes, then follow the proxy until cancelled."""
        options = self._options
        if collision := await asyncio.to_thread(mock_collision):
            session.notify(f"{collision}. {REMEDY}", "warning")
        if options.attach is not None:
            session.step("link", "doing", options.attach, title="connect to the proxy")
            await self._attach(session, options.attach)
            return
        session.processes, self._session = self, session
        if "engine" in self._roles:
            session.step("engine", "waiting", title="start the embedded engine")
        session.step("proxy", "waiting", title=_proxy_title(options))
        session.step("link", "waiting", title="connect to the proxy")
        starts_engine = (
            "engine" in self._roles
            and not session.read_only
            and await asyncio.to_thread(self._supervisor.find, "engine") is None
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._poll_forever(session), name="children")
                tasks.create_task(self._follow_own(session, starts_engine), name="proxy")
                if "engine" in self._roles:
                    tasks.create_task(self._own_engine(session), name="engine")
        finally:
            self._supervisor.release()

    async def _attach(self, session: Session, url: str) -> None:
        file = self._options.token_file or self._options.home.token_file
        try:
            token = await asyncio.to_thread(read_token, file)
        except AjetError as error:
            session.step("link", "failed", f"{error.what}: {error.where}")
            session.trouble = error.todo
            session.touch(("link",))
            return
        if self._options.in_browser:  # the file exists only to be read here
            await asyncio.to_thread(file.unlink, missing_ok=True)
        async with self._connect(url, token) as client:
            await self._feed(session, client)

    async def _own_engine(self, session: Session) -> None:
        if await self._bring_up(session, "engine", await self._engine_args()):
            self._fresh_engine.set()
        while True:
            await self._fresh_engine.wait()
            self._fresh_engine.clear()
            await self._start_job(session)

    async def _engine_args(self) -> list[str]:
        """Return `--port 0` if the engine's port is taken: `--port` is that of the proxy alone."""
        engine = self._options.settings.engine
        if not engine.port:
            return []
        if await asyncio.to_thread(self._supervisor.find, "engine"):
            return []
        if await asyncio.to_thread(is_free, engine.host, engine.port):
            return []
        log.warning("port %d is taken: the embedded engine takes any free one", engine.port)
        return ["--port", "0"]

    async def _bring_up(self, session: Session, role: str, args: Sequence[str]) -> bool:
        """Start a process unless it runs, and wait until it is ready; True when it was started."""
        supervisor = self._supervisor
        session.step(role, "doing")
        try:
            existing = await asyncio.to_thread(supervisor.find, role)
            if existing is not None and role == "proxy":
                check_may_follow(existing, self._options)
            if existing is None:
                await supervisor.start(role, args)
            info = await supervisor.wait_ready(role)
        except AjetError as error:
            await self._show_failure(session, role, error)
            log.error("%s", error)
            return False
        if existing is not None:
            self._warn_of_differences(session, role, existing)
        how = "found running" if existing is not None else "started"
        session.step(role, "done", f"{how}, pid {info.pid}, {info.url}")
        return existing is None

    async def _show_failure(self, session: Session, role: str, error: AjetError) -> None:
        child = await asyncio.to_thread(self._supervisor.state, role)
        session.step(role, "failed", error.what.partition("\n")[0], child.tail)

    def _warn_of_differences(self, session: Session, role: str, info: RunInfo) -> None:
        """Warn when a process that already ran has not what this console's command line asks."""
        compare = option_differences if role == "proxy" else engine_differences
        if differences := compare(info, self._options):
            session.notify(
                f"The running {role} (pid {info.pid}) has {differences}. It keeps this when it "
                "restarts. To use your options: Ctrl+Q, then s, then start again",
                "warning",
            )

    async def _start_job(self, session: Session) -> None:
        """Send the default job to an engine that was just started and is OFFLINE."""
        if session.read_only:
            return
        waited = 0.0
        while waited < FIRST_STATE_LIMIT:
            server = session.state.servers.get(self._embedded)
            if session.seen and server is not None and not server.lost:
                if server.state == "OFFLINE":
                    outcome = await session.command("engine.start", server=self._embedded)
                    log.info("engine.start: %s", outcome.message)
                return
            await asyncio.sleep(0.1)
            waited += 0.1
        log.warning("the embedded engine does not show its state; start it with 5 then s")

    async def _follow_own(self, session: Session, starts_engine: bool) -> None:
        args = ["--next-port"] if self._options.next_port else []
        if starts_engine:
            args += ["--engine-starts-by", f"{SYSTEM.clock.wall() + STARTS_WITHIN:.0f}"]
        preload = asyncio.to_thread(import_module, "proxy.control.client")
        await asyncio.gather(self._bring_up(session, "proxy", args), preload)
        info = await asyncio.to_thread(self._supervisor.find, "proxy")
        if info is not None and not may_follow(info, self._options):
            await self._leaving.wait()
        while not self._leaving.is_set():
            url = await self._proxy_url()
            session.step("proxy", "done", url)
            session.step("link", "doing", url)
            token = await asyncio.to_thread(self._options.home.token)
            async with self._connect(url, token) as client, asyncio.TaskGroup() as tasks:
                feed = tasks.create_task(self._feed(session, client), name="feed")
                await self._wait_until_moved(url)
                feed.cancel()
        self._left.set()

    async def _proxy_url(self) -> str:
        while True:
            info = await asyncio.to_thread(self._supervisor.find, "proxy")
            if info is not None and info.url:
                return info.url
            await asyncio.sleep(POLL_SECONDS)

    async def _wait_until_moved(self, url: str) -> None:
        """Wait until the proxy has another URL (after a restart) or the operator leaves."""
        while not self._leaving.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._leaving.wait()
                    return
            if await self._proxy_url() != url:
                return

    async def _feed(self, session: Session, client: Link) -> None:
        session.link = client
        await Feed(session, client, compare=self._options.attach is not None).run()

    # --- polling ---------------------------------------------------------------------------------

    async def _poll_forever(self, session: Session) -> None:
        while True:
            before = session.state.mock
            await self._poll_now()
            await self._crash_reporter.check(session, before, self._children.get("mock"))
            new_lines = await asyncio.to_thread(self._read_logs)
            for at, role, level, text in new_lines:
                session.log_store.add(role, text, at, level)
            if new_lines:
                session.touch(("log",))
            await asyncio.sleep(POLL_SECONDS)

    async def _poll_now(self) -> None:
        """Poll the processes off the event loop; a lock keeps the results in order."""
        async with self._poll_lock:
            states = await asyncio.to_thread(self._supervisor.poll)
            if self._session is not None:
                self._update_children(self._session, states)

    def _update_children(self, session: Session, states: Mapping[str, ChildProcess]) -> None:
        children: dict[str, ChildProcess] = {}
        for role, state in states.items():
            if state.phase != "stopped" or role in self._children:
                children[role] = state
        if children == self._children:
            return
        for role, child in children.items():
            before = self._children.get(role)
            if child.phase == "exited" and (before is None or before.phase != "exited"):
                session.note("console", f"{role} {child.detail}", _exit_level(child))
        self._children = children
        session.touch(("children",))

    def _read_logs(self) -> list[tuple[float, str, str, str]]:
        """Return (time, role, level, text) of each line since the last call, ordered by time."""
        lines = []
        for role, tail in self._tails.items():
            at = self._last_at.get(role) or time.time()
            for line in tail.read():
                at, level, text = parse(redact(line), at)
                lines.append((at, role, level, text))
                self._last_at[role] = at
        lines.sort(key=lambda line: line[0])  # stable: a traceback stays together
        return lines


def _proxy_title(options: "ConsoleOptions") -> str:
    only = options.settings.proxy.watch_only
    return "start the watcher" if only else "start the proxy (fake vLLM)"


def _exit_level(child: ChildProcess) -> str:
    return "info" if child.exit_code == 0 else "error"


def _client(cert: str, read_only: bool) -> Connect:
    """Return a function that opens links to proxies and trusts the certificate file `cert`."""

    @contextlib.asynccontextmanager
    async def connect(url: str, token: str) -> AsyncIterator[Link]:
        module = await asyncio.to_thread(import_module, "proxy.control.client")
        async with module.ControlClient(url, token, cert=cert, read_only=read_only) as client:
            yield client

    return connect
