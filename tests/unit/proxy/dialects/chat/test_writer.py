"""Chat and legacy completions on the wire, beyond the answers that were captured of a real vLLM."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat.completions import COMPLETIONS, legacy_logprobs
from proxy.dialects.chat.writer import DONE, fingerprint
from tests.unit.proxy.dialects.forms import (
    JSON,
    QUICK,
    TOOLS,
    assembled,
    chat,
    choices,
    events,
    legacy,
    lines,
    made,
    writer,
)

PARIS = {
    "id": "chatcmpl-tool-baec110f4ef59b1d",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"a": 1}'},
}


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


def legacy_entry(token: str, *tops: str) -> dict[str, Any]:
    result = [{"token": top, "logprob": -1.0, "bytes": list(top.encode())} for top in tops]
    raw = list(token.encode())
    return {"token": token, "logprob": -0.5, "bytes": raw, "top_logprobs": result}


def test_logprobs_in_the_legacy_form() -> None:
    entries = [legacy_entry("Hello", "Hello", "Bye"), legacy_entry(" you", " me", " him")]
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
    entries = [legacy_entry(word) for word in words]
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
def test_a_streamed_completion_is_the_whole_completion(
    texts: list[str], finish: str, usage: bool, echo: bool
) -> None:
    options = {"include_usage": True, "continuous_usage_stats": echo}
    fields = {"stream_options": options} if usage else {}
    request = legacy(n=len(texts), echo=echo, stream=True, **fields)
    answers = [made({"content": text}, finish) for text in texts]
    raw = writer(request).opening() + writer(request).answer(answers)
    assert raw.count(DONE) == 1
    for choice in json.loads(writer(request).body(answers))["choices"]:
        assert choice["text"].startswith("Say" if echo else texts[choice["index"]])
        result = choices(raw, choice["index"])
        assert "".join(one["text"] for one in result) == choice["text"]
        ends = [one["finish_reason"] for one in result if one["finish_reason"]]
        assert ends == [choice["finish_reason"]] == [result[-1]["finish_reason"]]
    assert ("usage" in events(raw)[-1]) == usage
