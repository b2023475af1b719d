"""`status`: what it says about the running proxy."""

import json

import pytest

from ajet_swarm.common.errors import AjetError
from console.cli import main
from core.events import ProxyStarted
from core.runtime.home import Home
from core.state import State
from tests.support.alerts import TWO_HOLD_UP, two_hold_up
from tests.support.sample import NOW, state_of


@pytest.mark.parametrize("votes", [0, 1, 2])
def test_alerts_follow_votes_that_are_not_sent_yet(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], votes: int
) -> None:
    async def snapshot(*_: object) -> State:
        return state_of(*two_hold_up(votes))

    monkeypatch.setattr("console.cli.status.snapshot", snapshot)
    monkeypatch.setattr("console.cli.status.proxy_url", lambda *_: "http://proxy")
    assert main(["status", "--json"]) == 0
    alerts = json.loads(capsys.readouterr().out)["proxy"]["alerts"]
    assert alerts == ([TWO_HOLD_UP[votes]] if TWO_HOLD_UP[votes] else [])


def test_an_engine_without_a_port_has_no_address(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = {"embedded": "http://127.0.0.1:0"}
    started = ProxyStarted(
        client_uuid="c", pid=1, url="http://p", version="1", servers=taken, rewards="", at=NOW
    )

    async def snapshot(*_: object) -> State:
        return state_of(started)

    monkeypatch.setattr("console.cli.status.snapshot", snapshot)
    monkeypatch.setattr("console.cli.status.proxy_url", lambda *_: "http://proxy")
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "127.0.0.1:0" not in shown
    assert "embedded  no address yet  CANNOT_CONNECT" in shown
    assert "(it is not up: its port is not known yet)" in shown
    assert main(["status", "--json"]) == 0
    (engine,) = json.loads(capsys.readouterr().out)["servers"]
    assert (engine["url"], engine["state"]) == ("", "CANNOT_CONNECT")


def test_a_proxy_whose_state_cannot_be_read_shows_no_zeros(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def snapshot(*_: object) -> State:
        raise AjetError("the control token is wrong")

    monkeypatch.setattr("console.cli.status.snapshot", snapshot)
    monkeypatch.setattr("console.cli.status.proxy_url", lambda *_: "http://proxy")
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "http://proxy  its state is unknown: the control token is wrong" in shown
    assert "ratings  unknown" in shown


def test_a_token_file_that_cannot_be_read_is_refused(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("console.cli.status.proxy_url", lambda *_: "http://127.0.0.1:9")
    assert main(["status", "--token-file", "/gone"]) == 2
    shown = capsys.readouterr().err
    assert "--token-file /gone: the token cannot be read: No such file or directory" in shown
