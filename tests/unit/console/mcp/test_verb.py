"""The verb `mcp`, where it cannot serve."""

import pytest

from console.cli import main
from core.runtime.home import Home


def test_without_the_sdk_the_message_names_the_extra(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("console.cli.system.mcp.find_spec", lambda _: None)
    assert main(["mcp"]) == 2
    printed = capsys.readouterr()
    assert "pip install 'ajet-console[mcp]'" in printed.err
    assert printed.out == ""
