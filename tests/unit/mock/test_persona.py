"""A language model that plays the user of a row."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ajet_swarm.common.errors import UsageError
from ajet_swarm.data.records import RowError
from ajet_swarm.protocol.errors import DatasetError
from core.events import MockRowDone
from core.runtime.home import Home
from core.runtime.secrets import env_key
from mock.dataset import Columns, Row
from mock.dataset.rows import Turn, side_of
from mock.run.pace import Outcome, Pace
from mock.run.row_order import RowSelection
from mock.run.runner import Runner
from mock.users.persona import (
    STOP,
    ConversationEnd,
    UserModel,
    UserOptions,
    parse_message,
    prompt,
    seed_of,
)
from tests.unit.mock.helpers import Stage, Target, parse, serving, until

KEY = "user-secret-1234567890"


@dataclass
class PlayedStage(Stage):
    """A stage with a model that plays the user."""

    player: Target = field(default_factory=Target)

    async def play(
        self, *rows: dict[str, Any], run: Mapping[str, Any] | None = None, **options: Any
    ) -> tuple[Outcome, Runner]:
        """Run these rows with the model; `run` goes to the runner."""
        settings = {"pace": Pace(concurrency=1), **(run or {})}
        async with model(self.player, **options) as user:
            runner, outcome = await self.run(self.write(*rows), user=user, **settings)
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
async def stage(home: Home, tmp_path: Path, target: Target) -> AsyncIterator[PlayedStage]:
    async with serving() as player:
        yield PlayedStage(home, tmp_path, target, player=player)


@contextlib.asynccontextmanager
async def model(player: Target, **more: Any) -> AsyncIterator[UserModel]:
    made = UserModel(UserOptions(**{"url": player.url, "model": "actor", "key": KEY, **more}))
    try:
        yield made
    finally:
        await made.close()


ROW = {"id": "p1", "persona": "A hasty baker.", "goal": "Learn to proof dough.", "opening": "Hey!"}
OTHER = ROW | {"id": "p2"}


def said(body: Mapping[str, Any]) -> list[str]:
    return [message["content"] for message in body["messages"]]


# --- conversations ------------------------------------------------------------------------------


async def test_a_persona_continues_until_its_goal_is_reached(stage: PlayedStage) -> None:
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


async def test_the_model_sees_the_users_side_and_no_secret(stage: PlayedStage) -> None:
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


async def test_without_an_opening_the_model_begins(stage: PlayedStage) -> None:
    stage.player.script = replies("Good morning", STOP)
    await stage.play({"persona": "A baker.", "answer": "42"})
    assert said(stage.target.bodies[0]) == ["Good morning"]
    assert [row["reference"] for row in stage.control.rows] == ["42"]
    assert stage.results[0]["query"] == "Good morning"


async def test_the_number_of_turns_is_limited(stage: PlayedStage) -> None:
    stage.player.script = replies("And then?")
    await stage.play(ROW, turns=3)
    assert (len(stage.target.row_ids), len(stage.player.row_ids)) == (3, 2)
    assert "last message" in said(stage.player.bodies[-1])[-1]
    assert stage.results[0]["ended"] == "turns"


@pytest.mark.slow
async def test_seeds_depend_on_row_turn_and_pass(stage: PlayedStage) -> None:
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
    stage: PlayedStage, answer: Response, cause: str
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


async def test_a_busy_user_model_is_retried(stage: PlayedStage) -> None:
    busy = refusal(429, "later")
    stage.player.script = replies(busy, busy, STOP)
    await stage.play(ROW)
    assert len(stage.player.row_ids) == 3
    assert stage.results[0]["ended"] == "goal"


@pytest.mark.parametrize("status", [401, 404])
async def test_a_refusal_from_the_start_ends_the_run_before_all_rows_are_spent(
    stage: PlayedStage, status: int, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    stage.player.script = replies(refusal(status, f"no, {KEY}"))
    outcome, _ = await stage.play(*(ROW | {"id": f"p{number}"} for number in range(20)))
    assert outcome.how == "failed"
    assert f"the user's model refuses: {status}: no, [redacted]" in outcome.cause
    assert len(stage.target.row_ids) == 1
    assert KEY not in caplog.text


async def test_a_later_refusal_fails_only_its_row(stage: PlayedStage) -> None:
    stage.player.script = replies("And?", refusal(401, "no"))
    assert (await stage.play(ROW))[0].how == "finished"
    assert "turn 3: the user's model failed: 401: no" in stage.results[0]["error"]


async def test_a_conversation_that_ends_before_it_begins_is_an_error(stage: PlayedStage) -> None:
    stage.player.script = replies(STOP)
    await stage.play({"persona": "A mute."})
    assert not stage.target.row_ids
    assert "before it began" in stage.results[0]["error"]


async def test_what_an_endpoint_refuses_by_name_is_left_out(stage: PlayedStage) -> None:
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


async def test_a_stop_releases_the_row(stage: PlayedStage) -> None:
    stage.player.script = replies(refusal(503, "later"))
    async with (
        model(stage.player) as user,
        stage.begun(stage.write(ROW), control=None, user=user) as (runner, running),
    ):
        await until(lambda: "the user's model answers 503" in runner.counters.waiting)
        runner.stop("stopped", "test")
        assert (await running).how == "stopped"
    stage.player.script = replies(STOP)
    await stage.play(ROW)
    assert stage.target.row_ids == ["p1", "p1"]
    assert stage.results[0]["ended"] == "goal"


# --- rows without a model -----------------------------------------------------------------------


async def test_without_a_user_model_only_openings_are_asked(
    stage: PlayedStage, caplog: Any
) -> None:
    bare = {"persona": "A baker."}
    runner, outcome = await stage.run(stage.write(ROW, bare, ROW | {"id": "p3"}), control=None)
    assert outcome.how == "finished"
    assert sorted(stage.target.row_ids) == ["p1", "p3"]
    assert [row.line for row in runner.bad_rows.firsts.values()] == [2]
    assert runner.counters.skipped == 1
    assert caplog.text.count("rows have a persona, but no model plays the user") == 1
    stage.target.row_ids.clear()
    _, outcome = await stage.run(stage.write(bare), control=None)
    assert (outcome.how, "--user-url" in outcome.cause) == ("failed", True)
    assert not stage.target.row_ids


def _parse(**row: Any) -> Row:
    return parse(3, msgspec.json.encode(row))


def test_rows() -> None:
    row = _parse(**ROW)
    assert (row.persona, row.goal, row.query) == (ROW["persona"], ROW["goal"], "Hey!")
    assert _parse(persona="x", query="q", opening="o").query == "q"
    assert _parse(query="q", goal="g").goal == ""
    assert _parse(query="q", persona={"name": "x"}).persona == ""
    greeted = _parse(persona="x", messages=[{"role": "assistant", "content": "Can I help?"}])
    assert greeted.messages[-1]["content"] == "Can I help?"
    assert greeted.reference is None
    with pytest.raises(RowError, match="exclude"):
        _parse(persona="x", turns=["a"])
    with pytest.raises(RowError, match="no query"):
        _parse(opening="no persona")
    sides = {side_of(_parse(persona="x", goal=f"{n}"), 0.5) for n in range(50)}
    assert sides == {"train", "held-out"}


def test_columns() -> None:
    Columns().check(dict.fromkeys(["persona", "goal"]), "")
    Columns({"persona": "who"}).check({"who": "a cook"}, "")
    with pytest.raises(DatasetError):
        Columns().check({"goal": ""}, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Hi there \n", Turn(query="Hi there")),
        ("Bye! [END]", ConversationEnd(how="goal")),
        ("<think>[END]?</think>\nNo, more.", Turn(query="No, more.")),
        ("Am I done? [END]?\n</think>\n\nNo, more.", Turn(query="No, more.")),
        ("[end]", Turn(query="[end]")),
    ],
)
def test_messages_of_the_user_model_are_parsed(text: str, expected: Turn | ConversationEnd) -> None:
    assert parse_message(text, STOP) == expected


def test_the_prompt_exchanges_the_roles() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "Hello, I am"},
        {"role": "assistant", "content": "a bot"},
        {"role": "user", "content": [{"type": "text", "text": "hm"}]},
        {"role": "tool", "content": "data"},
    ]
    result = prompt(_parse(**ROW), messages, STOP, 5)
    assert [message["role"] for message in result] == ["user", "assistant", "user"]
    assert result[0]["content"].endswith("Hello, I am\n\na bot")
    assert "data" not in repr(result)


def test_keys_come_from_the_environment_and_are_not_repeated() -> None:
    assert env_key("K", "the key", {"K": f" {KEY} "}) == KEY
    for name, held in (("K", ""), ("K", "sk-xxx"), ("K", "a b"), (f"{KEY}!", "x"), ("", "x")):
        with pytest.raises(UsageError) as caught:
            env_key(name, "the key", {name: held})
        assert KEY not in str(caught.value)
        assert "a b" not in str(caught.value)
