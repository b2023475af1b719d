"""`progress-pair` and `progress-vote`, and the ratings in `progress`."""

import json
import time
from collections.abc import Mapping
from typing import Any, Self

import pytest

from console.cli import main
from console.session.rater_name import save_name
from core.commands.plan import Plan, plan
from core.runtime.home import Home
from core.state import State
from proxy.control.client import CommandReply, ControlError
from tests.support.looks import looks, pair_rated
from tests.support.sample import HOSTILE, state_of

PAIR = {
    "pair_id": "5d1c0e9a7b42", "prompt": f"Why? {HOSTILE}", "left": f"first {HOSTILE}",
    "right": "", "server": "embedded", "baseline_step": 1, "step": 12, "newest_step": 14,
    "ratings": 7, "different": 100, "same": 28,
}  # fmt: skip
VOTE = {"left": "before", "right": "now", "result": "now", "automatic": 1.0, "ratings": 8}


class Proxy:
    """A control API with one pair."""

    def __init__(self) -> None:
        self.state = State()
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.refusal: ControlError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def snapshot(self) -> State:
        return self.state

    async def plan(self, name: str, args: Mapping[str, Any]) -> Plan:
        return plan(self.state, name, args, time.time())

    async def command(self, name: str, args: Mapping[str, Any]) -> CommandReply:
        self.sent.append((name, dict(args)))
        if self.refusal is not None:
            raise self.refusal
        data = PAIR if name == "progress.pair" else VOTE
        return CommandReply(True, "now is better; 8 ratings 0.71 (0.40 to 0.92)", dict(data))


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, home: Home) -> Proxy:
    api = Proxy()
    save_name(home, "anna")
    monkeypatch.setattr("proxy.control.client.ControlClient", lambda *_, **__: api)
    monkeypatch.setattr("console.cli.pairs.need_proxy", lambda *_: "http://proxy")
    monkeypatch.setattr("console.cli.common.proxy_url", lambda *_: "http://proxy")
    return api


def test_a_pair_is_printed_without_control_characters(
    proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["progress-pair", "--newest"]) == 0
    text = capsys.readouterr().out
    assert proxy.sent == [("progress.pair", {"rater": "anna", "newest": True})]
    assert "pair 5d1c0e9a7b42, step 12 against step 1; the newest look is of step 14" in text
    assert "LEFT\nfirst " in text
    assert "RIGHT\n(empty)" in text
    assert "progress-vote 5d1c0e9a7b42 left|right|tie|skip" in text
    assert "\x1b" not in text


def test_a_pair_as_json_is_the_data_of_the_proxy(
    proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["progress-pair", "--json", "--rater", "bob", "--server", "gpu"]) == 0
    assert PAIR.items() <= json.loads(capsys.readouterr().out).items()
    assert proxy.sent[0][1] == {"rater": "bob", "server": "gpu", "newest": False}


def test_a_vote_says_which_answer_was_which(
    proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["progress-vote", "5d1c0e9a7b42", "right"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "left was before, right was now",
        "now is better; 8 ratings 0.71 (0.40 to 0.92)",
    ]
    vote = {"pair_id": "5d1c0e9a7b42", "choice": "right", "rater": "anna"}
    assert proxy.sent == [("progress.vote", vote)]
    assert main(["progress-vote", "5d1c0e9a7b42", "right", "--json"]) == 0
    assert VOTE.items() <= json.loads(capsys.readouterr().out).items()


@pytest.mark.slow
def test_a_refusal_and_a_wrong_choice_are_errors(
    proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.refusal = ControlError("pair x is not open", "embedded", "Ask for another")
    assert main(["progress-vote", "x", "left"]) == 1
    assert "pair x is not open" in capsys.readouterr().err
    assert main(["progress-vote", "x", "both"]) == 2
    assert "invalid choice: 'both'" in capsys.readouterr().err


def test_progress_has_the_three_estimates(proxy: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    votes = [pair_rated(at, float(at % 4 == 0)) for at in range(40)]
    proxy.state = state_of(*looks(), *votes, pair_rated(99, None))
    assert main(["progress"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "step 12 against step 1: automatic 0.75, 40 ratings 0.25 (0." in text
    assert "), same result 25 % (" in text
    assert "; 1 skipped" in text
    assert "Against the ratings: relevance overrates now by 0.75" in text
    assert main(["progress", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["pairs"]
    assert (data["ratings"], data["skipped"], data["step"]) == (40, 1, 12)
    assert (data["pairs"], data["same_text"], data["automatic"]) == (100, 28, 0.75)
    assert data["human"]["low"] < 0.25 < data["human"]["high"]
    assert data["agreement"]["low"] < data["agreement"]["chance"] == 0.25
    assert data["parts"]["relevance"]["estimate"] == pytest.approx(0.75)


def test_without_ratings_progress_has_none(
    proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.state = state_of(*looks())
    assert main(["progress"]) == 0
    assert "blind pairs" not in capsys.readouterr().out
    assert main(["progress", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] is None
