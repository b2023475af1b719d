"""What counts as an address, and the command line's error for one that is none."""

import pytest

from ajet_swarm.common.urls import web_address
from console.cli import main

NONE = ["", "x", "ftp://h", "http://", "https:///x", "http://[::1", "http://h:x", "http://h:70000"]


@pytest.mark.parametrize("url", NONE)
def test_an_invalid_address_is_none(url: str) -> None:
    assert web_address(url) is None


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [("http://h:80/v1", "h", 80), ("https://a.b", "a.b", None), ("http://[::1]:9", "::1", 9)],
)
def test_a_valid_address_is_parsed(url: str, host: str, port: int | None) -> None:
    parts = web_address(url)
    assert parts is not None
    assert (parts.hostname, parts.port) == (host, port)


@pytest.mark.parametrize(
    "line",
    [
        "proxy --swarm-url",
        "proxy --upstream",
        "status --url",
        "doctor --swarm-url",
        "--attach",
        "mock --base-url",
        "mock --dry-run --user-model m --user-url",
    ],
)
def test_a_typo_gets_a_suggestion(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*line.split(), "http://[::1"]) != 0
    captured = capsys.readouterr()
    assert "internal error" not in captured.out + captured.err
