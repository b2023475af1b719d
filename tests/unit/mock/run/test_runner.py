"""The mock user against a real server on the loopback."""

import asyncio
import time
from pathlib import Path

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from core.events import MockRetried, MockRowDone, MockStarted
from core.runtime.home import Home
from core.state import State, reduce
from mock.control import ControlRefused
from mock.run.pace import Pace
from mock.run.row_order import RowSelection
from tests.unit.mock.helpers import (
    FakeControl,
    Target,
    begun,
    kept,
    open_runner,
    ran,
    serve,
    until,
    write_rows,
)


async def test_every_row_is_asked_once_and_reported(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d.jsonl", 5)
    control = FakeControl()
    runner, outcome = await ran(home, path, target.url, control=control)
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
    results = kept(runner.progress.path)
    assert sorted(result["answer"] for result in results) == [f"re: question {n}" for n in range(5)]


async def test_no_control_api_is_needed(home: Home, tmp_path: Path, target: Target) -> None:
    runner, outcome = await ran(home, write_rows(tmp_path / "d", 2), target.url)
    assert outcome.how == "finished"
    assert runner.counters.answered == 2


async def test_broken_rows_are_reported_and_the_others_are_asked(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b'{"query": "a"}\nbroken\n{"query": ""}\n\xff\n{"query": "b"}\n')
    control = FakeControl()
    runner, _ = await ran(home, path, target.url, control=control)
    assert sorted(target.row_ids) == ["row-1", "row-5"]
    skipped = {fact for fact, event in control.facts.items() if event.kind == "mock_row_skipped"}
    assert skipped == {f"{runner.mock_id}:line-{n}:skipped" for n in (2, 3, 4)}
    assert runner.counters.skipped == 3


async def test_passes_ask_again_under_other_ids(home: Home, tmp_path: Path, target: Target) -> None:
    path = write_rows(tmp_path / "d", 2)
    control = FakeControl()
    pace = Pace(concurrency=1, poll=0.02)
    choice = RowSelection(passes=2)
    runner, _ = await ran(home, path, target.url, pace, control, choice=choice)
    assert target.row_ids == ["row-1", "row-2", "row-1~2", "row-2~2"]
    assert f"{runner.mock_id}:row-2:2:2" in control.facts


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_concurrency_limits_the_requests_in_flight(
    home: Home, tmp_path: Path, target: Target, concurrency: int
) -> None:
    target.hold = asyncio.Event()
    path = write_rows(tmp_path / "d", 9)
    pace = Pace(concurrency=concurrency)
    async with begun(home, path, target.url, pace) as (_, running):
        await until(lambda: target.in_flight == concurrency)
        target.hold.set()
        await running
    assert target.most == concurrency
    assert len(target.row_ids) == 9


async def test_a_worker_rests_between_two_requests(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d", 3)
    pace = Pace(concurrency=1, seconds=0.1)
    began = time.monotonic()
    await ran(home, path, target.url, pace)
    assert time.monotonic() - began >= 0.3
    assert len(target.row_ids) == 3


async def test_pause_stops_sending_and_resume_continues(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d", 6)

    def pause_after_two(control: FakeControl) -> None:
        if len(control.rows) == 2:
            control.order = "pause"

    control = FakeControl(after=pause_after_two)
    pace = Pace(concurrency=2, poll=0.2)  # the registration of a row says it first
    async with begun(home, path, target.url, pace, control) as (runner, running):
        await until(lambda: runner.counters.phase == "paused" and runner.counters.done == 2)
        assert len(target.row_ids) == 2
        control.order = "run"
        outcome = await running
    assert outcome.how == "finished"
    assert len(set(target.row_ids)) == 6
    assert sorted(row["row_id"] for row in control.rows) == sorted(target.row_ids)


async def test_stop_finishes_rows_in_flight_and_the_next_start_asks_the_rest(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d", 6)
    target.hold = asyncio.Event()
    control = FakeControl()
    pace = Pace(concurrency=2, poll=0.01)
    async with begun(home, path, target.url, pace, control) as (runner, running):
        await until(lambda: target.in_flight == 2)
        control.order = "stop"
        await until(lambda: runner.counters.phase == "stopping")
        target.hold.set()
        outcome = await running
    assert (outcome.how, len(target.row_ids)) == ("stopped", 2)
    assert control.kinds()[-1] == "mock_finished"
    async with open_runner(home, path, target.url, pace, FakeControl()) as again:
        assert (await again.run()).how == "finished"
        assert again.counters.already == 2
    assert len(target.row_ids) == len(set(target.row_ids)) == 6


async def test_a_stop_does_not_wait_for_ever(home: Home, tmp_path: Path, target: Target) -> None:
    path = write_rows(tmp_path / "d", 2)
    target.hold = asyncio.Event()
    async with begun(home, path, target.url, Pace(concurrency=1)) as (runner, running):
        await until(lambda: target.in_flight == 1)
        runner.stop("stopped", "ordered")
        runner.stop("stopped", "at once", wait=0.02)
        outcome = await running
    assert (outcome.how, outcome.cause) == ("stopped", "ordered")
    assert runner.counters.done == 0
    target.hold.set()


async def test_a_busy_target_is_retried_after_its_retry_after(
    home: Home, tmp_path: Path, target: Target
) -> None:
    def busy_twice(number: int) -> Response | None:
        busy = JSONResponse({"error": {"message": "full"}}, 503, {"Retry-After": "0.3"})
        return busy if number < 2 else None

    target.script = busy_twice
    path = write_rows(tmp_path / "d", 1)
    began = time.monotonic()
    runner, _ = await ran(home, path, target.url)
    assert time.monotonic() - began >= 0.6
    assert (runner.counters.answered, len(target.row_ids)) == (1, 3)
    assert (runner.counters.failed, runner.counters.retries) == (0, 2)


async def test_retries_are_reported_while_a_row_waits_for_its_answer(
    home: Home, tmp_path: Path, target: Target
) -> None:
    target.hold, target.hold_from = asyncio.Event(), 1
    aborted = {"error": {"message": "aborted by the operator"}}
    target.script = lambda number: JSONResponse(aborted, 503) if number < 1 else None
    path = write_rows(tmp_path / "d", 1)
    control = FakeControl()
    pace = Pace(concurrency=1, poll=0.01)
    async with begun(home, path, target.url, pace, control) as (_, running):
        await until(lambda: "mock_retried" in control.kinds())
        target.hold.set()
        await running
    events = list(control.facts.values())
    retried = [event for event in events if isinstance(event, MockRetried)]
    assert [event.retries for event in retried] == [1]
    assert retried[0].waiting == "the target answers 503: aborted by the operator"
    state = State()
    reduce(state, events[0])
    reduce(state, retried[0])
    assert state.mock is not None
    assert (state.mock.retries, state.mock.failed) == (1, 0)
    assert "aborted" in state.mock.waiting
    for event in events[1:]:
        reduce(state, event)
    assert (state.mock.retries, state.mock.waiting) == (1, "")


async def test_a_stopped_engine_is_retried_before_its_retry_after(
    home: Home, tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mock.targets.question._LAST_DELAY", 0.05)
    off = JSONResponse({"error": {"message": "OFFLINE"}}, 503, {"Retry-After": "60"})
    target.script = lambda number: off if number < 2 else None
    path = write_rows(tmp_path / "d", 1)
    async with open_runner(home, path, target.url, Pace(patience=20.0)) as runner:
        await asyncio.wait_for(runner.run(), 20)
    assert (runner.counters.answered, len(target.row_ids)) == (1, 3)


async def test_a_target_busy_beyond_the_patience_fails_the_row(
    home: Home, tmp_path: Path, target: Target
) -> None:
    target.script = lambda number: JSONResponse({"detail": "OFFLINE"}, 503, {"Retry-After": "9"})
    path = write_rows(tmp_path / "d", 1)
    control = FakeControl()
    pace = Pace(patience=0.2, poll=0.02)
    runner, outcome = await ran(home, path, target.url, pace, control)
    assert outcome.how == "finished"
    done = control.facts[f"{runner.mock_id}:row-1:1:1"]
    assert isinstance(done, MockRowDone)
    assert not done.ok
    assert "OFFLINE" in done.error


async def test_a_restart_of_the_target_is_waited_out(home: Home, tmp_path: Path) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writers.append(writer)

    dying = await asyncio.start_server(never_answers, "127.0.0.1", 0)
    port = dying.sockets[0].getsockname()[1]
    path = write_rows(tmp_path / "d", 2)
    pace, target = Pace(concurrency=2), Target()
    async with begun(home, path, f"http://127.0.0.1:{port}/v1", pace) as (runner, running):
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
    home: Home, tmp_path: Path
) -> None:
    path = write_rows(tmp_path / "d", 3)
    pace = Pace(patience=0.3, poll=0.02)
    _, outcome = await ran(home, path, "http://127.0.0.1:9/v1", pace)
    assert outcome.how == "failed"
    assert "http://127.0.0.1:9/v1" in outcome.cause
    async with open_runner(home, path, "http://127.0.0.1:9/v1", pace) as again:
        await again.run()
        assert again.counters.already == 0


async def test_a_refusal_of_every_row_ends_the_run(
    home: Home, tmp_path: Path, target: Target
) -> None:
    target.script = lambda number: JSONResponse({"error": {"message": "wrong key"}}, 401)
    path = write_rows(tmp_path / "d", 50)
    _, outcome = await ran(home, path, target.url, Pace(concurrency=1))
    assert outcome.how == "failed"
    assert "wrong key" in outcome.cause
    assert len(target.row_ids) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda: JSONResponse({"error": {"message": "too long"}}, 400), "400: too long"),
        (lambda: PlainTextResponse("oops", 500), "500: oops"),
        (lambda: PlainTextResponse("not json"), "not a chat completion"),
        (lambda: JSONResponse({"choices": []}), "not a chat completion"),
    ],
)
async def test_a_failed_row_is_recorded_and_the_run_continues(
    home: Home, tmp_path: Path, target: Target, answer: object, error: str
) -> None:
    assert callable(answer)
    target.script = lambda number: answer() if number == 0 else None
    path = write_rows(tmp_path / "d", 2)
    runner, outcome = await ran(home, path, target.url, Pace(concurrency=1))
    assert outcome.how == "finished"
    assert (runner.counters.failed, runner.counters.answered) == (1, 1)
    results = kept(runner.progress.path)
    assert error in results[0]["error"]


async def test_no_answer_in_time_is_a_failed_row(
    home: Home, tmp_path: Path, target: Target
) -> None:
    target.hold = asyncio.Event()
    path = write_rows(tmp_path / "d", 1)
    runner, outcome = await ran(home, path, target.url, timeout=0.1)
    assert outcome.how == "finished"
    assert "no answer within 0.1 s" in next(iter(runner.counters.errors))
    assert len(target.row_ids) == 1
    target.hold.set()


async def test_facts_wait_for_a_proxy_that_restarts(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d", 3)
    control = FakeControl(down=2)
    _, outcome = await ran(home, path, target.url, control=control)
    assert outcome.how == "finished"
    assert [kind for kind in control.kinds() if kind != "mock_counted"] == [
        "mock_started",
        *["mock_row_done"] * 3,
        "mock_finished",
    ]


async def test_a_control_api_that_refuses_ends_the_run_before_it_begins(
    home: Home, tmp_path: Path, target: Target
) -> None:
    class Refusing(FakeControl):
        async def post_fact(self, fact_id: str, event: object) -> None:
            raise ControlRefused("wrong token", status=401)

    path = write_rows(tmp_path / "d", 1)
    async with open_runner(home, path, target.url, control=Refusing()) as runner:
        with pytest.raises(ControlRefused):
            await runner.run()
    assert target.row_ids == []


async def test_tool_calls_are_an_answer(home: Home, tmp_path: Path, target: Target) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    target.script = lambda number: JSONResponse(
        {"choices": [{"message": {"content": None, "tool_calls": [call]}}]}
    )
    runner, _ = await ran(home, write_rows(tmp_path / "d", 1), target.url)
    assert runner.counters.answered == 1
    assert "look" in kept(runner.progress.path)[0]["answer"]
