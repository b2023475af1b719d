"""Checklist 1 to 11: headers, chunks, signs of life, connections. From raw bytes.

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
import pytest

from core.runtime.sockets import BindError, bind, is_loopback, public_url
from core.settings import Settings
from proxy.http.server import KEEP_ALIVE
from proxy.rewards.source import GroupContext
from tests.conformance.forms import CHAT, PATHS, ask, events, front, settle, text_in
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
