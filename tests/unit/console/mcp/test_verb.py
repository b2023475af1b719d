"""The verb `mcp`: where it cannot serve, and which tools it serves."""

import pytest

from console.cli import main
from console.mcp.tools import Tools
from core.runtime.home import Home
from tests.support.commands.cli import Cli


def test_without_the_sdk_the_message_names_the_extra(
    cli: Cli, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.cli.system.mcp.find_spec", lambda _: None)
    printed = cli.run("run", "mcp", code=2)
    assert "pip install 'ajet-console[mcp]'" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("words", "acts"),
    [
        (["run", "mcp", "--role", "act"], True),
        (["--read-only", "run", "mcp", "--role", "act"], False),
        (["run", "mcp", "--role", "act", "--read-only"], False),
    ],
)
def test_with_read_only_no_tool_acts(
    words: list[str], acts: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: set[str] = set()

    async def serve(tools: Tools) -> None:
        names.update(one.name for one in await tools.offered())

    monkeypatch.setattr("console.mcp.server.serve", serve)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # `mcp` ends the process on Ctrl+C
    assert main(words) == 0
    assert "status" in names
    assert ("engine_stop" in names) == acts
