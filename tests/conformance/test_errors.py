"""Checklist 45 to 64: refusals, their texts, and faults of the upstream.

From raw bytes. The schema's own fuzzing (64) is in `test_schema.py`.
"""

import asyncio
import contextlib
import json
import logging
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.api.chat import VLLM_OVERFLOW
from core.events import ScoringAbstained
from core.settings import Settings
from proxy.rewards.part import HookLimits
from proxy.rewards.source import GroupContext
from proxy.upstream.errors import MAX_SCANNED_CHARS, MAX_TEXT_CHARS, public_text
from tests.conformance.captured import exchange
from tests.conformance.forms import (
    CHAT,
    COMPLETIONS,
    HELLO,
    MESSAGES,
    PATHS,
    RESPONSES,
    always,
    ask,
    completion,
    events,
    front,
    settle,
    stream,
    text_of,
)
from tests.support.faults.load import status_of_stream
from tests.support.proxy.front import BODIES, LAST, Front, fronted
from tests.support.proxy.hooks import HookRewards
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import Denied, ScriptedSwarm
from tests.support.wire import wire

ONCE = settings(rewards={"retries": 0})

# --- refused before anything is claimed ---------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_46_47_bodies_that_are_not_objects(tmp_path: Path, path: str) -> None:
    async with fronted(tmp_path) as f:
        for data in (b"[]", b'"text"', b"null", b"7", b""):
            answer = await ask(f, path, data)
            assert answer.status == 400
            error = answer.json()["error"]
            assert (error["type"], error["param"]) == ("Bad Request", "body")
            assert error["code"] == 400
        assert not f.world.state.groups


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES])
@pytest.mark.parametrize(("streams", "begun"), [(False, False), (True, False), (True, True)])
async def test_51_a_prompt_too_long_for_a_server_with_an_unknown_window(
    f: Front, path: str, streams: bool, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 0.0 if begun else 60.0)
    f.world.swarm.answer = always(Denied(400, f"{VLLM_OVERFLOW} is 4096 tokens."))
    answer = await ask(f, path, {**BODIES[path], "stream": streams})
    assert answer.status == (200 if begun else 400)
    assert b"maximum context length" in answer.body


@pytest.mark.parametrize(
    ("more", "param"),
    [
        pytest.param({"max_tokens": 0}, "max_tokens", id="52"),
        pytest.param({"max_completion_tokens": -1}, "max_completion_tokens", id="52-new"),
        pytest.param({"max_tokens": 1 << 70}, "body.max_tokens", id="52-huge"),
        pytest.param({"stream_options": {"include_usage": True}}, "stream_options", id="53"),
        pytest.param({"n": 0}, "n", id="n"),
        pytest.param({"temperature": -1}, "temperature", id="temperature"),
        pytest.param({"top_logprobs": 2}, "top_logprobs", id="top_logprobs"),
        pytest.param({"logprobs": True, "top_logprobs": 21}, "top_logprobs", id="many"),
        pytest.param({"tool_choice": "auto"}, "tool_choice", id="tool_choice"),
        pytest.param({"messages": []}, "messages", id="messages"),
        pytest.param({"response_format": {}}, "body.response_format.type", id="23-none"),
        pytest.param(
            {"response_format": {"type": "yaml"}}, "body.response_format.type", id="23-unknown"
        ),
        pytest.param({"response_format": {"type": ["text"]}}, "body.response_format.type", id="23"),
    ],
)
async def test_52_53_values_vllm_refuses(tmp_path: Path, more: dict[str, Any], param: str) -> None:
    async with fronted(tmp_path) as f:
        answer = await ask(f, CHAT, {**HELLO, **more})
        error = answer.json()["error"]
        assert (answer.status, error["param"], error["code"]) == (400, param, 400)
        assert list(error) == ["message", "type", "param", "code"]
        assert error["type"] == ("Bad Request" if "." in param else "BadRequestError")
        assert not f.world.state.groups


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES])
@pytest.mark.parametrize("stop", ["", ["a", ""]])
async def test_24_an_empty_stop_text_is_refused(
    tmp_path: Path, path: str, stop: str | list[str]
) -> None:
    async with fronted(tmp_path) as f:
        name = "stop_sequences" if path == MESSAGES else "stop"
        answer = await ask(f, path, {**BODIES[path], name: stop})
        assert answer.status == 400
        if isinstance(stop, list):
            assert answer.json()["error"]["message"] == "stop cannot contain an empty string."
        assert not f.world.state.groups


async def test_54_55_56_content_types_paths_and_methods(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f, wire(f.url) as line:
        for path in PATHS:
            for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
                head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n"
                await line.send(f"{head}content-type: {kind}\r\n\r\n{{}}")
                answer = await line.answer()
                assert answer.status == 400
                assert "Only 'application/json' is allowed" in answer.json()["error"]["message"]
            await line.ask("GET", path)
            answer = await line.answer()
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
            assert answer.body == b'{"detail":"Method Not Allowed"}'
            await line.ask("POST", f"{path}/nothing/here", BODIES[path])
            answer = await line.answer()
            assert (answer.status, answer.body) == (404, b'{"detail":"Not Found"}')


async def test_57_401_is_vllms_own(tmp_path: Path) -> None:
    async with front(tmp_path, proxy={"api_key": "sk-one"}) as f:
        for path in PATHS:
            answer = await ask(f, path, BODIES[path])
            assert (answer.status, answer.body) == (401, exchange("auth_none").body)
            assert "www-authenticate" not in answer.headers
            for right in ({"authorization": "bearer sk-one"}, {"x_api_key": "sk-one"}):
                assert (await ask(f, path, BODIES[path], headers=right)).status == 200


# --- faults behind us ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("streams", [False, True])
async def test_60_the_other_candidates_answer_when_some_fail(
    tmp_path: Path, path: str, streams: bool
) -> None:
    calls = 0

    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> Any:
        nonlocal calls
        calls += 1
        return RuntimeError("gone") if calls <= 2 else completion(f"answer of {name}")

    async with fronted(tmp_path, configured=ONCE) as f:
        f.world.swarm.answer = candidate_answer
        answer = await ask(f, path, {**BODIES[path], "stream": streams})
        assert answer.status == 200
        assert b"answer of" in answer.body
        await settle(f)
        (group,) = f.world.state.groups.values()
        assert group.phase == "DONE"
        assert len(f.world.swarm.rewards) == 2  # of those that failed nothing is trained on


HOOKS = {
    "raises": 'def on_compute_relative_reward(*told, **more):\n    raise ValueError("/srv/judge")',
    "hangs": "import time\ndef on_compute_relative_reward(*told, **more):\n    time.sleep(60)",
    "nan": 'def on_compute_relative_reward(answers, *told, **more):\n    return [float("nan")] * 4',
    "nothing": "def on_compute_relative_reward(*told, **more):\n    return None",
}

WHY = {"raises": "ValueError", "hangs": "within", "nan": "nan", "nothing": "None"}
"""The text that the operator sees for each."""


@contextlib.asynccontextmanager
async def judged_by(home: Path, code: str, limit: float) -> AsyncIterator[HookRewards]:
    """The operator's own reward function."""
    folder = home / "hooks"
    folder.mkdir()
    (folder / "on_compute_relative_reward.py").write_text(textwrap.dedent(code))
    source = HookRewards(folder, HookLimits(call_seconds=limit), home)
    await source.start()
    try:
        yield source
    finally:
        await source.close()


@pytest.mark.parametrize("kind", list(HOOKS))
async def test_61_a_broken_reward_function_costs_no_answer(tmp_path: Path, kind: str) -> None:
    limit = 0.5 if kind == "hangs" else 20.0  # only that one ends by the clock
    async with (
        judged_by(tmp_path, HOOKS[kind], limit) as source,
        fronted(tmp_path, configured=settings(rewards={"time_limit": limit})) as f,
    ):
        f.world.context.rewards = source
        began = asyncio.get_running_loop().time()
        whole, streamed = await asyncio.gather(
            ask(f, CHAT, HELLO), ask(f, CHAT, {**HELLO, "stream": True})
        )
        assert asyncio.get_running_loop().time() - began < limit + 5.0
        assert whole.status == 200
        assert whole.json()["choices"][0]["message"]["content"].startswith("answer")
        assert LAST[CHAT] in streamed.body
        assert b"error" not in streamed.body
        assert b"/srv" not in whole.body + streamed.body
        await settle(f)
        assert not f.world.swarm.rewards  # no reward is invented
        causes = " ".join(kind.cause for kind in f.world.kinds(ScoringAbstained))
        assert WHY[kind] in causes, causes


async def test_61_a_judge_slower_than_the_answer_budget(tmp_path: Path) -> None:
    answered = asyncio.Event()

    async def late(ctx: GroupContext) -> list[float]:
        await answered.wait()
        return []

    configured = settings(proxy={"answer_budget": 0.4}, rewards={"time_limit": 60.0})
    async with fronted(tmp_path, configured=configured) as f:
        f.world.source.scorer = late
        assert (await ask(f, CHAT, HELLO)).status == 200
        assert not f.world.kinds(ScoringAbstained)
        answered.set()
        await f.world.closed(20.0)
        assert not f.world.swarm.claimed()


@pytest.mark.parametrize("streams", [False, True])
async def test_62_a_server_restarted_in_mid_request(tmp_path: Path, streams: bool) -> None:
    async with ScriptedSwarm() as swarm, fronted(tmp_path, swarm) as f:
        swarm.delay = 30.0
        async with asyncio.TaskGroup() as tasks:
            request = tasks.create_task(ask(f, CHAT, {**HELLO, "stream": streams}))
            await swarm.until(lambda: len(swarm.chats) == 4)
            swarm.set_state("OFFLINE", 0)
            runs = f.world.groups.runs
            await f.world.until(lambda: [run.phase for run in runs.values()] == ["CLAIMING"])
            swarm.delay = 0.0
            swarm.set_state("BOOTING")
            swarm.set_state("ROLLING", 1)
        answer = request.result()
        assert answer.status == 200  # late, from the episodes of the new engine
        assert b"answer 0 of" in answer.body
        await settle(f)
        assert len(swarm.chats) == 8


async def _down(f: Front, swarm: ScriptedSwarm) -> None:
    swarm.set_state("OFFLINE", 0)
    await f.world.until(lambda: f.world.server.watcher.current.display_state == "OFFLINE")


@pytest.mark.parametrize("path", PATHS)
async def test_62_a_server_that_does_not_come_back(tmp_path: Path, path: str) -> None:
    async with ScriptedSwarm() as swarm, fronted(tmp_path, swarm) as f:
        swarm.delay = 30.0
        async with asyncio.TaskGroup() as tasks:
            whole = tasks.create_task(ask(f, path, BODIES[path]))
            streamed = tasks.create_task(ask(f, path, {**BODIES[path], "stream": True}))
            await swarm.until(lambda: len(swarm.chats) == 8)
            await _down(f, swarm)
        assert whole.result().status == 503
        assert int(whole.result().headers["retry-after"]) >= 1
        name, last = events(streamed.result().body)[-1]
        if path == RESPONSES:
            assert last["response"]["status"] == "failed"
        elif path == MESSAGES:
            assert (name, last["error"]["type"]) == ("error", "overloaded_error")
        else:
            assert events(streamed.result().body)[-2][1]["error"]["code"] == 503
        await f.world.closed()


def test_62_the_default_budget_is_inside_what_clients_wait() -> None:
    assert Settings().proxy.answer_budget < 120.0


SECRETS = ("Traceback", "/srv", "10.1.2.3", "127.0.0.1", "RuntimeError", "sk-ajet", "episode")


@pytest.mark.parametrize("path", PATHS)
async def test_63_no_detail_of_ours_in_an_error(tmp_path: Path, path: str) -> None:
    async with fronted(tmp_path, configured=ONCE) as f:
        bad = [b"{", b"[]", {"model": 1}, {**BODIES[path], "max_tokens": "x"}]
        bodies = [(await ask(f, path, data)).body for data in bad]
        f.world.swarm.answer = always(RuntimeError("Traceback: /srv/model on 10.1.2.3"))
        bodies += [
            (await ask(f, path, {**BODIES[path], "stream": streams})).body
            for streams in (False, True)
        ]
        for body in bodies:
            for secret in SECRETS:
                assert secret.encode() not in body
        await settle(f)


# --- complaints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["best", "live"])
async def test_complaint_a_tool_call_that_is_cut_ends_in_order(tmp_path: Path, answer: str) -> None:
    upstream_answer = completion(
        None, calls=[("get_weather", '{"city": "Pa')], finish="length", tokens=(17, 4, 0)
    )
    async with front(tmp_path, proxy={"answer": answer}) as f:
        f.world.swarm.answer = always(upstream_answer)
        f.world.swarm.streaming = "tokens"
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
        result = await stream(f, CHAT, {**HELLO, "max_tokens": 4, "tools": [tool]})
        assert result[-1][1] == "[DONE]"
        assert result[-2][1]["choices"][0]["finish_reason"] == "length"
        arguments = [
            call["function"].get("arguments", "")
            for _, one in result[:-1]
            for call in one["choices"][0]["delta"].get("tool_calls", ())
        ]
        assert "".join(arguments) == '{"city": "Pa'
        assert not text_of([one for _, one in result[:-1]])


async def test_complaint_arguments_are_not_held_back(tmp_path: Path) -> None:
    semaphore = asyncio.Semaphore(0)

    async def on_token(name: str, index: int) -> None:
        await semaphore.acquire()

    arguments = '{"city": "Llanfairpwllgwyngyll", "days": [1, 2, 3, 4, 5, 6, 7]}'
    async with front(tmp_path, proxy={"answer": "live"}) as f:
        f.world.swarm.answer = always(completion(None, calls=[("get_weather", arguments)]))
        f.world.swarm.streaming, f.world.swarm.on_token = "tokens", on_token
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
        async with wire(f.url) as line:
            await line.ask("POST", CHAT, {**HELLO, "tools": [tool], "stream": True})
            await line.head()
            parts, received = line.chunks(), b""
            half = arguments[: len(arguments) // 2].replace('"', '\\"').encode()
            while half not in received:  # before the other half is sent
                semaphore.release()
                async with asyncio.timeout(10):
                    received += await anext(parts)
            assert b"7]}" not in received
            for _ in range(50):
                semaphore.release()
            received += b"".join([part async for part in parts])
        assert received.count(b'"arguments"') >= 2


VIOLATION: Any = [
    {
        "type": "string_too_short",
        "loc": ["body", "messages", 0, "role"],
        "msg": "String should have at least 1 character",
        "input": "a secret of the user's",
    }
]
NASTY = (
    "no \x1b[31mred\x1b[0m \u202etxt at http://10.1.2.3:9000/x?key=1 or gpu-7.lan:8000, "
    "sk-ajet-AbCdEf123456789012, /srv/ajet/run/model.py\nTraceback (most recent call last):\n"
    '  File "/srv/x.py", line 3'
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("status", [400, 413, 422])
async def test_the_status_of_a_refusal_is_the_users(tmp_path: Path, path: str, status: int) -> None:
    async with fronted(tmp_path) as f:
        swarm = f.world.swarm
        swarm.answer = always(Denied(status, "That cannot be read."))
        answer = await ask(f, path, BODIES[path])
        assert answer.status == status
        assert "retry-after" not in answer.headers
        body = answer.json()
        assert body["error"]["message"] == "That cannot be read."
        if path == MESSAGES:
            kind = "request_too_large" if status == 413 else "invalid_request_error"
            assert (body["type"], body["error"]["type"]) == ("error", kind)
        else:
            assert list(body["error"]) == ["message", "type", "param", "code"]
            assert body["error"]["code"] == status
            assert body["error"]["type"] != "InternalServerError"
        await settle(f)
        (group,) = f.world.state.groups.values()
        assert group.phase == "FAILED"
        assert len(swarm.claims) == len(swarm.chats) == 4  # one request for each, no further one


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_refused_at_once_has_the_status_of_any_other_answer(
    f: Front, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 60.0)  # however slow this machine is
    f.world.swarm.answer = always(Denied(422, "That cannot be read."))
    whole = await ask(f, path, BODIES[path])
    streamed = await ask(f, path, {**BODIES[path], "stream": True, "user": "other"})
    assert (streamed.status, streamed.json()) == (whole.status, whole.json())
    assert streamed.status in (400, 422)
    assert "retry-after" not in streamed.headers


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_says_so_without_asking_to_come_back(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 0.0)
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(Denied(422, "That cannot be read."))
        answer = await ask(f, path, {**BODIES[path], "stream": True})
        assert answer.status == 200  # not known before
        assert status_of_stream(path, answer.body.decode()) in (400, 422)
        assert b"That cannot be read." in answer.body
        assert b"ry again" not in answer.body
        if path == RESPONSES:
            last = [event for _, event in events(answer.body) if isinstance(event, dict)][-1]
            assert last["response"]["error"]["code"] == "invalid_prompt"
        await settle(f)
        assert len(f.world.swarm.chats) == 4


@pytest.mark.parametrize("detail", [VIOLATION, NASTY])
async def test_error_details_are_redacted_for_users(f: Front, detail: Any) -> None:
    f.world.swarm.answer = always(Denied(422, detail))
    answer = await ask(f, CHAT, BODIES[CHAT])
    text = answer.json()["error"]["message"]
    if detail is VIOLATION:
        assert text == "body.messages.0.role: String should have at least 1 character"
    else:
        assert text.startswith("no \u241b[31mred")
        assert text.endswith("at [address] or [address], [redacted], [path]")
    for secret in ("secret", "10.1", "gpu-7", "AbCdEf", "srv", "Traceback", "\u202e"):
        assert secret not in text


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (
            "at localhost:8000, a.b-c.lan:80. Ratio 1.25:10, step:12",
            "at [address], [address]. Ratio 1.25:10, step:12",
        ),
        ("x " * MAX_SCANNED_CHARS, "x " * (MAX_TEXT_CHARS // 2)),
        ("a." * MAX_SCANNED_CHARS, "422 Unprocessable Entity"),
        ("no: " + "a." * 7_000, "no: " + "a." * (MAX_TEXT_CHARS // 2 - 2)),
        ("no" + " " * MAX_SCANNED_CHARS + "more", "no"),
    ],
    ids=["hosts", "words", "a word", "dots", "blanks"],
)
def test_an_error_that_repeats_a_large_prompt_delays_no_other_request(
    text: str, result: str
) -> None:
    began = time.thread_time()
    assert public_text(text, 422) == result
    assert time.thread_time() - began < 0.3


async def test_after_one_refused_candidate_the_others_answer(f: Front) -> None:
    """A refusal may be a fault of one worker: the group continues with the others."""
    refused: list[str] = []

    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> Any:
        if not refused:
            refused.append(name)
            return Denied(422, "no")
        return f"hello from {name}"

    f.world.swarm.answer = candidate_answer
    assert (await ask(f, CHAT, BODIES[CHAT])).status == 200


# --- the last resort ----------------------------------------------------------------------------


async def test_an_unexpected_error_is_a_500_in_json(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise LookupError("sk-ajet-of-somebody")

    caplog.set_level(logging.INFO)
    async with fronted(tmp_path) as f, wire(f.url) as line:
        monkeypatch.setattr("proxy.http.middleware._strip_session", broken)
        await line.ask("GET", "/sessions/x/v1/models")
        answer = await line.answer()
        assert answer.status == 500
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"] == {
            "message": "Internal server error",
            "type": "InternalServerError",
            "param": None,
            "code": 500,
        }
    (result,) = [record for record in caplog.records if "failed" in record.getMessage()]
    assert "LookupError in test_errors.py" in result.getMessage()
    assert result.exc_info is None
    assert "somebody" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "path",
    ["/sessions%2Fx%2Fv1%2Fmodels", "/sessions%2Fx/v1/models", "/sessions/", "/%2Fsessions/x"],
)
async def test_encoded_slashes_reach_no_other_route(tmp_path: Path, path: str) -> None:
    async with fronted(tmp_path) as f, wire(f.url) as line:
        await line.ask("GET", path)
        answer = await line.answer()
        assert (answer.status, json.loads(answer.body)) == (404, {"detail": "Not Found"})
