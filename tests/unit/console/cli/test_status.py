"""`status`: what it says about the running proxy."""

import json

import pytest

from console.cli import main
from core.runtime.home import Home
from core.state import State
from tests.support.alerts import TWO_HOLD_UP, two_hold_up
from tests.support.sample import state_of


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
