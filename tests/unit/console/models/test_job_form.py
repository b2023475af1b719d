"""Fields of a job: into the YAML and back, refusals, comparisons."""

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
from core.control_payloads import JobInfo
from core.jobs import default_job, hand_job

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
    assert ["four lengths" in one.text for one in draft.notices] == [True]
