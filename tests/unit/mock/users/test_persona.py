"""A language model that plays the user of a row."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ajet_swarm.common.tasks import Tasks
from core.events import MockRowDone
from core.runtime.home import Home
from mock.run.pace import Outcome, Pace
from mock.run.row_order import RowSelection
from mock.run.runner import Runner
from mock.users.persona import STOP, UserModel, UserOptions, seed_of
from tests.unit.mock.helpers import FakeControl, Target, kept, open_runner, ran, serve, until

KEY = "user-secret-1234567890"


@dataclass
class Stage:
    """A folder with rows, the application, and the endpoint of the model that plays."""

    home: Home
    folder: Path
    target: Target
    player: Target
    control: FakeControl = field(default_factory=FakeControl)
    results: list[dict[str, Any]] = field(default_factory=list)
    """Of the last run."""
    """The results as they were written."""

    async def play(
        self, *rows: dict[str, Any], run: Mapping[str, Any] | None = None, **options: Any
    ) -> tuple[Outcome, Runner]:
        """Run these rows with the model; `run` goes to the runner."""
        path = write(self.folder / "d.jsonl", *rows)
        settings = {"control": self.control, "pace": Pace(concurrency=1), **(run or {})}
        async with (
            model(self.player, **options) as user,
            open_runner(self.home, path, self.target.url, user=user, **settings) as runner,
        ):
            outcome = await runner.run()
        self.results = kept(runner.progress.path)
        return outcome, runner


def reply(text: Any, finish: str = "stop") -> Response:
    message = {"role": "assistant", "content": text}
    return JSONResponse({"choices": [{"message": message, "finish_reason": finish}]})


def replies(*texts: str | Response) -> Callable[[int], Response]:
    """A model that writes these one after the other, then the last for ever."""

    def script(number: int) -> Response:
        text = texts[min(number, len(texts) - 1)]
        return reply(text) if isinstance(text, str) else text

    return script


def refusal(status: int, cause: str) -> Response:
    return JSONResponse({"error": {"message": cause}}, status)


@pytest.fixture
def stage(home: Home, tmp_path: Path, target: Target, player: Target) -> Stage:
    return Stage(home, tmp_path, target, player)


@pytest_asyncio.fixture
async def player() -> AsyncIterator[Target]:
    """The endpoint of the model that plays."""
    made = Target()
    async with serve(made.answer) as port:
        made.url = f"http://127.0.0.1:{port}/v1"
        yield made


@contextlib.asynccontextmanager
async def model(player: Target, **more: Any) -> AsyncIterator[UserModel]:
    made = UserModel(UserOptions(**{"url": player.url, "model": "actor", "key": KEY, **more}))
    try:
        yield made
    finally:
        await made.close()


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return path


ROW = {"id": "p1", "persona": "A hasty baker.", "goal": "Learn to proof dough.", "opening": "Hey!"}
OTHER = ROW | {"id": "p2"}


def said(body: Mapping[str, Any]) -> list[str]:
    return [message["content"] for message in body["messages"]]


# --- conversations ------------------------------------------------------------------------------


async def test_a_persona_continues_until_its_goal_is_reached(stage: Stage) -> None:
    stage.player.script = replies("How long?", "Thanks. [END]")
    outcome, _ = await stage.play(ROW | {"system": "Be brief.", "answer": "an hour"})
    assert outcome.how == "finished"
    assert said(stage.target.bodies[0])[-1] == "Hey!"
    assert said(stage.target.bodies[1]) == ["Be brief.", "Hey!", "re: Hey!", "How long?"]
    assert len({headers["x-ajet-session"] for headers in stage.target.headers}) == 1
    assert stage.target.row_ids == ["p1", "p1:t2"]
    rows = [(row["query"], row["reference"]) for row in stage.control.rows]
    assert rows == [("Hey!", "an hour"), ("How long?", None)]
    assert stage.control.rows[1]["metadata"]["goal"] == ROW["goal"]
    (result,) = stage.results
    assert (result["query"], result["reference"]) == ("How long?", None)
    assert (result["ended"], result["error"], result["answer"]) == ("goal", "", "re: How long?")
    assert [turn["query"] for turn in result["turns"]] == ["Hey!", "How long?"]
    (done,) = [event for event in stage.control.facts.values() if isinstance(event, MockRowDone)]
    assert (done.ok, done.turns, done.query) == (True, 2, "Hey!")


async def test_the_model_sees_the_users_side_and_no_secret(stage: Stage) -> None:
    stage.player.script = replies("How long?", STOP)
    await stage.play(ROW | {"system": "HIDDEN RULES", "answer": "SECRET"})
    last = stage.player.bodies[-1]
    roles = [message["role"] for message in last["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert "A hasty baker." in said(last)[0]
    assert "proof dough" in said(last)[0]
    assert said(last)[1:3] == ["Hey!", "re: Hey!"]
    sent = repr(stage.player.bodies)
    assert "HIDDEN RULES" not in sent
    assert "SECRET" not in sent
    assert stage.player.headers[0]["authorization"] == f"Bearer {KEY}"
    assert stage.player.headers[0]["x-ajet-train"] == "no"
    assert (last["model"], last["temperature"], last["max_tokens"]) == ("actor", 1.0, 1024)
    assert "seed" not in last


async def test_without_an_opening_the_model_begins(stage: Stage) -> None:
    stage.player.script = replies("Good morning", STOP)
    await stage.play({"persona": "A baker.", "answer": "42"})
    assert said(stage.target.bodies[0]) == ["Good morning"]
    assert [row["reference"] for row in stage.control.rows] == ["42"]
    assert stage.results[0]["query"] == "Good morning"


async def test_the_number_of_turns_is_limited(stage: Stage) -> None:
    stage.player.script = replies("And then?")
    await stage.play(ROW, turns=3)
    assert (len(stage.target.row_ids), len(stage.player.row_ids)) == (3, 2)
    assert "last message" in said(stage.player.bodies[-1])[-1]
    assert stage.results[0]["ended"] == "turns"


@pytest.mark.slow
async def test_seeds_depend_on_row_turn_and_pass(stage: Stage) -> None:
    stage.player.script = replies("And then?")
    seeds = []
    for restart in (False, True):
        run = {"restart": restart, "choice": RowSelection(passes=2)}
        await stage.play(ROW, OTHER, run=run, turns=3, seed=7)
        seeds.append([body["seed"] for body in stage.player.bodies])
        stage.player.bodies.clear()
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 8
    assert seeds[0][0] == seed_of(7, "p1:2")
    assert 0 <= min(seeds[0]) < max(seeds[0]) < 2**31


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (PlainTextResponse("oops", 500), "500: oops"),
        (PlainTextResponse("<html>hi</html>"), "not a chat completion"),
        (JSONResponse({"choices": []}), "not a chat completion"),
        (reply(""), "empty"),
        (reply(None), "empty"),
        (reply("half a", "length"), "cut off"),
        (reply("<think>what now"), "only reasoning"),
        (reply("x" * 20_000), "20000 characters"),
        (refusal(400, f"bad key {KEY}"), "bad key [redacted]"),
    ],
    ids=["500", "html", "none", "empty", "null", "cut", "thoughts", "long", "key"],
)
async def test_a_failure_of_the_user_model_ends_only_its_row(
    stage: Stage, answer: Response, cause: str
) -> None:
    stage.player.script = replies(answer, STOP)
    assert (await stage.play(ROW, OTHER))[0].how == "finished"
    assert stage.target.row_ids == ["p1", "p2"]
    first, second = stage.results
    assert first["error"].startswith("turn 2: the user's model failed: ")
    assert cause in first["error"]
    assert first["answer"] == ""
    assert first["turns"][0]["answer"] == "re: Hey!"
    assert "ended" not in first
    assert (second["error"], second["ended"]) == ("", "goal")
    assert KEY not in str(stage.results)


async def test_a_busy_user_model_is_retried(stage: Stage) -> None:
    busy = refusal(429, "later")
    stage.player.script = replies(busy, busy, STOP)
    await stage.play(ROW)
    assert len(stage.player.row_ids) == 3
    assert stage.results[0]["ended"] == "goal"


@pytest.mark.parametrize("status", [401, 404])
async def test_a_refusal_from_the_start_ends_the_run_before_all_rows_are_spent(
    stage: Stage, status: int, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    stage.player.script = replies(refusal(status, f"no, {KEY}"))
    outcome, _ = await stage.play(*(ROW | {"id": f"p{number}"} for number in range(20)))
    assert outcome.how == "failed"
    assert f"the user's model refuses: {status}: no, [redacted]" in outcome.cause
    assert len(stage.target.row_ids) == 1
    assert KEY not in caplog.text


async def test_a_later_refusal_fails_only_its_row(stage: Stage) -> None:
    stage.player.script = replies("And?", refusal(401, "no"))
    assert (await stage.play(ROW))[0].how == "finished"
    assert "turn 3: the user's model failed: 401: no" in stage.results[0]["error"]


async def test_a_conversation_that_ends_before_it_begins_is_an_error(stage: Stage) -> None:
    stage.player.script = replies(STOP)
    await stage.play({"persona": "A mute."})
    assert not stage.target.row_ids
    assert "before it began" in stage.results[0]["error"]


async def test_what_an_endpoint_refuses_by_name_is_left_out(stage: Stage) -> None:
    def script(number: int) -> Response:
        body = stage.player.bodies[number]
        for name in ("max_tokens", "temperature", "seed"):
            if name in body:
                return refusal(400, f"Unsupported: '{name}'")
        return reply("Hello")

    stage.player.script = script
    await stage.play(ROW, seed=1, turns=3)
    assert [turn["query"] for turn in stage.results[0]["turns"]] == ["Hey!", "Hello", "Hello"]
    assert len(stage.player.bodies) == 5
    assert stage.player.bodies[-1]["max_completion_tokens"] == 1024


async def test_a_stop_releases_the_row(stage: Stage) -> None:
    stage.player.script = replies(refusal(503, "later"))
    path = write(stage.folder / "d.jsonl", ROW)
    async with (
        model(stage.player) as user,
        open_runner(stage.home, path, stage.target.url, user=user) as runner,
        Tasks("test") as tasks,
    ):
        running = tasks.spawn(runner.run(), "run")
        await until(lambda: "the user's model answers 503" in runner.counters.waiting)
        runner.stop("stopped", "test")
        assert (await running).how == "stopped"
    stage.player.script = replies(STOP)
    await stage.play(ROW)
    assert stage.target.row_ids == ["p1", "p1"]
    assert stage.results[0]["ended"] == "goal"


# --- rows without a model -----------------------------------------------------------------------


async def test_without_a_user_model_only_the_opening_is_asked_with_a_warning(
    home: Home, tmp_path: Path, target: Target, caplog: Any
) -> None:
    path = write(tmp_path / "d.jsonl", ROW, ROW | {"id": "p2"})
    _, outcome = await ran(home, path, target.url)
    assert outcome.how == "finished"
    assert sorted(target.row_ids) == ["p1", "p2"]
    assert caplog.text.count("no model plays the user") == 1


async def test_without_a_user_model_and_opening_the_error_names_what_is_missing(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write(tmp_path / "d.jsonl", {"persona": "A baker."})
    _, outcome = await ran(home, path, target.url)
    assert outcome.how == "failed"
    assert "--user-url" in outcome.cause
    assert not target.row_ids


async def test_a_persona_row_without_a_user_model_is_skipped(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write(tmp_path / "d.jsonl", ROW, {"persona": "A baker."}, ROW | {"id": "p3"})
    runner, outcome = await ran(home, path, target.url)
    assert outcome.how == "finished"
    assert sorted(target.row_ids) == ["p1", "p3"]
    assert [row.line for row in runner.bad_rows.firsts.values()] == [2]
    assert runner.counters.skipped == 1
