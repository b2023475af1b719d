"""A language model that plays the user of a row."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ajet_swarm.common.tasks import Tasks
from core.events import MockRowDone
from core.runtime.home import Home
from mock.dataset import Row, parse
from mock.run.pace import Pace
from mock.run.row_order import RowSelection
from mock.run.runner import Runner
from mock.tally import RunCounters
from mock.targets.openai import Patience
from mock.users.persona import STOP, UserModel, UserOptions, seed_of
from tests.unit.mock.helpers import FakeControl, Target, open_runner, serve, until

KEY = "user-secret-1234567890"


def replies(*texts: str) -> Callable[[int], Response]:
    """A model that writes these one after the other, then the last for ever."""

    def script(number: int) -> Response:
        text = texts[min(number, len(texts) - 1)]
        message = {"role": "assistant", "content": text}
        return JSONResponse({"choices": [{"message": message, "finish_reason": "stop"}]})

    return script


@pytest_asyncio.fixture
async def player() -> AsyncIterator[Target]:
    """The endpoint of the model that plays."""
    made = Target()
    async with serve(made.answer) as port:
        made.url = f"http://127.0.0.1:{port}/v1"
        yield made


@contextlib.asynccontextmanager
async def model(player: Target, **more: Any) -> AsyncIterator[UserModel]:
    options = UserOptions(**{"url": player.url, "model": "actor", "key": KEY, **more})
    made = UserModel(options)
    try:
        yield made
    finally:
        await made.close()


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return path


def results(runner: Runner) -> list[dict[str, Any]]:
    lines = runner.progress.results.read_bytes().splitlines()
    return [msgspec.json.decode(line) for line in lines]


ROW = {"id": "p1", "persona": "A hasty baker.", "goal": "Learn to proof dough.", "opening": "Hey!"}


def _parse(**row: Any) -> Row:
    return parse(3, msgspec.json.encode(row))


# --- conversations ------------------------------------------------------------------------------


async def test_a_persona_continues_until_its_goal_is_reached(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    player.script = replies("How long?", "Thanks. [END]")
    control = FakeControl()
    path = write(tmp_path / "d.jsonl", ROW | {"system": "Be brief.", "answer": "an hour"})
    async with (
        model(player) as user,
        open_runner(home, path, target.url, control=control, user=user) as runner,
    ):
        assert (await runner.run()).how == "finished"
    assert [body["messages"][-1]["content"] for body in target.bodies] == ["Hey!", "How long?"]
    assert [one["content"] for one in target.bodies[1]["messages"]] == [
        "Be brief.",
        "Hey!",
        "re: Hey!",
        "How long?",
    ]
    sessions = {headers["x-ajet-session"] for headers in target.headers}
    assert len(sessions) == 1
    assert target.row_ids == ["p1", "p1:t2"]
    assert [row["query"] for row in control.rows] == ["Hey!", "How long?"]
    assert [row["reference"] for row in control.rows] == ["an hour", None]
    assert control.rows[1]["metadata"]["goal"] == ROW["goal"]
    (result,) = results(runner)
    assert (result["query"], result["reference"]) == ("How long?", None)
    assert (result["ended"], result["error"], result["answer"]) == ("goal", "", "re: How long?")
    assert [turn["query"] for turn in result["turns"]] == ["Hey!", "How long?"]
    done = next(one for one in control.facts.values() if isinstance(one, MockRowDone))
    assert (done.ok, done.turns, done.query) == (True, 2, "Hey!")


async def test_the_model_sees_the_users_side_and_no_secret(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    player.script = replies("How long?", STOP)
    path = write(tmp_path / "d.jsonl", ROW | {"system": "HIDDEN RULES", "answer": "SECRET"})
    async with model(player) as user, open_runner(home, path, target.url, user=user) as runner:
        await runner.run()
    last = player.bodies[-1]
    assert [one["role"] for one in last["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert "A hasty baker." in last["messages"][0]["content"]
    assert "proof dough" in last["messages"][0]["content"]
    assert last["messages"][1]["content"] == "Hey!"
    assert last["messages"][2]["content"] == "re: Hey!"
    sent = repr(player.bodies)
    assert "HIDDEN RULES" not in sent
    assert "SECRET" not in sent
    assert player.headers[0]["authorization"] == f"Bearer {KEY}"
    assert player.headers[0]["x-ajet-train"] == "no"
    assert (last["model"], last["temperature"], last["max_tokens"]) == ("actor", 1.0, 1024)


async def test_without_an_opening_the_model_begins(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    player.script = replies("Good morning", STOP)
    control = FakeControl()
    path = write(tmp_path / "d.jsonl", {"persona": "A baker.", "answer": "42"})
    async with (
        model(player) as user,
        open_runner(home, path, target.url, control=control, user=user) as runner,
    ):
        assert (await runner.run()).how == "finished"
    assert [one["content"] for one in target.bodies[0]["messages"]] == ["Good morning"]
    assert [row["reference"] for row in control.rows] == ["42"]
    assert results(runner)[0]["query"] == "Good morning"


async def test_the_number_of_turns_is_limited(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    player.script = replies("And then?")
    path = write(tmp_path / "d.jsonl", ROW)
    async with (
        model(player, turns=3) as user,
        open_runner(home, path, target.url, user=user) as runner,
    ):
        await runner.run()
    assert len(target.row_ids) == 3
    assert len(player.row_ids) == 2
    assert "last message" in player.bodies[-1]["messages"][-1]["content"]
    assert results(runner)[0]["ended"] == "turns"


@pytest.mark.slow
async def test_seeds_depend_on_row_and_turn(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    player.script = replies("And then?")
    path = write(tmp_path / "d.jsonl", ROW, ROW | {"id": "p2"})
    seeds = []
    for restart in (False, True):
        async with (
            model(player, turns=3, seed=7) as user,
            open_runner(
                home,
                path,
                target.url,
                Pace(concurrency=1),
                user=user,
                restart=restart,
            ) as runner,
        ):
            await runner.run()
        seeds.append([body["seed"] for body in player.bodies])
        player.bodies.clear()
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 4
    assert seeds[0][0] == seed_of(7, "p1:2")
    assert 0 <= min(seeds[0]) < max(seeds[0]) < 2**31


async def test_without_a_seed_none_is_sent(player: Target) -> None:
    player.script = replies("And then?")
    async with model(player) as user:
        await say(user)
    assert "seed" not in player.bodies[0]


async def test_passes_are_seeded_apart(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    player.script = replies("And then?")
    path = write(tmp_path / "d.jsonl", ROW)
    async with (
        model(player, turns=2, seed=7) as user,
        open_runner(home, path, target.url, user=user, choice=RowSelection(passes=2)) as runner,
    ):
        await runner.run()
    assert len({body["seed"] for body in player.bodies}) == 2


# --- failures -----------------------------------------------------------------------------------


async def never(seconds: float) -> bool:
    await asyncio.sleep(0)
    return False


async def say(user: UserModel, rest: Any = never) -> Any:
    patience = Patience(rest=rest, seconds=0.0, counters=RunCounters())
    return await user.next_message(_parse(**ROW), (), 1, "p1", patience)


def _bare(text: Any, finish: str = "stop") -> Response:
    message = {"role": "assistant", "content": text}
    return JSONResponse({"choices": [{"message": message, "finish_reason": finish}]})


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (PlainTextResponse("oops", 500), "500: oops"),
        (PlainTextResponse("<html>hi</html>"), "not a chat completion"),
        (JSONResponse({"choices": []}), "not a chat completion"),
        (_bare(""), "empty"),
        (_bare(None), "empty"),
        (_bare("half a", "length"), "cut off"),
        (_bare("<think>what now"), "only reasoning"),
        (_bare("x" * 20_000), "20000 characters"),
        (JSONResponse({"error": {"message": f"bad key {KEY}"}}, 400), "bad key [redacted]"),
    ],
    ids=["500", "html", "none", "empty", "null", "cut", "thoughts", "long", "key"],
)
async def test_a_failure_of_the_user_model_ends_only_its_row(
    home: Home, tmp_path: Path, target: Target, player: Target, reply: Response, cause: str
) -> None:
    player.script = lambda number: reply if number == 0 else replies(STOP)(number)
    path = write(tmp_path / "d.jsonl", ROW, ROW | {"id": "p2"})
    async with (
        model(player) as user,
        open_runner(home, path, target.url, Pace(concurrency=1), user=user) as runner,
    ):
        assert (await runner.run()).how == "finished"
    assert target.row_ids == ["p1", "p2"]
    first, second = results(runner)
    assert first["error"].startswith("turn 2: the user's model failed: ")
    assert cause in first["error"]
    assert first["answer"] == ""
    assert first["turns"][0]["answer"] == "re: Hey!"
    assert "ended" not in first
    assert (second["error"], second["ended"]) == ("", "goal")
    assert KEY not in runner.progress.results.read_text()


async def test_a_busy_user_model_is_retried(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    busy = JSONResponse({"error": "later"}, 429)
    player.script = lambda number: busy if number < 2 else replies(STOP)(number)
    path = write(tmp_path / "d.jsonl", ROW)
    async with model(player) as user, open_runner(home, path, target.url, user=user) as runner:
        await runner.run()
    assert len(player.row_ids) == 3
    assert results(runner)[0]["ended"] == "goal"


@pytest.mark.parametrize("status", [401, 404])
async def test_a_refusal_from_the_start_ends_the_run_before_all_rows_are_spent(
    home: Home, tmp_path: Path, target: Target, player: Target, status: int, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    player.script = lambda number: JSONResponse({"error": f"no, {KEY}"}, status)
    path = write(tmp_path / "d.jsonl", *(ROW | {"id": f"p{n}"} for n in range(20)))
    async with (
        model(player) as user,
        open_runner(home, path, target.url, Pace(concurrency=1), user=user) as runner,
    ):
        outcome = await runner.run()
    assert outcome.how == "failed"
    assert f"the user's model refuses: {status}: no, [redacted]" in outcome.cause
    assert len(target.row_ids) == 1
    assert KEY not in caplog.text


async def test_a_later_refusal_fails_only_its_row(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    refused = JSONResponse({"error": "no"}, 401)
    player.script = lambda number: replies("And?")(0) if number == 0 else refused
    path = write(tmp_path / "d.jsonl", ROW)
    async with model(player) as user, open_runner(home, path, target.url, user=user) as runner:
        assert (await runner.run()).how == "finished"
    assert "turn 3: the user's model failed: 401: no" in results(runner)[0]["error"]


async def test_a_conversation_that_ends_before_it_begins_is_an_error(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    player.script = replies(STOP)
    path = write(tmp_path / "d.jsonl", {"persona": "A mute."})
    async with model(player) as user, open_runner(home, path, target.url, user=user) as runner:
        await runner.run()
    assert not target.row_ids
    assert "before it began" in results(runner)[0]["error"]


async def test_what_an_endpoint_refuses_by_name_is_left_out(player: Target) -> None:
    def script(number: int) -> Response:
        body = player.bodies[number]
        for name in ("max_tokens", "temperature", "seed"):
            if name in body:
                return JSONResponse({"error": {"message": f"Unsupported: '{name}'"}}, 400)
        return replies("Hello")(0)

    player.script = script
    async with model(player, seed=1) as user:
        assert (await say(user)).text == "Hello"
        assert (await say(user)).text == "Hello"
    assert len(player.bodies) == 5
    assert player.bodies[-1]["max_completion_tokens"] == 1024


async def test_a_stop_releases_the_row(
    home: Home, tmp_path: Path, target: Target, player: Target
) -> None:
    player.script = lambda number: JSONResponse({"error": "later"}, 503)
    path = write(tmp_path / "d.jsonl", ROW)
    async with (
        model(player) as user,
        open_runner(home, path, target.url, user=user) as runner,
        Tasks("test") as tasks,
    ):
        running = tasks.spawn(runner.run(), "run")
        await until(lambda: "the user's model answers 503" in runner.counters.waiting)
        runner.stop("stopped", "test")
        assert (await running).how == "stopped"
    player.script = replies(STOP)
    async with model(player) as user, open_runner(home, path, target.url, user=user) as runner:
        await runner.run()
    assert target.row_ids == ["p1", "p1"]
    assert results(runner)[0]["ended"] == "goal"


# --- rows without a model -----------------------------------------------------------------------


async def test_without_a_user_model_only_the_opening_is_asked_with_a_warning(
    home: Home, tmp_path: Path, target: Target, caplog: Any
) -> None:
    path = write(tmp_path / "d.jsonl", ROW, ROW | {"id": "p2"})
    async with open_runner(home, path, target.url) as runner:
        assert (await runner.run()).how == "finished"
    assert sorted(target.row_ids) == ["p1", "p2"]
    assert caplog.text.count("no model plays the user") == 1


async def test_without_a_user_model_and_opening_the_error_names_what_is_missing(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write(tmp_path / "d.jsonl", {"persona": "A baker."})
    async with open_runner(home, path, target.url) as runner:
        outcome = await runner.run()
    assert outcome.how == "failed"
    assert "--user-url" in outcome.cause
    assert not target.row_ids


async def test_a_persona_row_without_a_user_model_is_skipped(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write(tmp_path / "d.jsonl", ROW, {"persona": "A baker."}, ROW | {"id": "p3"})
    async with open_runner(home, path, target.url) as runner:
        assert (await runner.run()).how == "finished"
    assert sorted(target.row_ids) == ["p1", "p3"]
    assert [row.line for row in runner.bad_rows.firsts.values()] == [2]
    assert runner.counters.skipped == 1
