"""Chat completions on the wire: the shapes a real vLLM was seen to send."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.request import public_answer
from proxy.dialects.chat.writer import DONE, fingerprint
from tests.unit.proxy.dialects.forms import (
    QUICK,
    TOOLS,
    assembled,
    chat,
    choices,
    events,
    lines,
    made,
    ours,
    writer,
)

# Recorded from vLLM 0.32.0, whole.
CHAT_BODY = (
    '{"id":"chatcmpl-9552c2119605c039","object":"chat.completion","created":1795148451,"model":'
    '"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"\\n\\nHello there! How '
    'can I help you today?","refusal":null,"annotations":null,"audio":null,"function_call":null,'
    '"reasoning":"\\nThe user wants a greeting.\\n"},"logprobs":null,"finish_reason":"stop",'
    '"stop_reason":null,"token_ids":null,"routed_experts":null}],"service_tier":null,'
    '"system_fingerprint":"vllm-0.32.0-5b592786","usage":{"prompt_tokens":17,"total_tokens":40,'
    '"completion_tokens":23,"prompt_tokens_details":null,"completion_tokens_details":'
    '{"reasoning_tokens":8}},"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,'
    '"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'
)
CUT_BODY = CHAT_BODY.replace('"\\n\\nHello there! How can I help you today?"', "null").replace(
    '"stop","stop_reason"', '"length","stop_reason"'
)
TOOL_BODY = CUT_BODY.replace(
    '"reasoning":',
    '"tool_calls":[{"id":"chatcmpl-tool-9b906280bc30082b","type":"function","function":{"name":'
    '"get_weather","arguments":"{\\"city\\": \\"Paris\\"}"}}],"reasoning":',
).replace('"length"', '"tool_calls"')
HEAD = (
    '{"id":"chatcmpl-ae30c49f2727ff70","object":"chat.completion.chunk","created":1795148451,'
    '"model":"tiny","choices":['
)
ROLE = (
    '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
    '"prompt_token_ids":null,"prompt_text":null}'
)
REASONING = (
    '{"index":0,"delta":{"reasoning":"hm"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
)
CONTENT = REASONING.replace("reasoning", "content").replace("hm", "Hello")
CALL = (
    '{"index":0,"delta":{"content":null,"tool_calls":[{"id":"chatcmpl-tool-baec110f4ef59b1d",'
    '"type":"function","index":0,"function":{"name":"get_weather"}}]},"logprobs":null,'
    '"finish_reason":null,"token_ids":null}]}'
)
ARGUMENTS = (
    '{"index":0,"delta":{"content":null,"tool_calls":[{"index":0,"function":{"arguments":'
    '"{\\"a\\": 1}"}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
)
END = (
    '{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls","stop_reason":null,'
    '"token_ids":null}]'
)
MARK = ',"system_fingerprint":"vllm-0.32.0-5b592786"}'
TOTAL = (
    '],"usage":{"prompt_tokens":41,"total_tokens":100,"completion_tokens":59,'
    '"completion_tokens_details":{"reasoning_tokens":5}},"system_fingerprint":'
    '"vllm-0.32.0-5b592786"}'
)
PARIS = {
    "id": "chatcmpl-tool-baec110f4ef59b1d",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"a": 1}'},
}


@pytest.mark.parametrize("captured", [CHAT_BODY, CUT_BODY, TOOL_BODY])
def test_a_whole_answer_is_vllms_byte_for_byte(captured: str) -> None:
    request = chat("9552c2119605c039", tools=TOOLS)
    body = writer(request).body([public_answer(json.loads(captured))])
    assert body.decode() == ours(captured)


def test_a_stream_is_vllms_byte_for_byte() -> None:
    answer = made(
        {"reasoning": "hm", "content": "Hello", "tool_calls": [PARIS]},
        "tool_calls",
        usage={
            "prompt_tokens": 41,
            "completion_tokens": 59,
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
    )
    shared = [HEAD + ROLE, HEAD + REASONING, HEAD + CONTENT, HEAD + CALL, HEAD + ARGUMENTS]
    one = writer(chat("ae30c49f2727ff70", stream=True))
    assert lines(one.opening() + one.answer([answer])) == [
        *shared,
        ours(HEAD + END + MARK),
        "[DONE]",
    ]
    options = {"include_usage": True}
    one = writer(chat("ae30c49f2727ff70", stream=True, stream_options=options))
    assert lines(one.opening() + one.answer([answer])) == [
        *shared,
        HEAD + END + "}",
        ours(HEAD + TOTAL),
        "[DONE]",
    ]


def test_a_choice_without_an_answer_ends_without_one() -> None:
    one = writer(chat(stream=True, n=2))
    raw = one.answer([made({"content": "a"})])
    assert assembled(raw, 1) == {
        "content": "",
        "reasoning": "",
        "calls": {},
        "tokens": [],
        "finish_reason": "abort",
    }
    assert len(json.loads(one.body([made({"content": "a"})]))["choices"]) == 1


# --- log probabilities ---------------------------------------------------------------------------


def entry(token: str | bytes) -> dict[str, Any]:
    raw = token.encode() if isinstance(token, str) else token
    return {"token": raw.decode(errors="replace"), "logprob": -0.1, "bytes": list(raw)}


SMILE = "\U0001f600".encode()


def test_tokens_go_with_their_text() -> None:
    words = ["The ", "quick ", "brown ", SMILE[:2], SMILE[2:], " fox", " jumps ", "over", " it"]
    entries = [entry(word) for word in ["<think>", "h", "m", "</think>", *words, "<|end|>"]]
    content = b"".join(bytes(one["bytes"]) for one in entries[4:-1]).decode()
    answer = made({"content": content, "reasoning": "hm"}, logprobs={"content": entries})
    raw = writer(chat(logprobs=True, stream=True)).answer([answer])
    assert assembled(raw)["content"] == content
    assert assembled(raw)["tokens"] == entries
    thought, spoken, end = [choice for choice in choices(raw) if choice["logprobs"]]
    tokens = [choice["logprobs"]["content"] for choice in (thought, spoken, end)]
    assert tokens == [entries[:3], entries[3:-1], entries[-1:]]
    assert spoken["delta"]["content"] == content
    whole = json.loads(writer(chat(logprobs=True)).body([answer]))
    assert whole["choices"][0]["logprobs"] == {"content": entries}
    unasked = writer(chat(stream=True))
    assert assembled(unasked.answer([answer]))["tokens"] == []
    assert json.loads(unasked.body([answer]))["choices"][0]["logprobs"] is None


# --- whatever the winner -------------------------------------------------------------------------

text = st.text(max_size=120)
message = st.fixed_dictionaries(
    {},
    optional={
        "content": st.none() | text,
        "reasoning": st.none() | text,
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {"function": st.fixed_dictionaries({"name": text, "arguments": text})},
                optional={"id": st.none() | st.sampled_from(["a", "b", ""])},
            ),
            max_size=3,
        ),
    },
)


@pytest.mark.slow
@QUICK
@given(
    st.lists(message, min_size=1, max_size=3),
    st.sampled_from(["stop", "length", "tool_calls"]),
    st.sampled_from([{}, {"tool_choice": "none"}, {"parallel_tool_calls": False}]),
    st.booleans(),
    st.booleans(),
)
def test_a_streamed_answer_is_the_whole_answer(
    messages: list[dict[str, Any]], finish: str, fields: dict[str, Any], usage: bool, tokens: bool
) -> None:
    fields = {**fields, "n": len(messages), "logprobs": tokens, "tools": TOOLS, "stream": True}
    request = chat(**fields, **({"stream_options": {"include_usage": True}} if usage else {}))
    answers = []
    for one in messages:
        entries = [entry(letter) for letter in made(one).content or ""]
        answers.append(made(one, finish, logprobs={"content": entries}))
    raw = writer(request).opening() + writer(request).answer(answers)
    body = json.loads(writer(request).body(answers))
    assert lines(raw)[-1] == "[DONE]"
    assert raw.count(DONE) == 1
    result = events(raw)
    assert len({(one["id"], one["created"], one["model"]) for one in result}) == 1
    assert [one["choices"] == [] for one in result] == [False] * (len(result) - usage) + [
        True
    ] * usage
    assert result[-1]["system_fingerprint"] == fingerprint()
    for index, choice in enumerate(body["choices"]):
        actual, response = assembled(raw, index), choice["message"]
        assert actual["content"] == (response["content"] or "")
        assert actual["reasoning"] == (response["reasoning"] or "")
        assert actual["finish_reason"] == choice["finish_reason"]
        assert list(actual["calls"].values()) == [
            [call["id"], call["function"]["name"], call["function"]["arguments"]]
            for call in response.get("tool_calls", ())
        ]
        assert actual["tokens"] == (choice["logprobs"] or {"content": []})["content"]


# --- tool calls ----------------------------------------------------------------------------------


def test_calls_become_text_if_none_are_allowed() -> None:
    one = writer(chat(tools=TOOLS, tool_choice="none"))
    answer = made({"content": "Now:", "tool_calls": [PARIS]}, "tool_calls")
    (choice,) = json.loads(one.body([answer]))["choices"]
    assert choice["message"]["content"] == (
        'Now:\n<tool_call>\n{"name": "get_weather", "arguments": {"a": 1}}\n</tool_call>'
    )
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    live = writer(chat(tools=TOOLS, tool_choice="none"))
    raw = live.delta_events({"content": "Now:"})
    raw += live.delta_events({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f"}}]})
    raw += live.finish(answer)
    assert assembled(raw)["content"] == choice["message"]["content"]


# --- live answers --------------------------------------------------------------------------------


def test_deltas_are_forwarded_as_they_arrive() -> None:
    one = writer(chat(stream=True, tools=TOOLS, stream_options={"include_usage": True}))
    raw = one.opening() + one.delta_events({"role": "assistant", "content": ""})
    raw += (
        one.delta_events({"reasoning_content": "hm"})
        + one.keepalive()
        + one.delta_events({"content": "Hi"})
    )
    calls = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}},
        {"index": 0, "function": {"arguments": "}"}},
        {"index": 0, "id": "a2", "function": {"name": "g", "arguments": ""}},
        {"index": 0, "id": "a2", "function": {"arguments": '{"a":'}},
        {"index": 0, "function": {"arguments": "1}"}},
    ]
    for call in calls:
        raw += one.delta_events({"tool_calls": [call]})
    result = [
        {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "a2", "function": {"name": "g", "arguments": '{"a":1}'}},
    ]
    answer = made({"content": "Hi", "reasoning": "hm", "tool_calls": result}, "tool_calls")
    raw += one.finish(answer)
    actual = assembled(raw)
    assert actual["calls"] == {0: ["a", "f", "{}"], 1: ["a2", "g", '{"a":1}']}
    assert (actual["content"], actual["reasoning"]) == ("Hi", "hm")
    assert actual["finish_reason"] == "tool_calls"
    assert events(raw)[-1]["usage"]["completion_tokens"] == 23
    assert raw.count(DONE) == 1


def test_an_answer_without_deltas_is_sent_at_its_end() -> None:
    one = writer(chat(stream=True))
    assert assembled(one.finish(made({"content": "Hi"})))["content"] == "Hi"
