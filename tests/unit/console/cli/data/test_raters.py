"""`rating raters`: who rates, with which agreement, as text and as JSON."""

import pytest

from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl
from tests.support.ratings import voted
from tests.support.sample import state_of


def test_the_agreement_of_raters_is_shown_against_chance(cli: Cli, proxy: FakeControl) -> None:
    events = [
        event
        for number in range(4)
        for event in voted(number, {"ada": number, "bob": number if number else 3})
    ]
    proxy.state = state_of(*events)
    shown = cli.out("rating", "raters")
    assert not missing(
        shown,
        "Same best answers  75 % (",
        " %), by chance 25 %\n",
        "of two raters over 4 groups, with 95 % intervals",
    )
    shown = cli.json("rating", "raters")["agreement"]
    assert (shown["best"]["share"], shown["best"]["chance"]) == (0.75, 0.25)
    assert shown["best"]["low"] < 0.75 < shown["best"]["high"]
    assert shown["order"]["compared"] == 4
    assert shown["order"]["chance"] == pytest.approx(0.25 + 0.25 / 2)


def test_without_two_votes_on_a_group_there_is_no_agreement(cli: Cli, proxy: FakeControl) -> None:
    proxy.state = state_of(*voted(1, {"ada": 1}))
    assert "Agreement: no group has votes of two raters yet" in cli.out("rating", "raters")
    assert cli.json("rating", "raters")["agreement"] == {"best": None, "order": None}
