"""Version of the weights: training runs in state, versions of groups and candidates, its text."""

from typing import Any

import pytest

from core.events import (
    AnsweredCandidate,
    CandidatesAnswered,
    ClaimedEpisode,
    EngineChanged,
    EpisodesClaimed,
    Event,
    GroupOpened,
    TrainingRunIdentified,
    UpdateDone,
    decode,
    encode,
)
from core.state import State, WeightVersion, reduce
from core.state.server import RUN_CAP

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
