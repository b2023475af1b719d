"""`try` from the command line, where the proxy does not play along."""

import time
from collections.abc import Mapping
from typing import Any, Self

import pytest

from console.cli.engine import probe
from core.state import Probe, State
from tests.support.cli import Cli


class Forgetful:
    """A proxy that accepts the order and restarts: it does not know the try."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.orders: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def command(self, name: str, args: Mapping[str, Any]) -> None:
        self.orders.append(name)

    async def snapshot(self) -> State:
        return State()


def test_a_try_that_the_proxy_forgot_ends_with_an_error(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Forgetful()
    monkeypatch.setattr(probe, "ControlClient", lambda *value, **more: proxy)
    monkeypatch.setattr(probe, "token_of", lambda *value: "token")
    monkeypatch.setattr(probe, "STOP_SECONDS", 0.1)
    shown = cli.failed("try", "hello", "--timeout", "0.1", "--url", "http://127.0.0.1:1")
    assert "no longer has this try" in shown
    assert proxy.orders == ["engine.try", "engine.try_stop"]


class Slow(Forgetful):
    """A proxy whose policy takes its time."""

    async def snapshot(self) -> State:
        over = time.monotonic() - self.began > 0.5 if self.orders else False
        one = Probe(try_id=self.try_id, prompt="hello", server="s", group_id="", at=time.time() - 3)
        one.text, one.over = ("an answer", True) if over else ("", False)
        return State(tries=[one])

    async def command(self, name: str, args: Mapping[str, Any]) -> None:
        await super().command(name, args)
        self.try_id, self.began = args["try_id"], time.monotonic()


def test_a_long_wait_prints_progress_lines_on_a_pipe(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "ControlClient", lambda *captured, **more: Slow())
    monkeypatch.setattr(probe, "token_of", lambda *captured: "token")
    monkeypatch.setattr(probe, "PROGRESS_AFTER", 0.0)
    captured = cli.run("try", "hello", "--url", "http://127.0.0.1:1")
    assert captured.err == "try: waits for an episode, 3s\n"  # once: the next is far off
    assert "an answer" in captured.out
    monkeypatch.setattr(probe, "PROGRESS_AFTER", 100.0)
    assert cli.err("try", "hello", "--url", "http://127.0.0.1:1") == ""
