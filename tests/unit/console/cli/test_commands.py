"""Commands that are sent to the proxy, and what `status` reads of it and of the servers."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from console.cli import main
from console.session.rater_name import save_name
from core.events import GroupRated
from core.events.causes import TooFewAnswers
from core.events.server import PoolChanged
from core.runtime.home import Home, Role
from core.state import Mock, Progress, Server
from tests.support.checks import missing
from tests.support.commands.cli import AsyncCli, Cli
from tests.support.commands.control import FakeControl
from tests.support.groups import group
from tests.support.pty.text import TerminalText
from tests.support.sample import group_events, state_of
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow
URL = "http://127.0.0.1:9"


@pytest.fixture
def rated(proxy: FakeControl) -> FakeControl:
    """A proxy with a group without a rating and a rated one."""
    proxy.state = state_of(
        *group_events(1, until="AWAITING_RATING", server="gpu"),
        *group_events(2, until="AWAITING_RATING", server="gpu"),
        GroupRated(group_id="g0002", rating="tie", rewards=(0.5,) * 4),
    )
    return proxy


@pytest.mark.parametrize(
    ("argv", "order"),
    [
        (["accept", "g1"], ("group.accept", {"group_id": "g1"})),
        (["rating", "accept-all"], ("rating.accept_all", {})),
        (
            ["rating", "accept-all", "--yes", "--server", "gpu"],
            ("rating.accept_all", {"server": "gpu"}),
        ),
        (
            ["rating", "abort-all", "--yes", "--server", "gpu", "--reason", "debugging"],
            ("rating.abort_all", {"server": "gpu", "reason": "debugging"}),
        ),
        (["rating", "mode", "hold"], ("rating.mode", {"mode": "hold"})),
        (["mock", "stop"], ("mock.stop", {})),
        (["engine", "start", "--preset", "hand"], ("engine.start", {"preset": "hand"})),
        (["engine", "stop", "--server", "gpu", "--yes"], ("engine.stop", {"server": "gpu"})),
        (
            ["abort", "g1", "--yes", "--reason", "debugging"],
            ("group.abort", {"group_id": "g1", "reason": "debugging"}),
        ),
        (
            ["rate", "g1", "3", "1", "2", "4", "--rater=ann", "--holder=c", "--note=why"],
            (
                "group.rate",
                {
                    "group_id": "g1",
                    "rating": "ranking",
                    "order": (2, 0, 1, 3),
                    "rater": "ann",
                    "note": "why",
                    "holder": "c",
                },
            ),
        ),
        (["rate", "g1", "--undo"], ("group.unrate", {"group_id": "g1"})),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_goes_to_the_proxy_of_the_home(
    cli: Cli, proxy: FakeControl, argv: list[str], order: tuple[str, dict[str, Any]]
) -> None:
    assert (cli.out(*argv), proxy.sent) == (f"{order[0]} is done\n", [order])


def test_a_leased_group_is_rated_from_the_same_command_line(proxy: FakeControl) -> None:
    assert main(["group", "lease", "g1"]) == main(["rate", "g1", "2"]) == 0
    lease, vote = (args for _, args in proxy.sent)
    assert lease["holder"] == vote["holder"] != ""


def test_abort_all_needs_confirmation(cli: Cli, rated: FakeControl) -> None:
    assert "1 group without a rating, 4 episodes" in cli.refused("rating", "abort-all")
    assert rated.sent == []


@pytest.mark.parametrize(("answer", "sent"), [("n\n", 0), ("y\n", 1)])
def test_accept_all_on_a_terminal_shows_the_number_and_asks(
    cli: Cli, answer: str, sent: int, rated: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TerminalText(answer))
    shown = cli.err("rating", "accept-all", code=1 - sent)
    assert "rewards of 2 groups waiting for a rating (1 rated" in shown
    assert len(rated.sent) == sent


@pytest.mark.parametrize(
    ("words", "answer", "code", "started"),
    [
        ([], None, 2, False),
        ([], "n\n", 1, False),
        ([], "y\n", 0, True),
        (["--yes"], None, 0, True),
        (["--dry-run"], None, 0, False),
    ],
)
def test_the_mock_user_asks_while_training_is_paused(
    cli: Cli,
    words: list[str],
    answer: str | None,
    code: int,
    started: bool,
    proxy: FakeControl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[object] = []
    monkeypatch.setattr("mock.user_requests.run", lambda *args, **_: runs.append(args) or 0)
    proxy.state.servers["gpu"] = Server(name="gpu", url=URL, state="ROLLING")
    proxy.state.progress["gpu"] = Progress(paused="paused by the operator")
    if answer is not None:
        monkeypatch.setattr(sys, "stdin", TerminalText(answer))
    out, err = cli.run("run", "mock", *words, code=code)
    assert bool(runs) == started
    if words != ["--yes"]:
        assert "the training on its rows, which a later start does not repeat" in out + err
    if not words:
        assert "training on gpu is paused by the operator" in err
    if code == 2:
        assert "Add --yes to do it, or resume it first: `ajet-console progress resume" in err
    proxy.state.progress["gpu"].paused = ""
    cli("run", "mock")


def test_a_rating_carries_the_stored_rater_name(proxy: FakeControl, home: Home) -> None:
    save_name(home, "cleo")
    assert main(["rate", "g1", "2"]) == 0
    assert proxy.sent[0][1]["rater"] == "cleo"


def test_url_and_token_file_choose_another_proxy(
    cli: Cli, proxy: FakeControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    connect = "proxy.control.client.ControlClient"
    monkeypatch.setattr(connect, lambda *args, **_: asked.append(args[:2]) or proxy)
    (tmp_path / "token").write_text("theirs\n")
    cli("accept", "g1", "--url", f"{URL}/v1", "--token-file", tmp_path / "token")
    assert asked == [(URL, "theirs")]


def test_a_refusal_is_printed_as_the_proxy_words_it(cli: Cli, proxy: FakeControl) -> None:
    proxy.refused = {"g1": AjetError("the group is over", "group g1")}
    assert cli.failed("accept", "g1") == "ajet-console: group g1: the group is over\n"


def test_an_abort_and_a_stop_show_the_loss_and_need_confirmation(
    cli: Cli, rated: FakeControl
) -> None:
    rated.state.servers = {"gpu": Server(name="gpu", url=URL, state="ROLLING_POST")}
    shown = cli.refused("abort", "g0002")
    assert not missing(shown, "4 episodes: they are deleted", "Its rating is dropped", "--yes")
    pool = PoolChanged(running=10, running_others=3, other_clients=("a", "b"), completed_tasks=2)
    rated.state.servers = {"gpu": Server(name="gpu", url=URL, state="ROLLING", pool=pool)}
    shown = cli.refused("engine", "stop")
    assert "7 claimed episodes of yours are lost. 3 episodes of 2 other clients are lost." in shown
    assert "The pool of this step is discarded: 2 tasks." in shown
    assert "2 open groups of yours are given up, 1 of them unrated." in shown
    assert rated.sent == []


async def test_the_embedded_engine_of_the_home_is_found(async_cli: AsyncCli, home: Home) -> None:
    async with ScriptedSwarm(state="OFFLINE") as swarm:
        with Role(home, "engine") as role:
            role.publish(url=swarm.url)
            shown = await async_cli.failed("engine", "start", "--yes")
    assert "embedded: send the job" in shown, "which is one that no AgentJet server takes"


async def test_status_counts_claimed_episodes(async_cli: AsyncCli, rated: FakeControl) -> None:
    state = rated.state
    state.client_uuid, state.proxy_pid = "us", 42
    state.mock = Mock(mock_id="m", dataset="d.jsonl", target="t", total=9, done=2, phase="paused")
    for waits in state.groups.values():
        waits.until, waits.awaiting, waits.waited = 1.0, "hold", None
    async with ScriptedSwarm(state="ROLLING") as swarm:
        for client in ("us", "other"):
            swarm.claim(
                {"client_uuid": client, "episode_type": "train", "discard_episode_timeout": 60}
            )
        state.servers = {"gpu": Server(name="gpu", url=swarm.url, state="ROLLING", step=3)}
        data, text = await async_cli.json("status"), await async_cli.out("status")
    server = data["servers"][0]
    assert (server["state"], server["claimed"], server["claimed_by_proxy"]) == ("ROLLING", 2, 1)
    assert re.search(
        rf"gpu  {swarm.url}  ROLLING  step \d  0/\d+ tasks  0/\d+ episodes  2 cl", text
    )
    assert data["proxy"]["mock"]["done"] == 2
    assert data["proxy"]["waiting"][0]["group_id"] == "g0001"
    assert not missing(text, "paused (no process here)  2/9 rows", "1 waiting, 1 user waits for")
    assert re.search(r"g0001  user waits \d+ s", text)


def test_status_lists_short_groups_with_their_causes(cli: Cli, proxy: FakeControl) -> None:
    cause = "short: 3 of 4 candidates answered; candidate 1 failed: x (no time is left)"
    for number in range(7):
        short = group(number, until="DONE", server="gpu")
        short.group_id, short.cause = f"g{number}", cause if number else ""
        short.cause_kind = TooFewAnswers.kind if number else ""
        proxy.state.groups[short.group_id] = short
    data = cli.json("status")
    assert [group["group_id"] for group in data["short"]] == ["g2", "g3", "g4", "g5", "g6"]
    assert data["short"][0].items() >= {"group_id": "g2", "phase": "DONE", "cause": cause}.items()
    assert f"short    g6  {cause}" in cli.out("status")


async def test_an_unknown_engine_state_is_shown_unchanged(async_cli: AsyncCli, home: Home) -> None:
    async with ScriptedSwarm(state="DREAMING\x1b[31m") as swarm:
        text = await async_cli.out("status", "--swarm-url", swarm.url)
    assert "unknown (ENGINE.DREAMING" in text
    assert "\x1b" not in text
