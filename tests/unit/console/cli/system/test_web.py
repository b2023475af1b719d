"""`web`: what it refuses before it listens, and links for a server that runs."""

from pathlib import Path

import pytest

from console.cli import main
from console.cli.system import web
from core.roles import Identity
from core.runtime.access import AccessTokens
from core.runtime.home import Home, Role
from tests.support.commands.cli import Cli, missing


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
        (["--public-url", "https://gpu-box/?a=1"], "not an address of a page"),
        (["--public-url", "https://gpu-box/#a"], "not an address of a page"),
        (["--public-url", "https://me@gpu-box/"], "not an address of a page"),
        (["--public-url", "https://gpu-box/a/../b"], "not an address of a page"),
        (["--base-path", "http://gpu-box/x"], "not a path"),
        (["--base-path", "/a/../b"], "not a path"),
        (["--base-path", "/{name}"], "not a path"),
        (["--base-path", "/a?b"], "not a path"),
        (["--link", "rater", "--name", "bad name"], "--name bad name"),
        (["--link", "rater", "--expires", "never"], "--expires"),
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
    cli: Cli, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with Role(home, "web") as role:
        extra = {"link": "https://gpu.example/console"}
        role.publish(host="127.0.0.1", port=8090, url="http://127.0.0.1:8090", extra=extra)
        data = cli.json("web", "--link", "viewer", "--name", "vera")
        link, _, key = data["link"].partition("?k=")
        assert link == "https://gpu.example/console/"
        assert AccessTokens(home).identity(key) == Identity("vera", "viewer")
        assert run(home, "--link", "rater", "--name", "vera") != 0
        error = capsys.readouterr().err
        assert not missing(error, "there is a token named vera already", "--name vera")
        renewed = cli.json("web", "--link", "rater", "--name", "vera", "--renew")["link"].partition(
            "?k="
        )[2]
        assert AccessTokens(home).identity(renewed) == Identity("vera", "rater")
        assert AccessTokens(home).identity(key) is None
        AccessTokens(home).add("boss", "operator", None)
        assert run(home, "--link", "rater", "--name", "boss", "--renew") != 0
        assert "there is a token named boss already" in capsys.readouterr().err
        assert run(home, "--link", "rater", "--expires", "soon") != 0
        assert "not a duration" in capsys.readouterr().err
        assert "token revoke rater-" in cli.out("web", "--link", "rater")
        assert run(home) != 0
        assert "it runs already" in capsys.readouterr().err


def test_the_second_start_with_a_link_serves_and_says_that_the_link_is_valid(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    async def serve(_args: object, _home: Home, _role: Role, valid: str) -> None:
        served.append(valid)

    monkeypatch.setattr(web, "_serve", serve)
    monkeypatch.setattr(web, "need_proxy", lambda *_: "http://127.0.0.1:1")
    assert run(home, "--link", "rater", "--name", "anna") == 0
    AccessTokens(home).add("anna", "rater", 60)
    assert run(home, "--link", "rater", "--name", "anna") == 0
    assert run(home, "--link", "rater", "--name", "anna", "--renew") == 0
    assert run(home, "--link", "viewer", "--name", "anna") != 0
    first, second, third = served
    assert (first, third) == ("", "")
    assert "The link of anna, rater, is valid" in second
    assert "--renew" in second
