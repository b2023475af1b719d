"""`status`: what it says about the running proxy."""

import pytest

from ajet_swarm.common.errors import AjetError
from core.events import ProxyStarted
from tests.support.alerts import TWO_HOLD_UP, two_hold_up
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl
from tests.support.sample import NOW, state_of


@pytest.mark.parametrize("votes", [0, 1, 2])
def test_alerts_follow_votes_that_are_not_sent_yet(
    cli: Cli, proxy: FakeControl, votes: int
) -> None:
    proxy.state = state_of(*two_hold_up(votes))
    alerts = cli.json("status")["proxy"]["alerts"].values()
    assert [alert["cause"] for alert in alerts] == (
        [TWO_HOLD_UP[votes]] if TWO_HOLD_UP[votes] else []
    )


def test_an_engine_without_a_port_has_no_address(cli: Cli, proxy: FakeControl) -> None:
    taken = {"embedded": "http://127.0.0.1:0"}
    started = ProxyStarted(
        client_uuid="c", pid=1, url="http://p", version="1", servers=taken, rewards="", at=NOW
    )

    proxy.state = state_of(started)
    shown = cli.out("status")
    assert "127.0.0.1:0" not in shown
    assert not missing(
        shown,
        "embedded  no address yet  CANNOT_CONNECT",
        "(it is not up: its port is not known yet)",
    )
    (engine,) = cli.json("status")["servers"]
    assert (engine["url"], engine["state"]) == ("", "CANNOT_CONNECT")


def test_a_proxy_whose_state_cannot_be_read_shows_no_zeros(cli: Cli, proxy: FakeControl) -> None:
    proxy.failure = AjetError("the control token is wrong")
    assert not missing(
        cli.out("status"),
        "http://proxy  its state is unknown: the control token is wrong",
        "ratings  unknown",
    )


def test_a_token_file_that_cannot_be_read_is_refused(cli: Cli, proxy: FakeControl) -> None:
    shown = cli.refused("status", "--token-file", "/gone")
    assert "--token-file /gone: the token cannot be read: No such file or directory" in shown
