"""Requests of the Responses API as the OpenAI client sends them, and what is stored of answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import BaseModel

from core.dialects.errors import ApiError
from core.dialects.request import public_answer
from core.dialects.responses.input import ResponseStore
from proxy.dialects.request import ChatRequest
from proxy.dialects.responses import responses

pytestmark = pytest.mark.slow


if TYPE_CHECKING:
    from openai import OpenAI


USAGE = {"prompt_tokens": 5, "completion_tokens": 7}


PATCH: Any = {"type": "custom", "name": "apply_patch"}


class Server:
    """Answers with a scripted message, in bytes, without a socket."""

    def __init__(self, message: dict[str, Any], finish: str = "stop") -> None:
        self.message = message
        self.finish = finish
        self.fault: ApiError | None = None
        self.requests: list[ChatRequest] = []
        self._dialect = responses(ResponseStore())

    def __call__(self, request: httpx.Request) -> httpx.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            chat_request = self._dialect.read(request.content, headers, "")
        except ApiError as no:
            result = {"content-type": "application/json"}
            return httpx.Response(no.status, headers=result, content=self._dialect.refusal(no))
        self.requests.append(chat_request)
        writer = self._dialect.writer(chat_request, "tiny", 1)
        choice = {"message": self.message, "finish_reason": self.finish}
        one = public_answer({"id": f"c{len(self.requests)}", "choices": [choice], "usage": USAGE})
        if not chat_request.stream:
            result = {"content-type": "application/json"}
            return httpx.Response(200, headers=result, content=writer.body([one]))
        end = writer.answer([one]) if self.fault is None else writer.error(self.fault)
        result = {"content-type": "text/event-stream; charset=utf-8"}
        content = writer.opening() + writer.keepalive() + end
        return httpx.Response(200, headers=result, content=content)


@contextmanager
def client(server: Server) -> "Iterator[OpenAI]":
    from openai import OpenAI  # half a second, and each worker collects all tests

    http: Any = httpx.Client(transport=httpx.MockTransport(server))
    with http, OpenAI(base_url="http://x/v1", api_key="k", max_retries=0, http_client=http) as made:
        yield made


def called(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_custom_tool_as_events() -> None:
    calls = [called("apply_patch", '{"input": "*** Begin"}')]
    with (
        client(Server({"tool_calls": calls})) as openai,
        openai.responses.stream(model="tiny", input="x", tools=[PATCH]) as stream,
    ):
        (item,) = stream.get_final_response().output
    assert item.type == "custom_tool_call"
    assert item.input == "*** Begin"


def test_a_truncated_answer_is_not_an_error() -> None:
    with (
        client(Server({"content": "Once upon"}, "length")) as openai,
        openai.responses.stream(model="tiny", input="x") as stream,
    ):
        response = stream.get_final_response()
    assert (response.output_text, response.status) == ("Once upon", "incomplete")
    assert response.incomplete_details.reason == "max_output_tokens"


class City(BaseModel):
    name: str


def test_structured_outputs() -> None:
    server = Server({"content": '{"name": "Paris"}'})
    with client(server) as openai:
        response = openai.responses.parse(model="tiny", input="x", text_format=City)
    assert response.output_parsed == City(name="Paris")
    form = server.requests[0].body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"]["required"] == ["name"]


def test_errors_reach_the_caller() -> None:
    from openai import NotFoundError

    server = Server({"content": "x"})
    with client(server) as openai:
        with pytest.raises(NotFoundError, match="resp_1"):
            openai.responses.create(model="tiny", input="x", previous_response_id="resp_1")
        server.fault = ApiError(502, None, "All candidates failed.")
        *_, last = openai.responses.create(model="tiny", input="x", stream=True)
    assert last.type == "response.failed"
    assert last.response.error.message == "All candidates failed."


def test_items_are_stored_up_to_the_limit() -> None:
    store = ResponseStore(max_bytes=100)
    for name in ("a", "b", "c"):
        store.put({"id": name, "text": "x" * 20})
    assert store.get("a") is None  # 3 x 36 bytes are too many
    assert store.get("b") == {"id": "b", "text": "x" * 20}
    store.put({"id": "d", "text": "x" * 20})
    assert store.get("c") is None  # b was asked for later
    assert store.get("b") is not None
    assert store.get(None) is None


def test_nothing_is_stored_if_the_client_declines() -> None:
    stored = ResponseStore()
    dialect = responses(stored)
    one = public_answer({"choices": [{"message": {"content": "x"}}]})
    for store in (False, True):
        body = json.dumps({"input": "x", "store": store}).encode()
        request = dialect.read(body, {"content-type": "application/json"}, "")
        (item,) = json.loads(dialect.writer(request, "tiny", 1).body([one]))["output"]
        assert (stored.get(item["id"]) is not None) == store
