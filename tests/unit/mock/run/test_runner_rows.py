"""Which rows are asked, when, and their results."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.responses import JSONResponse

from core.events import (
    AnsweredCandidate,
    AnswerReturned,
    CandidatesAnswered,
    CandidateScore,
    EngineChanged,
    GroupClosed,
    GroupOpened,
    GroupScored,
    GroupSealed,
    MockCounted,
    MockRowDone,
    MockRowSkipped,
    MockStarted,
    SentReward,
)
from mock.dataset import open_dataset
from mock.run.pace import Pace
from mock.run.progress import Key, Progress
from mock.run.row_order import RowOrder, RowSelection, ScheduledRow
from mock.tally import RunCounters
from mock.targets.question import SESSION
from tests.unit.mock.helpers import FakeControl, Stage, until, write_rows

pytestmark = pytest.mark.slow

FAST = Pace(concurrency=2, poll=0.01)


def results(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


async def walked(
    stage: Stage, rows: Path | list[dict[str, Any]], **choice: Any
) -> tuple[list[str], RunCounters]:
    """Ids in their order, and the counters."""
    path, selection = rows if isinstance(rows, Path) else stage.write(*rows), RowSelection(**choice)
    with open_dataset(path) as dataset, Progress(stage.folder, "p", restart=True) as progress:
        tally = RunCounters(expected=selection.expected)
        walk = RowOrder(dataset, progress, selection, tally)
        lines: list[str] = []
        while (place := await walk.next()) is not None:
            lines.append(place.sent_id if isinstance(place, ScheduledRow) else f"bad {place.line}")
        tally.rows = dataset.records.count * selection.passes
        return lines, tally


# --- which rows ---------------------------------------------------------------------------------


async def test_weights_are_how_often_a_row_is_asked_in_a_pass(stage: Stage) -> None:
    rows = [{"query": "a", "weight": 3}, {"query": "b"}, {"query": "c", "weight": 0}]
    value, tally = await walked(stage, rows)
    assert value == ["row-1", "row-2", "row-1+2", "row-1+3"]
    assert tally.total == 4


async def test_an_id_that_is_there_twice_gets_its_line(stage: Stage) -> None:
    rows = [{"query": "a", "id": 1}, {"query": "b", "id": "1"}, {"query": "c", "id": 2}]
    assert (await walked(stage, rows))[0] == ["1", "1@2", "2"]


async def test_a_fraction_of_a_weight_is_a_chance(stage: Stage) -> None:
    rows = [{"query": f"{n}", "weight": 0.3} for n in range(500)]
    value, tally = await walked(stage, rows, seed=1)
    assert 110 < len(value) < 190
    assert tally.total == len(value)
    assert (await walked(stage, rows, seed=1))[0] == value


async def test_the_two_sides_of_the_split_are_disjoint_and_complete(stage: Stage) -> None:
    path = write_rows(stage.folder / "d.jsonl", 400)
    train, tally = await walked(stage, path, split="train", held_out=0.25)
    held, _ = await walked(stage, path, split="held-out", held_out=0.25, seed=4)
    assert set(train).isdisjoint(held)
    assert len(train) + len(held) == 400
    assert 70 < len(held) < 130
    assert tally.total == len(train)


async def test_a_broken_row_is_reported_once_in_several_passes(stage: Stage) -> None:
    path = stage.folder / "d.jsonl"
    path.write_text('{"query": "a"}\nbroken\n')
    value, tally = await walked(stage, path, passes=3)
    assert value == ["row-1", "bad 2", "row-1~2", "row-1~3"]
    assert tally.skipped == 1


async def test_a_seed_shuffles_each_pass(stage: Stage) -> None:
    path = write_rows(stage.folder / "d.jsonl", 40)
    value, _ = await walked(stage, path, passes=2, seed=5)
    first, second = value[:40], [name.removesuffix("~2") for name in value[40:]]
    assert sorted(first) == sorted(second)
    assert first not in (second, [f"row-{n}" for n in range(1, 41)])


async def test_a_dataset_of_broken_rows_fails_and_names_the_first(stage: Stage) -> None:
    path = stage.folder / "d.jsonl"
    path.write_text("broken\n" * 300)
    runner, outcome = await stage.run(path, control=None)
    assert (outcome.how, runner.counters.skipped) == ("failed", 300)
    assert "no usable row: line 1: not JSON" in outcome.cause


async def test_the_total_is_reported_when_it_is_known(stage: Stage) -> None:
    runner, _ = await stage.run(30, FAST, choice=RowSelection(split="held-out", held_out=0.3))
    total = stage.events(MockCounted)[-1].total
    assert total == len(stage.target.row_ids) == runner.counters.done
    assert stage.events(MockStarted)[0].split == "held-out"


# --- several turns ------------------------------------------------------------------------------


async def test_each_turn_is_a_request_with_the_answers_in_between(stage: Stage) -> None:
    target, turns = stage.target, ["hi", {"query": "2+2?", "answer": "4"}]
    path = stage.write({"id": "c", "turns": turns, "system": "Be brief."})
    _, outcome = await stage.run(path, FAST)
    assert outcome.how == "finished"
    assert target.row_ids == ["c", "c:t2"]
    sent = [(message["role"], message["content"]) for message in target.bodies[1]["messages"]]
    assert sent == [
        ("system", "Be brief."),
        ("user", "hi"),
        ("assistant", "re: hi"),
        ("user", "2+2?"),
    ]
    assert len({headers[SESSION.lower()] for headers in target.headers}) == 1
    rows = [(row["row_id"], row["reference"]) for row in stage.control.rows]
    assert rows == [("c", None), ("c:t2", "4")]
    (done,) = stage.events(MockRowDone)
    assert (done.turns, done.answer, done.ok, done.query) == (2, "re: 2+2?", True, "hi")
    (result,) = stage.results
    kept_turns = [(turn["query"], turn["answer"], turn["reference"]) for turn in result["turns"]]
    assert kept_turns == [("hi", "re: hi", None), ("2+2?", "re: 2+2?", "4")]
    assert (result["query"], result["answer"], result["reference"]) == ("2+2?", "re: 2+2?", "4")
    assert result["row_id"] == "c"


async def test_a_turn_that_fails_ends_its_row(stage: Stage) -> None:
    fails = JSONResponse({"error": {"message": "no"}}, 500)
    stage.target.script = lambda number: fails if number == 1 else None
    await stage.run(stage.write({"turns": ["a", "b", "c"]}), control=None)
    assert len(stage.target.row_ids) == 2
    assert [result["error"] for result in stage.results] == ["turn 2: 500: no"]


# --- pace ---------------------------------------------------------------------------------------


async def test_arrivals_do_not_wait_for_answers(stage: Stage) -> None:
    target, pace = stage.target, Pace(rate=400, poll=0.01)
    target.hold = asyncio.Event()
    choice = RowSelection(seed=2)
    async with stage.begun(12, pace, control=None, choice=choice) as (runner, running):
        runner.target._api._http._transport._pool._max_connections = (
            1_000  # the process gives it as many
        )
        await until(lambda: target.in_flight == 12)
        target.hold.set()
        assert (await running).how == "finished"
    assert len(set(target.row_ids)) == 12


def test_arrivals_are_a_poisson_process_by_the_seed() -> None:
    def some(seed: int | None) -> list[float]:
        gaps = Pace(rate=5).gaps(seed)
        return [next(gaps) for _ in range(4_000)]

    gaps = some(3)
    assert gaps == some(3)
    assert gaps != some(4)
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.2, rel=0.1)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance == pytest.approx(0.04, rel=0.2)
    assert random.random() < 1  # the program's own chance is left alone


def _engine(state: str, step: int) -> EngineChanged:
    return EngineChanged(server="s", url="http://s", state=state, raw=state, step=step)


async def test_pause_sync_asks_nothing_during_a_sync(stage: Stage) -> None:
    target, control = stage.target, stage.control
    control.publish(_engine("WEIGHT_SYNCING", 1))
    pace = Pace(concurrency=2, pause_sync=True, poll=0.01)
    async with stage.begun(4, pace) as (runner, running):
        await until(lambda: runner.counters.waiting == "paused for the weight sync")
        before = len(target.row_ids)
        await asyncio.sleep(0.3)
        assert len(target.row_ids) == before < 4
        control.publish(_engine("ROLLING", 2))
        target.hold = asyncio.Event()
        await until(lambda: target.in_flight == 2)
        assert runner.counters.waiting == ""
        target.hold.set()
        assert (await running).how == "finished"
    assert len(target.row_ids) == 4


async def test_the_run_stops_after_the_requested_updates(stage: Stage) -> None:
    stage.control.publish(_engine("ROLLING", 7))
    pace = Pace(concurrency=1, seconds=0.05, updates=2, poll=0.01)
    async with stage.begun(50, pace) as (_, running):
        await until(lambda: len(stage.target.row_ids) >= 2)
        for step in (8, 9):
            stage.control.publish(_engine("ROLLING", step))
        outcome = await running
    assert (outcome.how, outcome.cause) == ("stopped", "2 updates done, as requested")
    assert len(stage.target.row_ids) < 50


# --- results ------------------------------------------------------------------------------------


def seal(control: FakeControl, row_id: str, reward: float) -> None:
    """The group of a row, from its opening to its reward."""
    group, message = f"g-{row_id}", {"role": "assistant", "content": "x"}
    answered = [
        AnsweredCandidate(index=index, message=message, finish_reason="stop", seconds=0.1)
        for index in range(2)
    ]
    scores = tuple(CandidateScore(index=n, reward=reward - n / 10) for n in range(2))
    sent = tuple(SentReward(index=n, reward=reward - n / 10, advantage=0.0) for n in range(2))
    opened = {"request_id": "r", "task_id": "t", "n": 2, "query": "q", "body": {}, "server": "s"}
    for event in (
        GroupOpened(group_id=group, row_id=row_id, **opened),
        *(CandidatesAnswered(group_id=group, candidates=(candidate,)) for candidate in answered),
        GroupScored(group_id=group, scores=scores, best=0, version="v", seconds=0.0),
        AnswerReturned(group_id=group, index=0, why="winner", waited=0.1),
        GroupSealed(group_id=group, rewards=sent, best=0, source="auto"),
        GroupClosed(group_id=group, phase="DONE"),
    ):
        control.publish(event)


async def test_a_result_has_its_group_and_reward(stage: Stage) -> None:
    file = stage.folder / "out" / "results.jsonl"
    stage.control.after = lambda control: seal(control, control.rows[-1]["row_id"], 0.5)
    _, outcome = await stage.run(3, FAST, results=file)
    assert outcome.how == "finished"
    lines = sorted(results(file), key=lambda line: line["line"])
    assert [(line["line"], line["group"], line["reward"]) for line in lines] == [
        (number, f"g-row-{number}", 0.5) for number in (1, 2, 3)
    ]
    assert (lines[0]["rewards"], lines[0]["weights"]) == ([0.5, 0.4], "s/-/-")
    assert {"answer", "seconds", "error", "reference", "run", "pass"} <= set(lines[0])
    groups = {done.group_id for done in stage.events(MockRowDone)}
    assert groups <= {"", "g-row-1", "g-row-2", "g-row-3"}


async def test_rewards_after_a_stop_are_waited_for_longer_than_rows_in_flight(
    stage: Stage,
) -> None:
    target, file = stage.target, stage.folder / "results.jsonl"
    target.hold, target.hold_from = asyncio.Event(), 1
    async with stage.begun(2, FAST, results=file, wait=60.0) as (runner, running):
        await until(lambda: runner.counters.done == 1 and target.in_flight == 1)
        runner.stop("stopped", "terminated", 0.01, 60.0)
        await until(lambda: runner.counters.waiting == "waiting for the last rewards")
        await asyncio.sleep(0.05)  # the time of rows in flight is over
        answered = target.row_ids[0]  # two rows are asked at once: either may be the first
        seal(stage.control, answered, 0.5)
        await running
    target.hold.set()
    assert [(line["row_id"], line["reward"]) for line in results(file)] == [(answered, 0.5)]


async def test_a_json_list_on_one_line_is_asked_and_reported_row_by_row(stage: Stage) -> None:
    path = stage.folder / "d.json"
    path.write_text(json.dumps([{"query": f"question {number}"} for number in range(10)]))
    runner, outcome = await stage.run(path, FAST, choice=RowSelection(passes=5))
    assert outcome.how == "finished"
    ends = stage.events(MockRowDone)
    assert len({end.row_id for end in ends}) == len(ends) == 50
    assert (runner.counters.already + runner.counters.done, runner.counters.total) == (50, 50)


async def test_a_broken_element_of_a_json_list_is_named_by_its_number(stage: Stage) -> None:
    path = stage.folder / "d.json"
    path.write_text('[{"query": "a"}, 7]')
    await stage.run(path, FAST)
    (skipped,) = stage.events(MockRowSkipped)
    assert (skipped.place, skipped.line) == ("element", 2)


async def test_a_missing_reward_is_null_with_its_cause(stage: Stage) -> None:
    file = stage.folder / "results.jsonl"
    await stage.run(1, FAST, results=file, wait=0.1)
    (result,) = results(file)
    assert (result["reward"], result["unrewarded"]) == (None, "not known in time")


async def test_results_missing_from_a_killed_start_are_added_and_its_rows_are_not_asked_again(
    stage: Stage,
) -> None:
    path = write_rows(stage.folder / "d.jsonl", 4)
    file = stage.folder / "results.jsonl"
    with open_dataset(path) as dataset:
        name = dataset.fingerprint()
    with Progress(stage.home.root / "mock", name) as killed:  # as a kill -9 leaves it
        done = {"run": killed.run, "row_id": "row-1", "line": 1, "pass": 1, "copy": 1}
        for line in (1, 2):
            killed.ask(Key(1, line), f"row-{line}", f"question {line - 1}")
        killed.mark(Key(1, 1), {**done, "answer": "x", "error": ""})
    runner, outcome = await stage.run(path, FAST, results=file, wait=0.1)
    assert (outcome.how, runner.counters.already) == ("finished", 2)
    assert sorted(stage.target.row_ids) == ["row-3", "row-4"]
    lines = {line["line"]: line for line in results(file)}
    assert sorted(lines) == [1, 2, 3, 4]
    assert (lines[2]["row_id"], lines[2]["query"]) == ("row-2", "question 1")
    assert "killed" in lines[2]["error"]
    failed = [(end.mock_id, end.row_id) for end in stage.events(MockRowDone) if not end.ok]
    assert failed == [(killed.mock_id, "row-2")]
    with file.open("a") as torn:
        torn.write('{"torn')
    await stage.run(path, FAST, results=file, control=None)
    assert len(results(file)) == 8, "another run of the same file is added behind"


async def test_the_tools_of_a_row_are_sent_with_it(stage: Stage) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    await stage.run(stage.write({"query": "a", "tools": tools}), control=None)
    assert [body["tools"] for body in stage.target.bodies] == [tools]
