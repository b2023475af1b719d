"""`progress pair` and `progress vote`, and the ratings in `progress`."""

import pytest

from console.session.rater_name import save_name
from core.runtime.home import Home
from proxy.control.client import ControlError
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl
from tests.support.looks import looks, pair_rated
from tests.support.sample import HOSTILE, state_of

PAIR = {
    "pair_id": "5d1c0e9a7b42", "prompt": f"Why? {HOSTILE}", "left": f"first {HOSTILE}",
    "right": "", "server": "embedded", "baseline_step": 1, "step": 12, "newest_step": 14,
    "ratings": 7, "different": 100, "same": 28,
}  # fmt: skip
VOTE = {"left": "before", "right": "now", "result": "now", "automatic": 1.0, "ratings": 8}


@pytest.fixture
def proxy(proxy: FakeControl, home: Home) -> FakeControl:
    """A proxy with one pair."""
    message = "now is better; 8 ratings 0.71 (0.40 to 0.92)"
    proxy.replies = {"progress.pair": (message, PAIR), "progress.vote": (message, VOTE)}
    save_name(home, "anna")
    return proxy


def test_a_pair_is_printed_without_control_characters(cli: Cli, proxy: FakeControl) -> None:
    text = cli.out("progress", "pair", "--newest")
    assert proxy.sent == [("progress.pair", {"rater": "anna", "newest": True})]
    assert not missing(
        text,
        "pair 5d1c0e9a7b42, step 12 against step 1; the newest look is of step 14",
        "LEFT\nfirst ",
        "RIGHT\n(empty)",
        "progress vote 5d1c0e9a7b42 left|right|tie|skip",
    )
    assert "\x1b" not in text


def test_a_pair_as_json_is_the_data_of_the_proxy(cli: Cli, proxy: FakeControl) -> None:
    assert PAIR.items() <= cli.json("progress", "pair", "--rater", "bob", "--server", "gpu").items()
    assert proxy.sent[0][1] == {"rater": "bob", "server": "gpu", "newest": False}


def test_a_vote_says_which_answer_was_which(cli: Cli, proxy: FakeControl) -> None:
    assert cli.out("progress", "vote", "5d1c0e9a7b42", "right").splitlines() == [
        "left was before, right was now",
        "now is better; 8 ratings 0.71 (0.40 to 0.92)",
    ]
    vote = {"pair_id": "5d1c0e9a7b42", "choice": "right", "rater": "anna"}
    assert proxy.sent == [("progress.vote", vote)]
    assert VOTE.items() <= cli.json("progress", "vote", "5d1c0e9a7b42", "right").items()


@pytest.mark.slow
def test_a_refusal_and_a_wrong_choice_are_errors(cli: Cli, proxy: FakeControl) -> None:
    proxy.failure = ControlError("pair x is not open", "embedded", "Ask for another")
    assert "pair x is not open" in cli.failed("progress", "vote", "x", "left")
    assert "there is no `both`" in cli.refused("progress", "vote", "x", "both")


def test_progress_has_the_three_estimates(cli: Cli, proxy: FakeControl) -> None:
    votes = [pair_rated(at, float(at % 4 == 0)) for at in range(40)]
    proxy.state = state_of(*looks(), *votes, pair_rated(99, None))
    assert not missing(
        " ".join(cli.out("progress").split()),
        "step 12 against step 1: automatic 0.75, 40 ratings 0.25 (0.",
        "), same result 25 % (",
        "; 1 skipped",
        "Against the ratings: relevance overrates now by 0.75",
    )
    data = cli.json("progress")["pairs"]
    assert (data["ratings"], data["skipped"], data["step"]) == (40, 1, 12)
    assert (data["pairs"], data["same_text"], data["automatic"]) == (100, 28, 0.75)
    assert data["human"]["low"] < 0.25 < data["human"]["high"]
    assert data["agreement"]["low"] < data["agreement"]["chance"] == 0.25
    assert data["parts"]["relevance"]["estimate"] == pytest.approx(0.75)


def test_without_ratings_progress_has_none(cli: Cli, proxy: FakeControl) -> None:
    proxy.state = state_of(*looks())
    assert "blind pairs" not in cli.out("progress")
    assert cli.json("progress")["pairs"] is None
