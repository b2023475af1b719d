"""Orders for several groups at once: by ids, by a filter, with a question where one is due."""

import json
from typing import Any

import httpx
import pytest

from ajet_swarm.common.errors import AjetError
from core.events import AlertRaised
from core.events.alerts import params_of
from core.roles import Identity
from core.state import reduce
from proxy.alerts import alert_raised
from proxy.control.client import ControlLost
from tests.support.alerts import TWO_HOLD_UP, two_hold_up
from tests.support.checks import missing
from tests.support.commands.cli import Cli
from tests.support.commands.control import FakeControl
from tests.support.sample import group_events, state_of


@pytest.fixture
def proxy(proxy: FakeControl) -> FakeControl:
    """Two groups that wait for a rating, and one that is over."""
    proxy.state = state_of(
        *group_events(1, until="AWAITING_RATING", rewards=(0.1, 0.15)),
        *group_events(2, until="AWAITING_RATING", rewards=(0.9, 0.2)),
        *group_events(3, rewards=(0.1, 0.12)),
    )
    return proxy


CHECKPOINTS = ("checkpoints", "--swarm-url", "http://127.0.0.1:9")


def _ids(proxy: FakeControl) -> list[str]:
    return [args["group_id"] for _, args in proxy.sent]


@pytest.mark.parametrize(
    ("argv", "name", "args"),
    [
        (["group", "rescore"], "group.rescore", {}),
        (["group", "refill"], "group.refill", {}),
        (["group", "rerun"], "group.rerun", {}),
        (["accept"], "group.accept", {}),
        (["group", "unrate", "--rater", "anna"], "group.unrate", {"rater": "anna"}),
        (["group", "mark"], "group.mark", {"marked": True}),
        (["group", "mark", "--clear"], "group.mark", {"marked": False}),
        (["group", "note", "--text", "odd"], "group.note", {"note": "odd"}),
        (["group", "note", "--clear"], "group.note", {"note": ""}),
        (["abort", "--yes", "--reason", "debugging"], "group.abort", {"reason": "debugging"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_command_for_several_ids(
    cli: Cli, proxy: FakeControl, argv: list[str], name: str, args: dict[str, Any]
) -> None:
    words = 2 if argv[0] == "group" else 1
    cli(*argv[:words], "g0001", "g2", "g2", *argv[words:])
    assert proxy.sent == [(name, {"group_id": one, **args}) for one in ("g0001", "g2")]


def test_a_repeated_toggle_names_the_mark(cli: Cli, proxy: FakeControl) -> None:
    proxy.state.groups["g0002"].marked = True
    cli("group", "mark", "--toggle", "--where", "state:awaiting")
    assert [args["marked"] for _, args in proxy.sent] == [True, False]


def test_a_filter_chooses_only_groups_the_command_applies_to(cli: Cli, proxy: FakeControl) -> None:
    cli("abort", "--where", "reward<0.2", "--yes")
    assert _ids(proxy) == ["g0001"]  # the third is over
    proxy.sent.clear()
    cli("group", "mark", "--where", "reward<0.2")
    assert _ids(proxy) == ["g0001", "g0003"]
    assert "no group matches" in cli.out("accept", "--where", "text~nowhere")


def test_an_abort_of_a_missing_group_is_refused_before_the_confirmation(
    cli: Cli, proxy: FakeControl
) -> None:
    known = next(iter(proxy.state.groups))
    assert "there is no group `zzz`" in cli.failed("abort", known, "zzz")
    assert f"Did you mean `{known}`?" in cli.failed("abort", f"{known}x")
    assert proxy.sent == []


def test_an_abort_by_a_filter_asks_and_names_the_loss(cli: Cli, proxy: FakeControl) -> None:
    shown = cli.refused("abort", "--where", "state:awaiting")
    assert not missing(shown, "Abort 2 groups", "4 episodes", "--yes")
    assert not proxy.sent


def test_refused_groups_are_reported_and_the_others_are_done(cli: Cli, proxy: FakeControl) -> None:
    proxy.refused = {"g1": AjetError("group g1 is over")}
    error = "ajet-console: group g1 is over\n"
    assert cli.run("group", "rescore", "g1", "g2", code=1) == ("group.rescore is done\n", error)
    captured = cli.run("group", "rescore", "g1", "g2", "--json", code=1)
    data = json.loads(captured.out)
    assert (data["ok"], data["error"]["message"]) == (False, "group g1 is over")
    assert captured.err == error
    assert [(group["group_id"], group["ok"]) for group in data["groups"]] == [
        ("g1", False),
        ("g2", True),
    ]


def test_a_lost_proxy_ends_the_command(cli: Cli, proxy: FakeControl) -> None:
    proxy.refused = {"g1": ControlLost("the proxy does not answer")}
    groups = cli.json("group", "rescore", "g1", "g2", code=1)["groups"]
    assert _ids(proxy) == ["g1"]
    assert groups[1]["message"].startswith("not tried")


@pytest.mark.parametrize(
    "argv",
    [
        ["accept"],
        ["accept", "g1", "--where", "dead:yes"],
        ["accept", "--where", " "],
        ["accept", "--where", "nonsense<3"],
        ["group", "note", "g1"],
        ["group", "edit", "g1", "0", "--text", "x"],
        ["group", "edit", "g1", "1", "--text", " "],
        ["group", "edit", "g1", "1", "--file", "/no/such/file"],
        ["alerts", "dismiss", "a", "--all"],
        ["group", "repeat", "g1"],
        ["rate", "", "1"],
        ["rate", " ", "--undo"],
        ["accept", "g1", ""],
        ["abort", ""],
        ["group", "lease", ""],
    ],
    ids=" ".join,
)
def test_wrong_use_sends_no_command(cli: Cli, proxy: FakeControl, argv: list[str]) -> None:
    shown = cli.refused(*argv)
    assert shown.count("\n") == 1
    assert ("the group's id is empty" in shown) == ("" in argv or argv[:2] == ["rate", " "])
    assert not proxy.sent


def test_a_negative_number_of_checkpoints_is_refused_without_a_request(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls: list[str] = []
    monkeypatch.setattr("httpx.request", lambda *value, **_: urls.append(value[1]))
    for more in ("--dry-run", "--yes"):
        shown = cli.refused(*CHECKPOINTS, "prune", more, "--", "-3")
        assert "checkpoints prune: Invalid value for 'KEEP': -3 is not in the range" in shown
        assert "there is no option -3" in cli.refused(*CHECKPOINTS, "prune", "-3", more)
    assert not urls


@pytest.mark.parametrize("verb", ["save", "restore"])
@pytest.mark.parametrize(("name", "result"), [("", "the name is empty"), ("n" * 65, "at most 64")])
def test_an_impossible_checkpoint_name_is_refused_without_a_request(
    cli: Cli, verb: str, name: str, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls: list[str] = []
    monkeypatch.setattr("httpx.request", lambda *value, **_: urls.append(value[1]))
    assert result in cli.refused(*CHECKPOINTS, verb, name)
    assert not urls


def test_an_engines_validation_error_is_shown_in_words(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    detail = [{"type": "x", "loc": ["body", "keep"], "msg": "Input should be 0 or more"}]
    answer = httpx.Response(422, json={"detail": detail})
    monkeypatch.setattr("httpx.request", lambda *_, **__: answer)
    error_output = cli.failed(*CHECKPOINTS, "prune", "--yes", "3")
    assert "body.keep: Input should be 0 or more" in error_output
    assert "{" not in error_output


def test_the_confirmation_for_one_group_names_the_group(cli: Cli, proxy: FakeControl) -> None:
    assert "Abort group g0001: needs confirmation: 2 episodes" in cli.refused("abort", "g0001")
    assert "there is no group `nope`" in cli.failed("abort", "nope")


def test_alerts_are_listed_and_dismissed(cli: Cli, proxy: FakeControl) -> None:
    alert = AlertRaised(key="lost.gpu", cause="gone \x1b[2J", todo="look", level="error", at=0.0)
    proxy.state.alerts["lost.gpu"] = alert
    output = cli.out("alerts")
    assert "lost.gpu" in output
    assert "\x1b" not in output
    data = cli.json("alerts", "dismiss", "lost.gpu", "other", code=1)
    assert proxy.sent == [("alert.dismiss", {"key": "lost.gpu"})]
    assert [one["ok"] for one in data["alerts"]] == [True, False]
    unknown = "there is no alert `other`. Known: lost.gpu"
    assert data["error"]["message"] == data["alerts"][1]["message"] == unknown
    data = cli.json("alerts", "dismiss", "lost.gpu", "--dry-run")
    assert data["alerts"][0]["message"].startswith("would execute")
    proxy.state.dismissed["lost.gpu"] = "error"
    del proxy.state.alerts["lost.gpu"]
    cli("alerts", "dismiss", "lost.gpu")
    assert "There is none at present" in cli.failed("alerts", "dismiss", "other")
    assert len(proxy.sent) == 1


def test_listed_alerts_follow_votes_that_are_not_sent_yet(cli: Cli, proxy: FakeControl) -> None:
    for votes, words in enumerate(TWO_HOLD_UP):
        proxy.state = state_of(*two_hold_up(votes))
        alerts = cli.json("alerts")["alerts"]
        assert [alert["cause"] for alert in alerts] == ([words] if words else [])
        assert sum(len(alert["groups"]) for alert in alerts) == 2 - votes
    cli("alerts", "dismiss", "hold:embedded")
    assert proxy.sent == [("alert.dismiss", {"key": "hold:embedded"})]


def test_alerts_are_listed_in_words_with_their_data(cli: Cli, proxy: FakeControl) -> None:
    params = params_of("refused", server="gpu", state="OFFLINE")
    reduce(proxy.state, alert_raised("refused:gpu", params, level="error"))
    output = cli.out("alerts")
    assert "users are answered 503: gpu is OFFLINE. 5 opens Engine: `s` starts it" in output
    shown = cli.json("alerts")
    assert shown["alerts"] == [
        {
            "key": "refused:gpu",
            "level": "error",
            "at": 0.0,
            "cause": "users are answered 503: gpu is OFFLINE",
            "todo": "5 opens Engine: `s` starts it",
            "groups": [],
            "alert_kind": "refused",
            "params": {"server": "gpu", "state": "OFFLINE"},
        }
    ]


@pytest.mark.parametrize("role", ["proxy", "engine"])
def test_a_restart_without_a_process_is_an_error(cli: Cli, role: str) -> None:
    assert "runs in this home" in cli.failed(role, "restart", "--yes")


def test_a_dry_run_checks_and_sends_nothing(cli: Cli, proxy: FakeControl) -> None:
    first, second, done = proxy.state.groups
    body = cli.json("abort", "--where", "state:awaiting", "--dry-run")
    steps = [step for step in body["steps"] if "args" in step]
    assert [step["args"]["group_id"] for step in steps] == [first, second]
    assert all("episodes" in step["loses"] for step in steps)
    assert "nothing left to abort" in cli.failed("abort", done, "--dry-run")
    assert "would execute “Group: Rate”" in (out := cli.out("rate", first, "1", "--dry-run"))
    assert "dry run: nothing was changed" in out
    cli("alerts", "dismiss", "--all", "--dry-run")
    proxy.identity = Identity("anna", "viewer")
    shown = cli.failed("rate", first, "1", "--dry-run")
    assert "`group.rate` needs the role rater; anna is a viewer" in shown
    assert proxy.sent == []
