"""Checklist 1 to 11 and 65 to 75: headers, signs of life, connections, clients that leave, load.

`tests/data/conformance.yaml` names the tests of the items that have no test here.
"""

import asyncio
import contextlib
import itertools
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from core.events import GroupOpened, RequestJoined
from core.runtime.sockets import BindError, bind, is_loopback, public_url
from core.settings import Settings
from proxy.http.server import KEEP_ALIVE
from proxy.rewards.source import GroupContext
from tests.conformance.forms import (
    CHAT,
    HELLO,
    MESSAGES,
    PATHS,
    TOOLED,
    ask,
    ask_json,
    chunks,
    events,
    front,
    settle,
    text_in,
    text_of,
)
from tests.support.capped_clock import loop_time
from tests.support.proxy.front import BODIES, LAST, Front, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.wire import Wire, wire

QUIET = {"messages": {"ping"}, "responses": {"response.in_progress"}}


def is_quiet(path: str, event: Any) -> bool:
    """Whether an event changes nothing for who reads it."""
    if path in ("/v1/messages", "/v1/responses"):
        return event["type"] in QUIET[path.rpartition("/")[2]]
    choices = event["choices"]
    if path == CHAT:
        return all(not choice["delta"] and choice["finish_reason"] is None for choice in choices)
    return all(not choice["text"] and choice["finish_reason"] is None for choice in choices)


class StreamRecorder:
    """The pieces of a stream, with their times."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.at: list[float] = []
        self.parts: list[bytes] = []

    async def listen(self, line: Wire) -> None:
        """To the end of the stream."""
        loop = asyncio.get_running_loop()
        async for part in line.chunks():
            self.at.append(loop.time())
            self.parts.append(part)

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in itertools.pairwise(self.at)]

    @property
    def lines_of(self) -> list[Any]:
        return [data for _, data in events(b"".join(self.parts)) if data != "[DONE]"]

    @property
    def quiet(self) -> int:
        return sum(is_quiet(self.path, line) for line in self.lines_of)


async def hear(url: str, path: str, **more: Any) -> StreamRecorder:
    """One streamed request, to its end."""
    recorder = StreamRecorder(path)
    async with wire(url) as line:
        await line.ask("POST", path, {**BODIES[path], "stream": True, **more})
        assert (await line.head())[0] == 200
        await recorder.listen(line)
    assert LAST[path] in recorder.parts[-1]
    return recorder


def test_04_a_keepalive_comes_in_time_unless_disabled() -> None:
    assert Settings().proxy.keepalive <= 15.0
    assert Settings().proxy.stream_budget >= 600.0


@pytest.mark.parametrize("slow", ["sync", "episodes", "rewards", "operator"])
async def test_04_a_data_event_in_every_phase(tmp_path: Path, slow: str) -> None:
    every, patience = 0.1, 0.6
    configured = settings(
        proxy={"keepalive": every},
        rating={"mode": "hold" if slow == "operator" else "off", "discard_timeout_rating": 0.7},
    )

    async def scores(ctx: GroupContext) -> list[float]:
        await asyncio.sleep(patience)
        return [answer.index / 10 for answer in ctx.answers]

    state = "WEIGHT_SYNCING" if slow == "sync" else "ROLLING"
    async with (
        ScriptedSwarm(state=state, automatic=False) as swarm,
        fronted(tmp_path, swarm, configured) as f,
    ):
        if slow == "episodes":
            swarm.delay = patience
        if slow == "rewards":
            f.world.source.scorer = scores
        if slow == "sync":
            asyncio.get_running_loop().call_later(patience, swarm.set_state, "ROLLING", 2)
        result = await asyncio.gather(*(hear(f.url, path) for path in PATHS))
        for value in result:
            assert value.quiet >= 3, value.path
            waiting = value.gaps[: value.quiet]
            assert max(waiting) < 2.5 * every, value.path
        await settle(f)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_04_a_reward_of_four_hundred_seconds(tmp_path: Path) -> None:
    seconds = 400.0

    async def scores(ctx: GroupContext) -> list[float]:
        await asyncio.sleep(seconds)
        return [answer.index / 10 for answer in ctx.answers]

    configured = settings(
        proxy={"keepalive": Settings().proxy.keepalive, "stream_budget": 600.0},
        rewards={"time_limit": 500.0},
        rating={"discard_timeout": 600.0},
    )
    async with (
        ScriptedSwarm(slots=64) as swarm,
        fronted(tmp_path, swarm, configured) as f,
    ):
        f.world.source.scorer = scores
        result = await asyncio.gather(*(hear(f.url, path) for path in PATHS))
        for value in result:
            assert value.at[-1] - value.at[0] > seconds - 1
            assert value.quiet >= 39
            assert max(value.gaps) < 15.0
        await f.world.closed(30.0)


async def test_05_a_live_answer_is_streamed_as_it_is_generated(tmp_path: Path) -> None:
    pace = 0.4

    async def on_token(name: str, index: int) -> None:
        await asyncio.sleep(pace)

    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> str:
        return "one two three four five"

    configured = settings(proxy={"answer": "live", "keepalive": 10.0})
    async with (
        ScriptedSwarm(answer=candidate_answer, slots=64) as swarm,
        fronted(tmp_path, swarm, configured) as f,
    ):
        swarm.streaming, swarm.on_token = "tokens", on_token
        result = await asyncio.gather(*(hear(f.url, path) for path in PATHS))
        for value in result:
            words = [index for index, part in enumerate(value.parts) if _word(part)]
            times = [value.at[index] for index in words][:5]
            gaps = [after - before for before, after in itertools.pairwise(times)]
            assert len(gaps) == 4, value.path
            assert max(gaps) < pace + 0.2, value.path
            assert min(gaps) > pace / 2, value.path
        await settle(f)


def _word(part: bytes) -> bool:
    return re.search(rb"\b(one|two|three|four|five)\b", part) is not None


async def test_05_the_best_of_n_comes_in_one_burst_after_the_choice(f: Front) -> None:
    f.world.swarm.delay = 0.3
    for path in PATHS:
        received = await hear(f.url, path)
        lines_of = [
            at for at, part in zip(received.at, received.parts, strict=True) if b"answer" in part
        ]
        assert lines_of[0] - received.at[0] > 0.25
        assert received.at[-1] - lines_of[0] < 0.1


@pytest.mark.parametrize(
    "idle",
    [
        6.0,  # longer than uvicorn keeps a connection by default
        pytest.param(30.0, marks=pytest.mark.soak),
        pytest.param(90.0, marks=pytest.mark.soak),
    ],
)
async def test_07_an_idle_connection_is_reused(tmp_path: Path, idle: float) -> None:
    assert KEEP_ALIVE > 90
    async with front(tmp_path) as f, contextlib.AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(wire(f.url)) for _ in range(3)]
        bodies = [BODIES[CHAT], {**BODIES[CHAT], "stream": True}, None]
        for again in range(2):
            for line, body in zip(lines, bodies, strict=True):
                if body is None:
                    await line.ask("GET", "/v1/models")
                else:
                    await line.ask("POST", CHAT, {**body, "user": str(again)})
                assert (await line.answer()).status == 200
            if not again:
                await asyncio.sleep(idle)


async def test_08_a_hundred_streams_of_all_dialects_do_not_mix(tmp_path: Path) -> None:
    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> str:
        return f"you said {body['messages'][-1]['content']}"

    async with (
        ScriptedSwarm(batch=1000, slots=400, answer=candidate_answer) as swarm,
        fronted(tmp_path, swarm, settings(proxy={"repeats": 1})) as f,
    ):

        async def one(number: int) -> Any:
            path = PATHS[number % 4]
            body = json.dumps(BODIES[path]).replace("Say hello.", f"number {number};")
            lines_of = (await ask(f, path, {**json.loads(body), "stream": True}, seconds=30.0)).body
            assert f"number {number};" in text_in(path, lines_of)
            first = events(lines_of)[0][1]
            return (first.get("message") or first.get("response") or first)["id"]

        ids = await asyncio.gather(*(one(number) for number in range(100)))
        assert len(set(ids)) == 100
        await f.world.closed(20.0)
        assert not swarm.claimed()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_11_the_loopback_by_any_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    try:
        bind(host, 0).close()
    except BindError as error:
        pytest.skip(str(error))  # a machine without IPv6
    assert is_loopback(host)
    monkeypatch.setattr("tests.support.served.bind", lambda _, port: bind(host, port))
    async with front(tmp_path, proxy={"host": host}) as f:
        port = urlsplit(f.url).port
        assert port is not None
        names = [public_url(host, port), f"http://localhost:{port}"]
        for name in names[: 1 if host == "::1" else 2]:
            async with httpx.AsyncClient(base_url=name) as client:
                assert (await client.post(CHAT, json=BODIES[CHAT])).status_code == 200


LIVE = settings(proxy={"answer": "live"})


def opened(f: Front) -> list[Any]:
    return f.world.kinds(GroupOpened)


# --- clients that leave -------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_65_a_client_that_disconnects_during_an_answer(tmp_path: Path, path: str) -> None:
    semaphore = asyncio.Semaphore(0)

    async def on_token(name: str, index: int) -> None:
        await semaphore.acquire()

    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> str:
        if not body.get("stream"):
            await asyncio.sleep(30.0)
        return "alpha beta gamma delta"

    async with ScriptedSwarm(answer=candidate_answer) as swarm, fronted(tmp_path, swarm, LIVE) as f:
        swarm.streaming, swarm.on_token = "tokens", on_token
        async with wire(f.url) as line:
            await line.ask("POST", path, {**BODIES[path], "stream": True})
            await line.head()
            received = b""
            parts = line.chunks()
            while b"alpha" not in received:
                semaphore.release()
                received += await anext(parts)
        began = loop_time()
        await f.world.until(lambda: not swarm.claimed())
        assert loop_time() - began < 1.0
        await f.world.closed()
        assert not swarm.rewards
        semaphore.release()
        for _ in range(50):
            semaphore.release()
        await f.world.until(lambda: not f.handler.metrics.open)
        # The slots are free: the next one is served.
        swarm.answer = _quick
        assert (await ask(f, path, {**BODIES[path], "user": "next"})).status == 200
        await settle(f)


async def _quick(name: str, body: dict[str, Any], index: int) -> str:
    return "quick"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_67_a_retry_after_a_timeout_makes_no_second_group(
    tmp_path: Path, path: str, streams: bool
) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.delay = 0.3
        body = {**BODIES[path], "stream": streams}
        async with wire(f.url) as line:
            await line.ask("POST", path, body)
            await f.world.until(lambda: len(f.world.swarm.chats) == 4)
        answer = await ask(f, path, body)  # at once, as clients do
        assert answer.status == 200
        assert b"answer 0 of" in answer.body or LAST[path] in answer.body
        await settle(f)
        assert len(f.world.swarm.claims) == 4
        assert len(opened(f)) == len(f.world.kinds(RequestJoined)) == 1


async def test_67_a_late_retry_finds_the_first_cancelled(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        swarm = f.world.swarm
        swarm.delay = 30.0
        async with wire(f.url) as line:
            await line.ask("POST", CHAT, HELLO)
            await f.world.until(lambda: len(swarm.chats) == 4)
        await f.world.until(lambda: not swarm.claimed())
        swarm.delay = 0.0
        assert (await ask(f, CHAT, HELLO)).status == 200
        await settle(f)
        assert swarm.most_claimed == 4  # never 2N at once
        assert len(swarm.rewards) == 4


# --- names and sessions -------------------------------------------------------------------------


async def test_69_the_clients_id_reaches_all_episodes(f: Front) -> None:
    answer = await ask(f, CHAT, HELLO, headers={"x_request_id": "my-id-1"})
    assert answer.headers["x-request-id"] == "my-id-1"
    assert answer.json()["id"] == "chatcmpl-my-id-1"
    upstream_headers = [headers for _, _, headers in f.world.swarm.chats]
    ids = [
        {name.lower(): one for name, one in value.items()}["x-request-id"]
        for value in upstream_headers
    ]
    assert ids == ["my-id-1"] * 4


@pytest.mark.parametrize("path", PATHS)
async def test_70_sessions(tmp_path: Path, path: str) -> None:
    async with fronted(tmp_path, configured=settings(proxy={"repeats": 1})) as f:
        ways: list[tuple[str, dict[str, str], dict[str, Any]]] = [
            (path, {"X_Session_ID": "s-0"}, {}),
            (path, {"x_session_id": "s-1"}, {}),
            (path, {"session_id": "s-2"}, {}),
            (path, {"x_claude_code_session_id": "s-3"}, {}),
            (path, {}, {"session_id": "s-4"}),
            (f"/sessions/s-5{path}", {}, {}),
            (path, {"authorization": "Bearer sk-ajet-session-s-6"}, {}),
            (path, {"x_api_key": "sk-ajet-session-s-7"}, {}),
            (path, {}, {"metadata": {"user_id": "user_1_account__session_s-8-abcdef"}}),
            (path, {}, {"client_metadata": {"session_id": "s-9"}}),
        ]
        for where, headers, more in ways:
            answer = await ask(f, where, {**BODIES[path], **more}, headers=headers)
            assert answer.status == 200, answer.body
        await settle(f)
        sessions = [group.session for group in opened(f)]
        assert sessions == [*(f"s-{at}" for at in range(8)), "s-8-abcdef", "s-9"]


async def test_71_a_title_call_is_one_episode_and_not_trained_on(tmp_path: Path) -> None:
    title = [
        {
            "role": "system",
            "content": "You are a title generator. You output ONLY a thread title. No more.",
        },
        {"role": "user", "content": "Generate a title for this conversation:\n"},
        *HELLO["messages"],
    ]
    mark = {"x_session_id": "ses_1"}
    async with fronted(tmp_path) as f:
        helper, main = await asyncio.gather(
            ask(f, CHAT, {**HELLO, "messages": title, "stream": True}, headers=mark),
            ask(f, CHAT, {**TOOLED, "stream": True}, headers=mark),
        )
        assert helper.status == main.status == 200
        assert LAST[CHAT] in helper.body
        await settle(f)
        assert len(f.world.swarm.claims) == 1 + 4
        assert len(f.world.swarm.rewards) == 4
        assert sorted(group.helper for group in opened(f)) == ["", "opencode-title"]


@pytest.mark.parametrize("path", PATHS)
async def test_72_caps_of_a_session(tmp_path: Path, path: str) -> None:
    capped = settings(proxy={"session_cap": 1, "session_calls": 2, "repeats": 1})
    mark = {"x_session_id": "wild"}
    async with fronted(tmp_path, configured=capped) as f, wire(f.url) as first:
        f.world.swarm.delay = 0.3
        await first.ask("POST", path, BODIES[path], **mark)
        await f.world.until(lambda: f.world.swarm.chats)
        before = len(f.world.swarm.claims)
        for streams in (False, True):  # one is open
            body = {**BODIES[path], "stream": streams, "user": "other"}
            answer = await ask(f, path, body, headers=mark)
            assert (answer.status, answer.headers["retry-after"]) == (429, "2")
            assert "Too many requests" in answer.json()["error"]["message"]
        assert len(f.world.swarm.claims) == before
        assert (await first.answer()).status == 200
        await settle(f)
        assert (await ask(f, path, {**BODIES[path], "user": "b"}, headers=mark)).status == 200
        await settle(f)
        answer = await ask(f, path, {**BODIES[path], "user": "c"}, headers=mark)  # the third
        assert answer.status == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 61
        tame = {"x_session_id": "tame"}
        assert (await ask(f, path, BODIES[path], headers=tame)).status == 200
        await settle(f)


# --- load ---------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_73_a_thousand_long_streams_at_once(tmp_path: Path) -> None:
    seconds = 20.0
    process = psutil.Process()
    configured = settings(
        proxy={"repeats": 1, "stream_budget": 90.0, "keepalive": 1.0, "queue_limit": 2000}
    )
    async with (
        ScriptedSwarm(batch=100_000, slots=2000) as swarm,
        fronted(tmp_path, swarm, configured) as f,
    ):
        swarm.repeat, swarm.delay = 1, seconds
        files = process.num_fds()
        async with asyncio.TaskGroup() as tasks:
            for number in range(1000):
                body = {**HELLO, "stream": True, "user": f"long {number}"}
                tasks.create_task(_to_the_end(f, body))
        await f.world.closed(30.0)
        assert not swarm.claimed()
        assert len(f.world.context.tasks) == 1  # the watcher
        await f.world.until(lambda: not f.handler.metrics.open)
        # The polls keep a dozen idle connections to the server open, with both ends here.
        await f.world.until(lambda: process.num_fds() <= files + 40, 20.0)


async def _to_the_end(f: Front, body: dict[str, Any]) -> None:
    answer = await ask(f, CHAT, body, seconds=120.0)
    assert answer.body.count(b'"delta":{}') > 10  # it was kept alive
    assert LAST[CHAT] in answer.body


async def test_75_a_slow_episode_does_not_hold_the_answer(tmp_path: Path) -> None:
    calls = 0

    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> str:
        nonlocal calls
        calls += 1
        if calls % 4 == 0:
            await asyncio.sleep(30.0)
        return f"answer of {name}"

    wait = 0.3
    configured = settings(
        proxy={"straggler_after": wait, "straggler": "cut"}, rating={"window": 0.0}
    )
    async with fronted(tmp_path, configured=configured) as f:
        f.world.swarm.answer = candidate_answer
        for path in (CHAT, MESSAGES):
            began = loop_time()
            assert b"answer of" in (await ask(f, path, {**BODIES[path], "stream": True})).body
            assert (await ask_json(f, path, BODIES[path]))["id"]
            assert loop_time() - began < 2 * (wait + 1.0)
        await settle(f)
        assert len(f.world.swarm.aborts) == 4  # the late ones


async def test_75_a_slow_episode_and_an_answer_that_is_not_streamed(tmp_path: Path) -> None:
    async def candidate_answer(name: str, body: dict[str, Any], index: int) -> str:
        await asyncio.sleep(30.0 if name == f.world.swarm.claims[0] else 0.0)
        return f"answer of {name}"

    async with fronted(tmp_path, configured=settings(proxy={"answer_budget": 0.4})) as f:
        f.world.swarm.answer = candidate_answer
        began = loop_time()
        result = await ask_json(f, CHAT, HELLO)
        assert loop_time() - began < 1.5
        assert result["choices"][0]["message"]["content"].startswith("answer of")


async def test_complaint_a_stream_while_everything_is_recorded(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        result = await chunks(f, {**HELLO, "return_token_ids": True})
        assert text_of(result).startswith("answer 0 of")
        await settle(f)
        (group,) = f.world.state.groups.values()
        assert (group.phase, group.returned) == ("DONE", 3)
        assert f.world.context.journal.error == ""
