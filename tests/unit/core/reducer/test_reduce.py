"""Events in, state out: one table for each thing a screen shows."""

import msgspec
import pytest
from msgspec.structs import replace

from core.events import (
    AlertCleared,
    AlertRaised,
    AnsweredCandidate,
    AnswerReturned,
    CandidateFailed,
    CandidatesAnswered,
    CandidateScore,
    Checkpoint,
    CheckpointsListed,
    ClaimedEpisode,
    ClaimIntended,
    ClaimsReturned,
    EndedEpisode,
    EngineChanged,
    EngineLost,
    EpisodeAborted,
    EpisodesClaimed,
    EpisodesEnded,
    Event,
    GroupClosed,
    GroupLost,
    GroupOpened,
    GroupRated,
    GroupScored,
    GroupSealed,
    MockFinished,
    MockPaused,
    MockResumed,
    MockRowDone,
    MockStarted,
    Part,
    PoolChanged,
    ProxyStarted,
    RatingAwaited,
    RatingUndone,
    ScoringAbstained,
    SentReward,
    UpdateDone,
    decode,
    encode,
)
from core.state import TEXT_CAP, State, reduce
from tests.support.sample import group_events


def made(*events: Event) -> State:
    state = State()
    for number, event in enumerate(events, 1):
        reduce(state, msgspec.structs.replace(event, seq=number, at=event.at or float(number)))
    return state


START = ProxyStarted(
    client_uuid="c", pid=7, url="u", version="v", servers={"s": "http://x"}, rewards="builtin"
)
OPEN = GroupOpened(group_id="g", request_id="r", task_id="t", n=2, query="q", body={}, server="s")


def answer(index: int, text: str = "hi", truncated: bool = False) -> CandidatesAnswered:
    answered = AnsweredCandidate(
        index=index,
        message={"role": "assistant", "content": text},
        finish_reason="stop",
        seconds=0.5,
        truncated=truncated,
    )
    return CandidatesAnswered(group_id="g", candidates=(answered,))


GENERATED = (
    START,
    OPEN,
    ClaimIntended(group_id="g", n=2, discard_timeout=240),
    EpisodesClaimed(group_id="g", episodes=(ClaimedEpisode(0, "e0"),), step=3),
    EpisodesClaimed(group_id="g", episodes=(ClaimedEpisode(1, "e1"),), step=3, expires_at=99),
)
SCORED = GroupScored(
    group_id="g",
    scores=(
        CandidateScore(index=0, reward=0.2, parts=(Part(name="length", value=0.2),)),
        CandidateScore(index=1, reward=0.8),
    ),
    best=1,
    version="abc",
    seconds=0.1,
)
SEALED = GroupSealed(
    group_id="g",
    rewards=(
        SentReward(index=0, reward=0.2, advantage=-0.6),
        SentReward(index=1, reward=0.8, advantage=0.6),
    ),
    best=1,
    source="auto",
    spread=0.6,
)


def test_a_group_goes_through_its_phases() -> None:
    phases = []
    events: list[Event] = list(GENERATED)
    steps: tuple[Event, ...] = (
        answer(0),
        answer(1),
        SCORED,
        RatingAwaited(group_id="g", until=50, fallback="accept", why="window"),
        SEALED,
        EpisodesEnded(group_id="g", episodes=(EndedEpisode(0),)),
        EpisodesEnded(group_id="g", episodes=(EndedEpisode(1),)),
        GroupClosed(group_id="g", phase="DONE"),
    )
    for event in steps:
        events.append(event)
        phases.append(made(*events).groups["g"].phase)
    assert phases == [
        "GENERATING",
        "SCORING",
        "SCORING",
        "AWAITING_RATING",
        "SUBMITTING",
        "SUBMITTING",
        "SUBMITTING",
        "DONE",
    ]
    state = made(*events)
    group = state.groups["g"]
    assert [candidate.phase for candidate in group.candidates] == ["ended", "ended"]
    assert group.best == 1
    assert group.step == 3
    assert group.candidates[0].parts[0].name == "length"
    assert group.candidates[0].advantage == -0.6
    assert not group.open
    stats = state.servers["s"].steps[0]
    assert (stats.step, stats.groups, stats.rewards) == (3, 1, 2)
    assert abs(stats.mean - 0.5) < 1e-9
    assert abs(stats.std - 0.3) < 1e-9


def test_partial_claims_that_went_back_leave_no_trace() -> None:
    state = made(*GENERATED[:4], ClaimsReturned(group_id="g", episode_uuids=("e0",), cause="sync"))
    assert [candidate.episode_uuid for candidate in state.groups["g"].candidates] == ["", ""]
    assert state.groups["g"].phase == "CLAIMING"


def test_winner_and_returned_are_independent() -> None:
    state = made(
        *GENERATED,
        answer(0),
        AnswerReturned(group_id="g", index=0, why="provisional", waited=1.0),
        answer(1),
        SCORED,
    )
    group = state.groups["g"]
    assert (group.returned, group.best) == (0, 1)
    assert state.totals.answered == 1


def test_a_rating_and_its_undoing() -> None:
    rated = GroupRated(group_id="g", rating="best", order=(0,), rewards=(1.0, 0.0), rater="ann")
    state = made(*GENERATED, answer(0), answer(1), SCORED, rated)
    rating = state.groups["g"].rating
    assert rating is not None
    assert rating.rewards == (1.0, 0.0)
    assert state.totals.rated == 1
    state = made(*GENERATED, answer(0), answer(1), SCORED, rated, RatingUndone(group_id="g"))
    assert state.groups["g"].rating is None
    assert state.totals.rated == 0


def test_a_skip_is_not_counted_as_a_rating() -> None:
    rated = GroupRated(group_id="g", rating="best", order=(0,), rewards=(1.0, 0.0), rater="ann")
    skip = GroupRated(group_id="g", rating="skip", rater="ann")
    undone = RatingUndone(group_id="g")
    for votes, count, kind in (
        ([skip], 0, (False, True)),
        ([skip, rated], 1, (True, False)),
        ([rated, skip], 0, (False, True)),
        ([rated, skip, undone], 0, (False, False)),
        ([skip, rated, undone], 0, (False, False)),
    ):
        state = made(*GENERATED, answer(0), answer(1), SCORED, *votes)
        group = state.groups["g"]
        assert state.totals.rated == count
        assert (group.is_rated, group.is_skipped) == kind


def test_failed_abstained_and_aborted_say_why() -> None:
    state = made(
        *GENERATED,
        CandidateFailed(group_id="g", index=0, episode_uuid="e0", cause="lost"),
        ScoringAbstained(group_id="g", part="hook", cause="raised", traceback="T"),
        EpisodeAborted(group_id="g", index=1, episode_uuid="e1", reason="because"),
        GroupClosed(group_id="g", phase="ABORTED", cause="no reward"),
    )
    group = state.groups["g"]
    assert [candidate.error for candidate in group.candidates] == ["lost", "because"]
    assert (group.abstained, group.traceback) == ("hook: raised", "T")
    assert state.totals.aborted == 1


def test_long_text_is_shortened_and_marked() -> None:
    state = made(*GENERATED, answer(0, "x" * (TEXT_CAP + 1)), answer(1))
    first, second = state.groups["g"].candidates
    assert len(first.text) == TEXT_CAP
    assert first.cut
    assert not second.cut


def test_engine_spans_steps_and_loss() -> None:
    state = made(
        START,
        EngineChanged(server="s", state="OFFLINE"),
        EngineChanged(server="s", state="ROLLING", step=1),
        EngineChanged(server="s", state="ROLLING", step=1, detail="x"),
        PoolChanged(server="s", completed_tasks=2, task_target=4, repeats=4),
        EngineLost(server="s", error="refused", seen_at=4.0),
    )
    server = state.servers["s"]
    assert [span.state for span in server.spans] == ["OFFLINE", "ROLLING"]
    assert server.since == 3.0
    assert (server.state, server.lost, server.seen_at) == ("ROLLING", "refused", 4.0)
    assert server.pool is not None
    assert server.pool.completed_tasks == 2


def test_a_reset_of_the_policy_begins_another_curve() -> None:
    roll = [EngineChanged(server="s", state="ROLLING", step=step) for step in (1, 2, 3)]
    update = UpdateDone(server="s", step=2, stats={"kl": 0.1})
    state = made(START, *roll, update)
    assert [event.step for event in state.servers["s"].steps] == [1, 2, 3]
    assert state.servers["s"].steps[1].update == {"kl": 0.1}
    sync = EngineChanged(server="s", state="OFFLINE", step=0)
    assert [event.step for event in made(START, *roll, sync, roll[0]).servers["s"].steps] == [1]


def test_the_open_engine_span_has_the_present_step() -> None:
    def spans_of(*states: tuple[str, int]) -> list[tuple[str, int | None]]:
        result = [EngineChanged(server="s", state=state, step=step) for state, step in states]
        return [(span.state, span.step) for span in made(START, *result).servers["s"].spans]

    sync = ("WEIGHT_SYNCING", 1)
    late = spans_of(("ROLLING", 1), sync, ("ROLLING", 1), ("ROLLING", 2), ("ROLLING", 2))
    assert late == [("ROLLING", 1), sync, ("ROLLING", 2)]
    assert spans_of(("ROLLING", 0), ("ROLLING", 1)) == [("ROLLING", 1)]
    unseen = spans_of(("ROLLING", 1), ("ROLLING", 2))  # too short a sync to be seen
    assert unseen == [("ROLLING", 1), ("ROLLING", 2)]


def test_a_step_back_keeps_the_curve_up_to_there() -> None:
    roll = [EngineChanged(server="s", state="ROLLING", step=step) for step in (1, 2, 3, 4)]
    updates = [UpdateDone(server="s", step=step, stats={"kl": step / 10}) for step in (1, 2, 3)]
    off = EngineChanged(server="s", state="OFFLINE", step=0)
    steps = made(START, *roll, *updates, off, roll[1]).servers["s"].steps
    assert [(event.step, event.update) for event in steps] == [(1, {"kl": 0.1}), (2, {})]


def test_an_update_names_the_source_of_its_figures() -> None:
    server = made(
        START,
        UpdateDone(server="s", step=1, stats={"kl": 0.1}),
        UpdateDone(server="s", step=2, stats={"no_signal_share": 0.5}, source="pool"),
        EngineChanged(server="s", state="ROLLING", step=3),
    ).servers["s"]
    assert [step.update_source for step in server.steps] == ["engine", "pool", ""]
    assert server.last_update is server.steps[1]
    old = b'{"kind":"update_done","seq":3,"server":"s","step":1,"stats":{"kl":0.1}}'
    read = decode(old)
    assert isinstance(read, UpdateDone)
    assert read.source == "engine"


def test_checkpoints_are_what_was_last_listed() -> None:
    one = Checkpoint(name="mine", step=4, at=1.0)
    state = made(START)
    assert state.servers["s"].checkpoints is None
    listed = CheckpointsListed(server="s", checkpoints=(one,), more=2)
    assert decode(encode(listed)) == listed
    server = made(START, listed).servers["s"]
    assert (server.checkpoints, server.checkpoints_more) == ((one,), 2)
    not_offered = CheckpointsListed(server="s", offered=False)
    assert made(START, listed, not_offered).servers["s"].checkpoints is None
    again = msgspec.json.decode(msgspec.json.encode(made(START, listed)), type=State)
    assert again.servers["s"].checkpoints == (one,)


def test_a_group_with_a_truncated_prompt_is_marked() -> None:
    cut = answer(1, truncated=True)
    assert not made(OPEN, answer(0)).groups["g"].prompt_cut
    assert made(OPEN, answer(0), cut).groups["g"].prompt_cut


def test_alerts_come_and_go() -> None:
    raised = AlertRaised(key="k", cause="c")
    assert list(made(raised).alerts) == ["k"]
    assert not made(raised, AlertCleared(key="k")).alerts


def test_the_mock_user() -> None:
    begin = MockStarted(mock_id="m", dataset="d", target="t", total=3, done=1)
    row = MockRowDone(mock_id="m", row_id="1", query="q", ok=False, seconds=1, error="e")
    state = made(begin, row, MockPaused(mock_id="m"))
    assert state.mock is not None
    assert (state.mock.done, state.mock.failed, state.mock.phase) == (1, 1, "paused")
    state = made(begin, MockPaused(mock_id="m"), MockResumed(mock_id="m"))
    assert state.mock is not None
    assert state.mock.phase == "running"
    state = made(begin, MockFinished(mock_id="m", how="finished"), MockPaused(mock_id="m"))
    assert state.mock is not None
    assert state.mock.phase == "finished"
    state = made(begin, MockRowDone(mock_id="old", row_id="1", query="q", ok=True, seconds=1))
    assert state.mock is not None
    assert state.mock.done == 0


def test_events_of_an_unknown_group_change_nothing() -> None:
    state = made(START, SCORED)
    assert not state.groups


def _sealed_under(group: str, step: int) -> list[Event]:
    claimed = replace(GENERATED[3], group_id=group, step=step)
    return [replace(OPEN, group_id=group), claimed, replace(SEALED, group_id=group)]


def _engine(*states: tuple[str, int]) -> list[Event]:
    return [EngineChanged(server="s", state=state, step=step) for state, step in states]


def test_the_groups_of_a_stopped_run_are_not_those_of_the_next() -> None:
    """The same experiment continues with the step whose batch was never trained."""
    server = made(
        START,
        *_engine(("OFFLINE", 0), ("BOOTING", 0), ("ROLLING", 1)),
        *_sealed_under("a", 1),
        *_engine(("ROLLING", 2)),
        *_sealed_under("lost", 2),
        *_engine(("OFFLINE", 0), ("BOOTING", 0), ("ROLLING", 2)),
        *_sealed_under("b", 2),
        *_sealed_under("c", 2),
    ).servers["s"]
    assert [(step.step, step.engine_run, step.groups) for step in server.steps] == [
        (1, 1, 1),
        (2, 2, 2),
    ]


def test_a_finished_group_that_the_engine_discarded_is_not_counted_as_finished() -> None:
    lost = GroupLost(server="embedded", group_id="g0001", cause="an engine restart")
    events = [*group_events(1), *group_events(2)]
    before = [*group_events(2), *group_events(1)]
    state = made(*events)
    assert (state.totals.done, state.totals.lost) == (2, 0)
    assert not state.groups["g0001"].discarded
    for late in ([*events, lost], [*events, lost, lost], [*before[:-1], lost, before[-1]]):
        state = made(*late)
        assert (state.totals.done, state.totals.lost) == (1, 1)
        assert state.groups["g0001"].discarded
        assert state.groups["g0001"].lost == "an engine restart"
    assert decode(encode(lost)) == lost


def test_a_group_that_failed_after_the_engine_discarded_it_is_not_counted_as_lost() -> None:
    lost = GroupLost(server="embedded", group_id="g0001", cause="an engine restart")
    events = group_events(1, until="ABORTED")
    state = made(*events[:-1], lost, events[-1])
    assert (state.totals.done, state.totals.lost, state.totals.aborted) == (0, 0, 1)
    assert not state.groups["g0001"].discarded


def test_a_group_of_an_earlier_run_counts_in_no_step() -> None:
    open_group, claimed, sealed = _sealed_under("late", 1)
    server = made(
        START,
        *_engine(("ROLLING", 1)),
        open_group,
        claimed,
        *_engine(("OFFLINE", 0), ("BOOTING", 0), ("ROLLING", 1)),
        sealed,
    ).servers["s"]
    assert [(step.step, step.engine_run, step.groups) for step in server.steps] == [(1, 1, 0)]


@pytest.mark.parametrize(
    ("states", "runs"),
    [
        ((("ROLLING", 1), ("WEIGHT_SYNCING", 1), ("ROLLING", 2)), 0),
        ((("OFFLINE", 0), ("BOOTING", 0), ("BOOTING", 0), ("ROLLING", 1)), 1),
        ((("OFFLINE", 0), ("ROLLING", 1), ("OFFLINE", 0), ("ROLLING", 2)), 2),
        ((("ROLLING", 5), ("BOOTING", 0), ("ROLLING", 5)), 1),
        ((("ROLLING", 5), ("ROLLING", 1)), 1),
        ((("ROLLING", 5), ("UNKNOWN", 0), ("ROLLING", 5)), 0),
    ],
)
def test_each_start_of_the_engine_is_a_run(states: tuple[tuple[str, int], ...], runs: int) -> None:
    assert made(START, *_engine(*states)).servers["s"].engine_run == runs
