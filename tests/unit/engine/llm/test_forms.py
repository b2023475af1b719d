"""`/v1/messages` and `/v1/responses`: read into a chat request and written back; ranges."""

import copy
import json
from typing import Any

import pytest

from core.dialects.errors import ApiError
from engine.interface import Completion, ToolCall
from engine.llm.chat import ChatEncoder, ChatRequest, checked, read_chat, sampling_params
from engine.llm.context_length import too_long
from engine.llm.forms import MessagesEncoder, read_messages, read_responses
from engine.routes.llm import _FORMS, Form
from engine.server.job import Job
from engine.server.lifecycle import EngineError
from tests.support.engine.client import Driver
from tests.support.proxy.llm_forms import ASK_MESSAGES, Event, bearer, draw_a_call, read
from tests.unit.proxy.dialects.test_any_values import FULL, places, put

OBJECT = {"type": "object"}
ADD = {"type": "function", "function": {"name": "add", "parameters": OBJECT}}
CALLED = {"name": "add", "arguments": '{"a": 1}'}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "3"}]}
IMAGE = {"type": "image", "source": {}}


def user(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def text(value: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": value}


MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "system": [text("one"), text("two")],
    "messages": [
        user("skipped", "system"),
        user("hi"),
        user([text("so"), {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}])
        | {"role": "assistant"},
        user([text("well?"), RESULT, IMAGE]),
    ],
    "tools": [{"name": "add", "input_schema": OBJECT}],
    "stop_sequences": ["END"],
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "be brief",
    "input": [
        "plain",
        {"type": "message", **user("rules", "developer")},
        user([text("a", "input_text"), {"type": "input_image"}, text("b", "output_text")]),
        user("odd role", "critic"),
        {"type": "reasoning", "summary": []},
        {"type": "message", **user("")},
        {"type": "function_call", "call_id": "t1", **CALLED},
        {"type": "function_call_output", "call_id": "t1", "output": "3"},
        {"type": "web_search_call"},
    ],
    "tools": [{"type": "function", "name": "add", "parameters": OBJECT}, {"type": "web_search"}],
    "max_output_tokens": 7,
    "temperature": 0.5,
    "seed": 3,
}
SAID = {
    "messages": "system one\ntwo|user hi|assistant so|tool 3|user well?",
    "responses": "system be brief|user plain|system rules|user a\nb|user odd role|assistant |"
    "tool 3",
}


@pytest.mark.parametrize("form", SAID)
def test_a_conversation_is_read(form: str) -> None:
    chat = read_messages(MESSAGES) if form == "messages" else read_responses(RESPONSES)
    conversation = chat.conversation()
    said = [f"{message['role']} {message['content']}" for message in conversation]
    assert "|".join(said) == SAID[form]
    (calling,) = (message for message in conversation if "tool_calls" in message)
    assert calling["tool_calls"][0]["function"] == CALLED
    (result,) = (message for message in conversation if message["role"] == "tool")
    assert result["tool_call_id"] == "t1"
    assert chat.offered_tools() == [ADD]
    fields = (chat.max_tokens, chat.stop, chat.temperature, chat.seed)
    assert fields == ((9, ["END"], None, None) if form == "messages" else (7, None, 0.5, 3))


def test_bare_texts_are_parts_of_a_chat_message() -> None:
    request = read_chat({"messages": [user(["a", text("b"), {}])]})
    assert request.conversation() == [user("a\nb")]


@pytest.mark.parametrize(
    ("form", "choice", "names"),
    [
        *((form, None, ["add", "now"]) for form in ("chat", "messages", "responses")),
        ("messages", {"type": "auto"}, ["add", "now"]),
        ("messages", {"type": "any"}, ["add", "now"]),
        ("messages", {"type": "none"}, []),
        ("messages", {"type": "tool", "name": "now"}, ["now"]),
        ("responses", "auto", ["add", "now"]),
        ("responses", "required", ["add", "now"]),
        ("responses", "none", []),
        ("responses", {"type": "none"}, []),
        ("responses", {"type": "function", "name": "now"}, ["now"]),
        ("chat", {"type": "function", "function": {"name": "now"}}, ["now"]),
    ],
)
def test_the_choice_of_a_tool(form: str, choice: Any, names: list[str]) -> None:
    reader, asked, tool = {
        "chat": (read_chat, {"messages": [user("x")]}, lambda name: {"function": {"name": name}}),
        "messages": (
            read_messages,
            {"messages": [user("x")]},
            lambda name: {"name": name, "input_schema": {}},
        ),
        "responses": (read_responses, {"input": "x"}, lambda name: {"name": name}),
    }[form]
    tools = [{"type": "function", **tool(name)} for name in ("add", "now")]
    if form == "messages":
        tools = [tool(name) for name in ("add", "now")]
    request = reader(checked({**asked, "tools": tools, "tool_choice": choice}))
    assert [offered["function"]["name"] for offered in request.offered_tools() or []] == names


def test_nothing_to_answer_is_refused() -> None:
    with pytest.raises(EngineError, match="messages"):
        read_messages(checked({"messages": [user([IMAGE])]}))
    for nothing in ("", [], [{"type": "reasoning"}], [""]):
        with pytest.raises(EngineError, match="input") as refused:
            read_responses({"input": nothing})
        assert refused.value.status == 400


def test_files_and_tools_of_other_servers_are_left_out() -> None:
    document = {"type": "document", "source": {"type": "base64", "data": "AAAA"}}
    search = {"type": "web_search_20250305", "name": "web_search"}
    body = {"messages": [user([document, text("x")])], "tools": [search]}
    request = read_messages(checked(body))
    assert request.conversation() == [user("x")]
    assert request.offered_tools() is None


async def ask(d: Driver, path: str, body: Any, **headers: str) -> Any:
    headers = headers or bearer(await d.claim())
    return (await d.http.post(path, headers=headers, json=body)).json()


async def stream(d: Driver, path: str, body: Any) -> list[Event]:
    headers = bearer(await d.claim())
    return read((await d.http.post(path, headers=headers, json={**body, "stream": True})).text)


async def latest(d: Driver) -> Any:
    return (await d.http.post("/replay_latest_llm_call")).json()


# --- /v1/messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["Authorization", "x-api-key"])
async def test_a_message(d: Driver, header: str) -> None:
    key = (await d.claim())["openai_api_key"]
    answer = await ask(d, "/v1/messages", ASK_MESSAGES, **{header: key})
    assert (answer["type"], answer["role"], answer["model"]) == ("message", "assistant", "asked")
    (block,) = answer["content"]
    assert (block["type"], len(block["text"].split())) == ("text", 3)
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("end_turn", None)
    assert answer["usage"] == {"input_tokens": len("user: hi"), "output_tokens": 3}
    stored = await latest(d)
    assert (stored["format"], stored["output"]) == ("messages", answer)


async def test_a_message_as_events(d: Driver) -> None:
    events = await stream(d, "/v1/messages", ASK_MESSAGES)
    block = ("start", *["delta"] * 3, "stop")
    assert [name for name, _ in events] == [
        "message_start",
        "ping",
        *(f"content_block_{part}" for part in block),
        "message_delta",
        "message_stop",
    ]
    assert events[-2][1]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert events[-2][1]["usage"]["output_tokens"] == 3


@pytest.mark.parametrize("said", ["", "let me see"])
@pytest.mark.parametrize(("arguments", "read_as"), [('{"a": 1}', {"a": 1}), ("{", {}), ("[1]", {})])
async def test_a_tool_use(d: Driver, said: str, arguments: str, read_as: Any) -> None:
    draw_a_call(d, said, arguments)
    answer = await ask(d, "/v1/messages", ASK_MESSAGES)
    kinds = [block["type"] for block in answer["content"]]
    assert kinds == ["text"] * bool(said) + ["tool_use"]
    assert (answer["content"][-1]["input"], answer["stop_reason"]) == (read_as, "tool_use")
    events = await stream(d, "/v1/messages", ASK_MESSAGES)
    starts = [data for name, data in events if name == "content_block_start"]
    assert [start["index"] for start in starts] == list(range(len(starts)))
    assert starts[-1]["content_block"]["type"] == "tool_use"
    deltas = [data.get("delta", {}) for _, data in events]
    (partial,) = [delta["partial_json"] for delta in deltas if "partial_json" in delta]
    assert json.loads(partial) == read_as


@pytest.mark.parametrize("form", ["chat", "messages"])
def test_the_stop_text_is_named(form: str) -> None:
    drawn = Completion("so far", (1,), (2,), (-1.0,), "stop", stop_reason="END")
    encoder = ChatEncoder if form == "chat" else MessagesEncoder
    answer = encoder("m", ChatRequest(messages=[]), {})
    whole = answer.whole(drawn)
    body = json.loads(answer.closing(drawn).split(b"data: ")[-2].split(b"\n")[0])
    if form == "chat":
        for choice in (whole["choices"][0], body["choices"][0]):
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "END")
    else:
        for value in (whole, body["delta"]):
            assert (value["stop_reason"], value["stop_sequence"]) == ("stop_sequence", "END")


# --- /v1/responses ------------------------------------------------------------------------------


async def test_a_response(d: Driver) -> None:
    episode = await d.claim()
    body = {"model": "asked", "input": "hello", "instructions": "be brief"}
    answer = await ask(d, "/v1/responses", body, **bearer(episode))
    assert (answer["object"], answer["status"]) == ("response", "completed")
    assert answer["model"] == "asked"
    (item,) = answer["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert [len(part["text"].split()) for part in item["content"]] == [3]
    prompt = len("system: be brief\nuser: hello")
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (prompt, 3)
    stored = await latest(d)
    assert (stored["format"], stored["input"], stored["output"]) == ("responses", body, answer)
    await d.end(episode, "t")
    (finished,) = d.engine.pool.finished["t"]
    assert len(finished.completions) == 1


async def test_a_response_that_was_cut(d: Driver) -> None:
    policy = d.engine.policy_holder.policy
    assert policy is not None

    async def sample(prompt: Any, params: Any, on_text: Any = None) -> Completion:
        return Completion("half an", (1,), (2,), (-1.0,), "length")

    policy.sample = sample  # type: ignore[method-assign]
    answer = await ask(d, "/v1/responses", {"input": "hello"})
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.slow
async def test_a_response_as_events(d: Driver) -> None:
    events = await stream(d, "/v1/responses", {"input": "hello"})
    assert [name.removeprefix("response.") for name, _ in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * 3,
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [data["sequence_number"] for _, data in events] == list(range(1, len(events) + 1))
    assert all(name == data["type"] for name, data in events)
    whole = "".join(data["delta"] for name, data in events if name.endswith("text.delta"))
    final = events[-1][1]["response"]
    assert final["output"][0]["content"][0]["text"] == whole
    assert events[0][1]["response"]["id"] == final["id"]
    items = {data["item_id"] for _, data in events if "item_id" in data}
    assert items == {final["output"][0]["id"]}
    assert final["ajetc"] == {"truncated": False, "step": 0}
    assert (await latest(d))["output"] == final


async def test_a_function_call_as_events(d: Driver) -> None:
    draw_a_call(d)
    events = await stream(d, "/v1/responses", {"input": "hello"})
    call = "function_call_arguments"
    assert [name.removeprefix("response.") for name, _ in events][2:] == [
        *("output_item.added", f"{call}.delta", f"{call}.done", "output_item.done", "completed")
    ]
    (item,) = events[-1][1]["response"]["output"]
    assert {name: item[name] for name in ("type", *CALLED)} == {"type": "function_call", **CALLED}
    assert item["call_id"].startswith("call_")


# --- ranges, in vLLM's words --------------------------------------------------------------------

FIELDS: dict[str, Any] = {
    "presence_penalty": 2,
    "frequency_penalty": -2.0,
    "repetition_penalty": 1.5,
    "top_k": 5,
    "min_p": 0.25,
}
ASKED = {"messages": [user("hi")]}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("presence_penalty", 3, "presence_penalty must be in [-2, 2], got 3.0."),
        ("frequency_penalty", -2.5, "frequency_penalty must be in [-2, 2], got -2.5."),
        ("repetition_penalty", 0, "repetition_penalty must be greater than zero, got 0.0."),
        ("top_k", -2, "top_k must be 0 (disable), or at least 1, got -2."),
        ("min_p", 7, "min_p must be in [0, 1], got 7.0."),
        ("top_k", 1.5, ""),
        ("min_p", float("nan"), ""),
        ("presence_penalty", "much", ""),
    ],
)
def test_a_value_out_of_its_range_is_refused(field: str, value: Any, expected: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_chat(checked({**ASKED, field: value}))
    if expected:
        assert refused.value.fault is not None
        assert (refused.value.fault["loc"], refused.value.fault["msg"]) == (
            ["body", field],
            expected,
        )


@pytest.mark.parametrize(("field", "off"), [("top_k", -1), ("repetition_penalty", 1), ("min_p", 0)])
def test_null_and_what_turns_off_are_accepted(field: str, off: float) -> None:
    assert read_chat(checked({**ASKED, field: None})).sampling_fields() == {}
    turned_off = read_chat(checked({**ASKED, field: off}))
    assert not sampling_params(turned_off, Job(), "eval", 8).penalizes


def test_an_eval_episode_uses_them_and_a_train_episode_does_not() -> None:
    request = read_chat(checked({**ASKED, **FIELDS}))
    for kind in ("eval", "train"):
        params = sampling_params(request, Job(), kind, 8)  # type: ignore[arg-type]
        used = {name: getattr(params, name) for name in FIELDS}
        assert (used == FIELDS) is params.penalizes is (kind == "eval")
    for other in (
        read_responses(checked({"input": "hi", **FIELDS})),
        read_messages({**ASKED, **FIELDS}),
    ):
        assert other.sampling_fields() == FIELDS


OUTPUT = "Please reduce the length of the input prompt or the number of requested output tokens."


@pytest.mark.parametrize(
    ("tokens", "limit", "named", "cause"),
    [
        (
            *(5000, 96, False),
            "your prompt contains 5000 input tokens. Please reduce the length of the input prompt. "
            "(parameter=input_tokens, value=5000)",
        ),
        (
            *(4050, 96, False),
            "you requested 96 output tokens and your prompt contains at least 4050 input tokens, "
            f"for a total of at least 4146 tokens. {OUTPUT} (parameter=input_tokens, value=4050)",
        ),
        (
            *(5000, 16, True),
            "you requested 16 output tokens and your prompt contains at least 5000 input tokens, "
            f"for a total of at least 5016 tokens. {OUTPUT} (parameter=input_tokens, value=5000)",
        ),
        (
            *(0, 16, True),
            "you requested 16 output tokens and your prompt contains more input tokens than fit in "
            f"it. {OUTPUT}",
        ),
    ],
)
def test_a_prompt_over_the_window_is_refused_in_vllms_words(
    tokens: int, limit: int, named: bool, cause: str
) -> None:
    refusal = too_long(4096, tokens, limit, named=named)
    over = "This model's maximum context length is 4096 tokens. However, "
    assert (refusal.status, str(refusal)) == (400, over + cause)


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


@pytest.mark.slow
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
