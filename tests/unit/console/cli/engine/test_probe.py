"""`try` from the command line, where the proxy does not play along."""

import time

import pytest

from console.cli.engine import probe
from core.state import Probe, State
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl


def test_a_try_that_the_proxy_forgot_ends_with_an_error(
    cli: Cli, proxy: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.control.client.ControlClient", lambda *_, **__: proxy)
    monkeypatch.setattr(probe, "STOP_SECONDS", 0.1)
    assert "no longer has this try" in cli.failed("engine", "try", "hello", "--timeout", "0.1")
    assert [name for name, _ in proxy.sent] == ["engine.try", "engine.try_stop"]


class Slow(FakeControl):
    """A proxy whose policy has answered when it is asked the sixth time."""

    reads = 0

    async def snapshot(self) -> State:
        self.reads += 1
        asked = self.sent[0][1]["try_id"] if self.sent else ""
        one = Probe(try_id=asked, prompt="hello", server="s", group_id="", at=time.time() - 3)
        one.text, one.over = ("an answer", True) if self.reads > 5 else ("", False)
        return State(tries=[one])


@pytest.mark.parametrize(
    ("after", "lines"),
    [(0.0, "try: waits for an episode, 3s\n"), (100.0, "")],  # once: the next is far off
)
def test_a_long_wait_prints_progress_lines_on_a_pipe(
    cli: Cli, proxy: FakeControl, monkeypatch: pytest.MonkeyPatch, after: float, lines: str
) -> None:
    monkeypatch.setattr("proxy.control.client.ControlClient", lambda *_, **__: Slow())
    monkeypatch.setattr(probe, "PROGRESS_AFTER", after)
    captured = cli.run("engine", "try", "hello")
    assert captured.err == lines
    assert "an answer" in captured.out
