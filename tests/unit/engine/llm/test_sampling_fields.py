"""Ranges of penalties and bounds, in vLLM's words."""

from typing import Any

import pytest

from core.dialects.errors import ApiError
from engine.llm.chat import ChatRequest, checked, read_chat, sampling_params
from engine.llm.forms import read_messages, read_responses
from engine.server.job import Job

MESSAGES = [{"role": "user", "content": "hi"}]
FIELDS: dict[str, Any] = {
    "presence_penalty": 2,
    "frequency_penalty": -2.0,
    "repetition_penalty": 1.5,
    "top_k": 5,
    "min_p": 0.25,
}


def read(fields: dict[str, Any]) -> ChatRequest:
    return read_chat(checked({"messages": MESSAGES, **fields}))


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("presence_penalty", 3, "presence_penalty must be in [-2, 2], got 3.0."),
        ("frequency_penalty", -2.5, "frequency_penalty must be in [-2, 2], got -2.5."),
        ("repetition_penalty", 0, "repetition_penalty must be greater than zero, got 0.0."),
        ("top_k", -2, "top_k must be 0 (disable), or at least 1, got -2."),
        ("min_p", 7, "min_p must be in [0, 1], got 7.0."),
    ],
)
def test_a_value_out_of_its_range_is_refused_in_vllms_words(
    field: str, value: float, text: str
) -> None:
    with pytest.raises(ApiError) as refused:
        read({field: value})
    fault = refused.value.fault
    assert fault is not None
    assert (fault["loc"], fault["msg"]) == (["body", field], text)


@pytest.mark.parametrize(
    ("field", "value"), [("top_k", 1.5), ("min_p", float("nan")), ("presence_penalty", "much")]
)
def test_other_kinds_of_values_are_refused(field: str, value: object) -> None:
    with pytest.raises(ApiError):
        read({field: value})


@pytest.mark.parametrize("field", ["top_k", "repetition_penalty", "min_p"])
def test_null_and_what_turns_off_are_accepted(field: str) -> None:
    off = {"top_k": -1, "repetition_penalty": 1, "min_p": 0}[field]
    assert read({field: None}).sampling_fields() == {}
    params = sampling_params(read({field: off}), Job(), "eval", 8)
    assert not params.penalizes


def test_an_eval_episode_uses_them_and_a_train_episode_does_not() -> None:
    request = read(FIELDS)
    for kind in ("eval", "train"):
        params = sampling_params(request, Job(), kind, 8)  # type: ignore[arg-type]
        used = {name: getattr(params, name) for name in FIELDS}
        assert (used == FIELDS) is params.penalizes is (kind == "eval")


def test_the_other_forms_pass_them_on() -> None:
    for request in (
        read_responses(checked({"input": "hi", **FIELDS})),
        read_messages(checked({"messages": MESSAGES, **FIELDS})),
    ):
        assert request.sampling_fields() == FIELDS
