"""Keys, bodies, sampling and answers of the chat route."""

import asyncio
import base64
import json
from typing import Any

import pytest

from engine.interface import UnknownTokenError
from engine.llm.chat import LONGEST_UNSET, answer_limit
from engine.server.episode_keys import EpisodeKey, make_key, parse_key
from engine.server.job import Job, JobSupport
from engine.server.lifecycle import EngineError
from tests.support.engine.client import Driver, wait_for
from tests.support.proxy.llm_forms import draw_a_call


def coded(facts: object) -> str:
    return "sk-ajet-" + base64.b64encode(json.dumps(facts).encode()).decode()


NAMES = {"agent_name": "a", "target_tag": "t", "episode_uuid": "u"}


@pytest.mark.parametrize("prefix", ["", "Bearer ", "bearer "])
def test_a_key_is_read_back(prefix: str) -> None:
    key = parse_key(prefix + make_key("some-uuid", "embedded://secret"))
    assert key == EpisodeKey("some-uuid", "embedded://secret")
    assert key.matches("embedded://secret")
    assert not key.matches("embedded://other")


def test_a_key_has_the_parts_clients_read() -> None:
    key = make_key("some-uuid", "address")
    assert key.startswith("sk-ajet-")
    assert json.loads(base64.b64decode(key.removeprefix("sk-ajet-"))) == {
        "agent_name": "default_agent_name",
        "target_tag": "default_target_tag",
        "episode_uuid": "some-uuid",
        "episode_address": "address",
    }


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (None, "Missing authorization header"),
        ("", "Missing authorization header"),
        ("Bearer sk-something-else", "Invalid authorization header: "),
        ("Bearer \u00e9", "Invalid authorization header: "),
        ("sk-ajet-" + base64.b64encode(b"not json").decode(), "Invalid authorization header: "),
        ("sk-ajet-" + base64.b64encode(b"\xff\xfe").decode(), "Invalid authorization header: "),
        (coded([1]), "Invalid authorization data"),
        (coded({}), "Invalid authorization data"),
        (coded({**NAMES, "agent_name": ""}), "Invalid authorization data"),
        (coded({**NAMES, "target_tag": None}), "Invalid authorization data"),
        (coded({**NAMES, "episode_uuid": 7}), "Invalid authorization data"),
    ],
)
def test_bad_keys(header: str | None, text: str) -> None:
    with pytest.raises(EngineError) as refused:
        parse_key(header)
    assert refused.value.status == 401
    assert str(refused.value).startswith(text)


@pytest.mark.slow
async def test_an_answer(d: Driver) -> None:
    answer = (await d.chat(await d.claim())).json()
    assert len(answer["id"]) == 32
    int(answer["id"], 16)
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "fake"
    (choice,) = answer["choices"]
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"].split()) == 3
    assert answer["usage"] == {
        "prompt_tokens": len("user: hello"),
        "completion_tokens": 3,
        "total_tokens": len("user: hello") + 3,
    }
    assert answer["ajetc"] == {"truncated": False, "step": 0}
    long = (await d.chat(await d.claim(), "word " * 200)).json()
    assert long["ajetc"]["truncated"] is True


@pytest.mark.slow
async def test_a_stream_sends_the_text_as_it_is_sampled(d: Driver) -> None:
    answer = await d.chat(await d.claim(), stream=True, model="asked-for")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "content-length" not in answer.headers
    events = answer.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["model"] for chunk in chunks} == {"asked-for"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["id"].startswith("chatcmpl-")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    pieces = [delta["content"] for delta in deltas[1:-1]]
    assert len(pieces) == 3, "one a word: the fake policy's token"
    body = (await d.http.post("/replay_latest_llm_call")).json()
    assert "".join(pieces) == body["output"]["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == 3
    assert "usage" not in chunks[1]


async def test_tool_calls(d: Driver) -> None:
    episode = await d.claim()
    draw_a_call(d)
    message = (await d.chat(episode)).json()["choices"][0]["message"]
    assert message["content"] is None
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert (call["type"], call["id"][:5]) == ("function", "call_")
    streamed = (await d.chat(episode, stream=True)).text.split("\n\n")
    assert len(streamed) == 5
    delta = json.loads(streamed[1].removeprefix("data: "))["choices"][0]["delta"]
    assert delta["tool_calls"][0]["index"] == 0
    assert delta["tool_calls"][0]["function"]["name"] == "add"
    assert '"finish_reason": "tool_calls"' in streamed[2]


@pytest.mark.parametrize(("kind", "expected"), [("train", (0.7, None, 1.0)), ("eval", (0, 1, 0.1))])
async def test_a_train_call_samples_as_the_job_says(idle: Driver, kind: str, expected: Any) -> None:
    await idle.start(rollout={"num_repeat": 2, "temperature": 0.7})
    episode = await idle.claim(kind=kind)
    await idle.chat(episode, temperature=0, seed=1, top_p=0.1, n=4, stop=["x", ""], max_tokens=5)
    await idle.chat(episode, max_completion_tokens=7, max_tokens=9, stop="end")
    await idle.chat(episode, max_tokens=5000)
    first, second, third = idle.bench.params
    assert (first.temperature, first.seed, first.top_p) == expected
    assert (first.stop, second.stop) == (("x",), ("end",))
    assert (first.max_tokens, second.max_tokens, third.max_tokens) == (5, 7, 96)
    assert (third.seed, third.top_p) == (None, 1.0)


@pytest.mark.parametrize(("turn", "limit"), [(40, 40), (4096, 96), (4000, 128), (128, 128)])
async def test_the_job_bounds_answers(idle: Driver, turn: int, limit: int) -> None:
    await idle.start(rollout={"num_repeat": 2, "max_response_length_in_one_turn": turn})
    await idle.chat(await idle.claim())
    assert idle.bench.params[0].max_tokens == limit
    assert (await idle.get("/ajetc/info"))["max_tokens"] == limit


@pytest.mark.parametrize(("turn", "limit"), [(40, 40), (4096, 128), (250, 242)])
async def test_a_model_of_ones_own_may_answer_with_what_the_prompt_leaves(
    idle: Driver, turn: int, limit: int
) -> None:
    idle.engine.job_support = JobSupport(loads_models=True)
    idle.engine.strict_context = True
    await idle.start(rollout={"num_repeat": 2, "max_response_length_in_one_turn": turn})
    episode = await idle.claim()
    user = {"role": "user", "content": "12345678"}
    await idle.chat(episode, messages=[user])
    assert idle.bench.params[0].max_tokens == limit
    refused = await idle.chat(episode, messages=[{"role": "user", "content": "a" * 300}])
    assert refused.status_code == 400
    assert "your prompt contains 306 input tokens" in refused.text
    if turn == 250:
        assert (await idle.chat(episode, messages=[user], max_tokens=242)).status_code == 200
        refused = await idle.chat(episode, messages=[user], max_tokens=243)
        assert (refused.status_code, "you requested 243 output" in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("job", "context", "limit"),
    [
        (Job(), 4096, 2048),
        (Job(), 32_768, LONGEST_UNSET),
        (Job(max_response_length=300), 4096, 300),
        (Job(max_tokens=3000, max_response_length=300), 4096, 3000),
        (Job(), 1, 1),
    ],
)
def test_without_a_length_an_answer_of_ones_own_model_has_half_the_window(
    job: Job, context: int, limit: int
) -> None:
    assert answer_limit(job, context, whole=True) == limit
    assert answer_limit(Job(), context) <= 96


async def test_content_lists_and_odd_text_reach_the_policy(d: Driver) -> None:
    episode = await d.claim()
    body = (
        '{"messages": [{"role": "system", "content": null},'
        '{"role": "user", "content": [{"type": "text", "text": "caf\\u00e9 \\ud83d"},'
        '{"type": "image_url", "image_url": {"url": "data:"}},'
        '{"type": "text", "text": "b"}]}],'
        '"tools": [], "unknown": {"x": "\\udc00"}}'
    )
    headers = {"Authorization": episode["openai_api_key"]}
    answer = await d.http.post("/v1/chat/completions", headers=headers, content=body)
    assert answer.status_code == 200, answer.text
    await d.end(episode, "t")
    (finished,) = d.engine.pool.finished["t"]
    prompt = bytes(finished.completions[0].prompt_tokens).decode()
    assert prompt == "system: \nuser: caf\u00e9 \ufffd\nb"
    assert (await d.http.post("/replay_latest_llm_call")).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ("{", 400, "not JSON"),
        ("", 400, "not JSON"),
        ('{"messages": [], "x": NaN}', 400, "NaN"),
        ("[" * 200_000, 400, "not JSON"),
        ("[]", 422, "body"),
        ("{}", 422, "messages"),
        ('{"messages": []}', 422, "messages"),
        ('{"messages": "hi"}', 422, "messages"),
        ('{"messages": [{"content": "x"}]}', 422, "role"),
        ('{"messages": [{"role": "user", "content": 7}]}', 422, "content"),
        ('{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', 422, "max_tokens"),
        ('{"messages": [{"role": "user", "content": "x"}], "top_p": 2}', 422, "top_p"),
        ('{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}', 422, "temper"),
        ('{"messages": [{"role": "user", "content": "unrenderable"}]}', 400, "cannot be rendered"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bad_bodies_are_refused_with_json(
    d: Driver, body: str, status: int, named: str
) -> None:
    headers = {"Authorization": (await d.claim())["openai_api_key"]}
    answer = await d.http.post("/v1/chat/completions", headers=headers, content=body)
    assert answer.status_code == status
    assert named in json.dumps(answer.json()["detail"])


async def test_each_key_gives_access_to_its_own_episode(d: Driver) -> None:
    episode = await d.claim()
    forged = dict(episode, openai_api_key=make_key(episode["episode_uuid"], ""))
    answer = await d.chat(forged)
    assert (answer.status_code, answer.json()) == (
        401,
        {"detail": "Invalid authorization data"},
    )
    other = await d.claim()
    address = parse_key(other["openai_api_key"]).address
    mixed = dict(episode, openai_api_key=make_key(episode["episode_uuid"], address))
    assert (await d.chat(mixed)).status_code == 401
    assert (await d.http.post("/v1/chat/completions", json={})).status_code == 401
    assert d.bench.params == []
    unknown = dict(episode, openai_api_key=make_key("nobody", address))
    refused = await d.chat(unknown)
    assert (refused.status_code, refused.json()["detail"]) == (404, "Episode nobody not found.")
    await d.abort(episode)
    free = await d.chat(episode)
    assert free.status_code == 404
    assert "is not claimed" in free.json()["detail"]


async def test_many_calls_of_one_episode_at_once(idle: Driver) -> None:
    await idle.start(batch=1, repeat=1)
    episode = await idle.claim()
    answers = await asyncio.gather(*(idle.chat(episode, f"text {k}") for k in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    status = (await idle.post("/get_episode_buffer")).json()["buffer"][0]
    assert status["llm_call_count"] == 5
    await idle.end(episode, "t")
    await idle.until("ROLLING", 2)
    assert len(idle.bench.trained[0]) == 5


@pytest.mark.parametrize("how", ["end", "abort", "sweep"])
async def test_a_call_is_cancelled_when_its_episode_ends(d: Driver, how: str) -> None:
    episode = await d.claim(timeout=1)
    await d.chat(episode)
    d.bench.sample_gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        calling = group.create_task(d.chat(episode))
        await wait_for(lambda: d.bench.sampling)
        if how == "end":
            await d.end(episode, "t")
        elif how == "abort":
            await d.abort(episode)
        else:
            d.engine.give_back(episode["episode_uuid"])
    assert calling.result().status_code == 404
    assert d.bench.sampling == 0
    if how == "end":
        (finished,) = d.engine.pool.finished["t"]
        assert len(finished.completions) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("worker died"), 500),
        (UnknownTokenError("Token id 999999 is out of vocabulary"), 400),
    ],
)
async def test_a_failing_policy_is_one_failed_call(
    d: Driver, error: Exception, status: int
) -> None:
    episode = await d.claim()
    d.bench.sample_error = error
    failed = await d.chat(episode)
    assert failed.status_code == status
    assert str(error) in failed.json()["detail"]
    assert (str(error) in await d.logged()) == (status == 500)
    d.bench.sample_error = None
    assert (await d.chat(episode)).status_code == 200


@pytest.mark.slow
async def test_the_latest_call_can_be_replayed(idle: Driver) -> None:
    empty = await idle.http.post("/replay_latest_llm_call")
    assert (empty.status_code, set(empty.json())) == (404, {"detail"})
    await idle.start()
    answer = (await idle.chat(await idle.claim(), "the question", custom=1)).json()
    await idle.post("/stop_engine")
    body = (await idle.http.post("/replay_latest_llm_call")).json()
    assert body["output"] == answer
    assert body["input"]["messages"][0]["content"] == "the question"
    assert body["input"]["custom"] == 1
