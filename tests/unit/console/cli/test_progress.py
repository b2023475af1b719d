"""`progress`: the verdict as text, as JSON and as an exit code."""

from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from core.events import EngineChanged, Event
from core.journal.writer import Journal
from core.runtime.home import Home
from core.state import Server
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl
from tests.support.looks import (
    BELOW_BEST,
    RIGHT_FELL,
    SERVER,
    baseline,
    broken_look,
    look,
    looks,
    probe_set,
    running_look,
)
from tests.support.sample import HOSTILE, stamp, state_of


@pytest.mark.parametrize(
    ("events", "code", "words"),
    [
        ([probe_set(), baseline(), look("l1", 12)], 0, "▲ Better by 0.21 (0.12 to 0.30)"),
        (
            [probe_set(), baseline(), look("l1", 12, outcome="worse")],
            4,
            "▼ Worse by 0.21 (0.12 to 0.30)",
        ),
        (
            [probe_set(), baseline(), look("l1", 12, outcome="unknown")],
            3,
            "· Not known yet: +0.04 (-0.09 to +0.17), about 490 more samples",
        ),
        (
            [probe_set(), baseline(), look("l1", 12, parts=(RIGHT_FELL,))],
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
    assert (
        values["sentence"] == "Better by 0.21 (0.12 to 0.30) than at step 1, on 64 shipped prompts"
    )
    assert (values["notes"], values["paused"], values["best_step"]) == ([], "", None)
    expected = {
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
    }
    assert {name: values[name] for name in expected} == expected
    assert values["probe_set"] == {
        "source": "shipped",
        "version": "ps1",
        "prompts": 4,
        "error": "",
        "enabled": True,
    }
    assert values["running"]["done"] == 120
    assert [one["part"] for one in values["parts"]] == [
        "relevance",
        "format",
        "politeness",
        "length",
        "repetition",
    ]


def test_json_without_a_look_has_empty_fields(cli: Cli, proxy: FakeControl) -> None:
    body = cli.json("progress", code=3)
    assert (body["outcome"], body["step"], body["effect"], body["parts"]) == (
        "unknown",
        None,
        None,
        [],
    )


def test_a_server_is_chosen_by_name(
    cli: Cli, proxy: FakeControl, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.state = state_of(EngineChanged(server="gpu", state="OFFLINE", step=0), *looks())
    assert "The probe set is not known yet" in cli.out("progress", "--server", "gpu", code=3)
    cli("progress")  # the first server with looks
    capsys.readouterr()
    printed = cli.run("progress", "--server", "gpuu", code=2)
    assert "there is no such server" in printed.err
    assert "Known: embedded, gpu" in printed.err


def test_a_policy_below_its_best_step_is_printed_with_the_command_that_restores_it(
    cli: Cli, proxy: FakeControl, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.state = state_of(
        probe_set(),
        baseline(),
        look("l1", 86, checkpoint="progress-1"),
        look("l2", 146, outcome="unknown", against_best=BELOW_BEST),
    )
    cli("progress", code=3)  # the verdict about the baseline gives the exit code
    shown = capsys.readouterr().out
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
    journal = Journal(home.journal)
    for seq, event in enumerate([*looks(), *running_look(9)], 1):
        journal.append(stamp(event, seq))
    journal.close()
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
