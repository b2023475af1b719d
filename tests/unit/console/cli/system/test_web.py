"""`web`: what it refuses before it listens, and links for a server that runs."""

import pytest

from console.cli.system import web as served_page
from core.roles import Identity
from core.runtime.access import AccessTokens
from core.runtime.home import Home, Role
from tests.support.commands.cli import Cli, missing


@pytest.fixture
def web(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "run", "web")


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
        (["--most", "0"], "'--most': 0 is not in the range"),
        (["--list"], "no web server runs in this home"),
        ([], "no proxy runs in this home"),
    ],
)
def test_it_refuses_with_a_reason_and_creates_no_token(
    web: Cli, home: Home, args: list[str], message: str
) -> None:
    assert message in web.err(*args, code=1 if "runs in this home" in message else 2)
    assert AccessTokens(home).read() == ()


def test_it_prints_links_for_the_server_that_runs(web: Cli, home: Home) -> None:
    with Role(home, "web") as role:
        extra = {"link": "https://gpu.example/console"}
        role.publish(host="127.0.0.1", port=8090, url="http://127.0.0.1:8090", extra=extra)
        data = web.json("--link", "viewer", "--name", "vera")
        link, _, key = data["link"].partition("?k=")
        assert link == "https://gpu.example/console/"
        assert AccessTokens(home).identity(key) == Identity("vera", "viewer")
        error = web.refused("--link", "rater", "--name", "vera")
        assert not missing(error, "there is a token named vera already", "--name vera")
        renewed = web.json("--link", "rater", "--name", "vera", "--renew")["link"].partition("?k=")[
            2
        ]
        assert AccessTokens(home).identity(renewed) == Identity("vera", "rater")
        assert AccessTokens(home).identity(key) is None
        AccessTokens(home).add("boss", "operator", None)
        shown = web.refused("--link", "rater", "--name", "boss", "--renew")
        assert "there is a token named boss already" in shown
        assert "not a duration" in web.refused("--link", "rater", "--expires", "soon")
        assert "tokens revoke rater-" in web.out("--link", "rater")
        assert "it runs already" in web.refused()


def test_the_second_start_with_a_link_serves_and_says_that_the_link_is_valid(
    web: Cli, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    async def serve(_args: object, _home: Home, _role: Role, valid: str) -> None:
        served.append(valid)

    monkeypatch.setattr(served_page, "_serve", serve)
    monkeypatch.setattr(served_page, "need_proxy", lambda *_: "http://127.0.0.1:1")
    web("--link", "rater", "--name", "anna")
    AccessTokens(home).add("anna", "rater", 60)
    web("--link", "rater", "--name", "anna")
    web("--link", "rater", "--name", "anna", "--renew")
    web("--link", "viewer", "--name", "anna", code=2)
    first, second, third = served
    assert (first, third) == ("", "")
    assert not missing(second, "The link of anna, rater, is valid", "--renew")
