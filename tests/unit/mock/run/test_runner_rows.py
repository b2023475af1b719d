"""Which rows are asked, when, and their results."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.responses import JSONResponse, Response

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
from core.runtime.home import Home
from mock.dataset import open_dataset
from mock.run.pace import Pace
from mock.run.progress import Key, Progress
from mock.run.row_order import RowOrder, RowSelection, ScheduledRow
from mock.tally import RunCounters
from mock.targets.question import SESSION
from tests.unit.mock.helpers import FakeControl, Target, begun, kept, ran, until, write_rows

pytestmark = pytest.mark.slow

FAST = Pace(concurrency=2, poll=0.01)


def write_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return path


def results(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


async def walked(path: Path, folder: Path, choice: RowSelection) -> tuple[list[str], RunCounters]:
    """Ids in their order, and the counters."""
    with open_dataset(path) as dataset, Progress(folder, "p", restart=True) as progress:
        tally = RunCounters(expected=choice.expected)
        walk = RowOrder(dataset, progress, choice, tally)
        lines: list[str] = []
        while (place := await walk.next()) is not None:
            lines.append(place.sent_id if isinstance(place, ScheduledRow) else f"bad {place.line}")
        tally.rows = dataset.records.count * choice.passes
        return lines, tally


# --- which rows ---------------------------------------------------------------------------------


async def test_weights_are_how_often_a_row_is_asked_in_a_pass(tmp_path: Path) -> None:
    rows = [{"query": "a", "weight": 3}, {"query": "b"}, {"query": "c", "weight": 0}]
    path = write_json(tmp_path / "d.jsonl", rows)
    value, tally = await walked(path, tmp_path, RowSelection())
    assert value == ["row-1", "row-2", "row-1+2", "row-1+3"]
    assert tally.total == 4


async def test_an_id_that_is_there_twice_gets_its_line(tmp_path: Path) -> None:
    rows = [{"query": "a", "id": 1}, {"query": "b", "id": "1"}, {"query": "c", "id": 2}]
    value, _ = await walked(write_json(tmp_path / "d.jsonl", rows), tmp_path, RowSelection())
    assert value == ["1", "1@2", "2"]


async def test_a_fraction_of_a_weight_is_a_chance(tmp_path: Path) -> None:
    path = write_json(tmp_path / "d.jsonl", [{"query": f"{n}", "weight": 0.3} for n in range(500)])
    value, tally = await walked(path, tmp_path, RowSelection(seed=1))
    assert 110 < len(value) < 190
    assert tally.total == len(value)
    again, _ = await walked(path, tmp_path, RowSelection(seed=1))
    assert again == value


async def test_the_two_sides_of_the_split_are_disjoint_and_complete(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "d.jsonl", 400)
    train, tally = await walked(path, tmp_path, RowSelection(split="train", held_out=0.25))
    held, _ = await walked(path, tmp_path, RowSelection(split="held-out", held_out=0.25, seed=4))
    assert set(train).isdisjoint(held)
    assert len(train) + len(held) == 400
    assert 70 < len(held) < 130
    assert tally.total == len(train)


async def test_a_broken_row_is_reported_once_in_several_passes(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"query": "a"}\nbroken\n')
    value, tally = await walked(path, tmp_path, RowSelection(passes=3))
    assert value == ["row-1", "bad 2", "row-1~2", "row-1~3"]
    assert tally.skipped == 1


async def test_a_seed_shuffles_each_pass(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "d.jsonl", 40)
    value, _ = await walked(path, tmp_path, RowSelection(passes=2, seed=5))
    first, second = value[:40], [one.removesuffix("~2") for one in value[40:]]
    assert sorted(first) == sorted(second)
    assert first != second
    assert first != [f"row-{n}" for n in range(1, 41)]


async def test_a_dataset_of_broken_rows_fails_and_names_the_first(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("broken\n" * 300)
    runner, outcome = await ran(home, path, target.url)
    assert outcome.how == "failed"
    assert "no usable row: line 1: not JSON" in outcome.cause
    assert runner.counters.skipped == 300


async def test_the_total_is_reported_when_it_is_known(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d.jsonl", 30)
    control = FakeControl()
    choice = RowSelection(split="held-out", held_out=0.3)
    runner, _ = await ran(home, path, target.url, FAST, control, choice=choice)
    result = [event for event in control.facts.values() if isinstance(event, MockCounted)]
    assert result[-1].total == len(target.row_ids) == runner.counters.done
    started = next(event for event in control.facts.values() if isinstance(event, MockStarted))
    assert started.split == "held-out"


# --- several turns ------------------------------------------------------------------------------


async def test_each_turn_is_a_request_with_the_answers_in_between(
    home: Home, tmp_path: Path, target: Target
) -> None:
    turns = ["hi", {"query": "2+2?", "answer": "4"}]
    path = write_json(tmp_path / "d.jsonl", [{"id": "c", "turns": turns, "system": "Be brief."}])
    control = FakeControl()
    runner, outcome = await ran(home, path, target.url, FAST, control)
    assert outcome.how == "finished"
    assert target.row_ids == ["c", "c:t2"]
    actual = [(one["role"], one["content"]) for one in target.bodies[1]["messages"]]
    assert actual == [
        ("system", "Be brief."),
        ("user", "hi"),
        ("assistant", "re: hi"),
        ("user", "2+2?"),
    ]
    sessions = {headers[SESSION.lower()] for headers in target.headers}
    assert len(sessions) == 1
    assert [(row["row_id"], row["reference"]) for row in control.rows] == [
        ("c", None),
        ("c:t2", "4"),
    ]
    done = next(event for event in control.facts.values() if isinstance(event, MockRowDone))
    assert (done.turns, done.answer, done.ok) == (2, "re: 2+2?", True)
    (result,) = kept(runner.progress.path)
    result_turns = [(one["query"], one["answer"], one["reference"]) for one in result["turns"]]
    assert result_turns == [("hi", "re: hi", None), ("2+2?", "re: 2+2?", "4")]
    assert (result["query"], result["answer"], result["reference"]) == ("2+2?", "re: 2+2?", "4")
    assert (result["row_id"], done.query) == ("c", "hi")


async def test_a_turn_that_fails_ends_its_row(home: Home, tmp_path: Path, target: Target) -> None:
    def second_fails(number: int) -> Response | None:
        return JSONResponse({"error": {"message": "no"}}, 500) if number == 1 else None

    target.script = second_fails
    path = write_json(tmp_path / "d.jsonl", [{"turns": ["a", "b", "c"]}])
    runner, _ = await ran(home, path, target.url)
    assert len(target.row_ids) == 2
    (result,) = kept(runner.progress.path)
    assert result["error"] == "turn 2: 500: no"


# --- pace ---------------------------------------------------------------------------------------


async def test_arrivals_do_not_wait_for_answers(home: Home, tmp_path: Path, target: Target) -> None:
    target.hold = asyncio.Event()
    path = write_rows(tmp_path / "d.jsonl", 12)
    pace = Pace(rate=400, poll=0.01)
    async with begun(home, path, target.url, pace, choice=RowSelection(seed=2)) as (
        runner,
        running,
    ):
        runner.target._api._http._transport._pool._max_connections = 1_000  # type: ignore[attr-defined]  # the process gives it as many
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


async def test_pause_sync_asks_nothing_during_a_sync(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d.jsonl", 4)
    control = FakeControl()
    pace = Pace(concurrency=2, pause_sync=True, poll=0.01)
    control.publish(_engine("WEIGHT_SYNCING", 1))
    async with begun(home, path, target.url, pace, control) as (runner, running):
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


async def test_the_run_stops_after_the_requested_updates(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d.jsonl", 50)
    control = FakeControl()
    control.publish(_engine("ROLLING", 7))
    pace = Pace(concurrency=1, seconds=0.05, updates=2, poll=0.01)
    async with begun(home, path, target.url, pace, control) as (_, running):
        await until(lambda: len(target.row_ids) >= 2)
        control.publish(_engine("ROLLING", 8))
        control.publish(_engine("ROLLING", 9))
        outcome = await running
    assert (outcome.how, outcome.cause) == ("stopped", "2 updates done, as requested")
    assert len(target.row_ids) < 50


# --- results ------------------------------------------------------------------------------------


def seal(control: FakeControl, row_id: str, reward: float) -> None:
    """The group of a row, from its opening to its reward."""
    group = f"g-{row_id}"
    control.publish(
        GroupOpened(
            group_id=group,
            request_id="r",
            task_id="t",
            n=2,
            query="q",
            body={},
            row_id=row_id,
            server="s",
        )
    )
    for index in range(2):
        control.publish(
            CandidatesAnswered(
                group_id=group,
                candidates=(
                    AnsweredCandidate(
                        index=index,
                        message={"role": "assistant", "content": "x"},
                        finish_reason="stop",
                        seconds=0.1,
                    ),
                ),
            )
        )
    scores = tuple(CandidateScore(index=n, reward=reward - n / 10) for n in range(2))
    control.publish(GroupScored(group_id=group, scores=scores, best=0, version="v", seconds=0.0))
    control.publish(AnswerReturned(group_id=group, index=0, why="winner", waited=0.1))
    sent = tuple(SentReward(index=n, reward=reward - n / 10, advantage=0.0) for n in range(2))
    control.publish(GroupSealed(group_id=group, rewards=sent, best=0, source="auto"))
    control.publish(GroupClosed(group_id=group, phase="DONE"))


async def test_a_result_has_its_group_and_reward(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d.jsonl", 3)
    file = tmp_path / "out" / "results.jsonl"

    def sealed(control: FakeControl) -> None:
        seal(control, control.rows[-1]["row_id"], 0.5)

    control = FakeControl(after=sealed)
    _, outcome = await ran(home, path, target.url, FAST, control, results=file)
    assert outcome.how == "finished"
    result = sorted(results(file), key=lambda one: one["line"])
    assert [(one["line"], one["group"], one["reward"]) for one in result] == [
        (1, "g-row-1", 0.5),
        (2, "g-row-2", 0.5),
        (3, "g-row-3", 0.5),
    ]
    assert result[0]["rewards"] == [0.5, 0.4]
    assert result[0]["weights"] == "s/-/-"
    assert {"answer", "seconds", "error", "reference", "run", "pass"} <= set(result[0])
    groups = [e.group_id for e in control.facts.values() if isinstance(e, MockRowDone)]
    assert set(groups) <= {"", "g-row-1", "g-row-2", "g-row-3"}


async def test_rewards_after_a_stop_are_waited_for_longer_than_rows_in_flight(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d.jsonl", 2)
    file = tmp_path / "results.jsonl"
    target.hold, target.hold_from = asyncio.Event(), 1
    control = FakeControl()
    async with begun(home, path, target.url, FAST, control, results=file, wait=60.0) as (
        runner,
        running,
    ):
        await until(lambda: runner.counters.done == 1 and target.in_flight == 1)
        runner.stop("stopped", "terminated", 0.01, 60.0)
        await until(lambda: runner.counters.waiting == "waiting for the last rewards")
        await asyncio.sleep(0.05)  # the time of rows in flight is over
        answered = target.row_ids[0]  # two rows are asked at once: either may be the first
        seal(control, answered, 0.5)
        await running
    target.hold.set()
    assert [(one["row_id"], one["reward"]) for one in results(file)] == [(answered, 0.5)]


async def test_a_json_list_on_one_line_is_asked_and_reported_row_by_row(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps([{"query": f"question {one}"} for one in range(10)]))
    control = FakeControl()
    choice = RowSelection(passes=5)
    runner, outcome = await ran(home, path, target.url, FAST, control, choice=choice)
    assert outcome.how == "finished"
    ends = [one for one in control.facts.values() if isinstance(one, MockRowDone)]
    assert len({one.row_id for one in ends}) == len(ends) == 50
    assert (runner.counters.already + runner.counters.done, runner.counters.total) == (50, 50)


async def test_a_broken_element_of_a_json_list_is_named_by_its_number(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = tmp_path / "d.json"
    path.write_text('[{"query": "a"}, 7]')
    control = FakeControl()
    await ran(home, path, target.url, FAST, control)
    (skipped,) = [one for one in control.facts.values() if isinstance(one, MockRowSkipped)]
    assert (skipped.place, skipped.line) == ("element", 2)


async def test_a_missing_reward_is_null_with_its_cause(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d.jsonl", 1)
    file = tmp_path / "results.jsonl"
    await ran(home, path, target.url, FAST, FakeControl(), results=file, wait=0.1)
    (result,) = results(file)
    assert (result["reward"], result["unrewarded"]) == (None, "not known in time")


async def test_results_missing_from_a_killed_start_are_added_and_its_rows_are_not_asked_again(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = write_rows(tmp_path / "d.jsonl", 4)
    file = tmp_path / "results.jsonl"
    with open_dataset(path) as dataset:
        name = dataset.fingerprint()
    with Progress(home.root / "mock", name) as killed:  # as a kill -9 leaves it
        done = {"run": killed.run, "row_id": "row-1", "line": 1, "pass": 1, "copy": 1}
        for line in (1, 2):
            killed.ask(Key(1, line), f"row-{line}", f"question {line - 1}")
        killed.mark(Key(1, 1), {**done, "answer": "x", "error": ""})
    control = FakeControl()
    pace = FAST
    runner, outcome = await ran(home, path, target.url, pace, control, results=file, wait=0.1)
    assert outcome.how == "finished"
    assert sorted(target.row_ids) == ["row-3", "row-4"]
    result = {one["line"]: one["error"] for one in results(file)}
    lost = next(one for one in results(file) if one["line"] == 2)
    assert (lost["row_id"], lost["query"]) == ("row-2", "question 1")
    actual = [one for one in control.facts.values() if isinstance(one, MockRowDone) and not one.ok]
    assert [(one.mock_id, one.row_id) for one in actual] == [(killed.mock_id, "row-2")]
    assert sorted(result) == [1, 2, 3, 4]
    assert "killed" in result[2]
    assert runner.counters.already == 2
    with file.open("a") as torn:
        torn.write('{"torn')
    runner, _ = await ran(home, path, target.url, FAST, results=file)
    assert len(results(file)) == 8, "another run of the same file is added behind"


async def test_the_tools_of_a_row_are_sent_with_it(
    home: Home, tmp_path: Path, target: Target
) -> None:
    path = tmp_path / "d.jsonl"
    tools = [{"type": "function", "function": {"name": "f"}}]
    path.write_bytes(msgspec.json.encode({"query": "a", "tools": tools}))
    await ran(home, path, target.url)
    assert [body["tools"] for body in target.bodies] == [tools]
