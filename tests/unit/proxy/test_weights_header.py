"""Version of the weights in the answers to users: header of every dialect, comment of a stream."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from core.events import TrainingRunIdentified
from tests.support.proxy.front import Front
from tests.support.proxy.world import World

pytestmark = pytest.mark.slow

SAID: list[dict[str, Any]] = [{"role": "user", "content": "Say hello."}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": SAID},
    "/v1/completions": {"model": "m", "prompt": "Say hello."},
    "/v1/responses": {"model": "m", "input": "Say hello."},
    "/v1/messages": {"model": "m", "messages": SAID, "max_tokens": 20},
}
NAME = "x-ajet-weights"


def identify(w: World, number: int = 1, name: str = "5d41402a", start: str = "") -> None:
    w.context.bus.publish(TrainingRunIdentified(server="s", number=number, name=name, start=start))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", BODIES)
async def test_every_dialect_has_the_header(
    f: Front, path: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 60.0)  # however slow this machine is
    identify(f.world)
    answer = await f.client.post(path, json={**BODIES[path], "stream": stream})
    assert answer.status_code == 200
    assert answer.headers[NAME] == "s/5d41402a/1"
    assert NAME not in answer.text
    (group,) = f.world.state.groups.values()
    assert f.world.state.weights_text(group) == "s/5d41402a/1"
    await f.world.closed()


@pytest.mark.world(state="WEIGHT_SYNCING", automatic=False)
async def test_a_stream_that_opened_before_its_generation_ends_with_a_comment(f: Front) -> None:
    identify(f.world)
    body = {**BODIES["/v1/chat/completions"], "stream": True}
    async with f.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert NAME not in answer.headers
        f.world.swarm.set_state("ROLLING", 2)
        blocks = "".join([text async for text in answer.aiter_text()]).split("\n\n")
    comments = [block for block in blocks if block.startswith(":")]
    assert comments == [f": {NAME}: s/5d41402a/2"]
    assert blocks[-2] == "data: [DONE]"
    await f.world.closed()


async def test_a_step_that_changed_meanwhile_is_stated_not_guessed(f: Front) -> None:
    identify(f.world)
    watcher = f.world.server.watcher

    async def late(name: str, body: dict[str, Any], index: int) -> str:
        watcher.current = replace(watcher.current, step=2)
        return "hello"

    f.world.swarm.answer = late
    answer = await f.client.post("/v1/chat/completions", json=BODIES["/v1/chat/completions"])
    assert answer.headers[NAME] == "s/5d41402a/1-2"
    await f.world.closed()
    (group,) = f.world.state.groups.values()
    assert {one.later_step for one in group.candidates} == {2}


async def test_the_step_that_the_server_reports_is_exact(f: Front) -> None:
    identify(f.world)

    async def reports(name: str, body: dict[str, Any], index: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": "hello"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        ajetc = {"truncated": False, "step": 4}  # updates in the weights
        return {"id": "x", "object": "chat.completion", "choices": [choice], "ajetc": ajetc}

    f.world.swarm.answer = reports
    answer = await f.client.post("/v1/chat/completions", json=BODIES["/v1/chat/completions"])
    assert answer.headers[NAME] == "s/5d41402a/5"
    assert "ajetc" not in answer.text
    await f.world.closed()
    (group,) = f.world.state.groups.values()
    assert group.step == 5


async def test_a_replayed_answer_has_the_weights_that_produced_it(f: Front) -> None:
    identify(f.world)
    path, headers = "/v1/chat/completions", {"x-stainless-retry-count": "1"}
    await f.client.post(path, json=BODIES[path])
    await f.world.closed()
    identify(f.world, 2, "7d793037")
    again = await f.client.post(path, json=BODIES[path], headers=headers)
    assert again.headers[NAME] == "s/5d41402a/1"
    assert len(f.world.state.groups) == 1


async def test_prompts_answered_by_one_version_name_it_once(f: Front) -> None:
    identify(f.world, start="/models/q 2")
    body = {"model": "m", "prompt": ["one", "two"]}
    answer = await f.client.post("/v1/completions", json=body)
    assert len(answer.json()["choices"]) == 2
    assert answer.headers[NAME] == "s/5d41402a/1//models/q%202"
    await f.world.closed()


async def test_an_error_has_no_version(f: Front) -> None:
    answer = await f.client.post("/v1/chat/completions", json={"messages": 3})
    assert answer.status_code == 400
    assert NAME not in answer.headers


@pytest.mark.world(state="OFFLINE", watched=True)
async def test_the_first_claims_after_a_start_wait_for_the_run(w: World) -> None:
    (await w.embedded()).run = "5d41402a"
    w.swarm.set_state("BOOTING", 0)
    await w.until(lambda: w.server.watcher.current.state.value == "BOOTING")
    ticket = await w.ask("hello")
    w.swarm.set_state("ROLLING", 1)
    reply = await w.reply(ticket)
    assert reply.weights == "s/5d41402a/1"
    await w.closed()


async def test_claims_do_not_wait_long_for_the_run(w: World) -> None:
    w.server.identifying = asyncio.Event()  # never set: the server does not respond
    reply = await w.reply(await w.ask("hello"))
    assert reply.weights == "s/-/1"
    await w.closed()
