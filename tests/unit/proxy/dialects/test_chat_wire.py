"""Chat completions on the wire: the shapes a real vLLM was seen to send."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import pieces, winner
from proxy.dialects.chat_wire import DONE, ChunkWriter, completion_body
from proxy.errors import Refusal

USAGE = {"prompt_tokens": 17, "completion_tokens": 23, "total_tokens": 99}


def made(message: dict[str, Any], finish: str = "stop", **more: Any) -> Any:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return winner({"id": "x", "model": "unknown", "choices": [choice | more], "usage": USAGE})


def events(raw: bytes) -> list[dict[str, Any]]:
    lines = raw.decode().split("\n\n")
    assert lines.pop() == ""
    if lines[-1] == "data: [DONE]":
        lines.pop()
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def deltas(raw: bytes) -> list[dict[str, Any]]:
    return [event["choices"][0]["delta"] for event in events(raw) if event["choices"]]


CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"city": "Paris"}'}},
    {"function": {"name": "g", "arguments": {"a": 1}}, "type": "custom"},
]


def test_a_whole_answer_has_vllms_keys_in_their_order() -> None:
    answer = made({"content": "Hello", "reasoning_content": "hm"})
    body = json.loads(completion_body(answer, "chatcmpl-1", 5, "tiny"))
    assert list(body) == [
        "id",
        "object",
        "created",
        "model",
        "choices",
        "service_tier",
        "system_fingerprint",
        "usage",
        "prompt_logprobs",
        "prompt_token_ids",
        "prompt_text",
        "kv_transfer_params",
        "ec_transfer_params",
        "metrics",
    ]
    (choice,) = body["choices"]
    assert list(choice) == [
        "index",
        "message",
        "logprobs",
        "finish_reason",
        "stop_reason",
        "token_ids",
        "routed_experts",
    ]
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hello",
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": "hm",
    }
    assert list(choice["message"])[-1] == "reasoning"
    assert body["usage"] == {
        "prompt_tokens": 17,
        "total_tokens": 40,
        "completion_tokens": 23,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    plain = json.loads(completion_body(made({"content": ""}), "c", 5, "tiny"))
    assert plain["choices"][0]["message"]["content"] is None
    assert plain["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_tool_calls_whole_and_streamed_agree() -> None:
    answer = made({"content": "", "tool_calls": CALLS}, "tool_calls")
    whole = json.loads(completion_body(answer, "c", 5, "m"))["choices"][0]["message"]
    assert list(whole)[-2:] == ["tool_calls", "reasoning"]
    assert whole["content"] is None
    told: dict[int, dict[str, Any]] = {}
    for delta in deltas(ChunkWriter("c", 5, "m").answer(answer)):
        for call in delta.get("tool_calls", ()):
            assert delta["content"] is None
            if call["index"] not in told:
                assert list(call) == ["id", "type", "index", "function"]
                assert list(call["function"]) == ["name"]
                told[call["index"]] = {**call, "arguments": ""}
            else:
                assert list(call) == ["index", "function"]
                told[call["index"]]["arguments"] += call["function"]["arguments"]
    assert [one["arguments"] for one in told.values()] == ['{"city": "Paris"}', '{"a":1}']
    assert [one["id"] for one in told.values()] == [one["id"] for one in whole["tool_calls"]]
    assert whole["tool_calls"][1]["id"].startswith("chatcmpl-tool-")
    assert whole["tool_calls"][1]["type"] == "function"


def test_a_stream_has_vllms_chunks() -> None:
    writer = ChunkWriter("chatcmpl-1", 5, "tiny")
    (role,) = events(writer.role())
    assert role == {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": ""},
                "logprobs": None,
                "finish_reason": None,
            }
        ],
        "prompt_token_ids": None,
        "prompt_text": None,
    }
    (nothing,) = events(writer.keepalive())
    assert nothing["choices"][0]["delta"] == {}
    assert nothing["choices"][0]["finish_reason"] is None
    raw = writer.answer(made({"content": "Hello", "reasoning": "hm"}, stop_reason="How"))
    assert raw.endswith(DONE)
    assert raw.count(DONE) == 1
    told = events(raw)
    assert [list(one["choices"][0]["delta"]) for one in told] == [["reasoning"], ["content"], []]
    assert list(told[0]) == ["id", "object", "created", "model", "choices"]
    assert list(told[0]["choices"][0]) == [
        "index",
        "delta",
        "logprobs",
        "finish_reason",
        "token_ids",
    ]
    last = told[-1]
    assert list(last) == ["id", "object", "created", "model", "choices", "system_fingerprint"]
    assert last["choices"] == [
        {
            "index": 0,
            "delta": {},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": "How",
            "token_ids": None,
        }
    ]


def test_usage_comes_last_and_only_when_asked_for() -> None:
    writer = ChunkWriter("c", 5, "m", include_usage=True)
    told = events(writer.answer(made({"content": "Hi"})))
    assert [("usage" in one, bool(one["choices"])) for one in told] == [
        (False, True),
        (False, True),
        (True, False),
    ]
    assert told[-1]["usage"] == {
        "prompt_tokens": 17,
        "total_tokens": 40,
        "completion_tokens": 23,
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert "system_fingerprint" in told[-1]
    assert "system_fingerprint" not in told[-2]
    all_of_it = ChunkWriter("c", 5, "m", include_usage=True, continuous_usage=True)
    assert all("usage" in one for one in events(all_of_it.answer(made({"content": "Hi"}))))


def test_logprobs_are_the_winners() -> None:
    logprobs = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105]}]}
    answer = made({"content": "Hi"}, logprobs=logprobs)
    told = events(ChunkWriter("c", 5, "m").answer(answer))
    assert [one["choices"][0]["logprobs"] for one in told] == [logprobs, None]
    assert json.loads(completion_body(answer, "c", 5, "m"))["choices"][0]["logprobs"] == logprobs


def test_an_error_ends_a_stream() -> None:
    raw = ChunkWriter("c", 5, "m").error(Refusal(503, 2, "later").body())
    assert raw.endswith(DONE)
    assert events(raw) == [
        {
            "error": {
                "message": "later",
                "type": "Service Unavailable",
                "param": None,
                "code": 503,
            }
        }
    ]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=400))
def test_a_streamed_text_is_the_whole_text(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert all(pieces(text))
    raw = ChunkWriter("c", 5, "m").answer(made({"content": text}))
    assert "".join(delta.get("content", "") for delta in deltas(raw)) == text
