"""The command line for the tests of its commands, and a proxy in memory."""

from collections.abc import Iterator

import pytest

from core.runtime.home import Home, Role
from tests.support.commands.cli import AsyncCli, Cli
from tests.support.commands.control import FakeControl


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands of a test without a loop."""
    return Cli(capsys)


@pytest.fixture
def async_cli(cli: Cli) -> AsyncCli:
    """Commands of a test whose loop serves a proxy or an engine."""
    return AsyncCli(cli)


@pytest.fixture
def proxy(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeControl]:
    """The proxy of the home, at `http://proxy`."""
    made = FakeControl()
    monkeypatch.setattr("proxy.control.client.ControlClient", lambda *_, **__: made)
    with Role(home, "proxy") as role:
        role.publish(url="http://proxy")
        yield made
