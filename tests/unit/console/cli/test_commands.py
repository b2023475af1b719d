"""Commands that send requests to a proxy's control API or to a swarm server."""

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from console.cli import main
from console.session.rater_name import save_name
from core.control_payloads import JobInfo
from core.events.causes import TooFewAnswers
from core.events.server import PoolChanged
from core.runtime.home import Home, Role
from core.runtime.sockets import bind
from core.state import Candidate, Group, Mock, Progress, Rating, Server, State
from tests.support.commands.cli import Cli, missing
from tests.support.pty.text import TerminalText
from tests.support.served import QuickServer

pytestmark = pytest.mark.slow


@dataclass
class World:
    """A proxy and a swarm server on one port, as the commands see them."""

    url: str = ""
    token: str = ""
    state: State = field(default_factory=State)
    orders: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    refusal: dict[str, str] | None = None
    engine: str = "OFFLINE"
    jobs: list[str] = field(default_factory=list)
    claimed: list[str] = field(default_factory=list)
    """The client of each claimed episode."""

    async def snapshot(self, request: Request) -> Response:
        if denied := self._denied(request):
            return denied
        return Response(msgspec.json.encode({"seq": 0, "state": self.state}))

    async def order(self, request: Request) -> Response:
        if denied := self._denied(request):
            return denied
        if self.refusal is not None:
            return JSONResponse({"error": self.refusal}, 409)
        name = request.path_params["name"]
        self.orders.append((name, json.loads(await request.body())))
        return JSONResponse({"ok": True, "message": f"{name} is done", "result": {}})

    def _denied(self, request: Request) -> Response | None:
        if request.headers.get("authorization") == f"Bearer {self.token}":
            return None
        error = {"message": "the token is wrong", "where": "", "todo": "Give --token-file"}
        return JSONResponse({"error": error}, 401)

    def pool(self) -> object:
        return {
            "engine_status": f"ENGINE.{self.engine}",
            "sample_collection_method": "rollout_until_finish_enough_tasks",
            "completed_tasks": 1,
            "completed_task_target": 4,
            "completed_episodes": 5,
            "completed_episode_target": 16,
            "task_expected_num_repeat": 4,
        }

    def buffer(self) -> object:
        free = {"episode_uuid": "free", "episode_status": "registered", "client_uuid": ""}
        claimed = [
            {"episode_uuid": f"e{n}", "episode_status": "claimed", "client_uuid": client}
            for n, client in enumerate(self.claimed)
        ]
        return {"buffer": [*claimed, free]}

    def turn(self, engine: str) -> object:
        self.engine = engine
        return {"success": True, "pid": 1}

    async def sheet(self, request: Request) -> Response:
        return Response(msgspec.json.encode(JobInfo(server=request.path_params["name"])))

    async def job(self, request: Request) -> Response:
        self.jobs.append(json.loads(await request.body())["yaml_as_string"])
        return JSONResponse({"success": True})

    def app(self) -> Starlette:
        """Both of them."""

        def route(path: str, answer: Callable[[], object], method: str = "GET") -> Route:
            async def handler(_: Request) -> Response:
                return JSONResponse(answer())

            return Route(path, handler, methods=[method])

        return Starlette(
            routes=[
                Route("/control/snapshot", self.snapshot),
                Route("/control/job/{name:path}", self.sheet),
                Route("/control/commands/{name}", self.order, methods=["POST"]),
                Route("/sync_train_config", self.job, methods=["POST"]),
                route("/openapi.json", lambda: {"paths": {"/ajetc/info": {}}}),
                route(
                    "/get_engine_status",
                    lambda: {"engine_status": f"ENGINE.{self.engine}", "global_step": 3},
                ),
                route("/get_current_batch_rollout_pool_information", self.pool),
                route("/get_episode_buffer", self.buffer, "POST"),
                route("/start_engine", lambda: self.turn("BOOTING"), "POST"),
                route("/stop_engine", lambda: self.turn("OFFLINE"), "POST"),
            ]
        )


@pytest.fixture
def world(home: Home) -> Iterator[World]:
    """Serves in a thread: a command has an event loop of its own."""
    made = World(token=home.token())
    listener = bind("127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        made.app(), log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    server = QuickServer(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield made
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()


@pytest.fixture
def proxied(world: World, home: Home) -> Iterator[World]:
    """The world's proxy is the home's own."""
    with Role(home, "proxy") as role:
        role.publish(url=world.url)
        yield world


def _group(group_id: str = "g1", **more: Any) -> Group:
    candidates = [Candidate(index=n, phase="answered", episode_uuid=f"ep-{n}") for n in range(4)]
    facts = {"request_id": "r", "server": "gpu", "task_id": "t", "n": 4, "query": "Where is Paris?"}
    phase = {"opened_at": 0.0, "phase": "AWAITING_RATING", "candidates": candidates}
    return Group(**{"group_id": group_id, **facts, **phase, **more})


@pytest.fixture
def two_groups(proxied: World) -> World:
    """One group without a rating and one that is rated."""
    rated = _group("g2", rating=Rating(rating="tie"))
    proxied.state.groups = {"g1": _group("g1"), "g2": rated}
    return proxied


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
                    "order": [2, 0, 1, 3],
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
    cli: Cli, proxied: World, argv: list[str], order: tuple[str, dict[str, Any]]
) -> None:
    assert cli.out(*argv) == f"{order[0]} is done\n"
    assert proxied.orders == [order]


def test_a_leased_group_is_rated_from_the_same_command_line(proxied: World) -> None:
    assert main(["group", "lease", "g1"]) == 0
    assert main(["rate", "g1", "2"]) == 0
    lease, vote = (args for _, args in proxied.orders)
    assert lease["holder"] == vote["holder"] != ""


def test_abort_all_needs_confirmation(cli: Cli, two_groups: World) -> None:
    assert "1 group without a rating, 4 episodes" in cli.refused("rating", "abort-all")
    assert two_groups.orders == []


@pytest.mark.parametrize(("answer", "sent"), [("n\n", 0), ("y\n", 1)])
def test_accept_all_on_a_terminal_shows_the_number_and_asks(
    cli: Cli, answer: str, sent: int, two_groups: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TerminalText(answer))
    shown = cli.err("rating", "accept-all", code=1 - sent)
    assert "rewards of 2 groups waiting for a rating (1 rated" in shown
    assert len(two_groups.orders) == sent


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
    proxied: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[object] = []
    monkeypatch.setattr("mock.user_requests.run", lambda *args, **_: runs.append(args) or 0)
    proxied.state.servers["gpu"] = Server(name="gpu", url=proxied.url, state="ROLLING")
    proxied.state.progress["gpu"] = Progress(paused="paused by the operator")
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
    proxied.state.progress["gpu"].paused = ""
    cli("run", "mock")


def test_a_rating_carries_the_stored_rater_name(proxied: World, home: Home) -> None:
    save_name(home, "cleo")
    assert main(["rate", "g1", "2"]) == 0
    assert proxied.orders[0][1]["rater"] == "cleo"


def test_url_and_token_file_choose_another_proxy(
    cli: Cli, world: World, home: Home, tmp_path: Any
) -> None:
    file = tmp_path / "token"
    file.write_text("wrong\n")
    argv = ["accept", "g1", "--url", world.url + "/v1", "--token-file", str(file)]
    assert "the token is wrong. Give --token-file" in cli.failed(*argv)
    file.write_text(home.token())
    cli(*argv)
    assert world.orders == [("group.accept", {"group_id": "g1"})]


def test_a_refusal_is_printed_as_the_proxy_words_it(cli: Cli, proxied: World) -> None:
    proxied.refusal = {"message": "the group is over", "where": "group g1", "todo": ""}
    assert cli.failed("accept", "g1") == "ajet-console: group g1: the group is over\n"


def test_an_abort_shows_the_loss_and_needs_confirmation(cli: Cli, proxied: World) -> None:
    proxied.state.servers["gpu"] = Server(name="gpu", url=proxied.url, state="ROLLING_POST")
    proxied.state.groups["g1"] = _group(rating=Rating(rating="best"))
    shown = cli.refused("abort", "g")
    assert not missing(shown, "4 episodes: they are deleted", "Its rating is dropped", "--yes")
    assert proxied.orders == []


def test_a_stop_shows_the_loss_and_needs_confirmation(cli: Cli, proxied: World) -> None:
    proxied.engine = "ROLLING"
    pool = PoolChanged(running=5, running_others=3, other_clients=("a", "b"), completed_tasks=2)
    proxied.state.servers["gpu"] = Server(name="gpu", url=proxied.url, state="ROLLING", pool=pool)
    proxied.state.groups["g1"] = _group()
    shown = cli.refused("engine", "stop")
    assert "2 claimed episodes of yours are lost. 3 episodes of 2 other clients are lost." in shown
    assert "The pool of this step is discarded: 2 tasks." in shown
    assert "1 open group of yours is given up, 1 of them unrated." in shown
    assert proxied.orders == []


def test_an_engine_is_started_and_stopped_without_a_proxy(cli: Cli, world: World) -> None:
    server = ["--swarm-url", f"gpu={world.url}"]
    cli("engine", "start", *server, "--preset", "hand", "--no-wait")
    assert "train_batch_size: 1" in world.jobs[0]
    assert "BOOTING, not OFFLINE" in cli.failed("engine", "start", *server, "--preset", "hand")
    assert "BOOTING already" in cli.out("engine", "start", *server)
    cli("engine", "stop", *server, code=2)
    assert world.engine == "BOOTING"
    cli("engine", "stop", *server, "--yes")
    assert world.engine == "OFFLINE"


def test_the_embedded_engine_of_the_home_is_found(world: World, home: Home) -> None:
    with Role(home, "engine") as role:
        role.publish(url=world.url)
        assert main(["engine", "start", "--no-wait"]) == 0
    assert world.engine == "BOOTING"


def test_status_counts_claimed_episodes(cli: Cli, proxied: World) -> None:
    proxied.engine = "ROLLING"
    proxied.claimed = ["us", "other"]
    state = proxied.state
    state.client_uuid, state.proxy_pid = "us", 42
    state.servers["gpu"] = Server(name="gpu", url=proxied.url, state="ROLLING", step=3)
    state.groups["g1"] = _group(until=1.0)
    state.groups["g2"] = _group("g2", until=1.0, rating=Rating(rating="best"))
    state.mock = Mock(mock_id="m", dataset="d.jsonl", target="t", total=9, done=2, phase="paused")
    data = cli.json("status")
    server = data["servers"][0]
    assert (server["state"], server["step"]) == ("ROLLING", 3)
    assert (server["claimed"], server["claimed_by_proxy"]) == (2, 1)
    assert server["pool"]["task_target"] == 4
    assert data["proxy"]["mock"]["done"] == 2
    assert data["proxy"]["waiting"][0]["group_id"] == "g1"
    text = cli.out("status")
    assert f"gpu  {proxied.url}  ROLLING  step 3  1/4 tasks  5/16 episodes  2 claimed" in text
    assert "paused (no process here)  2/9 rows" in text
    assert "1 waiting, 1 user waits for a rating" in text
    assert re.search(r"g1  user waits \d+ s", text)


def test_status_lists_short_groups_with_their_causes(cli: Cli, proxied: World) -> None:
    cause = "short: 3 of 4 candidates answered; candidate 1 failed: x (no time is left)"
    for number in range(7):
        group = _group(until=None)
        group.group_id, group.phase, group.cause = f"g{number}", "DONE", cause if number else ""
        group.cause_kind = TooFewAnswers.kind if number else ""
        proxied.state.groups[group.group_id] = group
    data = cli.json("status")
    assert [group["group_id"] for group in data["short"]] == ["g2", "g3", "g4", "g5", "g6"]
    short = {"group_id": "g2", "phase": "DONE", "weights": "gpu/-/-", "cause": cause}
    assert data["short"][0].items() >= short.items()
    assert f"short    g6  {cause}" in cli.out("status")


def test_an_unknown_engine_state_is_shown_unchanged(cli: Cli, world: World) -> None:
    world.engine = "DREAMING\x1b[31m"
    text = cli.out("status", "--swarm-url", world.url)
    assert "unknown (ENGINE.DREAMING" in text
    assert "\x1b" not in text
