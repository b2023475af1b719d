"""The state machine and the training loop, driven over HTTP."""

import asyncio
import gc
import weakref
from collections import Counter
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from engine.interface import SaveError
from tests.support.engine.client import Driver, driving, wait_for

pytestmark = pytest.mark.slow


async def test_three_batches(idle: Driver) -> None:
    assert await idle.status() == ("OFFLINE", None)
    await idle.start()
    for step in (1, 2, 3):
        await idle.until("ROLLING", step)
        await idle.group(f"a{step}", (0.0, 1.0))
        assert await idle.status() == ("ROLLING", step)
        await idle.group(f"b{step}", (0.5, 0.25))
    await idle.until("ROLLING", 4)
    assert idle.bench.step == 3
    rewards = [[sample.reward for sample in batch] for batch in idle.bench.trained]
    assert rewards == [[0.0, 1.0, 0.5, 0.25]] * 3
    names = [[sample.task_id for sample in batch] for batch in idle.bench.trained]
    assert names == [[f"a{k}", f"a{k}", f"b{k}", f"b{k}"] for k in (1, 2, 3)]


async def test_a_batch_without_a_signal_is_a_step_that_says_so(idle: Driver) -> None:
    await idle.start(batch=1)
    for step, rewards in ((1, (0.0, 1.0)), (2, (0.5, 0.5))):
        await idle.until("ROLLING", step)
        await idle.group(f"t{step}", rewards)
    await idle.until("ROLLING", 3)
    texts = [line["message"] for line in idle.engine.verbose.recent() if line["tag"] == "train"]
    assert [text.split(":")[0] for text in texts] == ["step 1", "step 2"]
    assert ["the weights stay as they are" in text for text in texts] == [False, True]


async def test_the_samples_equal_the_answers(idle: Driver) -> None:
    await idle.start(batch=1, repeat=1)
    episode = await idle.claim()
    answers = [(await idle.chat(episode, text)).json() for text in ("first", "second")]
    await idle.end(episode, "t", 0.75)
    await idle.until("ROLLING", 2)
    (batch,) = idle.bench.trained
    assert [sample.reward for sample in batch] == [0.75, 0.75]
    words = [answer["choices"][0]["message"]["content"].split() for answer in answers]
    assert [sample.tokens for sample in batch] == [tuple(map(len, word)) for word in words]
    prompts = [bytes(sample.prompt_tokens).decode() for sample in batch]
    assert prompts == ["user: first", "user: second"]


async def test_post_rolling_refuses_claims_and_waits_for_the_claimed(d: Driver) -> None:
    late = await d.claim()
    await d.chat(late)
    evaluated = await d.claim(kind="eval")
    aborted = await d.claim()
    await d.group("a")
    await d.group("b")
    assert await d.status() == ("ROLLING_POST", 1)
    assert [episode.status for episode in d.engine.pool] == ["claimed"] * 3
    refusal = await d.claim()
    assert refusal["success"] is False
    assert "Engine is in post-rolling phase" in refusal["fail_cause"]
    assert refusal["episode_uuid"] == refusal["openai_api_key"] == ""

    assert (await d.chat(evaluated)).status_code == 200
    assert (await d.end(evaluated, "e", None)).status_code == 200
    await d.abort(aborted)
    assert await d.status() == ("ROLLING_POST", 1)
    assert [episode.uuid for episode in d.engine.pool] == [late["episode_uuid"]]
    assert (await d.chat(late)).status_code == 200
    assert (await d.end(late, "short", 0.1)).status_code == 200
    await d.until("ROLLING", 2)
    names = Counter(sample.task_id for sample in d.bench.trained[0])
    assert names == {"a": 2, "b": 2, "short": 2}, "the short task is trained too, both calls"


async def test_during_the_sync(idle: Driver) -> None:
    idle.bench.train_gate = asyncio.Event()
    await idle.start(batch=1)
    first = await idle.play("a", 0.0)
    held = await idle.play("a", 1.0)
    assert await idle.status() == ("WEIGHT_SYNCING", 1)
    refusal = await idle.claim()
    assert "Engine is syncing weights" in refusal["fail_cause"]
    assert list(idle.engine.pool) == []
    ended = await idle.end(held, "a")
    assert ended.status_code == 400
    assert "WEIGHT_SYNCING" in ended.json()["detail"]
    called = await idle.chat(held)
    assert called.status_code == 404
    assert "The server is not in ENGINE.ROLLING status" in called.json()["detail"]
    assert (await idle.abort(held)).json()["success"] is True
    pool = await idle.pool()
    assert (pool["completed_tasks"], pool["engine_status"]) == (1, "ENGINE.WEIGHT_SYNCING")
    assert pool["completed_tasks_details"] == {"a": [first["episode_uuid"], held["episode_uuid"]]}
    assert pool["running_episode_details"] is None
    assert pool["swarm_client_instruction"] == {"active_clients": []}
    idle.bench.train_gate.set()
    await idle.until("ROLLING", 2)
    assert (await idle.pool())["completed_episodes"] == 0
    assert (await idle.end(held, "a")).json()["detail"].endswith("not found.")


async def test_slots_are_refilled_with_new_episodes_until_the_rule_holds(idle: Driver) -> None:
    await idle.start(batch=2, repeat=2)
    uuids = set()
    for number in range(4):
        assert len(idle.engine.pool) == 4
        uuids.add((await idle.play("a" if number < 3 else "other"))["episode_uuid"])
    assert len(uuids) == 4
    claimed = [await idle.claim() for _ in range(5)]
    assert [episode["success"] for episode in claimed] == [True] * 4 + [False]
    assert "No available episodes to claim." in claimed[-1]["fail_cause"]


async def test_resume_and_reset(idle: Driver) -> None:
    idle.bench.step = 7
    await idle.start()
    assert await idle.status() == ("ROLLING", 8)
    refused = await idle.http.post("/ajetc/reset")
    assert (refused.status_code, "offline" in refused.text) == (400, True)
    await idle.post("/stop_engine")
    assert await idle.status() == ("OFFLINE", 0)
    assert (await idle.http.post("/ajetc/reset")).json() == {"success": True, "step": 0}
    await idle.start()
    assert await idle.status() == ("ROLLING", 1)
    assert idle.bench.resets == [False, True, False]


async def test_the_reset_option_holds_for_the_first_start_alone() -> None:
    async with driving(reset=True) as d:
        d.bench.step = 7
        await d.start(batch=1, repeat=1)
        assert await d.status() == ("ROLLING", 1)
        await d.play("a")
        await d.until("ROLLING", 2)
        await d.post("/stop_engine")
        await d.post("/start_engine")
        assert await d.status() == ("ROLLING", 2)


async def test_start_needs_a_config_and_offline(idle: Driver) -> None:
    answer = (await idle.post("/start_engine")).json()
    assert answer["success"] is False
    assert "No training config found" in answer["error"]
    await idle.start()
    again = await idle.post("/start_engine")
    assert again.status_code == 400
    late = await idle.post("/sync_train_config", yaml_as_string="{}")
    assert late.status_code == 400
    assert set(again.json()) == {"detail"}


async def test_a_failed_start_goes_back_to_offline_with_its_reason(idle: Driver) -> None:
    await idle.sync()
    idle.bench.open_error = AjetError("the checkpoint is torn", "weights.npz", "Reset the policy")
    answer = (await idle.post("/start_engine")).json()
    assert answer == {
        "success": False,
        "error": "weights.npz: the checkpoint is torn. Reset the policy",
    }
    status = await idle.get("/get_engine_status")
    assert status["engine_status"] == "ENGINE.OFFLINE"
    assert "torn" in status["engine_status_detail"]
    idle.bench.open_error = ZeroDivisionError("odd")
    assert "ZeroDivisionError" in (await idle.post("/start_engine")).json()["error"]
    idle.bench.open_error = None
    assert (await idle.post("/start_engine")).json()["success"] is True
    assert (await idle.get("/get_engine_status"))["engine_status_detail"] is None


async def test_booting_shows_and_can_be_stopped(idle: Driver) -> None:
    await idle.sync()
    idle.bench.open_gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(idle.post("/start_engine"))
        await idle.until("BOOTING")
        assert (await idle.pool())["booting_start_time"] > 0
        assert "booting" in (await idle.claim())["fail_cause"]
        stopping = group.create_task(idle.post("/stop_engine"))
        await idle.until("OFFLINE")
        assert (await idle.pool())["booting_start_time"] is None
        idle.bench.open_gate.set()
    assert starting.result().json()["success"] is False
    assert stopping.result().json() == {"success": True, "failure_reason": ""}
    await wait_for(lambda: idle.bench.closed == 1)
    assert (await idle.post("/start_engine")).json()["success"] is True


async def test_stop_frees_calls_in_flight(d: Driver) -> None:
    episode = await d.claim()
    d.bench.sample_gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        calling = group.create_task(d.chat(episode))
        await wait_for(lambda: d.bench.sampling)
        assert (await d.post("/stop_engine")).json()["success"] is True
    assert calling.result().status_code == 404
    assert "not in ENGINE.ROLLING" in calling.result().json()["detail"]
    assert d.bench.sampling == 0
    assert (await d.get("/get_engine_status")) == {
        "engine_status": "ENGINE.OFFLINE",
        "engine_status_detail": None,
        "global_step": 0,
    }


async def test_stop_during_training_and_the_next_start(idle: Driver) -> None:
    idle.bench.train_gate = asyncio.Event()
    await idle.start(batch=1, repeat=1)
    await idle.play("a")
    await wait_for(lambda: idle.bench.training)
    await idle.post("/stop_engine")
    assert await idle.status() == ("OFFLINE", 0)
    assert (idle.bench.training, idle.bench.trained) == (0, [])
    idle.bench.train_gate.set()
    await idle.post("/start_engine")
    assert await idle.status() == ("ROLLING", 1)


async def test_stop_does_not_wait_for_a_slow_close_but_the_next_start_does(d: Driver) -> None:
    d.bench.close_gate = asyncio.Event()
    async with asyncio.timeout(20):
        await d.post("/stop_engine")
    assert d.bench.closed == 0
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(d.post("/start_engine"))
        await d.until("BOOTING")
        assert d.bench.opened == 1
        d.bench.close_gate.set()
        await d.until("ROLLING")
    assert starting.result().json()["success"] is True


@pytest.mark.usefixtures("collected_policies")
async def test_a_stop_frees_the_policy_without_the_garbage_collector() -> None:
    """Objects of numpy are large and few: the collector would run after many stops."""
    gc.disable()
    try:
        async with driving() as d:
            await d.start()
            policy: Any = d.engine.policy_holder.policy
            policy.bound = policy.close  # a cycle
            freed = weakref.ref(policy)
            del policy
            await d.post("/stop_engine")
            await wait_for(lambda: freed() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("times", [1, 2])
async def test_stop_always_succeeds(idle: Driver, times: int) -> None:
    for _ in range(times):
        answer = await idle.http.post("/stop_engine", content=b"anything")
        assert answer.json() == {"success": True, "failure_reason": ""}


async def test_counters_of_a_stopped_run_stay(idle: Driver) -> None:
    empty = await idle.pool()
    assert (empty["sample_collection_method"], empty["task_expected_num_repeat"]) == ("", 0)
    await idle.start()
    await idle.play("a", 0.5)
    await idle.claim()
    await idle.post("/stop_engine")
    pool = await idle.pool()
    assert pool["completed_tasks_rewards"] == {"a": [0.5]}
    assert (pool["completed_episodes"], pool["completed_episode_target"]) == (1, 4)
    assert pool["running_episode_details"] is None
    assert (pool["engine_status"], pool["global_step"]) == ("ENGINE.OFFLINE", 0)


async def test_a_failed_update_takes_the_engine_offline(idle: Driver) -> None:
    idle.bench.train_error = FloatingPointError("overflow")
    await idle.start(batch=1, repeat=1)
    await idle.play("a")
    await idle.until("OFFLINE")
    status = await idle.get("/get_engine_status")
    assert "Training failed at step 1" in status["engine_status_detail"]
    assert "overflow" in await idle.logged()
    await wait_for(lambda: idle.bench.closed == 1)
    idle.bench.train_error = None
    await idle.post("/start_engine")
    await idle.until("ROLLING", 1)


async def test_an_update_that_cannot_be_saved_rolls_on(idle: Driver) -> None:
    idle.bench.train_error = SaveError("disk full: engine/weights.npz")
    await idle.start(batch=1, repeat=1)
    await idle.play("a")
    await wait_for(lambda: idle.engine.detail is not None)
    status = await idle.get("/get_engine_status")
    assert status["engine_status"] == "ENGINE.ROLLING"
    assert "disk full" in status["engine_status_detail"]
    assert "disk full" in await idle.logged()
    idle.bench.train_error = None
    await idle.play("a")
    await idle.until("ROLLING", 2)
    assert (await idle.get("/get_engine_status"))["engine_status_detail"] is None


async def test_total_training_steps_ends_the_run(idle: Driver) -> None:
    await idle.start(batch=1, repeat=1, trainer_common={"total_training_steps": 2})
    await idle.play("a")
    await idle.until("ROLLING", 2)
    await idle.play("a")
    await idle.until("OFFLINE")
    status = await idle.get("/get_engine_status")
    assert status["engine_status_detail"] == "training complete: step 2 of 2"
    assert status["global_step"] == 2, "a script that waits for its last step reads it"
    again = (await idle.post("/start_engine")).json()
    assert again["success"] is False
    assert "total_training_steps" in again["error"]


async def test_idle_episodes_are_taken_back(d: Driver) -> None:
    episode = await d.claim(timeout=10)
    steady = await d.claim(timeout=100)
    await d.chat(episode)
    d.clock.now += 10
    d.engine.sweep()
    assert (await d.pool())["running_episode_details"].keys() == {
        episode["episode_uuid"],
        steady["episode_uuid"],
    }
    d.clock.now += 1
    d.engine.sweep()
    assert list((await d.pool())["running_episode_details"]) == [steady["episode_uuid"]]
    assert "idle for more than 10 s" in await d.logged()
    assert (await d.end(episode, "t")).status_code == 400
    again = [await d.claim("c2") for _ in range(3)][-1]
    assert again["episode_uuid"] == episode["episode_uuid"]
    assert again["openai_api_key"] == episode["openai_api_key"]
    assert (await d.end(episode, "t")).status_code == 404, "it is another client's now"
    assert (await d.end(again, "t", client="c2")).status_code == 200
    assert (await d.pool())["completed_episodes"] == 0, "calls of the former owner are gone"


async def test_a_call_in_flight_keeps_an_episode(d: Driver) -> None:
    episode = await d.claim(timeout=10)
    d.bench.sample_gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        calling = group.create_task(d.chat(episode))
        await wait_for(lambda: d.bench.sampling)
        d.clock.now += 1000
        d.engine.sweep()
        d.bench.sample_gate.set()
    assert calling.result().status_code == 200
    d.clock.now += 9
    d.engine.sweep()
    assert (await d.end(episode, "t")).status_code == 200


async def test_an_idle_episode_does_not_block_the_update_for_ever(idle: Driver) -> None:
    await idle.start(batch=1)
    await idle.claim(timeout=60)
    await idle.group("a")
    assert (await idle.status())[0] == "ROLLING_POST"
    idle.clock.now += 61
    idle.engine.sweep()
    await idle.until("ROLLING", 2)


async def test_the_sweep_runs_by_itself() -> None:
    async with driving(sweep_seconds=0.001) as d:
        await d.start()
        await d.claim(timeout=5)
        d.clock.now += 6
        await wait_for(lambda: not d.engine.pool.claimed)
