"""Copies of the weights over HTTP: taken, sampled and dropped while the real policy is trained."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from engine.app import create_app
from engine.interface import Completion, NoSnapshotError, PolicyBackend
from engine.policy.snapshots import MOST, LocalSnapshots
from engine.policy.tiny import TinyPolicy
from tests.support.engine.client import Driver, driving, wait_for
from tests.support.served import served

SEA = [{"role": "user", "content": "Write a story about the sea."}]


async def shipped(reset: bool) -> PolicyBackend:
    return await asyncio.to_thread(TinyPolicy.open, None, reset)


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    async with driving(shipped) as made:
        await made.roll(batch=1, repeat=2, rollout={"num_repeat": 2, "temperature": 0.8})
        yield made


async def _refused(answer: httpx.Response, status: int, words: str) -> None:
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"]


async def _take(driver: Driver) -> dict[str, Any]:
    answer = await driver.post("/ajetc/snapshot")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def _sample(driver: Driver, snapshot: str, **body: Any) -> dict[str, Any]:
    fields = {"snapshot": snapshot, "messages": SEA, "n": 4, "seed": 5, **body}
    answer = await driver.post("/ajetc/sample", **fields)
    assert answer.status_code == 200, answer.text
    sampled: dict[str, Any] = answer.json()
    return sampled


async def _update(driver: Driver, step: int) -> None:
    for reward in (0.0, 1.0):
        await driver.play("t", reward)
    await driver.until("ROLLING", step + 1)


def _texts(sampled: dict[str, Any]) -> list[str]:
    return [answer["message"]["content"] for answer in sampled["answers"]]


def _copies(driver: Driver) -> LocalSnapshots:
    policy = driver.engine.policy_holder.policy
    assert policy is not None
    assert isinstance(policy.snapshots, LocalSnapshots)
    return policy.snapshots


@pytest.mark.slow
async def test_a_snapshot_keeps_its_answers_while_the_policy_is_trained(driver: Driver) -> None:
    first = await _take(driver)
    assert first["step"] == (await driver.status())[1] == 1
    assert await _take(driver) == first
    before = await _sample(driver, first["snapshot"])
    assert before["step"] == 1
    assert before["truncated"] is False
    assert len(set(_texts(before))) > 1
    await _update(driver, 1)
    assert await _sample(driver, first["snapshot"]) == before
    second = await _take(driver)
    assert second["snapshot"] != first["snapshot"]
    assert second["step"] == (await driver.status())[1] == 2
    assert (await _sample(driver, second["snapshot"]))["step"] == 2


@pytest.mark.slow
async def test_answers_are_those_of_an_eval_episode_with_the_same_seeds(driver: Driver) -> None:
    snapshot = (await _take(driver))["snapshot"]
    for fields in ({}, {"temperature": 1.3}, {"temperature": 0}, {"max_tokens": 5}):
        sampled = await _sample(driver, snapshot, **fields)
        for i, answer in enumerate(sampled["answers"]):
            episode = await driver.claim(kind="eval")
            chat = await driver.chat(episode, SEA[0]["content"], seed=5 + i, **fields)
            choice = chat.json()["choices"][0]
            assert answer == {
                "message": choice["message"],
                "finish_reason": choice["finish_reason"],
                "tokens": chat.json()["usage"]["completion_tokens"],
            }
            await driver.abort(episode)
    assert {answer["tokens"] for answer in sampled["answers"]} == {5}
    greedy = await _sample(driver, snapshot, temperature=0, n=8)
    assert len(set(_texts(greedy))) == 1


@pytest.mark.slow
async def test_tools_are_offered_as_in_a_chat_call(driver: Driver) -> None:
    calculator = {
        "type": "function",
        "function": {"name": "calculator", "parameters": {"properties": {"expression": {}}}},
    }
    sampled = await _sample(
        driver,
        (await _take(driver))["snapshot"],
        messages=[{"role": "user", "content": "What is 47 + 55?"}],
        tools=[calculator],
        temperature=0,
        n=1,
    )
    answer = sampled["answers"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["tool_calls"][0]["function"]["name"] == "calculator"


@pytest.mark.slow
async def test_without_a_seed_each_call_is_sampled_afresh(driver: Driver) -> None:
    snapshot = (await _take(driver))["snapshot"]
    calls = [_texts(await _sample(driver, snapshot, seed=None, n=8)) for _ in range(2)]
    assert calls[0] != calls[1]
    assert all(len(set(texts)) > 1 for texts in calls)
    shifted = _texts(await _sample(driver, snapshot, seed=6, n=3))
    assert shifted == _texts(await _sample(driver, snapshot, seed=5, n=4))[1:]
    assert len(_texts(await _sample(driver, snapshot, n=64))) == 64


@pytest.mark.slow
async def test_the_likeliest_answer_follows_the_samples(driver: Driver) -> None:
    snapshot = (await _take(driver))["snapshot"]
    greedy = _texts(await _sample(driver, snapshot, temperature=0, n=1))
    both = _texts(await _sample(driver, snapshot, seed=5, n=3, likeliest=True))
    assert both[:3] == _texts(await _sample(driver, snapshot, seed=5, n=3))
    assert both[3:] == greedy


@pytest.mark.slow
async def test_a_prompt_over_the_window_is_cut_or_refused_as_in_a_chat_call(driver: Driver) -> None:
    long = [{"role": "user", "content": "word " * 2000}]
    snapshot = (await _take(driver))["snapshot"]
    assert (await _sample(driver, snapshot, messages=long))["truncated"] is True
    driver.engine.strict_context = True
    fields = {"snapshot": snapshot, "messages": long, "n": 1}
    await _refused(await driver.post("/ajetc/sample", **fields), 400, "maximum context length")


@pytest.mark.slow
async def test_a_dropped_snapshot_is_named_with_what_to_do(driver: Driver) -> None:
    first = (await _take(driver))["snapshot"]
    for step in range(1, MOST + 1):
        await _update(driver, step)
        await _take(driver)
    dropped = await driver.post("/ajetc/sample", snapshot=first, messages=SEA, n=1)
    await _refused(dropped, 404, f"There is no snapshot '{first}'")
    await _refused(dropped, 404, "Take a new one with POST /ajetc/snapshot.")


@pytest.mark.slow
async def test_bad_input_is_refused(driver: Driver) -> None:
    snapshot = (await _take(driver))["snapshot"]
    good: dict[str, Any] = {"snapshot": snapshot, "messages": SEA, "n": 1}
    for wrong in (
        {"n": 0},
        {"n": 65},
        {"n": None},
        {"messages": []},
        {"messages": "hi"},
        {"messages": [{"content": "hi"}]},
        {"snapshot": ""},
        {"snapshot": 5},
        {"seed": "x"},
        {"seed": 1.5},
        {"temperature": -1},
        {"temperature": 1e9},
        {"max_tokens": 0},
    ):
        answer = await driver.post("/ajetc/sample", **{**good, **wrong})
        assert answer.status_code == 422, (wrong, answer.text)
        assert answer.json()["detail"][0]["loc"][:2] == ["body", next(iter(wrong))]
    for content in (b"{", b"[]", json.dumps({**good, "messages": [{"role": "\ud800"}]}).encode()):
        answer = await driver.http.post(
            "/ajetc/sample", content=content, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422, answer.text
    huge = {"seed": -(2**70), "max_tokens": 10**9}
    assert len(_texts(await _sample(driver, snapshot, **huge))) == 4


@pytest.mark.slow
async def test_stopping_the_engine_ends_the_calls_and_drops_the_snapshots(driver: Driver) -> None:
    snapshot = (await _take(driver))["snapshot"]
    copies = _copies(driver)
    async with asyncio.TaskGroup() as group:
        calls = [
            group.create_task(
                driver.post("/ajetc/sample", snapshot=snapshot, messages=SEA, n=64, max_tokens=96)
            )
            for _ in range(40)
        ]
        await wait_for(lambda: len(copies._calls) > 30)
        await driver.post("/stop_engine")
    ended = [call.result() for call in calls if call.result().status_code != 200]
    assert len(ended) > 30
    for answer in ended:
        await _refused(answer, 409, "The policy was closed before the answers were sampled")
    fields = {"snapshot": snapshot, "messages": SEA, "n": 1}
    await _refused(await driver.post("/ajetc/snapshot"), 409, "Start the engine first.")
    await _refused(await driver.post("/ajetc/sample", **fields), 409, "ENGINE.OFFLINE")
    assert (await driver.get("/ajetc/info"))["snapshots"] is True
    assert (await driver.post("/start_engine")).json()["success"]
    await driver.until("ROLLING")
    await _refused(await driver.post("/ajetc/sample", **fields), 404, "There is no snapshot")


@pytest.mark.slow
async def test_a_client_that_hangs_up_cancels_its_call(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = (await _take(driver))["snapshot"]
    steps: list[str] = []

    async def never(*_: object) -> list[Completion]:
        steps.append("sampling")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")
        return []

    monkeypatch.setattr(_copies(driver), "sample", never)
    data = json.dumps({"snapshot": snapshot, "messages": SEA, "n": 1}).encode()
    head = "POST /ajetc/sample HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    async with served(create_app(driver.engine)) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await wait_for(lambda: steps == ["sampling"])
        writer.close()
        await wait_for(lambda: steps == ["sampling", "cancelled"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status"), [(NoSnapshotError("It was dropped"), 404), (MemoryError("no room"), 500)]
)
async def test_errors_of_the_policy_have_a_status(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    async def fail(*_: object) -> None:
        raise error

    snapshot = (await _take(driver))["snapshot"]
    monkeypatch.setattr(_copies(driver), "sample", fail)
    monkeypatch.setattr(_copies(driver), "take", fail)
    fields = {"snapshot": snapshot, "messages": SEA, "n": 1}
    await _refused(await driver.post("/ajetc/sample", **fields), status, str(error))
    await _refused(await driver.post("/ajetc/snapshot"), status, str(error))


async def test_a_policy_that_takes_no_snapshots_says_so(idle: Driver) -> None:
    await idle.roll()
    assert (await idle.get("/ajetc/info"))["snapshots"] is False
    await _refused(await idle.post("/ajetc/snapshot"), 409, "The fake policy takes no snapshots.")
    fields = {"snapshot": "x", "messages": SEA, "n": 1}
    await _refused(await idle.post("/ajetc/sample", **fields), 409, "takes no snapshots")


@pytest.mark.slow
async def test_a_faithful_engine_takes_none() -> None:
    async with driving(shipped, faithful=True) as d:
        await d.roll()
        assert (await d.get("/ajetc/info"))["snapshots"] is False
        await _refused(await d.post("/ajetc/snapshot"), 409, "faithful")


@pytest.mark.slow
async def test_the_info_says_whether_snapshots_are_taken(driver: Driver) -> None:
    assert (await driver.get("/ajetc/info"))["snapshots"] is True
    async with driving(shipped) as fresh:
        assert (await fresh.get("/ajetc/info"))["snapshots"] is False
        await _refused(await fresh.post("/ajetc/snapshot"), 409, "No policy is loaded")
