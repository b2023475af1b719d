"""`progress`: the verdict, blind pairs, probe sets."""

import json
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from console.session.rater_name import save_name
from core.events import EngineChanged, Event
from core.runtime.home import Home
from core.state import Server
from mock.dataset.rows import Row, parse_record, side_of
from proxy.control.client import ControlError
from proxy.evaluation.probe_set import load_probe_set
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl
from tests.support.looks import (
    RIGHT_FELL,
    SERVER,
    baseline,
    broken_look,
    fallen_looks,
    look,
    looks,
    pair_rated,
    probe_set,
    running_look,
)
from tests.support.ranked import write_journal
from tests.support.sample import HOSTILE, state_of

BASE = (probe_set(), baseline())


@pytest.mark.parametrize(
    ("events", "code", "words"),
    [
        ([*BASE, look("l1", 12)], 0, "▲ Better by 0.21 (0.12 to 0.30)"),
        ([*BASE, look("l1", 12, outcome="worse")], 4, "▼ Worse by 0.21 (0.12 to 0.30)"),
        (
            [*BASE, look("l1", 12, outcome="unknown")],
            3,
            "· Not known yet: +0.04 (-0.09 to +0.17), about 490 more samples",
        ),
        (
            [*BASE, look("l1", 12, parts=(RIGHT_FELL,))],
            0,
            "· Better by 0.21 (0.12 to 0.30) than at step 1, on 64 shipped prompts; worse: right "
            "answers",
        ),
        ([probe_set(error="a.jsonl is empty")], 3, "· No probe set: a.jsonl is empty"),
        ([probe_set()], 3, "· No look yet"),
        ([probe_set(enabled=False)], 3, "· Looks are off: set `probe.share` above 0"),
        ([*looks(), probe_set(enabled=False)], 0, "! Looks are off: set `probe.share` above 0"),
        ([], 3, "· The probe set is not known yet"),
        ([*looks(), broken_look("x", 14, "failed", "judge down")], 0, "! The look at step 14"),
    ],
)
def test_the_exit_code_is_the_verdict(
    cli: Cli, events: list[Event], code: int, words: str, proxy: FakeControl
) -> None:
    proxy.state = state_of(*events)
    assert words in cli.out("progress", code=code)


def test_the_text_has_the_figures_and_the_parts(cli: Cli, proxy: FakeControl) -> None:
    proxy.state = state_of(*looks())
    shown = cli.out("progress")
    assert not missing(
        shown,
        "now 0.62 (0.55 to 0.69)",
        "before 0.41 (0.35 to 0.47)",
        "look 3",
        "1,024 samples",
        "probe set shipped",
        "reward v1",
        "relevance                        0.420   0.710  +0.290  ▲ better",
        "answer repetition                0.030   0.080  +0.050\n",
        "answer length                     24.5    31.0    +6.5\n",
        "format                           0.970   0.910  -0.060  ▼ worse",
        "politeness                       0.500   0.520  +0.020  · not known yet",
    )


def test_json_is_one_object_with_everything(cli: Cli, proxy: FakeControl) -> None:
    proxy.state = state_of(*looks(), *running_look(120))
    values: dict[str, Any] = cli.json("progress")
    expected: dict[str, Any] = {
        "sentence": "Better by 0.21 (0.12 to 0.30) than at step 1, on 64 shipped prompts",
        "notes": [],
        "paused": "",
        "best_step": None,
        "server": SERVER,
        "source": "proxy",
        "outcome": "better",
        "step": 12,
        "baseline_step": 1,
        "effect": 0.21,
        "low": 0.12,
        "high": 0.30,
        "prompts": 64,
        "samples": 1024,
        "look": 3,
        "reward": "v1",
        "probe_set": {
            "source": "shipped",
            "version": "ps1",
            "prompts": 4,
            "error": "",
            "enabled": True,
        },
    }
    assert {name: values[name] for name in expected} == expected
    assert values["running"]["done"] == 120
    parts = ["relevance", "format", "politeness", "length", "repetition"]
    assert [part["part"] for part in values["parts"]] == parts


def test_json_without_a_look_has_empty_fields(cli: Cli, proxy: FakeControl) -> None:
    body = cli.json("progress", code=3)
    assert (body["outcome"], body["parts"]) == ("unknown", [])
    assert body["step"] is body["effect"] is None


def test_a_server_is_chosen_by_name(cli: Cli, proxy: FakeControl) -> None:
    proxy.state = state_of(EngineChanged(server="gpu", state="OFFLINE", step=0), *looks())
    assert "The probe set is not known yet" in cli.out("progress", "--server", "gpu", code=3)
    cli.out("progress")  # the first server with looks
    refusal = cli.refused("progress", "--server", "gpuu")
    assert not missing(refusal, "there is no such server", "Known: embedded, gpu")


def test_a_policy_below_its_best_step_is_printed_with_the_command_that_restores_it(
    cli: Cli, proxy: FakeControl
) -> None:
    proxy.state = state_of(*fallen_looks())
    shown = cli.out("progress", code=3)  # the verdict about the baseline gives the exit code
    assert shown.startswith("▼ Below its best: 0.07 less (0.05 to 0.10) than at step 86; than at")
    assert "`ajet-console progress rewind` restores step 86" in shown
    proxy.state.servers = {"gpu": Server(name="gpu", url=""), **proxy.state.servers}
    shown = cli.out("progress", code=3)
    assert f"`ajet-console progress rewind --server {SERVER}` restores step 86" in shown
    body = cli.json("progress", code=3)
    assert body["outcome"] == "unknown"
    assert body["against_best"] == {
        "look_id": "l1",
        "step": 86,
        "run": 0,
        "effect": -0.073,
        "low": -0.097,
        "high": -0.048,
        "alpha": 0.0001,
        "below": True,
    }
    proxy.state = state_of(*looks())
    assert cli.json("progress")["against_best"] is None


def test_without_a_proxy_the_journal_is_read(cli: Cli, home: Home) -> None:
    write_journal(home.journal, [*looks(), *running_look(9)])
    assert not missing(
        cli.out("progress"),
        "Better by 0.21",
        "No proxy runs: this is the state at the end of the journal",
    )
    body = cli.json("progress")
    assert (body["source"], body["running"], body["notes"]) == ("journal", None, [])


def test_without_proxy_and_journal_it_fails_with_advice(cli: Cli, home: Home) -> None:
    printed = cli.run("progress", code=1)
    assert printed.out == ""
    assert "no proxy runs in this home, and there is no journal" in printed.err


def test_a_proxy_that_does_not_answer_is_an_error(cli: Cli, proxy: FakeControl) -> None:
    proxy.failure = AjetError("the proxy does not answer")
    assert "does not answer" in cli.failed("progress")


def test_status_has_the_sentence(cli: Cli, proxy: FakeControl) -> None:
    proxy.state = state_of(
        EngineChanged(server=SERVER, state="ROLLING", step=12, url="http://127.0.0.1:9"),
        *looks(),
        broken_look("x", 14, "failed", "judge down"),
    )
    assert not missing(
        cli.out("status"),
        "progress embedded  Better by 0.21 (0.12 to 0.30) than at step 1",
        "  The look at step 14 failed: judge down",
    )
    known = cli.json("status")["proxy"]["progress"][SERVER]
    assert (known["outcome"], len(known["notes"])) == ("better", 1)


def test_hostile_text_reaches_no_terminal(cli: Cli, proxy: FakeControl) -> None:
    proxy.state = state_of(
        *looks(), broken_look("x", 14, "failed", HOSTILE), baseline("b2", 15, restarted=HOSTILE)
    )
    assert "\x1b" not in cli.out("progress", code=3)


PAIR = {
    "pair_id": "5d1c0e9a7b42",
    "prompt": f"Why? {HOSTILE}",
    "left": f"first {HOSTILE}",
    "right": "",
    "server": "embedded",
    "baseline_step": 1,
    "step": 12,
    "newest_step": 14,
    "ratings": 7,
    "different": 100,
    "same": 28,
}


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


def dataset(folder: Path, *rows: dict[str, Any]) -> Path:
    """A file of these rows, else of 200 sums."""
    file = folder / "rows.jsonl"
    lines = rows or [
        {"id": f"r{n}", "query": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(200)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_it_has_the_held_out_rows_alone(cli: Cli, tmp_path: Path) -> None:
    file, out = dataset(tmp_path), tmp_path / "probe.jsonl"
    shown = cli.out("progress", "probe-set", file, "--out", out, "--most", "1000")
    prompts = {prompt.prompt: prompt.reference for prompt in load_probe_set(str(out)).prompts}
    expected = {}
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        row = parse_record(number, json.loads(line))
        assert isinstance(row, Row)
        if side_of(row, 0.1) == "held-out":
            expected[row.query] = row.reference
    assert prompts == expected
    assert 5 < len(prompts) < 40
    assert f"{len(prompts)} prompts written to {out}" in shown


def test_it_has_at_most_the_number_asked_for_and_keeps_conversations(
    cli: Cli, tmp_path: Path
) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    several = {"messages": [*messages, {"role": "assistant", "content": "So."}, messages[1]]}
    out = tmp_path / "probe.jsonl"
    file = dataset(tmp_path, {"messages": messages}, {"messages": messages}, several)
    cli("progress", "probe-set", file, "--out", out, "--held-out", "1", "--most", "5")
    first = load_probe_set(str(out)).prompts[0]
    assert (first.prompt, first.before[0]["content"]) == ("Why?", "Be brief.")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--held-out", "0"], "0.0 is not in the range"),
        (["--most", "0"], "0 is not in the range"),
        (["--held-out", "0.000001"], "no usable row is held out"),
    ],
)
def test_bad_input_is_refused_by_name(
    cli: Cli, tmp_path: Path, more: list[str], words: str
) -> None:
    file, out = dataset(tmp_path), tmp_path / "probe.jsonl"
    assert words in cli.refused("progress", "probe-set", file, "--out", out, *more)
    assert not out.exists()


def test_an_existing_file_stays(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "probe.jsonl"
    out.write_text("mine")
    assert "the file exists" in cli.refused(
        "progress", "probe-set", dataset(tmp_path), "--out", out
    )
    assert out.read_text() == "mine"
