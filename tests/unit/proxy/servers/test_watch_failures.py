"""A part of the watch over a server that fails is started again, and the other parts go on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import proxy.servers.reader
import proxy.servers.watch
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common import tasks
from proxy.servers.losses import RestartLoss
from proxy.servers.reader import ServerReader
from tests.support.proxy.world import world

PARTS = {
    "updates": (ServerReader, "_read"),
    "checks": (RestartLoss, "check"),
}
"""Part of the watch -> a method of its loop."""


@pytest.mark.parametrize("part", PARTS)
async def test_it_is_started_again_and_shown(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
    async with world(tmp_path, watched=True) as w:
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


async def test_a_status_that_cannot_be_read_is_shown_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, broken = SwarmWire.status, False

    async def status(self: SwarmWire, **options: Any) -> Any:
        if broken:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return await original(self, **options)

    monkeypatch.setattr(SwarmWire, "status", status)
    async with world(tmp_path, watched=True) as w:
        broken = True
        error = await w.until(lambda: w.state.servers["s"].lost)
        assert error == "faulty: RuntimeError: cannot schedule new futures after shutdown"
        ticket = await w.ask()
        broken = False
        assert (await w.reply(ticket)).error is None
        assert w.state.servers["s"].state == "ROLLING"
