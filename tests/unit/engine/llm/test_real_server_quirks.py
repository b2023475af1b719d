"""The real server's broken behaviour, turned on; each beside what holds without it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from ajet_swarm.common.errors import AjetError
from engine.app import create_app
from engine.llm.real_server_quirks import DEFAULT_SYSTEM, OVERFLOW
from engine.server import lifecycle
from engine.server.episode_keys import make_key
from engine.server.lifecycle import Engine
from tests.support.engine.client import Clock, Driver, driving, wait_for
from tests.support.engine.fake_policy import Bench

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _stop_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "STOP_BLOCKS_SECONDS", 0.0)


@pytest.fixture
async def idle() -> AsyncIterator[Driver]:
    """As `driving`, but what the app raises ends the request, not the test."""
    bench, clock = Bench(), Clock()
    engine = Engine(bench.factory, clock=clock, faithful=True)
    app = create_app(engine)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://engine") as http,
    ):
        yield Driver(http, engine, bench, clock)


async def until_stopped(d: Driver) -> None:
    await d.post("/stop_engine")
    await wait_for(lambda: d.bench.opened == d.bench.closed)


def crashed(answer: httpx.Response) -> bool:
    plain = answer.headers["content-type"].startswith("text/plain")
    return answer.status_code == 500 and plain and answer.text == "Internal Server Error"


async def test_assertions_are_a_plain_500(d: Driver) -> None:
    episode = await d.claim()
    await d.chat(episode)
    headers = {"Authorization": episode["openai_api_key"]}
    url = "/v1/chat/completions"
    assert crashed(await d.http.post(url, headers=headers, content=b"{"))
    assert crashed(await d.http.post(url, headers=headers, json={"messages": 5}))
    assert crashed(await d.post("/agree_sync_weight", client_uuid="c1"))
    output = {"reward": 1.0, "metadata": {"task_id": "other"}}
    assert crashed(await d.end(episode, "t", workflow_output=output))
    assert (await d.end(episode, "t")).status_code == 200, "it was not touched"
    assert (await d.post("/claim_episode", client_uuid=5)).status_code == 422
    assert (await d.end(episode, "t")).status_code == 400


async def test_a_bad_key_is_a_200_that_says_401(d: Driver) -> None:
    episode = dict(await d.claim(), openai_api_key="x")
    answer = await d.chat(episode)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status_code"], body["headers"], "choices" in body) == (401, None, False)
    assert body["detail"].startswith("Invalid authorization header")
    assert (await d.http.post("/v1/messages", json={})).status_code == 401, "newer, and right"


async def test_keys_can_be_forged(d: Driver) -> None:
    episode = await d.claim()
    forged = dict(episode, openai_api_key=make_key(episode["episode_uuid"], "anywhere"))
    assert (await d.chat(forged)).status_code == 200


async def test_a_failed_start_stays_at_booting(idle: Driver) -> None:
    broken = await idle.post("/sync_train_config", yaml_as_string="a: [")
    assert broken.json() == {"success": True}, "nobody looks at it"
    answer = (await idle.post("/start_engine")).json()
    assert (answer["success"], "not YAML" in answer["error"]) == (False, True)
    assert (await idle.status())[0] == "BOOTING"
    assert (await idle.post("/start_engine")).status_code == 400
    await idle.post("/stop_engine")
    await idle.sync()
    idle.bench.open_error = AjetError("no GPU")
    assert "no GPU" in (await idle.post("/start_engine")).json()["error"]
    assert (await idle.status())[0] == "BOOTING"
    await idle.post("/stop_engine")
    assert (await idle.status())[0] == "OFFLINE"
    idle.bench.open_error = None
    assert (await idle.post("/start_engine")).json()["success"] is True
    await until_stopped(idle)


async def test_abort_does_not_check_the_owner(d: Driver) -> None:
    episode = await d.claim("c1")
    body = {"client_uuid": "c2", "episode_uuid": episode["episode_uuid"]}
    assert (await d.post("/can_continue_episode", **body)).json() == {"can_continue": True}
    assert (await d.abort(episode, "c2")).json()["success"] is True
    assert d.engine.pool.claimed == []
    assert (await d.end(await d.claim("c1"), "t", client="c2")).status_code == 404


async def test_stop_blocks_the_event_loop(idle: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    stood: list[float] = []
    monkeypatch.setattr(lifecycle, "STOP_BLOCKS_SECONDS", 1.5)
    monkeypatch.setattr(lifecycle, "block_event_loop", stood.append)
    await idle.post("/stop_engine")
    assert stood == [], "nothing runs"
    await idle.start()
    await idle.post("/stop_engine")
    assert stood == [1.5]
    async with driving() as other:
        await other.start()
        await other.post("/stop_engine")
    assert stood == [1.5]


async def test_counters_of_a_stopped_run_stay_in_the_next_one(d: Driver) -> None:
    await d.play("a")
    await until_stopped(d)
    assert (await d.pool())["completed_episodes"] == 1


@pytest.mark.parametrize("kind", ["train", "eval"])
async def test_what_a_call_asks_for_is_ignored(d: Driver, kind: str) -> None:
    episode = await d.claim(kind=kind)
    answer = await d.chat(episode, temperature=0, seed=1, max_tokens=2, stop="x", model="m")
    assert answer.json()["model"] == "unknown"
    (params,) = d.bench.params
    assert (params.temperature, params.seed, params.stop) == (1.0, None, ())
    assert params.max_tokens == 96


async def test_a_system_message_is_put_first(d: Driver) -> None:
    episode = await d.claim()
    await d.chat(episode)
    mine = {"role": "system", "content": "mine"}
    await d.chat(episode, messages=[mine, {"role": "user", "content": "hello"}])
    await d.end(episode, "t")
    (finished,) = d.engine.pool.finished["t"]
    prompts = [bytes(completion.prompt_tokens).decode() for completion in finished.completions]
    assert prompts == [f"system: {DEFAULT_SYSTEM}\nuser: hello", "system: mine\nuser: hello"]
    body = (await d.http.post("/replay_latest_llm_call")).json()["input"]["messages"]
    assert body[0] == mine


async def test_an_overflow_is_an_answer(d: Driver) -> None:
    answer = (await d.chat(await d.claim(), "word " * 200)).json()
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (OVERFLOW, "length")
    assert d.bench.params == []


async def test_a_stream_is_three_chunks(d: Driver) -> None:
    answer = await d.chat(await d.claim(), stream=True, model="asked-for")
    events = answer.text.split("\n\n")
    assert len(events) == 5
    assert events[3:] == ["data: [DONE]", ""]
    assert '"model": "asked-for"' in events[0]


@pytest.mark.parametrize(
    ("path", "body", "delta", "last"),
    [
        ("responses", {"input": "hi"}, "event: response.output_text.delta", "response.completed"),
        ("messages", {"messages": [{"role": "user", "content": "hi"}]}, "text_delta", "_stop"),
    ],
)
async def test_the_other_streams_have_one_delta(
    d: Driver, path: str, body: Any, delta: str, last: str
) -> None:
    headers = {"Authorization": (await d.claim())["openai_api_key"]}
    body = {**body, "stream": True}
    answer = await d.http.post(f"/v1/{path}", headers=headers, json=body)
    assert answer.text.count(delta) == 1
    assert last in answer.text.split("\n\n")[-2]


@pytest.mark.parametrize("reward", [None, [0.5, 1.0]])
async def test_an_outcome_that_cannot_be_trained_is_dropped_in_silence(
    d: Driver, reward: Any
) -> None:
    episode = await d.claim()
    await d.chat(episode)
    assert (await d.end(episode, "t", reward)).json()["success"] is True
    assert (await d.pool())["completed_episodes"] == 0
    assert (await d.end(episode, "t", 1.0)).status_code == 400
    assert "is not counted" in await d.logged()


@pytest.mark.parametrize(("faithful", "at_once"), [(True, 1), (False, 3)])
async def test_calls_of_one_episode_are_serial(faithful: bool, at_once: int) -> None:
    async with driving(faithful=faithful) as d:
        await d.start()
        episode = await d.claim()
        d.bench.sample_gate = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(d.chat(episode))
            await wait_for(lambda: d.bench.sampling == at_once)
            await wait_for(lambda: d.engine.pool.claimed[0].call_count == 3)
            assert d.bench.sampling == at_once
            d.bench.sample_gate.set()


# -- the trainer's side -----------------------------------------------------------------------


async def test_anyone_can_post_a_status(d: Driver) -> None:
    odd = (await d.post("/update_engine_status", engine_status="ENGINE.TEA")).json()
    assert odd == {"success": False, "failure_reason": "Invalid engine status"}
    for known in ("ENGINE.BOOTING", "ENGINE.ROLLING", "ENGINE.WEIGHT_EXPORTING"):
        assert (await d.post("/update_engine_status", engine_status=known)).json()["success"]
        assert await d.status() == ("ROLLING", 1)
    await d.play("a")
    held = await d.claim()
    await d.post("/update_engine_status", engine_status="ENGINE.ROLLING_POST")
    assert await d.status() == ("ROLLING_POST", 1)
    await d.abort(held)
    await d.until("ROLLING", 2)
    await d.play("b")
    await d.post("/update_engine_status", engine_status="ENGINE.WEIGHT_SYNCING")
    await d.until("ROLLING", 3)
    assert [len(batch) for batch in d.bench.trained] == [1, 1]
    body = {"engine_status": "ENGINE.OFFLINE", "engine_status_detail": "by hand"}
    await d.post("/update_engine_status", **body)
    assert await d.get("/get_engine_status") == {
        "engine_status": "ENGINE.OFFLINE",
        "engine_status_detail": "by hand",
        "global_step": 0,
    }
    assert "was posted from outside" in await d.logged()
    await until_stopped(d)


async def test_anyone_can_register_and_unregister(idle: Driver) -> None:
    assert not (await idle.post("/register_episode", episode_uuid="mine")).json()["success"]
    await idle.start(batch=1, repeat=1)
    assert (await idle.post("/register_episode", episode_uuid="mine")).json()["success"]
    assert not (await idle.post("/register_episode", episode_uuid="mine")).json()["success"]
    body: dict[str, Any] = {"episode_uuid": "mine"}
    assert not (await idle.post("/is_episode_claimed", **body)).json()["success"]
    await idle.claim()
    assert (await idle.claim())["episode_uuid"] == "mine"
    body["unregister_if_not_claimed"] = True
    assert (await idle.post("/is_episode_claimed", **body)).json()["success"]
    await idle.abort(body)
    assert not (await idle.post("/is_episode_claimed", **body)).json()["success"]
    assert idle.engine.pool.find("mine") is None
    await until_stopped(idle)


async def test_the_other_trainer_routes_exist(d: Driver) -> None:
    await d.abort(await d.claim("shown"), "shown")
    url = "/update_current_batch_rollout_pool_information_and_fetch_instruction"
    body = (await d.post(url, completed_episodes=999)).json()
    assert [client["client_uuid"] for client in body["active_clients"]] == ["shown"]
    assert (await d.pool())["completed_episodes"] == 0
    await d.post("/push_verbose_log", tag="x", message="hello there")
    assert "hello there" in await d.logged()
