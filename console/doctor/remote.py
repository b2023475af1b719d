"""Checks that talk to other processes: ports, the proxy, swarm servers, the reward function."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.backend.swarm_report import report
from console.doctor.finding import LIMIT, CheckContext, Finding
from console.models.advice import advice_context
from console.models.alerts import current_alerts
from console.text.alerts import alert_text
from core.runtime.home import Home, running
from core.runtime.sockets import port_holder
from core.whole_file import read_small

PATIENCE = 3.0
"""Seconds a server, the proxy or the hooks get to answer."""


def ports(context: CheckContext) -> Sequence[Finding]:
    """Check whether the configured ports are free, or which process holds them."""
    own = context.settings
    if own is None:
        return []
    listeners = [("fake vLLM", "proxy", own.proxy.host, own.proxy.port)]
    if "embedded" in own.servers().values():
        listeners.append(("embedded engine", "engine", own.engine.host, own.engine.port))
    return [_port(context, *listener) for listener in listeners]


def _port(context: CheckContext, name: str, role: str, host: str, port: int) -> Finding:
    info = running(context.home, role)
    if info is not None:
        where = f"has port {info.port}" if info.port else "is starting"
        return Finding("ports", name, "ok", f"this home's {role} {where} (pid {info.pid})")
    if not port:
        return Finding("ports", name, "ok", "any free port")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (socket.gaierror, UnicodeError) as error:
        todo = "Name an address of this machine"
        return Finding("ports", name, "fail", f"{host}: {error}", todo)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            todo = "Give an address of this machine and a port above 1023"
            return Finding("ports", name, "fail", f"{host}:{port}: {error.strerror}", todo)
        by = port_holder(port)
        text = f"{host}:{port} is taken{f' by {by}' if by else ''}"
        own = "the console" if role == "engine" else "without --port, the console"
        todo = (
            f"Stop that process, or set `{role}.port` to another port; {own} takes a free port by "
            "itself"
        )
        return Finding("ports", name, "warn", text, todo)
    return Finding("ports", name, "ok", f"{host}:{port} is free")


async def proxy(context: CheckContext) -> Sequence[Finding]:
    """Check whether the running proxy answers and accepts the token."""
    info = await asyncio.to_thread(running, context.home, "proxy")
    url = context.url or (info.url if info is not None else "")
    if not url:
        return [Finding("proxy", "control", "ok", "not running: the console starts it")]
    token = context.token_file or context.home.token_file
    try:
        text = (await asyncio.to_thread(read_small, token)).decode("ascii", "replace").strip()
    except OSError as error:
        problem = f"{token}: {error.strerror or error}"
        return [Finding("proxy", "control", "fail", problem, "Give its token with --token-file")]
    from proxy.control.client import ControlClient

    cert = info.extra.get("cert", "") if info is not None else ""
    try:
        async with asyncio.timeout(PATIENCE), ControlClient(url, text, cert=cert) as client:
            state = await client.snapshot()
    except TimeoutError:
        return [Finding("proxy", "control", "fail", f"{url} does not answer", "Start it again")]
    except AjetError as error:
        return [Finding("proxy", "control", "fail", error.what, error.todo)]
    findings = [Finding("proxy", "control", "ok", f"{url} answers, {state.totals.groups} groups")]
    if alerts := current_alerts(state):
        advice = advice_context(watch_only=state.watch_only)
        causes = "; ".join(
            one_line(alert_text(alert, advice).cause, 60) for alert in alerts.values()
        )
        findings.append(Finding("proxy", "alerts", "warn", causes, "The console shows what to do"))
    return findings


async def servers(context: CheckContext) -> Sequence[Finding]:
    """Check whether each swarm server answers and speaks the protocol."""
    findings = await asyncio.gather(
        *(check_server(context.home, name, url) for name, url in context.servers.items())
    )
    return list(findings)


async def check_server(home: Home, name: str, url: str) -> Finding:
    """Check whether a swarm server answers and speaks the protocol."""
    if url == "embedded":
        info = await asyncio.to_thread(running, home, "engine")
        if info is None or not info.url:
            return Finding("server", name, "ok", "embedded: the console starts it")
        url = info.url
    shown = one_line(name, 30)
    try:
        async with asyncio.timeout(PATIENCE):
            server = await report(name, url)
    except TimeoutError:
        todo = "Check that it runs and that this machine can reach it (tunnel, firewall)"
        return Finding("server", shown, "fail", f"{url}: no answer in {PATIENCE:g} s", todo)
    if server.state == "CANNOT_CONNECT":
        todo = "Start it, or name another server with --swarm-url"
        return Finding("server", shown, "fail", _at(url, server.error), todo)
    step = "" if server.step is None else f", step {server.step}"
    text = f"{url} is {server.state}{step}"
    if server.state == "UNKNOWN":
        todo = "It may be a newer version: the console shows it, but does not start or stop it"
        return Finding("server", shown, "warn", f"{text} ({one_line(server.raw, 40)})", todo)
    if server.error:
        todo = "The console uses only what the server reports"
        return Finding("server", shown, "warn", f"{text}; {one_line(server.error)}", todo)
    hint = "`ajet-console engine start` starts it" if server.state == "OFFLINE" else ""
    return Finding("server", shown, "ok", f"{text}, speaks the protocol", hint)


async def hooks(context: CheckContext) -> Sequence[Finding]:
    """Check whether the reward function loads; it is imported in a separate process."""
    own = context.settings
    folder = context.hooks or (Path(own.rewards.hooks) if own and own.rewards.hooks else None)
    if folder is not None:
        return [await check_hooks(folder.expanduser().absolute())]
    file = model_file(context)
    if file is None or not file.is_file():
        return [Finding("hooks", "rewards", "ok", "the built-in rewards")]
    from proxy.rewards.model.file import ModelFault, load

    try:
        model = load(file)
    except ModelFault:  # the check of the judges reports it
        return []
    folders = [Path(str(part.settings["folder"])) for part in model.active if part.kind == "hook"]
    if not folders:
        return [Finding("hooks", "rewards", "ok", f"{file} has no hooks")]
    return [await check_hooks((file.parent / folder.expanduser()).absolute()) for folder in folders]


def model_file(context: CheckContext) -> Path | None:
    """Return the path of the reward model; None when hooks are used or the settings are invalid."""
    own = context.settings
    if own is None or context.hooks or own.rewards.hooks:
        return None
    from proxy.rewards.model.file import NAME

    named = own.rewards.file
    return Path(named).expanduser().absolute() if named else context.home.root / NAME


async def check_hooks(folder: Path) -> Finding:
    """Check whether the reward function of a folder loads."""
    if not await asyncio.to_thread(folder.is_dir):
        return Finding("hooks", "rewards", "fail", f"there is no folder {folder}", "Name one")
    from proxy.rewards.hooks.child import HookChild, HookError
    from proxy.rewards.part import HookLimits

    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # child processes must not write .pyc files
    child = HookChild(folder, "doctor", HookLimits(load_seconds=min(PATIENCE, LIMIT - 0.5)))
    try:
        await child.start()
    except HookError as error:
        lines = [line for line in error.fault.traceback.strip().splitlines() if line.strip()]
        text = one_line(f"{error.cause} {lines[-1] if lines else ''}")
        return Finding("hooks", "rewards", "fail", f"{folder}: {text}", "Correct the file")
    finally:
        await child.close()
    submit = ", also called before each request" if child.has_submit else ""
    return Finding("hooks", "rewards", "ok", f"{folder} loads{submit}")


def _at(url: str, error: str) -> str:
    """Return the error with its URL, without repeating the URL."""
    return one_line(error if error.startswith(url) else f"{url}: {error}")
