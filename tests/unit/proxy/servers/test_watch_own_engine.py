"""The proxy uses its own home's engine, whichever process listens at the default address."""

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from core.runtime.home import Home
from core.settings import Settings
from proxy.main import _expected_url
from proxy.servers.watch import ServerWatch
from tests.support.proxy.world import world
from tests.support.scripted.swarm import ScriptedSwarm


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
