"""The watch over a server: the own engine, parts that fail and start again."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import proxy.servers.reader
import proxy.servers.watch
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common import tasks
from core.runtime.home import Home
from core.settings import Settings
from proxy.main import _expected_url
from proxy.servers.losses import RestartLoss
from proxy.servers.reader import ServerReader
from proxy.servers.watch import ServerWatch
from tests.support.proxy.world import World, world
from tests.support.scripted.swarm import ScriptedSwarm

PARTS = {"updates": (ServerReader, "_read"), "checks": (RestartLoss, "check")}
"""Part of the watch -> a method of its loop."""


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.world(watched=True)
async def test_it_is_started_again_and_shown(
    part: str, w: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner, name = PARTS[part]
    original: Callable[..., Any] = getattr(owner, name)
    broken, calls = True, 0

    def fails(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if broken:
            raise KeyError("step")
        return original(*args, **kwargs)

    monkeypatch.setattr(tasks, "RESTART_AFTER", 0.01)
    monkeypatch.setattr(proxy.servers.watch, "CHECK_EVERY", 0.01)
    monkeypatch.setattr(proxy.servers.reader, "POLL_EVERY", 0.01)
    monkeypatch.setattr(owner, name, fails)
    w.swarm.automatic = False
    await w.until(lambda: calls > 2)
    key = f"part:{part} of s"
    alert = await w.until(lambda: w.state.alerts.get(key))
    assert alert.alert_kind == "part"
    assert alert.params == {"part": f"{part} of s", "error": "KeyError: 'step'"}
    assert caplog.text.count(f"{part} of s failed") == 1
    broken = False
    await w.until(lambda: w.state.servers["s"].state == "ROLLING")
    seen = calls
    w.swarm.set_state("BOOTING")
    await w.until(lambda: w.state.servers["s"].state == "BOOTING")
    w.swarm.set_state("ROLLING", 5)
    await w.until(lambda: w.state.servers["s"].state == "ROLLING" and calls > seen)
    assert w.state.servers["s"].step == 5


@pytest.mark.world(watched=True)
async def test_a_status_that_cannot_be_read_is_shown_and_read_again(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, broken = SwarmWire.status, False

    async def status(self: SwarmWire, **options: Any) -> Any:
        if broken:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return await original(self, **options)

    monkeypatch.setattr(SwarmWire, "status", status)
    broken = True
    error = await w.until(lambda: w.state.servers["s"].lost)
    assert error == "faulty: RuntimeError: cannot schedule new futures after shutdown"
    ticket = await w.ask()
    broken = False
    assert (await w.reply(ticket)).error is None
    assert w.state.servers["s"].state == "ROLLING"


def at(port: int) -> Settings:
    return msgspec.convert({"engine": {"port": port}}, Settings)


def test_the_engine_of_another_home_gets_no_requests() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert _expected_url(at(port)) == "http://127.0.0.1:0"
    assert _expected_url(at(port)) == f"http://127.0.0.1:{port}"  # it will be there


@pytest.mark.slow
async def test_the_own_engine_is_found_although_another_one_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedSwarm() as other, ScriptedSwarm() as own, world(tmp_path, other) as w:
        server = w.context.servers["s"]
        await w.until(lambda: server.watcher.current.reachable)
        namespace = SimpleNamespace(url=own.url)
        monkeypatch.setattr("proxy.servers.watch.running", lambda home, role: namespace)
        watch = ServerWatch(w.context, server, Home(tmp_path))
        async with asyncio.TaskGroup() as tasks:
            guard = tasks.create_task(watch._check_periodically())
            await w.until(lambda: server.client.url == own.url)
            guard.cancel()
        assert server.url == own.url
