"""The official client reads what the Responses dialect writes, and writes what it reads."""

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

if TYPE_CHECKING:
    from openai import OpenAI

pytestmark = pytest.mark.slow

USAGE = {"prompt_tokens": 5, "completion_tokens": 7}
TOOL: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
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


def test_text_and_reasoning_whole() -> None:
    with client(Server({"content": "Hello", "reasoning": "hm"})) as openai:
        response = openai.responses.create(model="tiny", input="Say hello.")
    assert response.output_text == "Hello"
    assert response.output[0].type == "reasoning"
    assert response.output[0].content is not None
    assert response.output[0].content[0].text == "hm"
    assert response.usage is not None
    assert response.usage.total_tokens == 12
    assert response.status == "completed"


def test_text_and_reasoning_as_events() -> None:
    text = "Hello, world. " * 20
    with client(Server({"content": text, "reasoning": "hm"})) as openai:
        result = list(openai.responses.create(model="tiny", input="x", stream=True))
    assert "".join(one.delta for one in result if one.type == "response.output_text.delta") == text
    thought = [one.delta for one in result if one.type == "response.reasoning_text.delta"]
    assert "".join(thought) == "hm"
    last = result[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == text


def test_the_streaming_helper_builds_the_same_response() -> None:
    calls = [called("get_weather", '{"city": "Paris"}')]
    server = Server({"content": "Wait.", "reasoning": "hm", "tool_calls": calls}, "tool_calls")
    with (
        client(server) as openai,
        openai.responses.stream(model="tiny", input="x", tools=[TOOL]) as stream,
    ):
        texts = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert texts[-1] == "Wait."
    thought, value, call = response.output
    assert (thought.type, value.type, call.type) == ("reasoning", "message", "function_call")
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("get_weather", '{"city": "Paris"}')


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
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_tool_loop_with_the_items_that_the_client_sends_back() -> None:
    calls = [called("get_weather", '{"city": "Paris"}')]
    server = Server({"reasoning": "hm", "tool_calls": calls}, "tool_calls")
    with client(server) as openai:
        talk: list[Any] = [{"role": "user", "content": "Weather?"}]
        first = openai.responses.create(model="tiny", input=talk, tools=[TOOL])
        talk += first.output
        talk.append({"type": "function_call_output", "call_id": "c1", "output": "sunny"})
        server.message = {"content": "It is sunny."}
        second = openai.responses.create(model="tiny", input=talk, tools=[TOOL])
    assert second.output_text == "It is sunny."
    assert server.requests[1].messages == [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    assert server.requests[1].query == "Weather?"


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
    assert last.response.error is not None
    assert last.response.error.message == "All candidates failed."
