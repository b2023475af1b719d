"""The command line for the tests of its commands."""

import pytest

from tests.support.cli import AsyncCli, Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands of a test without a loop."""
    return Cli(capsys)


@pytest.fixture
def async_cli(cli: Cli) -> AsyncCli:
    """Commands of a test whose loop serves a proxy or an engine."""
    return AsyncCli(cli)
