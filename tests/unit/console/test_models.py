"""Losses, fields of a job, the trend of the reward."""

import random

import msgspec
import pytest

from ajet_swarm.common.errors import UsageError
from ajet_swarm.job.schema import (
    BATCH,
    EPOCHS,
    GPUS,
    KL,
    LEARNING_RATE,
    MODEL,
    NODES,
    PROMPT,
    REPEAT,
    RESPONSE,
    STOP_RULE,
    STOP_RULES,
    TEMPERATURE,
    TURN,
    WINDOW,
)
from ajet_swarm.job.tree import dump_job, get, load_job
from console.models.job_fields import BY_NAME, FIELDS, RULES, FieldError
from console.models.job_form import (
    JobDraft,
    change_words,
    difference,
    parse_set,
    values,
    with_values,
)
from console.models.reward_trend import reward_trend
from console.screens.requests.marked import abort_cost
from core.commands.plan_engines import stop_loss, waiting_loss
from core.control_payloads import JobInfo
from core.events import EngineChanged, Event, GroupLost, GroupSealed, PoolChanged, RatingAwaited
from core.jobs import default_job, hand_job
from core.state import RunPoint
from tests.support.checks import present
from tests.support.sample import NOW, group_events, state_of


def test_a_restart_states_the_fate_of_waiting_groups() -> None:
    def waits(number: int, fallback: str, why: str) -> list[Event]:
        awaited = RatingAwaited(
            group_id=f"g{number:04}", until=NOW + 60, fallback=fallback, why=why, at=NOW
        )
        return [*group_events(number, at=NOW - 9, until="AWAITING_RATING"), awaited]

    state = state_of(
        *waits(1, "accept", "answer_first"),
        *waits(2, "accept", "hold"),
        *waits(3, "abort", "abstained"),
        *waits(4, "accept", "window"),
    )
    assert waiting_loss(state) == [
        "2 groups wait for your rating: after 10 s the automatic rewards are sent for unrated "
        "groups.",
        "1 group waits for your rating: after 10 s unrated groups are given up, nothing is sent.",
    ]
    assert waiting_loss(state_of()) == []


def test_an_abort_before_any_episode_is_claimed_says_so() -> None:
    state = state_of(*group_events(1, at=NOW, until="CLAIMING"))
    (group,) = state.groups.values()
    assert abort_cost(state, [group]).startswith("No episode is claimed.")


def test_a_stop_states_the_number_of_human_rated_groups_in_the_pool() -> None:
    def engine(state: str, at: float, step: int = 7) -> Event:
        return EngineChanged(server="embedded", state=state, step=step, at=at)

    def by_hand(number: int, at: float, server: str = "embedded") -> list[Event]:
        return [
            msgspec.structs.replace(event, source="human")
            if isinstance(event, GroupSealed)
            else event
            for event in group_events(number, at=at, step=7, server=server)
        ]

    def pool(tasks: int) -> Event:
        return PoolChanged(server="embedded", completed_tasks=tasks, at=NOW)

    def pool_line(*events: Event) -> str:
        state = state_of(*events)
        (line,) = [one for one in stop_loss(state, state.servers["embedded"]) if "The pool" in one]
        return line

    story = [
        engine("ROLLING", NOW - 300, step=6),
        *by_hand(1, NOW - 290),
        engine("WEIGHT_SYNCING", NOW - 200, step=6),
        engine("ROLLING", NOW - 100),
        *by_hand(2, NOW - 90),
        *by_hand(3, NOW - 80),
        *by_hand(4, NOW - 80, server="other"),
        *group_events(5, at=NOW - 70, step=7),
        engine("ROLLING_POST", NOW - 50),
        pool(3),
    ]
    assert pool_line(*story).endswith(": 3 tasks, 2 human-rated.")
    assert pool_line(*story, pool(1)).endswith(": 1 task, 1 human-rated.")
    lost = GroupLost(server="embedded", group_id="g0002", cause="an engine restart")
    assert pool_line(*story, lost).endswith(": 3 tasks, 1 human-rated.")
    again = [engine("OFFLINE", NOW - 40), engine("ROLLING", NOW - 30), pool(1)]
    assert pool_line(*story, *again).endswith("is discarded: 1 task.")
    assert pool_line(*story, engine("WEIGHT_SYNCING", NOW - 20)).endswith("is discarded: 3 tasks.")


JOB = "# mine\n" + dump_job(default_job("m"))


def test_the_fields_match_the_protocol() -> None:
    known = {
        "model": MODEL,
        "gpus": GPUS,
        "nodes": NODES,
        "batch": BATCH,
        "repeats": REPEAT,
        "lr": LEARNING_RATE,
        "epochs": EPOCHS,
        "kl": KL,
        "temperature": TEMPERATURE,
        "rule": STOP_RULE,
        "prompt": PROMPT,
        "response": RESPONSE,
        "turn": TURN,
        "window": WINDOW,
    }
    assert {name: field.path for name, field in BY_NAME.items()} == known
    assert set(RULES.values()) == set(STOP_RULES)


def test_the_fields_show_the_job() -> None:
    result = values(JOB)
    assert set(result) == {field.name for field in FIELDS}
    assert (result["model"], result["batch"], result["lr"]) == ("m", "4", "0.0005")
    assert result["window"] == ""


def test_a_job_with_unchanged_fields_keeps_its_text() -> None:
    assert with_values(JOB, values(JOB)) == JOB


def test_changed_fields_change_the_job() -> None:
    text = with_values(JOB, {**values(JOB), "lr": "1e-4", "batch": " 8 ", "turn": "64"})
    job = load_job(text)
    assert (get(job, LEARNING_RATE), get(job, BATCH)) == (1e-4, 8)
    assert get(job, "ajet.rollout.max_response_length_in_one_turn") == 64
    again = load_job(with_values(text, {"turn": ""}))
    assert get(again, "ajet.rollout.max_response_length_in_one_turn") is None


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("lr", "x", "Learning rate: cannot be `x`. Give a number"),
        ("lr", "nan", "cannot be `nan`"),
        ("lr", "-1", "at least 0"),
        ("batch", "2.5", "Give a whole number"),
        ("batch", "0", "at least 1"),
        ("model", "", "Model: is empty"),
        ("rule", "soon", "One of: tasks"),
    ],
)
def test_an_invalid_field_is_named_in_the_error(name: str, typed: str, words: str) -> None:
    with pytest.raises(FieldError) as caught:
        with_values(JOB, {name: typed})
    assert words in str(caught.value)
    assert caught.value.field == name


def test_command_line_assignments_become_fields() -> None:
    result = parse_set(["lr=1e-4", "rule=episodes"])
    assert get(load_job(with_values(JOB, result)), LEARNING_RATE) == 1e-4
    assert result["rule"] == "rollout_until_finish_enough_episodes"
    for wrong in ("lr", "learning=1"):
        with pytest.raises(UsageError, match="sets nothing"):
            parse_set([wrong])
    with pytest.raises(UsageError, match=r"`ajet\.teacher_model\.api_key` sets nothing") as caught:
        parse_set(["ajet.teacher_model.api_key=foo123"])
    assert "foo123" not in str(caught.value)


def test_only_known_keys_of_a_partial_job_are_compared() -> None:
    running = "ajet: {data: {train_batch_size: 8}, embedded: {damping: 0.2}}"
    (change,) = difference(running, JOB, whole=False)
    assert change_words(change) == ("Tasks a step", "8", "4")
    whole = difference(dump_job(hand_job("m")), JOB, whole=True)
    assert [change_words(one)[0] for one in whole] == ["Tasks a step", "Learning rate"]
    assert difference("", JOB, whole=True) == []


def test_one_length_is_questionable_for_an_agentjet_server_only() -> None:
    draft = JobDraft(JobInfo(server="embedded", embedded=True))
    draft.take(with_values(JOB, {**values(JOB), "turn": "32"}))
    assert draft.notices == ()
    draft.sheet = JobInfo(server="gpu", embedded=False)
    draft.take(draft.text)
    assert ["four lengths" in notice.text for notice in draft.notices] == [True]


def points(means: list[float], first: int = 1) -> list[RunPoint]:
    return [RunPoint(first + place, mean) for place, mean in enumerate(means)]


def test_the_newest_steps_are_compared_with_the_first_ones_of_which_none_is_in_both() -> None:
    trend = present(reward_trend(points([0.2, 0.3, 0.4, 0.9, 0.6, 0.7, 0.8], first=5)))
    assert (trend.since, trend.change) == (5, pytest.approx(0.4))
    assert trend.error == pytest.approx(2 * (0.01 / 3 + 0.01 / 3) ** 0.5)
    assert (trend.certain, trend.words, trend.tone) == (True, "▲ up 0.40", "$reward-up")
    fallen = present(reward_trend(points([0.8, 0.7, 0.6, 0.4, 0.3, 0.2])))
    assert (fallen.words, fallen.tone) == ("▼ down 0.40", "$reward-down")


def test_at_most_ten_steps_are_compared_at_either_end() -> None:
    trend = present(reward_trend(points([0.25] * 10 + [9.0] * 40 + [0.5] * 10)))
    assert (trend.change, trend.error) == (0.25, 0.0)


def test_two_unlike_steps_are_no_trend() -> None:
    """The newest step is 0.21 above the first one, as it may be by chance."""
    trend = present(reward_trend(points([0.51, 0.9, 0.4, 0.8, 0.3, 0.72])))
    assert not trend.certain
    assert (trend.words, trend.tone) == ("≈ +0.00 ± 0.43", "")


@pytest.mark.parametrize("count", range(6))
def test_below_six_steps_there_is_no_change(count: int) -> None:
    assert reward_trend(points([0.1 * one for one in range(count)])) is None


def test_equal_rewards_did_not_change() -> None:
    trend = present(reward_trend(points([0.1] * 9)))
    assert (trend.certain, trend.words) == (False, "≈ +0.00 ± 0.00")
    trend = present(reward_trend(points([0.103] * 3 + [0.1] * 3)))
    assert trend.words == "≈ +0.00 ± 0.00", "no minus for a change that rounds to nothing"


def test_means_of_several_steps_count_by_their_steps() -> None:
    joined = [RunPoint(8, 0.2, 8), RunPoint(16, 0.3, 8), RunPoint(24, 0.4, 8)]
    newest = [RunPoint(step, 0.6) for step in range(25, 30)]
    trend = present(reward_trend([*joined, *newest]))
    assert trend.change == pytest.approx(0.3), "three points at least, although they are 24 steps"
    assert trend.error == pytest.approx(2 * (8 * 0.02 / 2 / 24) ** 0.5)
    ten = [RunPoint(5, 0.2, 5), RunPoint(8, 0.2, 3), RunPoint(10, 0.2, 2), RunPoint(20, 9.0, 10)]
    trend = present(reward_trend([*ten, *ten[::-1]]))
    assert trend.change == 0.0, "the window is full with ten steps"


@pytest.mark.parametrize("steps", [8, 20, 60])
def test_a_reward_that_stays_the_same_is_seldom_called_a_change(steps: int) -> None:
    runs, found = 400, 0
    for seed in range(runs):
        dice = random.Random(seed)
        trend = present(reward_trend(points([dice.gauss(0.5, 0.2) for _ in range(steps)])))
        found += trend.certain
    assert found <= 0.12 * runs, "two standard errors, from windows of as few as four steps"
