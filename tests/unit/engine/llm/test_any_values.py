"""Requests of each form in which one value, however deep, is of another kind."""

import copy
from typing import Any

import pytest

from core.dialects.errors import ApiError
from engine.interface import Completion, ToolCall
from engine.llm.chat import checked
from engine.routes.llm import _FORMS, Form
from engine.server.lifecycle import EngineError
from tests.unit.proxy.dialects.test_any_values import FULL, places, put

pytestmark = pytest.mark.slow

NAMES = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}
VALUES: tuple[Any, ...] = (None, True, -1, 1.5, 10**40, float("inf"), "", "x", [], {}, [{}], ["x"])
ANSWERS = (
    Completion("hello there", (1, 2), (3,), (-0.1,), "stop"),
    Completion("", (1,), (3,), (-0.1,), "tool_calls", tool_calls=(ToolCall("f", "{"),)),
)


def exchange(form: Form, body: Any) -> None:
    """Read and answer a request, or refuse it."""
    try:
        fields = checked(body)
        request = form.read(fields)
    except (ApiError, EngineError):
        return
    request.conversation()
    request.offered_tools()
    for completion in ANSWERS:
        encoder = form.encoder("m", request, fields)
        assert encoder.opening() + encoder.piece("x") + encoder.closing(completion)
        assert encoder.whole(completion)


@pytest.mark.parametrize("form", _FORMS, ids=NAMES.values())
def test_a_request_is_answered_or_refused(form: Form) -> None:
    full = {**FULL[NAMES[form.path]][1], "ajetc_prompt": [1], "top_p": 1}
    exchange(form, full)
    for at in places(full):
        for value in VALUES:
            body = copy.deepcopy(full)
            put(body, at, copy.deepcopy(value))
            try:
                exchange(form, body)
            except Exception as error:
                raise AssertionError(f"{at} as {value!r}") from error
