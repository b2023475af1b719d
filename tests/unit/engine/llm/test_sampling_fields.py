"""Ranges of penalties and bounds, in vLLM's words."""

from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError

from engine.llm.chat import ChatRequest, sampling_params, validate
from engine.llm.messages import MessagesRequest
from engine.llm.responses import ResponsesRequest
from engine.server.job import Job

MESSAGES = [{"role": "user", "content": "hi"}]
FIELDS: dict[str, Any] = {
    "presence_penalty": 2,
    "frequency_penalty": -2.0,
    "repetition_penalty": 1.5,
    "top_k": 5,
    "min_p": 0.25,
}


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
    with pytest.raises(RequestValidationError) as refused:
        validate(ChatRequest, {"messages": MESSAGES, field: value})
    (error,) = refused.value.errors()
    assert (error["loc"], error["msg"]) == (("body", field), text)


@pytest.mark.parametrize(
    ("field", "value"), [("top_k", 1.5), ("min_p", float("nan")), ("presence_penalty", "much")]
)
def test_other_kinds_of_values_are_refused(field: str, value: object) -> None:
    with pytest.raises(RequestValidationError):
        validate(ChatRequest, {"messages": MESSAGES, field: value})


@pytest.mark.parametrize("field", ["top_k", "repetition_penalty", "min_p"])
def test_null_and_what_turns_off_are_accepted(field: str) -> None:
    off = {"top_k": -1, "repetition_penalty": 1, "min_p": 0}[field]
    assert validate(ChatRequest, {"messages": MESSAGES, field: None}).sampling_fields() == {}
    params = sampling_params(
        validate(ChatRequest, {"messages": MESSAGES, field: off}), Job(), "eval", 8
    )
    assert not params.penalizes


def test_an_eval_episode_uses_them_and_a_train_episode_does_not() -> None:
    request = validate(ChatRequest, {"messages": MESSAGES, **FIELDS})
    for kind in ("eval", "train"):
        params = sampling_params(request, Job(), kind, 8)  # type: ignore[arg-type]
        used = {name: getattr(params, name) for name in FIELDS}
        assert (used == FIELDS) is params.penalizes is (kind == "eval")


def test_the_other_forms_pass_them_on() -> None:
    for request in (
        validate(ResponsesRequest, {"input": "hi", **FIELDS}),
        validate(MessagesRequest, {"messages": MESSAGES, **FIELDS}),
    ):
        assert request.chat().sampling_fields() == FIELDS  # type: ignore[attr-defined]
