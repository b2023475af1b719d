"""The mock user against a real server on the loopback."""

import asyncio
import time

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from core.events import MockRetried, MockRowDone, MockStarted
from core.runtime.home import Home
from core.state import State, reduce
from mock.control import ControlRefused
from mock.run.pace import Pace
from mock.run.row_order import RowSelection
from tests.unit.mock.helpers import FakeControl, Stage, Target, begun, ran, serve, until, write_rows

ONE = Pace(concurrency=1, poll=0.01)


def refused(status: int, message: str, **headers: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status, headers)


async def test_every_row_is_asked_once_and_reported(stage: Stage) -> None:
    target, control = stage.target, stage.control
    runner, outcome = await stage.run(5)
    assert outcome.how == "finished"
    assert sorted(target.row_ids) == [f"row-{n}" for n in range(1, 6)]
    assert all("answer" not in body for body in target.bodies)
    assert {row["row_id"]: row["reference"] for row in control.rows}["row-3"] == "2"
    started = next(iter(control.facts.values()))
    assert isinstance(started, MockStarted)
    assert (started.total, started.done) == (5, 0)
    done = control.facts[f"{runner.mock_id}:row-3:1:3"]
    assert isinstance(done, MockRowDone)
    assert (done.ok, done.answer, done.query) == (True, "re: question 2", "question 2")
    assert control.kinds()[-1] == "mock_finished"
    assert sorted(row["answer"] for row in stage.results) == [f"re: question {n}" for n in range(5)]


async def test_broken_rows_are_reported_and_the_others_are_asked(stage: Stage) -> None:
    path = stage.folder / "d.jsonl"
    path.write_bytes(b'{"query": "a"}\nbroken\n{"query": ""}\n\xff\n{"query": "b"}\n')
    runner, _ = await stage.run(path)
    assert sorted(stage.target.row_ids) == ["row-1", "row-5"]
    facts = stage.control.facts.items()
    skipped = {fact for fact, event in facts if event.kind == "mock_row_skipped"}
    assert skipped == {f"{runner.mock_id}:line-{n}:skipped" for n in (2, 3, 4)}
    assert runner.counters.skipped == 3


async def test_passes_ask_again_under_other_ids(stage: Stage) -> None:
    runner, _ = await stage.run(2, ONE, choice=RowSelection(passes=2))
    assert stage.target.row_ids == ["row-1", "row-2", "row-1~2", "row-2~2"]
    assert f"{runner.mock_id}:row-2:2:2" in stage.control.facts


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_concurrency_limits_the_requests_in_flight(stage: Stage, concurrency: int) -> None:
    target = stage.target
    target.hold = asyncio.Event()
    async with stage.begun(9, Pace(concurrency=concurrency), control=None) as (_, running):
        await until(lambda: target.in_flight == concurrency)
        target.hold.set()
        await running
    assert (target.most, len(target.row_ids)) == (concurrency, 9)


async def test_a_worker_rests_between_two_requests(stage: Stage) -> None:
    began = time.monotonic()
    await stage.run(3, Pace(concurrency=1, seconds=0.1), control=None)
    assert time.monotonic() - began >= 0.3
    assert len(stage.target.row_ids) == 3


async def test_pause_stops_sending_and_resume_continues(stage: Stage) -> None:
    def pause_after_two(control: FakeControl) -> None:
        if len(control.rows) == 2:
            control.order = "pause"

    stage.control.after = pause_after_two
    pace = Pace(concurrency=2, poll=0.2)  # the registration of a row says it first
    async with stage.begun(6, pace) as (runner, running):
        await until(lambda: runner.counters.phase == "paused" and runner.counters.done == 2)
        assert len(stage.target.row_ids) == 2
        stage.control.order = "run"
        outcome = await running
    assert outcome.how == "finished"
    assert len(set(stage.target.row_ids)) == 6
    assert sorted(row["row_id"] for row in stage.control.rows) == sorted(stage.target.row_ids)


async def test_stop_finishes_rows_in_flight_and_the_next_start_asks_the_rest(stage: Stage) -> None:
    target, control = stage.target, stage.control
    target.hold = asyncio.Event()
    pace = Pace(concurrency=2, poll=0.01)
    async with stage.begun(6, pace) as (runner, running):
        await until(lambda: target.in_flight == 2)
        control.order = "stop"
        await until(lambda: runner.counters.phase == "stopping")
        target.hold.set()
        outcome = await running
    assert (outcome.how, len(target.row_ids)) == ("stopped", 2)
    assert control.kinds()[-1] == "mock_finished"
    again, outcome = await stage.run(6, pace, control=FakeControl())
    assert (outcome.how, again.counters.already) == ("finished", 2)
    assert len(target.row_ids) == len(set(target.row_ids)) == 6


async def test_a_stop_does_not_wait_for_ever(stage: Stage) -> None:
    stage.target.hold = asyncio.Event()
    async with stage.begun(2, ONE, control=None) as (runner, running):
        await until(lambda: stage.target.in_flight == 1)
        runner.stop("stopped", "ordered")
        runner.stop("stopped", "at once", wait=0.02)
        outcome = await running
    assert (outcome.how, outcome.cause, runner.counters.done) == ("stopped", "ordered", 0)
    stage.target.hold.set()


async def test_a_busy_target_is_retried_after_its_retry_after(stage: Stage) -> None:
    busy = {"Retry-After": "0.3"}
    stage.target.script = lambda number: refused(503, "full", **busy) if number < 2 else None
    began = time.monotonic()
    runner, _ = await stage.run(1)
    assert time.monotonic() - began >= 0.6
    counters = runner.counters
    assert (counters.answered, counters.failed, counters.retries) == (1, 0, 2)
    assert len(stage.target.row_ids) == 3


async def test_retries_are_reported_while_a_row_waits_for_its_answer(stage: Stage) -> None:
    target, control = stage.target, stage.control
    target.hold, target.hold_from = asyncio.Event(), 1
    aborted = refused(503, "aborted by the operator")
    target.script = lambda number: aborted if number < 1 else None
    async with stage.begun(1, ONE) as (_, running):
        await until(lambda: "mock_retried" in control.kinds())
        target.hold.set()
        await running
    (retried,) = stage.events(MockRetried)
    assert retried.retries == 1
    assert retried.waiting == "the target answers 503: aborted by the operator"
    state, events = State(), list(control.facts.values())
    reduce(state, events[0])
    reduce(state, retried)
    assert state.mock is not None
    assert (state.mock.retries, state.mock.failed) == (1, 0)
    assert "aborted" in state.mock.waiting
    for event in events[1:]:
        reduce(state, event)
    assert (state.mock.retries, state.mock.waiting) == (1, "")


async def test_a_stopped_engine_is_retried_before_its_retry_after(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mock.targets.question._LAST_DELAY", 0.05)
    off = {"Retry-After": "60"}
    stage.target.script = lambda number: refused(503, "OFFLINE", **off) if number < 2 else None
    async with asyncio.timeout(20):
        runner, _ = await stage.run(1, Pace(patience=20.0), control=None)
    assert (runner.counters.answered, len(stage.target.row_ids)) == (1, 3)


async def test_a_target_busy_beyond_the_patience_fails_the_row(stage: Stage) -> None:
    off = JSONResponse({"detail": "OFFLINE"}, 503, {"Retry-After": "9"})
    stage.target.script = lambda number: off
    _, outcome = await stage.run(1, Pace(patience=0.2, poll=0.02))
    (done,) = stage.events(MockRowDone)
    assert (outcome.how, done.ok, "OFFLINE" in done.error) == ("finished", False, True)


async def test_a_restart_of_the_target_is_waited_out(home: Home, stage: Stage) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writers.append(writer)

    dying = await asyncio.start_server(never_answers, "127.0.0.1", 0)
    port = dying.sockets[0].getsockname()[1]
    path, target = write_rows(stage.folder / "d", 2), Target()
    url = f"http://127.0.0.1:{port}/v1"
    async with begun(home, path, url, Pace(concurrency=2)) as (runner, running):
        await until(lambda: len(writers) == 2)
        dying.close()
        for writer in writers:
            writer.transport.abort()
        await until(lambda: "does not answer" in runner.counters.waiting)
        async with serve(target.answer, port):
            outcome = await running
    assert outcome.how == "finished"
    assert sorted(target.row_ids) == ["row-1", "row-2"]
    assert (runner.counters.answered, runner.counters.failed) == (2, 0)


async def test_an_unreachable_target_ends_the_run_and_loses_no_row(
    home: Home, stage: Stage
) -> None:
    path, url = write_rows(stage.folder / "d", 3), "http://127.0.0.1:9/v1"
    for _ in range(2):
        again, outcome = await ran(home, path, url, Pace(patience=0.3, poll=0.02))
        assert (outcome.how, again.counters.already) == ("failed", 0)
        assert url in outcome.cause


async def test_a_refusal_of_every_row_ends_the_run(stage: Stage) -> None:
    stage.target.script = lambda number: refused(401, "wrong key")
    _, outcome = await stage.run(50, ONE, control=None)
    assert (outcome.how, len(stage.target.row_ids)) == ("failed", 1)
    assert "wrong key" in outcome.cause


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refused(400, "too long"), "400: too long"),
        (PlainTextResponse("oops", 500), "500: oops"),
        (PlainTextResponse("not json"), "not a chat completion"),
        (JSONResponse({"choices": []}), "not a chat completion"),
    ],
)
async def test_a_failed_row_is_recorded_and_the_run_continues(
    stage: Stage, answer: Response, error: str
) -> None:
    stage.target.script = lambda number: answer if number == 0 else None
    runner, outcome = await stage.run(2, ONE, control=None)
    counters = runner.counters
    assert (outcome.how, counters.failed, counters.answered) == ("finished", 1, 1)
    assert error in stage.results[0]["error"]


async def test_no_answer_in_time_is_a_failed_row(stage: Stage) -> None:
    stage.target.hold = asyncio.Event()
    runner, outcome = await stage.run(1, control=None, timeout=0.1)
    assert (outcome.how, len(stage.target.row_ids)) == ("finished", 1)
    assert "no answer within 0.1 s" in next(iter(runner.counters.errors))
    stage.target.hold.set()


async def test_facts_wait_for_a_proxy_that_restarts(stage: Stage) -> None:
    stage.control.down = 2
    _, outcome = await stage.run(3)
    assert outcome.how == "finished"
    kinds = [kind for kind in stage.control.kinds() if kind != "mock_counted"]
    assert kinds == ["mock_started", *["mock_row_done"] * 3, "mock_finished"]


async def test_a_control_api_that_refuses_ends_the_run_before_it_begins(stage: Stage) -> None:
    class Refusing(FakeControl):
        async def post_fact(self, fact_id: str, event: object) -> None:
            raise ControlRefused("wrong token", status=401)

    with pytest.raises(ControlRefused):
        await ran(
            stage.home, write_rows(stage.folder / "d", 1), stage.target.url, control=Refusing()
        )
    assert stage.target.row_ids == []


async def test_tool_calls_are_an_answer(stage: Stage) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"content": None, "tool_calls": [call]}
    stage.target.script = lambda number: JSONResponse({"choices": [{"message": message}]})
    runner, _ = await stage.run(1, control=None)
    assert runner.counters.answered == 1
    assert "look" in stage.results[0]["answer"]
