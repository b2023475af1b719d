"""Summaries of engine runs: when they begin and end, and what is counted in them."""

import itertools
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ajet_swarm.job.tree import dump_job
from core.events import (
    EVENT_KINDS,
    EngineChanged,
    EngineLost,
    Event,
    GroupSealed,
    JobSent,
    LookEnded,
    PoolChanged,
    ProxyStarted,
    ProxyStopped,
    RewardPart,
    RewardsChanged,
    RunNamed,
    RunNoted,
    RunPinned,
    TrainingRunIdentified,
    UpdateDone,
    WorkChanged,
    decode,
    encode,
)
from core.jobs import default_job
from core.state import EngineRun, State, reduce
from core.state.rating import Rating, combine
from core.state.runs import CURVE_CAP, ENGINE_RUN_CAP
from core.verdict.conclusion import judge
from tests.support.recorded.views import (
    differences,
    json_view,
    read_lines,
    recorded_events,
    recorded_runs,
    views,
)
from tests.support.sample import group_events

JOB = dump_job(default_job("tiny"))


def engine(state: str, step: int | None = None, server: str = "embedded") -> EngineChanged:
    return EngineChanged(server=server, state=state, step=step)


def state_at(events: Iterable[Event], state: State | None = None) -> State:
    """What the reducer makes of the events, one second apart."""
    state = state or State()
    for event in events:
        seq = state.seq + 1
        reduce(state, replace(event, seq=seq, at=float(seq)))
    return state


def started(url: str = "http://a:1", **servers: str) -> ProxyStarted:
    return ProxyStarted(
        client_uuid="c",
        pid=1,
        url="http://127.0.0.1:8000",
        version="1",
        servers=servers or {"gpu": url},
        embedded=(),
        rewards="builtin",
    )


def only_run(state: State) -> EngineRun:
    (run,) = state.engine_runs.runs
    return run


def test_a_run_lasts_from_a_start_to_the_stop() -> None:
    state = state_at(
        [
            engine("OFFLINE"),
            JobSent(server="embedded", yaml=JOB),
            WorkChanged(server="embedded", work="Start", steps=()),
            engine("BOOTING"),
            WorkChanged(server="embedded", work="Start", steps=(), phase="done"),
            TrainingRunIdentified(server="embedded", number=1, name="ajet-console.1"),
            engine("ROLLING", 1),
            PoolChanged(server="embedded", model="tiny-0.9m"),
            *group_events(1, step=1),
            engine("WEIGHT_SYNCING", 1),
            UpdateDone(server="embedded", step=1, stats={}),
            engine("ROLLING", 2),
            *group_events(2, step=2, rewards=(0.9, 1.0, 0.9, 1.0)),
            *group_events(3, step=2, rewards=(1.0, 1.0, 1.0, 1.0)),
        ]
    )
    run = only_run(state)
    assert run.running
    assert (run.number, run.server, run.engine_run) == (1, "embedded", 1)
    assert (run.first_seq, run.began, run.last_seq, run.ended) == (4, 4.0, 0, None)
    assert state.engine_runs.job_of(run) == JOB
    assert (run.model, run.weights) == ("tiny-0.9m", ["ajet-console.1"])
    assert (run.first_step, run.last_step, run.updates) == (1, 2, 1)
    assert (run.groups, run.dead, run.rated) == (3, 1, 0)
    assert run.first_reward is not None
    assert run.first_reward.mean == pytest.approx(0.4)
    assert [point.step for point in run.curve] == [1, 2]
    assert run.curve[-1].mean == pytest.approx(0.975)
    assert run.last_reward == run.first_reward  # step 2 is not finished
    state_at([engine("ROLLING", 3)], state)
    assert run.last_reward is run.curve[-1]
    end = state.seq + 1
    state_at([engine("OFFLINE")], state)
    assert (run.last_seq, run.ended, run.ending) == (end, float(end), "stopped")
    assert not state.engine_runs.current
    state_at([engine("BOOTING"), engine("ROLLING", 2)], state)
    assert [run.number for run in state.engine_runs.runs] == [1, 2]
    assert state.engine_runs.numbered(2) is state.engine_runs.running_on("embedded")


def test_the_job_is_unknown_if_another_client_started_the_engine() -> None:
    state = state_at(
        [JobSent(server="embedded", yaml=JOB), engine("OFFLINE"), engine("ROLLING", 1)]
    )
    assert only_run(state).job == ""
    assert not state.engine_runs.jobs


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([engine("BOOTING")], "restarted"),
        ([EngineLost(server="embedded", error="x", seen_at=3.0), engine("OFFLINE")], "unseen"),
        (
            [WorkChanged(server="embedded", work="Apply a job", steps=()), engine("OFFLINE")],
            "job",
        ),
    ],
)
def test_how_a_run_ended(events: list[Event], ending: str) -> None:
    state = state_at([engine("OFFLINE"), engine("ROLLING", 5), engine("ROLLING", 6), *events])
    assert state.engine_runs.runs[0].ending == ending


def test_a_run_that_nothing_watched_ended_with_its_last_sign() -> None:
    state = state_at([started(), engine("ROLLING", 1, "gpu"), engine("ROLLING", 2, "gpu")])
    state_at([started(), started(), engine("OFFLINE", server="gpu")], state)
    run = only_run(state)
    assert (run.began, run.ended, run.ending) == (2.0, 3.0, "unseen")


def test_the_last_sign_is_the_stop_of_the_proxy_or_the_last_answer() -> None:
    rolling = [started(embedded="http://a:1"), engine("OFFLINE"), engine("ROLLING", 1)]
    stop = ProxyStopped(reason="asked to")
    assert only_run(state_at([*rolling, RunNoted(first_seq=3, note="idle"), stop])).active == 5.0
    lost = EngineLost(server="embedded", error="connection refused", seen_at=3.5)
    assert only_run(state_at([*rolling, lost, stop])).active == 3.5


def test_the_run_of_a_server_that_is_gone_or_replaced_ends() -> None:
    rolling = engine("ROLLING", 1, "gpu")
    for later in (started(other="http://b:1"), started("http://b:1")):
        state = state_at([started(), rolling, later])
        assert only_run(state).ending == "removed"
    assert only_run(state_at([started(), rolling, started()])).running


def test_a_step_that_goes_back_begins_another_run() -> None:
    state = state_at(
        [engine("OFFLINE"), engine("ROLLING", 5), engine("WEIGHT_SYNCING", 5), engine("ROLLING", 1)]
    )
    assert [(run.first_step, run.ending) for run in state.engine_runs.runs] == [
        (5, "restarted"),
        (1, ""),
    ]


def test_nothing_runs_on_a_server_that_is_observed() -> None:
    state = state_at([engine("OBSERVING"), *group_events(1)])
    assert not state.engine_runs.runs


def test_ratings_versions_and_verdict_are_recorded() -> None:
    parts = (RewardPart(name="length", kind="length", weight=0.3),)
    events = [
        replace(event, source="human") if isinstance(event, GroupSealed) else event
        for event in group_events(1)
    ]
    verdict = judge([[0.1] * 40] * 4, [[0.9] * 40] * 4, 1)
    state = state_at(
        [
            engine("ROLLING", 1),
            RewardsChanged(source="builtin", ok=True, version="v1", parts=parts),
            *events,
            LookEnded(
                server="embedded",
                look_id="l",
                role="look",
                outcome="complete",
                step=7,
                verdict=verdict,
            ),
        ]
    )
    run = only_run(state)
    assert (run.rated, run.rewards) == (1, ["v1"])
    assert (run.verdict, run.verdict_step) == (verdict, 7)
    assert state.engine_runs.rewards == {"v1": parts}


def test_name_note_and_pin_are_found_by_the_first_event() -> None:
    state = state_at([engine("ROLLING", 1)])
    run = only_run(state)
    for event in (
        RunNamed(first_seq=1, name="good"),
        RunNoted(first_seq=1, note="why"),
        RunPinned(first_seq=1, pinned=True),
        RunPinned(first_seq=99, pinned=False),
    ):
        state_at([decode(encode(event))], state)
    assert (run.name, run.note, run.pinned) == ("good", "why", True)


@pytest.mark.slow
def test_a_long_curve_is_thinned_evenly_and_keeps_the_mean() -> None:
    steps = 1_000
    state = state_at([engine("ROLLING", 1)])
    for step in range(1, steps + 1):
        level = step / (2 * steps)
        sealed = [
            event
            for event in group_events(step, step=step, rewards=(level, level + 0.1))
            if not isinstance(event, EngineChanged)
        ]
        state_at([engine("ROLLING", step), *sealed], state)
        assert len(only_run(state).curve) <= CURVE_CAP
    run = only_run(state)
    assert sum(point.steps for point in run.curve) == steps
    mean = sum(point.mean * point.steps for point in run.curve) / steps
    assert mean == pytest.approx((steps + 1) / (4 * steps) + 0.05, abs=1e-3)
    assert {point.steps for point in run.curve[1:-6]} == {run.stride}
    assert (run.curve[-1].step, run.curve[-1].steps) == (steps, 1)


def test_a_late_group_changes_the_figure_of_its_step() -> None:
    state = state_at([engine("ROLLING", 1), *group_events(1, step=1), engine("ROLLING", 2)])
    state_at([*group_events(2, step=2), *group_events(3, step=1, rewards=(0.0, 0.2))], state)
    curve = only_run(state).curve
    assert [point.step for point in curve] == [1, 2]
    assert curve[0].mean == pytest.approx((4 * 0.4 + 2 * 0.1) / 6, abs=1e-4)


def test_the_oldest_run_without_a_pin_is_dropped() -> None:
    state = State()
    for number in itertools.count(1):
        state_at([JobSent(server="embedded", yaml=f"ajet: {{n: {number}}}")], state)
        state_at([engine("OFFLINE"), engine("BOOTING")], state)
        if number == 1:
            state_at([RunPinned(first_seq=state.seq, pinned=True)], state)
        if number == ENGINE_RUN_CAP + 5:
            break
    runs = state.engine_runs
    numbers = [run.number for run in runs.runs]
    assert numbers == [1, *range(7, ENGINE_RUN_CAP + 6)]
    assert runs.numbered(1) is runs.runs[0]
    assert runs.numbered(2) is None
    assert set(runs.jobs) == {run.job for run in runs.runs if run.job}


def test_spans_of_pinned_runs_are_joined() -> None:
    state = state_at([engine("ROLLING", 1), engine("ROLLING", 1, "gpu")])
    state_at([engine("OFFLINE"), engine("OFFLINE", server="gpu"), engine("BOOTING")], state)
    runs = state.engine_runs.runs
    for run in runs[:2]:
        run.pinned = True
    assert state.engine_runs.pinned_spans() == [(1, 4)]
    runs[2].pinned = True
    assert state.engine_runs.pinned_spans()[-1] == (5, (1 << 63) - 1)


def test_a_state_written_before_has_no_runs_and_reads() -> None:
    old = {
        key: value for key, value in msgspec.to_builtins(State()).items() if key != "engine_runs"
    }
    assert msgspec.convert(old, State).engine_runs.runs == []


def best(index: int) -> Rating:
    """A vote for one of three answers."""
    rewards = tuple(float(place == index) for place in range(3))
    return Rating(rating="best", order=(index,), rewards=rewards)


def test_the_reward_of_an_answer_is_its_mean_over_the_votes() -> None:
    ranking = Rating(rating="ranking", order=(1, 0, 2), rewards=(0.5, 1.0, 0.0))
    mixed = combine([best(0), ranking])
    assert (mixed.rating, mixed.order) == ("scores", ())
    assert mixed.rewards == mixed.scores == (0.75, 0.5, 0.0)
    three = combine([best(0), best(1), best(1)])
    assert three.rewards == pytest.approx((1 / 3, 2 / 3, 0.0))


def test_equal_votes_remain_that_vote() -> None:
    same = combine([best(2), best(2)])
    assert (same.rating, same.order, same.scores) == ("best", (2,), ())
    bad = Rating(rating="bad", rewards=(0.0, 0.0, 0.0))
    tie = Rating(rating="tie", rewards=(0.5, 0.5, 0.5))
    assert combine([bad, bad]).rating == "bad"
    assert combine([bad, tie]) == Rating(rating="scores", scores=(0.25,) * 3, rewards=(0.25,) * 3)


def test_a_skip_judges_nothing() -> None:
    skip = Rating(rating="skip")
    assert combine([skip, best(1)]).rewards == (0.0, 1.0, 0.0)
    assert combine([skip, skip]) == Rating(rating="skip")


@pytest.mark.slow
@pytest.mark.parametrize("name", recorded_runs())
def test_a_recorded_run_replays_to_its_views(name: str) -> None:
    stored, events = read_lines(name, "views"), recorded_events(name)
    for record, seq, old, new in differences(stored, views(events)):
        assert new == old, f"{record} after event {seq}"
    whole: dict[str, Any] = {}
    for view in stored:
        gone = view["gone"]
        whole = {key: old for key, old in whole.items() if key not in gone} | view["changed"]
    state = State()
    for recorded in events:
        if recorded.event is not None:
            reduce(state, recorded.event)
    assert json_view(state) == whole


def test_every_kind_of_event_that_the_program_publishes_is_recorded() -> None:
    recorded = {
        line.event.kind
        for name in recorded_runs()
        for line in recorded_events(name)
        if line.event is not None
    }
    assert {str(kind.__struct_config__.tag) for kind in EVENT_KINDS} <= recorded
