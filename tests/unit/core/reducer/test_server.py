"""The state of a server: its starts, steps and weights."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from core.events import (
    AnsweredCandidate,
    CandidatesAnswered,
    CandidateScore,
    ClaimedEpisode,
    EngineChanged,
    EpisodesClaimed,
    Event,
    GroupOpened,
    GroupRated,
    GroupScored,
    GroupSealed,
    JobSent,
    OperationStep,
    ProxyStarted,
    ScoringAbstained,
    TrainingRunIdentified,
    UpdateDone,
    WorkChanged,
    decode,
    encode,
)
from core.scoring.rating import RatingInput, rating_rewards
from core.state import Server, State, StepStats, WeightVersion, reduce
from core.state.server import RUN_CAP
from tests.support.sample import group_events, stamp, state_of

URL = "http://gpu:10086"


def proxy(url: str = URL, name: str = "gpu") -> ProxyStarted:
    return ProxyStarted(
        client_uuid="me",
        pid=1,
        url="http://127.0.0.1:8000",
        version="1",
        servers={name: url},
        rewards="builtin",
    )


def engine(state: str, step: int | None = None, name: str = "gpu") -> EngineChanged:
    return EngineChanged(server=name, url=URL, state=state, raw=f"ENGINE.{state}", step=step)


def work(phase: str) -> WorkChanged:
    step = OperationStep(title="start the engine", phase="done", began=1.0, ended=2.0)
    return WorkChanged(server="gpu", work="Resume", steps=(step,), phase=phase)


def server(*events: Event, name: str = "gpu") -> Server:
    state = State()
    for event in events:
        reduce(state, stamp(event, state.seq + 1))
    return state.servers[name]


@pytest.mark.parametrize(
    ("events", "foreign"),
    [
        ([proxy(), engine("ROLLING", 3)], True),
        ([proxy(), engine("OFFLINE"), engine("BOOTING")], True),
        ([proxy(), engine("OFFLINE"), work("doing"), engine("BOOTING"), work("done")], False),
        ([proxy(), engine("OFFLINE"), work("doing"), work("done"), engine("BOOTING")], False),
        ([proxy(), engine("OFFLINE"), work("doing"), proxy(), engine("ROLLING", 1)], False),
        ([proxy(), JobSent(server="gpu", yaml="ajet: {}"), engine("ROLLING", 1)], False),
        ([proxy(), engine("ROLLING", 1), JobSent(server="gpu", yaml="ajet: {}")], False),
    ],
    ids=[
        "running when first seen",
        "started by another client",
        "ordered",
        "ordered and seen late",
        "ordered by a proxy that was killed",
        "its job was sent from here",
        "a job was sent since",
    ],
)
def test_a_start_that_was_not_ordered_here(events: list[Event], foreign: bool) -> None:
    assert (server(*events).foreign_start > 0) is foreign


def test_nothing_known_of_a_server_counts_for_another_of_its_name() -> None:
    sent = JobSent(server="gpu", yaml="ajet: {}")
    same = server(proxy(), sent, engine("ROLLING", 4), proxy())
    assert same.job is not None
    assert same.steps
    other = server(proxy(), sent, engine("ROLLING", 4), proxy("http://other:10086"))
    assert other.url == "http://other:10086"
    assert other.job is None
    assert not other.steps


def test_the_embedded_engine_stays_the_same_on_another_port() -> None:
    sent = JobSent(server="embedded", yaml="ajet: {}")
    moved = server(
        proxy("http://127.0.0.1:1", "embedded"),
        sent,
        proxy("http://127.0.0.1:2", "embedded"),
        name="embedded",
    )
    assert moved.job is not None
    assert moved.url == "http://127.0.0.1:2"


AUTO = (0.2, 0.9, 0.4, 0.1)
MEAN = sum(AUTO) / 4


def rated(number: int, rating: RatingInput, step: int = 1) -> list[Event]:
    """A group with automatic rewards for which a human rating is sent."""
    rewards = [value or 0.0 for value in rating_rewards(rating, 4)]
    events: list[Event] = []
    for event in group_events(number, step=step, rewards=AUTO):
        if isinstance(event, GroupSealed):
            events.append(
                GroupRated(
                    group_id=event.group_id,
                    server=event.server,
                    rating=rating.kind,
                    order=rating.order,
                    scores=rating.scores,
                    rewards=tuple(rewards),
                )
            )
            events.append(human(event, rewards))
        else:
            events.append(event)
    return events


def human(event: GroupSealed, rewards: Sequence[float]) -> GroupSealed:
    sent = zip(event.rewards, rewards, strict=True)
    return replace(
        event,
        source="human",
        rewards=tuple(replace(reward_sent, reward=value) for reward_sent, value in sent),
    )


def stats_of(*events: Event) -> StepStats:
    state = state_of(EngineChanged(server="embedded", state="ROLLING", step=1), *events)
    return state.servers["embedded"].steps[-1]


@pytest.mark.parametrize(
    ("rating", "winner"),
    [
        (RatingInput("best", order=(1,)), 1.0),
        (RatingInput("best", order=(0,)), 0.0),
        (RatingInput("ranking", order=(0, 1, 2, 3)), 2 / 3),
        (RatingInput("scores", scores=(0.1, 0.8, 0.2, 0.0)), 0.8),
        (RatingInput("tie"), 0.5),
        (RatingInput("bad"), 0.0),
    ],
)
def test_a_ballot_leaves_the_automatic_series_as_it_is(rating: RatingInput, winner: float) -> None:
    stats = stats_of(*group_events(1, rewards=AUTO), *rated(2, rating))
    assert stats.auto == 8
    assert stats.auto_mean == pytest.approx(MEAN)
    assert (stats.by_hand, stats.hand) == (1, 1)
    assert stats.hand_mean == pytest.approx(winner)


def test_accepted_groups_are_automatic() -> None:
    stats = stats_of(*group_events(1, rewards=AUTO), *group_events(2, rewards=AUTO))
    assert (stats.auto, stats.by_hand, stats.hand) == (8, 0, 0)
    assert stats.auto_mean == stats.mean


def test_a_rescored_group_counts_with_its_newest_automatic_rewards() -> None:
    events = rated(1, RatingInput("best", order=(0,)))
    at = next(place for place, event in enumerate(events) if isinstance(event, GroupRated))
    scores = tuple(CandidateScore(index=index, reward=index / 4) for index in range(4))
    again = GroupScored(
        group_id="g0001", server="embedded", scores=scores, best=3, version="v2", seconds=0.1
    )
    stats = stats_of(*events[:at], again, *events[at:])
    assert stats.auto_mean == pytest.approx(0.375)
    assert stats.hand_mean == 0.0  # the winner is candidate 4 now


def test_equal_automatic_winners_count_as_their_mean() -> None:
    equal = [
        replace(
            event,
            scores=tuple(CandidateScore(index=at, reward=0.5) for at in range(4)),
        )
        if isinstance(event, GroupScored)
        else event
        for event in rated(1, RatingInput("best", order=(2,)))
    ]
    assert stats_of(*equal).hand_mean == 0.25


def test_without_automatic_rewards_a_rating_enters_no_series() -> None:
    events = [
        ScoringAbstained(group_id="g0001", server="embedded", part="hook", cause="None")
        if isinstance(event, GroupScored)
        else event
        for event in rated(1, RatingInput("best", order=(0,)))
    ]
    stats = stats_of(*events)
    assert (stats.auto, stats.by_hand, stats.hand) == (0, 1, 0)


def test_a_group_whose_scores_are_not_in_the_journal_counts_as_sent() -> None:
    events = [
        event for event in group_events(1, rewards=AUTO) if not isinstance(event, GroupScored)
    ]
    assert stats_of(*events).auto_mean == pytest.approx(MEAN)


RUN = TrainingRunIdentified(server="s", number=1, name="5d41402a")


def rolls(step: int, state: str = "ROLLING") -> EngineChanged:
    return EngineChanged(server="s", state=state, step=step)


def opened(group: str = "g") -> GroupOpened:
    return GroupOpened(
        server="s", group_id=group, request_id="r", task_id="t", n=2, query="q", body={}
    )


def claimed(step: int | None, run: int, group: str = "g", *indices: int) -> EpisodesClaimed:
    episodes = tuple(ClaimedEpisode(index, f"e{index}") for index in indices or (0, 1))
    return EpisodesClaimed(server="s", group_id=group, episodes=episodes, step=step, run=run)


def answered(index: int = 0, **more: Any) -> CandidatesAnswered:
    one = AnsweredCandidate(index, {"content": "x"}, "stop", 0.1, **more)
    return CandidatesAnswered(server="s", group_id="g", candidates=(one,))


def made(*events: Event) -> State:
    state = State()
    for event in events:
        reduce(state, event)
    return state


def test_a_group_and_its_candidates_have_the_weights_of_the_claim() -> None:
    state = made(rolls(3), RUN, opened(), claimed(3, 1), rolls(4))
    assert state.weights_of(state.groups["g"]) == WeightVersion(server="s", run="5d41402a", step=3)
    assert state.weights_text(state.groups["g"]) == "s/5d41402a/3"
    assert state.current_weights(state.servers["s"]).text == "s/5d41402a/4"


def test_a_candidate_claimed_again_under_a_later_step_has_that_step() -> None:
    state = made(rolls(3), RUN, opened(), claimed(3, 1), claimed(4, 1, "g", 1))
    group = state.groups["g"]
    assert [state.weights_of(group, index).text for index in (0, 1)] == [
        "s/5d41402a/3",
        "s/5d41402a/4",
    ]


def test_a_step_that_changed_between_claim_and_answer_is_stated() -> None:
    state = made(rolls(3), RUN, opened(), claimed(3, 1), answered(later_step=4))
    group = state.groups["g"]
    assert state.weights_of(group, 0).text == "s/5d41402a/3-4"
    assert state.weights_of(group, 1).text == "s/5d41402a/3"


def test_a_step_that_the_server_reports_replaces_that_of_the_claim() -> None:
    state = made(rolls(3), RUN, opened(), claimed(3, 1), answered(step=4))
    assert state.weights_of(state.groups["g"], 0).text == "s/5d41402a/4"
    assert state.groups["g"].step == 4


def test_the_run_is_unknown_after_a_start_until_it_is_identified_again() -> None:
    state = made(rolls(3), RUN)
    server = state.servers["s"]
    assert server.run_number == 1
    for event in (rolls(0, "OFFLINE"), rolls(0, "BOOTING"), rolls(3)):
        reduce(state, event)
    assert server.run_number == 0
    assert state.current_weights(server).text == "s/-/3"
    reduce(state, RUN)  # the embedded engine continues its run
    assert (server.run_number, len(server.runs)) == (1, 1)
    reduce(state, TrainingRunIdentified(server="s", number=2, name="7d793037", start="step-2"))
    assert state.current_weights(server).text == "s/7d793037/3/step-2"
    assert state.weights("s", 1, 3).text == "s/5d41402a/3"


def test_an_update_has_the_run_of_its_step() -> None:
    state = made(rolls(1), RUN)
    assert state.servers["s"].steps[-1].run == 1  # its step began before the run was known
    reduce(state, UpdateDone(server="s", step=7, stats={"kl": 0.1}, run=1))
    reduce(state, rolls(8))
    assert [(step.step, step.run) for step in state.servers["s"].steps] == [(1, 1), (7, 1), (8, 1)]


def test_the_number_of_runs_in_state_is_limited() -> None:
    state = made(rolls(1))
    for number in range(1, RUN_CAP + 11):
        reduce(state, TrainingRunIdentified(server="s", number=number, name=f"run.{number}"))
    runs = state.servers["s"].runs
    assert (len(runs), runs[0].number, runs[-1].number) == (RUN_CAP, 11, RUN_CAP + 10)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (WeightVersion(server="s"), "s/-/-"),
        (WeightVersion(server="a/b", run="x y", step=0), "a%2Fb/x%20y/0"),
        (WeightVersion(server="é", run="r\r\nX: a", step=1), "%C3%A9/r%0D%0AX:%20a/1"),
        (
            WeightVersion(server="s", run="math.3", step=40, checkpoint="/models/Qwen 2"),
            "s/math.3/40//models/Qwen%202",
        ),
    ],
)  # fmt: skip
def test_the_text_is_printable_ascii_in_one_line(version: WeightVersion, text: str) -> None:
    assert version.text == text
    assert text.isascii()
    assert text.isprintable()


def test_groups_of_an_unknown_run_have_their_step() -> None:
    without_run = (
        b'{"kind":"episodes_claimed","seq":2,"server":"s","group_id":"g",'
        b'"episodes":[{"index":0,"episode_uuid":"e0"}],"step":5}'
    )
    state = made(rolls(5), RUN, opened(), decode(without_run))
    assert state.weights_text(state.groups["g"]) == "s/-/5"


def test_a_request_takes_few_bytes_more_in_the_journal() -> None:
    """The run is a number; steps that did not change are not repeated."""

    before, after = claimed(17, 0), claimed(17, 12)
    assert len(encode(after)) - len(encode(before)) == len(',"run":12') == 9
    assert b"step" not in encode(answered())
