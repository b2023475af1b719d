"""Legacy completions: what is refused, what is sent upstream, and the forms on the wire."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat.completions import COMPLETIONS, legacy_logprobs
from proxy.dialects.chat.writer import DONE
from tests.unit.proxy.dialects.forms import (
    JSON,
    QUICK,
    TOOLS,
    choices,
    events,
    legacy,
    lines,
    made,
    ours,
    writer,
)

# Recorded from vLLM 0.32.0.
BODY = (
    '{"id":"cmpl-b0989cd4ea6d4f18","object":"text_completion","created":1795148451,"model":"tiny",'
    '"choices":[{"index":0,"text":"TheTheThe user","logprobs":null,"finish_reason":"length",'
    '"stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,'
    '"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-5b592786",'
    '"usage":{"prompt_tokens":1,"total_tokens":5,"completion_tokens":4,"prompt_tokens_details":'
    'null,"completion_tokens_details":null},"kv_transfer_params":null,"ec_transfer_params":null,'
    '"metrics":null}'
)
HEAD = (
    '{"id":"cmpl-bb9f6e576c9a601c","object":"text_completion","created":1795148451,"model":"tiny",'
    '"choices":['
)
PIECE = (
    '{"index":0,"text":"The","logprobs":null,"finish_reason":null,"stop_reason":null,'
    '"prompt_token_ids":null,"token_ids":null}]'
)
LAST = PIECE.replace("The", "TheTheThe user").replace('on":null,"stop', 'on":"length","stop')
TOTAL = (
    '],"usage":{"prompt_tokens":1,"total_tokens":5,"completion_tokens":4},"system_fingerprint":'
    '"vllm-0.32.0-5b592786"}'
)
MARK = ',"system_fingerprint":"vllm-0.32.0-5b592786"}'
FOUR = {"prompt_tokens": 1, "completion_tokens": 4}


# --- reading -------------------------------------------------------------------------------------


def test_a_prompt_becomes_one_message() -> None:
    request = legacy(
        model="m",
        prompt=["Say"],
        seed=1,
        temperature=0.5,
        top_p=0.9,
        stop="x",
        logprobs=2,
        best_of=2,
        tools=TOOLS,
        n=2,
        made_up=1,
    )
    assert request.body == {
        "model": "m",
        "messages": [{"role": "user", "content": "Say"}],
        "max_tokens": 16,
        "seed": 1,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": "x",
        "logprobs": True,
        "top_logprobs": 2,
        "made_up": 1,
    }
    assert (request.dialect, request.n, request.query) == ("completions", 2, "Say")
    assert legacy(max_tokens=4).body["max_tokens"] == 4
    assert legacy().key != legacy(echo=True).key
    headers = {**JSON, "x-ajet-train": "no"}
    untrained = COMPLETIONS.read(b'{"prompt": "a", "seed": 1, "temperature": 0}', headers, "")
    assert (untrained.body["seed"], untrained.body["temperature"]) == (1, 0)


def test_token_ids_are_one_prompt_or_several() -> None:
    one = legacy(prompt=[1, 2])
    assert one.extra.prompts == ([1, 2],)
    assert one.query == ""
    several = legacy(prompt=[[1], [2, 3]])
    assert [part.extra.prompts for part in several.parts] == [([1],), ([2, 3],)]


# --- writing -------------------------------------------------------------------------------------


def test_a_whole_answer_is_vllms_byte_for_byte() -> None:
    answer = made({"content": "TheTheThe user"}, "length", usage=FOUR)
    body = writer(legacy("b0989cd4ea6d4f18")).body([answer])
    assert body.decode() == ours(BODY)


def test_a_stream_is_vllms_byte_for_byte() -> None:
    answer = made({"content": "TheTheThe user"}, "length", usage=FOUR)
    one = writer(legacy("bb9f6e576c9a601c", stream=True, stream_options={"include_usage": True}))
    assert lines(one.answer([answer])) == [HEAD + LAST + "}", ours(HEAD + TOTAL), "[DONE]"]
    one = writer(legacy("bb9f6e576c9a601c", stream=True))
    assert lines(one.answer([answer])) == [ours(HEAD + LAST + MARK), "[DONE]"]
    assert lines(one.delta_events({"content": "The"})) == [HEAD + PIECE + "}"]
    empty = HEAD + PIECE.replace("The", "") + "}"
    assert lines(one.opening()) == lines(one.keepalive()) == [empty]


def entry(token: str, *tops: str) -> dict[str, Any]:
    result = [{"token": top, "logprob": -1.0, "bytes": list(top.encode())} for top in tops]
    raw = list(token.encode())
    return {"token": token, "logprob": -0.5, "bytes": raw, "top_logprobs": result}


def test_logprobs_in_the_legacy_form() -> None:
    entries = [entry("Hello", "Hello", "Bye"), entry(" you", " me", " him")]
    assert legacy_logprobs(entries, 3, 1) == {
        "text_offset": [3, 8],
        "token_logprobs": [-0.5, -0.5],
        "tokens": ["Hello", " you"],
        "top_logprobs": [{"Hello": -0.5}, {" you": -0.5, " me": -1.0}],
    }
    assert list(legacy_logprobs(entries, 3, 1)) == [
        "text_offset",
        "token_logprobs",
        "tokens",
        "top_logprobs",
    ]
    assert legacy_logprobs([{"token": "a", "logprob": None}], 0, 0)["token_logprobs"] == [-9999.0]
    assert legacy_logprobs([], 0, 1) is None


def test_logprobs_are_equal_whole_and_streamed() -> None:
    words = ["<think>", "hm", "</think>", *(f" word{at}" for at in range(9)), "<|end|>"]
    entries = [entry(word) for word in words]
    text = "".join(words[3:-1])
    answer = made({"content": text, "reasoning": "hm"}, logprobs={"content": entries})
    (whole,) = json.loads(writer(legacy(logprobs=1)).body([answer]))["choices"]
    assert whole["text"] == text
    one = writer(legacy(logprobs=1, stream=True))
    result = choices(one.opening() + one.answer([answer]))
    assert "".join(choice["text"] for choice in result) == whole["text"]
    for name, expected in whole["logprobs"].items():
        parts = [choice["logprobs"][name] for choice in result if choice["logprobs"]]
        assert [value for part in parts for value in part] == expected
    assert whole["logprobs"]["text_offset"][0] == 0
    plain = json.loads(writer(legacy()).body([answer]))["choices"][0]
    assert plain["logprobs"] is None


@pytest.mark.slow
@QUICK
@given(
    st.lists(st.text(max_size=100), min_size=1, max_size=3),
    st.sampled_from(["stop", "length", "tool_calls"]),
    st.booleans(),
    st.booleans(),
)
def test_a_streamed_answer_is_the_whole_answer(
    texts: list[str], finish: str, usage: bool, echo: bool
) -> None:
    options = {"include_usage": True, "continuous_usage_stats": echo}
    fields = {"stream_options": options} if usage else {}
    request = legacy(n=len(texts), echo=echo, stream=True, **fields)
    answers = [made({"content": text}, finish) for text in texts]
    raw = writer(request).opening() + writer(request).answer(answers)
    assert raw.count(DONE) == 1
    for choice in json.loads(writer(request).body(answers))["choices"]:
        result = choices(raw, choice["index"])
        assert "".join(one["text"] for one in result) == choice["text"]
        ends = [one["finish_reason"] for one in result if one["finish_reason"]]
        assert ends == [choice["finish_reason"]] == [result[-1]["finish_reason"]]
    assert ("usage" in events(raw)[-1]) == usage
