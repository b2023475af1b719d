"""`web`: what it refuses before it listens, and links for a server that runs."""

import json
from pathlib import Path

import pytest

from console.cli import main
from core.roles import Identity
from core.runtime.access import AccessTokens
from core.runtime.home import Home, Role


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def run(home: Home, *args: str) -> int:
    return main(["--home", str(home.root), "web", *args])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--host", "0.0.0.0"], "without TLS"),
        (["--host", "gpu-box"], "without TLS"),
        (["--tls-cert", "cert.pem"], "TLS needs a certificate and its key"),
        (["--public-url", "gpu-box"], "not an address"),
        (["--base-path", "http://gpu-box/x"], "not a path"),
        (["--most", "0"], "at least one console"),
        (["--list"], "no web server runs in this home"),
        ([], "no proxy runs in this home"),
    ],
)
def test_it_refuses_with_a_reason_and_creates_no_token(
    home: Home, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, *args) != 0
    assert message in capsys.readouterr().err
    assert AccessTokens(home).read() == ()


def test_it_prints_links_for_the_server_that_runs(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with Role(home, "web") as role:
        extra = {"link": "https://gpu.example/console"}
        role.publish(host="127.0.0.1", port=8090, url="http://127.0.0.1:8090", extra=extra)
        assert run(home, "--link", "viewer", "--name", "vera", "--json") == 0
        data = json.loads(capsys.readouterr().out)
        link, _, key = data["link"].partition("?k=")
        assert link == "https://gpu.example/console/"
        assert AccessTokens(home).identity(key) == Identity("vera", "viewer")
        assert run(home, "--link", "rater", "--name", "vera") != 0
        assert "there is a token named vera already" in capsys.readouterr().err
        assert run(home, "--link", "rater", "--expires", "soon") != 0
        assert "not a duration" in capsys.readouterr().err
        assert run(home, "--link", "rater") == 0
        assert "token revoke rater-" in capsys.readouterr().out
        assert run(home) != 0
        assert "it runs already" in capsys.readouterr().err
