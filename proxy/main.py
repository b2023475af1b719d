"""The proxy's process: create all parts, serve, and shut down in order."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks, run_all
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.runtime import SYSTEM, Runtime
from core.bus import Bus
from core.events import ProxyStarted, ProxyStopped, RewardsChanged
from core.events.alerts import AlertParams, params_of
from core.journal.damage import open_journal
from core.journal.file import JournalError
from core.journal.prune import Pruner, Retention
from core.runtime.access import AccessTokens
from core.runtime.gc_tuning import tune_gc
from core.runtime.home import Home, Role, running
from core.runtime.log_format import setup
from core.runtime.malloc import return_large_blocks
from core.runtime.secrets import redacted_argv, with_proxy_key
from core.runtime.sockets import (
    BindError,
    bind,
    is_loopback,
    loop_factory,
    public_url,
    raise_file_limit,
)
from core.runtime.tls import absolute_path, tls_requested
from core.settings import Settings
from core.state.common import record_of
from core.version import version
from proxy.admission.registry import Groups
from proxy.alerts import clear_alert, expire_alerts, show_alert
from proxy.api.handler import RequestHandler
from proxy.context import ProxyContext, ServerHandle
from proxy.control.api import ControlApi
from proxy.control.dispatch import CommandDispatcher
from proxy.control.journal_alerts import follow_journal
from proxy.control.watch_only import (
    ReadOnlyTransport,
    watch_app,
    watch_only_commands,
    watch_servers,
)
from proxy.dataset_rows import Rows
from proxy.endpoint import create_app
from proxy.evaluation.service import Evaluation, MeasurementService
from proxy.groups.recovery import alert_waited, mode_at_start, store_waited, unrated
from proxy.http.server import HttpServer
from proxy.rewards.model.source import kind_of, parts_of
from proxy.rewards.monitor.unscored import UnscoredMonitor
from proxy.rewards.monitor.watcher import RewardMonitor
from proxy.rewards.select import display_name, select_source
from proxy.rewards.source import Abstention, SourceHealth
from proxy.servers.facts import is_starting
from proxy.servers.observe import observe_handle
from proxy.servers.watch import ServerWatch
from proxy.telemetry.service import telemetry
from proxy.trackers.service import trackers

log = logging.getLogger(__name__)

GRACE = 10.0
"""Seconds that requests in progress get after a SIGTERM."""
SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread that runs Python code lets another one run. With Python's 5 ms, each
commit of the journal waits several times for a busy event loop."""
PUBLISH_RETRY = 2.0
"""Seconds between two attempts to write the run file."""
MISSING_REWARDS = "rewards:gone"
"""Key of the alert that the rewards of the last run no longer exist."""


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """How to start the proxy."""

    home: Home
    settings: Settings
    allow_next_port: bool = False
    """Whether to use the next free port when the configured one is taken."""
    engine_starts_by: float = 0.0
    """Unix seconds until which whoever starts the proxy also starts the embedded engine: until
    then, a request for that engine is told that it starts. 0 if nobody does."""
    runtime: Runtime = SYSTEM
    """The clocks and the chance of all parts."""


def run(options: ProxyOptions) -> int:
    """Serve until SIGTERM or SIGINT.

    Returns:
        The exit code: 0 after a signal, 1 if the server ended by itself.

    Raises:
        AjetError: The proxy cannot start.
    """
    setup()
    options = replace(options, settings=with_proxy_key(options.settings))
    settings = options.settings.proxy
    if not is_loopback(settings.host) and not settings.api_key:
        raise BindError(
            "the fake vLLM is not opened to the network without a key",
            where=f"proxy.host {settings.host}",
            todo="Give --api-key-file, or bind 127.0.0.1",
        )
    tls_requested(absolute_path(settings.tls_cert), absolute_path(settings.tls_key))
    raise_file_limit()
    return_large_blocks()
    with Role(options.home, "proxy") as role:
        port = "`proxy.port` (--port)"
        sock = bind(settings.host, settings.port, options.allow_next_port, setting=port)
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                return runner.run(_serve(options, role, sock))
        finally:
            sock.close()


async def _serve(options: ProxyOptions, role: Role, sock: socket.socket) -> int:
    host, port = sock.getsockname()[:2]
    settings = options.settings.proxy
    url = public_url(settings.host, port, "https" if settings.tls_cert else "http")
    async with _open_context(options, url) as (context, groups):
        evaluation = Evaluation(_progress_services(options, context, groups))
        hosts = frozenset({settings.host, socket.gethostname()})
        commands = (
            watch_only_commands(context)
            if groups is None
            else CommandDispatcher(context, groups, evaluation=evaluation)
        )
        access = AccessTokens(options.home)
        control = ControlApi(context, commands, options.home.token(), hosts, access)
        handler = None if groups is None else RequestHandler(context, groups)
        if groups is None:
            app: ASGIApp = watch_app(options.settings, control.app())
        else:
            app = create_app(context, groups, control.app(), handler)
        server = HttpServer(settings, app)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, stop.set)
        serving = context.tasks.spawn(server.serve(sockets=[sock]), "http")
        servers = ", ".join(f"{name}={server_.url}" for name, server_ in context.servers.items())
        extra = {
            "argv": redacted_argv(sys.argv[1:]),
            "cert": absolute_path(settings.tls_cert),
            **({"watch_only": "yes"} if groups is None else {}),
        }
        tune_gc()
        sys.setswitchinterval(SWITCH_INTERVAL)
        await evaluation.start()
        publish = partial(role.publish, host=host, port=port, url=url, swarm=servers, extra=extra)
        if not await asyncio.to_thread(_publish_run_file, publish):
            context.tasks.spawn(_retry_publish(publish), "run file")
        description = "watch-only, control API" if groups is None else "the fake vLLM listens"
        log.info("%s on %s, swarm servers: %s", description, url, servers)
        await _wait_for_end(stop, serving)
        log.info("stopping")
        server.close_after_responses()
        await evaluation.close()
        if groups is not None and handler is not None:
            expiry = loop.call_later(GRACE, handler.expire_now)
            waited = unrated(context.bus.state)
            await groups.drain(GRACE)
            store_waited(context, waited)
            expiry.cancel()
            handler.expire_now()
        control.close()
        server.should_exit = True
        await asyncio.wait([serving], timeout=5)
    return 0 if stop.is_set() else 1  # without a signal the server has failed


def _progress_services(
    options: ProxyOptions, context: ProxyContext, groups: Groups | None
) -> dict[str, MeasurementService]:
    """Return the progress measurement of each server that is trained."""
    if groups is None:
        return {}
    targets = options.settings.servers()
    return {
        name: MeasurementService(
            context,
            server,
            groups.server_facts[name],
            options.home.root,
            shipped=targets[name] == "embedded",
            user_waits=lambda: groups.waiting > 0,
        )
        for name, server in context.servers.items()
        if server.trains
    }


def _publish_run_file(publish: Callable[[], object]) -> bool:
    """Write the file by which consoles find this process; return False if that fails."""
    try:
        publish()
    except OSError as error:
        log.error("consoles cannot find this proxy by its home: %s", error)
        return False
    return True


async def _retry_publish(publish: Callable[[], object]) -> None:
    """Retry until the run file can be written."""
    while True:
        await asyncio.sleep(PUBLISH_RETRY)
        if await asyncio.to_thread(_publish_run_file, publish):
            return


async def _wait_for_end(stop: asyncio.Event, serving: asyncio.Task[None]) -> None:
    async with Tasks("stop") as tasks:
        waiting = tasks.spawn(stop.wait(), "signal")
        await asyncio.wait([waiting, serving], return_when=asyncio.FIRST_COMPLETED)


@contextlib.asynccontextmanager
async def _open_context(
    options: ProxyOptions, url: str
) -> AsyncIterator[tuple[ProxyContext, Groups | None]]:
    home, settings, runtime = options.home, options.settings, options.runtime
    if unknown := settings.unknown_servers():
        log.warning("%s", unknown)
    opened = await asyncio.to_thread(open_journal, home.journal)
    journal = opened.journal
    keep = Retention(settings.journal.keep_days, settings.journal.keep_bytes)
    state = opened.state
    pruner = Pruner(journal, keep, pinned=state.engine_runs.pinned_spans, inbox=state.inbox_ids)
    try:
        client_uuid = home.client_uuid(opened.client_uuid)
        journal.put_meta("client_uuid", client_uuid)
        run_id = runtime.chance.token(6)
        bus = Bus(journal, run_id, opened.state, runtime.clock.wall)
        async with HttpTransport() as transport, Tasks("proxy") as tasks:
            servers = {
                name: _create_handle(options, bus, name, target, transport, client_uuid)
                for name, target in settings.servers().items()
            }
            context = ProxyContext(
                settings=settings,
                journal=journal,
                bus=bus,
                servers=servers,
                rewards=select_source(home, settings, bus.publish, runtime),
                rows=Rows(runtime.clock.monotonic),
                tasks=tasks,
                client_uuid=client_uuid,
                pruner=pruner,
                runtime=runtime,
            )
            pruner.start()
            async with (
                telemetry(bus, settings.telemetry, chance=runtime.chance),
                trackers(bus, settings.telemetry.sinks, home.root),
                _run_services(context, home, url, opened.notice) as groups,
            ):
                yield context, groups
    finally:
        await asyncio.to_thread(pruner.close)
        await asyncio.to_thread(journal.close)


@contextlib.asynccontextmanager
async def _run_services(
    context: ProxyContext, home: Home, url: str, notice: str
) -> AsyncIterator[Groups | None]:
    """Run all background tasks until the context ends; yield None if servers are only watched."""
    follow_journal(context)
    expiry = partial(expire_alerts, context.bus)
    context.tasks.spawn(context.keep_running(expiry, "expiry of alerts"), "alerts")
    if context.settings.proxy.watch_only:
        await _announce(context, url, notice)
        async with watch_servers(context, home):
            try:
                yield None
            finally:
                await _shut_down(context)
        return
    groups = Groups(context)
    rewards_before = context.bus.state.rewards.source
    left_open = [group.group_id for group in context.bus.state.open_groups()]
    await _announce(context, url, notice)
    alert_waited(context)
    if left_open:
        log.warning("%d groups were open when the proxy ended", len(left_open))
    loaded: list[SourceHealth] = []

    def changed(health: SourceHealth) -> None:
        loaded.append(health)
        _rewards_changed(context, health)

    context.rewards.add_listener(changed)
    await context.rewards.start()
    if not loaded:
        changed(context.rewards.health())
    _note_missing_rewards(context, rewards_before)
    monitors = {
        "reward watch": RewardMonitor(context.bus).run,
        "unscored watch": UnscoredMonitor(context.bus, context.settings.reward_limit).run,
    }
    for part, monitor in monitors.items():
        context.tasks.spawn(context.keep_running(monitor, part), part)
    targets = context.settings.servers()
    for name, server in context.servers.items():
        own = home if targets[name] == "embedded" else None
        watch = ServerWatch(context, server, own, partial(groups.postpone, name))
        context.tasks.spawn(watch.run(), f"watch:{name}")
    await groups.recover()
    try:
        yield groups
    finally:
        await groups.close()
        await _shut_down(context)


async def _announce(context: ProxyContext, url: str, notice: str) -> None:
    started = context.bus.publish(
        ProxyStarted(
            client_uuid=context.client_uuid,
            pid=os.getpid(),
            url=url,
            version=version(),
            servers={name: server.url for name, server in context.servers.items()},
            embedded=tuple(
                name for name, url in context.settings.servers().items() if url == "embedded"
            ),
            rewards=display_name(context.settings, context.rewards),
            rating_mode=mode_at_start(context),
            watch_only=context.settings.proxy.watch_only,
        )
    )
    with contextlib.suppress(JournalError):  # an alert reports it; users still get answers
        await context.journal.durable(started)
    configured_port, port = context.settings.proxy.port, urlsplit(url).port
    if configured_port and port != configured_port:
        show_alert(context.bus, "port", params_of("port", port=configured_port, url=url))
    if notice:
        show_alert(
            context.bus, "journal_file", params_of("journal_file", notice=notice), level="error"
        )


async def _shut_down(context: ProxyContext) -> None:
    await run_all(*(server.claimer.close() for server in context.servers.values()))
    await context.rewards.close()
    context.bus.publish(ProxyStopped(reason="asked to"))
    context.journal.append_snapshot(context.bus.state)


def _create_handle(
    options: ProxyOptions,
    bus: Bus,
    name: str,
    target: str,
    transport: HttpTransport,
    client_uuid: str,
) -> ServerHandle:
    settings, runtime = options.settings, options.runtime
    if settings.upstream.url:
        return observe_handle(settings, name, transport, client_uuid, runtime)
    url = target
    if target == "embedded":
        info = running(options.home, "engine")
        url = info.url if info and info.url else _expected_url(settings)
    watch_only = settings.proxy.watch_only
    client = SwarmWire(
        url,
        ReadOnlyTransport(transport) if watch_only else transport,
        client_uuid,
        name=name,
        runtime=runtime,
    )
    watcher = Watcher(client, runtime.clock.wall)
    claimer = EpisodeClaimer(client, watcher, runtime=runtime)
    return ServerHandle(
        name=name,
        url=url,
        client=client,
        watcher=watcher,
        claimer=claimer,
        is_starting=lambda: is_starting(
            bus.state.servers.get(name), bus.clock(), options.engine_starts_by
        ),
    )


def _expected_url(settings: Settings) -> str:
    """Return the expected URL of the embedded engine; port 0 if another process has its port.

    The engine's run file has the actual address once it listens.
    """
    host, port = settings.engine.host, settings.engine.port
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=0.2):
        port = 0  # never connected to
    return f"http://{host}:{port}"


def _rewards_changed(context: ProxyContext, health: SourceHealth) -> None:
    """Publish, log and alert that the rewards were loaded or failed to load."""
    error, key = health.error, ""
    judging = error is not None and kind_of(context.rewards, error.part) == "judge"
    if error is not None:
        key = "judge" if judging else "rewards"
        level = logging.WARNING if health.level == "warning" else logging.ERROR
        traceback = f"\n{error.traceback}" if error.traceback else ""
        log.log(level, "%s%s", _log_text(error, health, judging), traceback)
        show_alert(context.bus, key, _reward_trouble(error, health, judging), level=health.level)
    source = display_name(context.settings, context.rewards)
    obsolete = (
        {"judge", "rewards"} if source == "builtin" else {"judge", "rewards", MISSING_REWARDS}
    )
    for key_ in obsolete - {key}:
        clear_alert(context.bus, key_)
    fault = error or Abstention("", "")
    context.bus.publish(
        record_of(
            RewardsChanged,
            fault,
            source=source,
            ok=health.ok,
            version=health.version,
            judge=judging,
            level=health.level,
            fell=fault.crashed,
            waits=health.waiting_for,
            parts=parts_of(context.rewards),
        )
    )


def _note_missing_rewards(context: ProxyContext, before: str) -> None:
    """Raise an alert when the built-in rewards replace a file or folder that no longer exists.

    Args:
        context: The shared parts of the proxy.
        before: Source of the last run's rewards: a path, `builtin`, or empty.
    """
    path = Path(before).expanduser()
    builtin = display_name(context.settings, context.rewards) == "builtin"
    if builtin and path.is_absolute() and not path.exists():
        show_alert(context.bus, MISSING_REWARDS, params_of("rewards_gone", path=before))


def _log_text(error: Abstention, health: SourceHealth, judging: bool) -> str:
    """Return what is wrong with the rewards; for a file of them also what follows, and what to do.

    A proxy without a console has no other place where it says so.
    """
    place = f"{error.file}:{error.line}: " if error.line else f"{error.file}: "
    text = f"{place}{error.cause}" if error.file else error.cause
    if judging:
        return f"judge {error.part}: {text}"
    if error.crashed:
        return text
    meanwhile = (
        "the last good version stays active"
        if health.version
        else "groups get no automatic reward and wait for the operator's vote"
    )
    return f"the rewards did not load: {text}; {meanwhile}. Correct the file and save it"


def _reward_trouble(error: Abstention, health: SourceHealth, judging: bool) -> AlertParams:
    """Return the alert about the rewards, or about a judge of them."""
    if error.crashed:
        return params_of("rewards_ended", error=error.cause)
    place = {"error": error.cause, "file": error.file, "line": error.line}
    if not judging:
        return params_of("rewards", kept=bool(health.version), **place)
    scoring = "version" if health.version else "operator"
    if health.version and not health.waiting_for:
        scoring = "cache"
    unreached = health.level == "warning"
    return params_of("judge", judge=error.part, unreached=unreached, scoring=scoring, **place)
