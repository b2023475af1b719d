"""Claim, end, abort: answers, refusals and owners (protocol section 4.3)."""

import json
from typing import Any

import pytest

from engine.server.episode_keys import parse_key
from tests.support.engine.client import Driver

pytestmark = pytest.mark.slow


async def test_a_claim(idle: Driver) -> None:
    idle.engine.base_url = "http://127.0.0.1:4711/v1"
    await idle.start()
    first, second = await idle.claim(), await idle.claim(kind="eval", task="t1", timeout=33)
    assert first.keys() == {
        "success",
        "client_uuid",
        "episode_uuid",
        "openai_base_url",
        "openai_api_key",
        "fail_cause",
    }
    assert (first["success"], first["client_uuid"], first["fail_cause"]) == (True, "c1", "")
    assert first["openai_base_url"] == "http://127.0.0.1:4711/v1"
    assert parse_key(first["openai_api_key"]).episode_uuid == first["episode_uuid"]
    assert first["episode_uuid"] != second["episode_uuid"]
    records = (await idle.post("/get_episode_buffer")).json()["buffer"]
    assert len(records) == 4
    record = next(record for record in records if record["episode_uuid"] == second["episode_uuid"])
    assert record.pop("latest_activity_timestamp") > 1e9
    assert record == {
        "episode_uuid": second["episode_uuid"],
        "episode_status": "claimed",
        "episode_type": "eval",
        "openai_base_url": second["openai_base_url"],
        "openai_api_key": second["openai_api_key"],
        "client_uuid": "c1",
        "zmq_listen_result_addr": "",
        "discard_episode_timeout": 33.0,
        "llm_call_count": 0,
        "debug_log": [],
        "optional_task_id": "t1",
    }


async def test_running_episodes_are_reported_as_strings(d: Driver) -> None:
    assert (await d.pool())["running_episode_details"] is None
    episode = await d.claim(task="t1")
    await d.chat(episode)
    d.clock.now += 1.2
    assert (await d.pool())["running_episode_details"] == {
        episode["episode_uuid"]: {
            "episode_status": "claimed",
            "time_since_last_activity": "1.2s",
            "discard_episode_timeout": "240.0s",
            "llm_call_count": "1",
            "client_uuid": "c1",
            "optional_task_id": "t1",
        }
    }


async def test_the_pool_reports_the_clients_activity(idle: Driver) -> None:
    await idle.start(batch=3)
    one = await idle.play("a", 0.25, client="c1", task="a")
    two = await idle.play("a", 0.5, client="c2")
    pool = await idle.pool()
    assert pool["completed_tasks_details"] == {"a": [one["episode_uuid"], two["episode_uuid"]]}
    assert pool["completed_tasks_rewards"] == {"a": [0.25, 0.5]}
    assert pool["completed_tasks_client_uuids"] == {"a": ["c1"]}
    active = pool["swarm_client_instruction"]["active_clients"]
    assert [active_binding["client_uuid"] for active_binding in active] == ["c1", "c2"]
    assert pool["training_model_path"] == "fake"
    counters = {key: value for key, value in pool.items() if isinstance(value, int)}
    assert counters == {
        "completed_episodes": 2,
        "completed_episode_target": 6,
        "completed_tasks": 1,
        "completed_task_target": 3,
        "completed_non_dummy_tasks": 1,
        "completed_non_dummy_task_target": 3,
        "task_expected_num_repeat": 2,
        "global_step": 1,
    }


async def test_active_clients_are_reported(d: Driver) -> None:

    async def active() -> list[str]:
        listed = (await d.pool())["swarm_client_instruction"]["active_clients"]
        return [client["client_uuid"] for client in listed]

    episode = await d.claim("quiet")
    await d.chat(episode)
    assert await active() == []
    await d.end(episode, "t", client="quiet", declare_client_active=False)
    assert await active() == []
    await d.abort(await d.claim("hidden"), "hidden", declare_client_active=False)
    assert await active() == []
    await d.abort(await d.claim("shown"), "shown")
    assert await active() == ["shown"]


async def test_claims_are_refused_when_offline_and_of_an_unknown_type(idle: Driver) -> None:
    refused = await idle.claim()
    assert refused["success"] is False
    assert "ENGINE.OFFLINE" in refused["fail_cause"]
    await idle.start()
    body = {"client_uuid": "c", "episode_type": "test", "discard_episode_timeout": 60}
    odd = await idle.post("/claim_episode", **body)
    assert (odd.status_code, "episode_type" in odd.json()["detail"]) == (400, True)


@pytest.mark.parametrize(
    "change",
    [
        {"discard_episode_timeout": None},
        {"discard_episode_timeout": 0},
        {"discard_episode_timeout": -1},
        {"discard_episode_timeout": "soon"},
        {"client_uuid": None},
        {"client_uuid": 5},
        {"throttle_policy": "no"},
    ],
)
async def test_a_claim_of_the_wrong_shape(d: Driver, change: dict[str, Any]) -> None:
    body = {
        "client_uuid": "c",
        "episode_type": "train",
        "discard_episode_timeout": 60,
        **change,
    }
    answer = await d.post("/claim_episode", **body)
    assert answer.status_code == 422
    (fault,) = answer.json()["detail"]
    assert fault.keys() == {"type", "loc", "msg", "input"}
    assert fault["loc"] == ["body", *change]
    assert d.engine.pool.claimed == []


@pytest.mark.parametrize(
    "body",
    ['{"discard_episode_timeout": NaN}', '{"client_uuid": "\\ud800"}', "[" * 100_000, "\xff"],
)
async def test_bodies_that_json_cannot_echo_are_refused(idle: Driver, body: str) -> None:
    headers = {"content-type": "application/json"}
    content = body.encode("latin-1")
    answer = await idle.http.post("/claim_episode", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    assert "detail" in answer.json()


async def test_each_kind_of_end_has_its_response(d: Driver) -> None:
    episode = await d.claim()
    await d.chat(episode)
    other = await d.end(episode, "t", client="c2")
    assert other.status_code == 404
    assert "is claimed by different client" in other.json()["detail"]
    unknown = await d.end({"episode_uuid": "nobody"}, "t")
    assert (unknown.status_code, unknown.json()["detail"]) == (400, "Episode nobody not found.")
    free = next(episode for episode in d.engine.pool if episode.status == "registered")
    unclaimed = await d.end({"episode_uuid": free.uuid}, "t")
    assert unclaimed.status_code == 400
    assert "is not in claimed status" in unclaimed.json()["detail"]
    assert (await d.end(episode, "t")).json()["success"] is True
    assert (await d.end(episode, "t")).status_code == 400
    assert (await d.pool())["completed_episodes"] == 1
    await d.post("/stop_engine")
    offline = await d.end(episode, "t")
    assert offline.status_code == 400
    assert "Engine is not in rolling state" in offline.json()["detail"]
    assert "[ENGINE.OFFLINE]" in offline.json()["detail"]


@pytest.mark.parametrize(
    ("reward", "result"),
    [
        ("null", "found null"),
        ("[0.5, 1]", "found list"),
        ("true", "found bool"),
        ('"1.0"', "found str"),
        ("{}", "found dict"),
        ("NaN", "finite"),
        ("Infinity", "finite"),
        ("-1e999", "finite"),
        ("1" + "0" * 400, "finite"),
    ],
)
async def test_a_reward_is_one_finite_number(d: Driver, reward: str, result: str) -> None:
    episode = await d.claim()
    await d.chat(episode)
    body = json.dumps(
        {
            "client_uuid": "c1",
            "episode_uuid": episode["episode_uuid"],
            "task_id": "t",
            "workflow_output": {"reward": "REWARD", "metadata": {"task_id": "t"}},
        }
    ).replace('"REWARD"', reward)
    headers = {"content-type": "application/json"}
    refused = await d.http.post("/end_episode", content=body, headers=headers)
    assert refused.status_code == 400
    assert refused.json()["detail"].startswith("workflow_output.reward: ")
    assert result in refused.json()["detail"]
    assert (await d.end(episode, "t", 0.5)).status_code == 200, "it can be ended rightly still"
    assert (await d.pool())["completed_tasks_rewards"] == {"t": [0.5]}


@pytest.mark.parametrize("metadata", [{}, {"task_id": "other"}, {"task_id": None}])
async def test_the_metadata_names_the_same_task(d: Driver, metadata: dict[str, Any]) -> None:
    episode = await d.claim()
    output = {"reward": 1.0, "metadata": metadata}
    refused = await d.end(episode, "t", workflow_output=output)
    assert refused.status_code == 400
    assert "metadata.task_id" in refused.json()["detail"]
    assert (await d.end(episode, "")).status_code == 400


async def test_an_end_of_the_wrong_shape_is_422(d: Driver) -> None:
    assert (await d.post("/end_episode", client_uuid="c")).status_code == 422


async def test_eval_episodes_never_train_and_go_back(idle: Driver) -> None:
    await idle.start(batch=1, repeat=1)
    episode = await idle.claim(kind="eval")
    await idle.chat(episode)
    assert (await idle.end(episode, "t", float(7))).json()["success"] is True
    assert await idle.status() == ("ROLLING", 1)
    assert (await idle.pool())["completed_episodes"] == 0
    again = await idle.claim("c2")
    assert again["episode_uuid"] == episode["episode_uuid"]
    assert idle.engine.pool.claimed[0].type == "train"


async def test_aborts(idle: Driver) -> None:
    await idle.start(batch=1, repeat=1)
    episode = await idle.claim()
    await idle.chat(episode)
    stranger = await idle.abort(episode, "c2")
    assert stranger.status_code == 404
    assert "is claimed by different client c1" in stranger.json()["detail"]
    assert len(idle.engine.pool.claimed) == 1
    assert (await idle.abort(episode)).json()["success"] is True
    assert (await idle.abort(episode)).json()["success"] is True, "held by nobody: no error"
    assert (await idle.abort({"episode_uuid": "nobody"})).json()["success"] is True
    again = await idle.claim("c2")
    assert again["episode_uuid"] == episode["episode_uuid"]
    await idle.end(again, "t", client="c2")
    assert (await idle.pool())["completed_episodes"] == 0, "the first owner's call is forgotten"
    await idle.post("/stop_engine")
    assert (await idle.abort(again)).json()["success"] is True
    short = await idle.post("/abort_episode", client_uuid="c", episode_uuid="e")
    assert short.json()["success"] is True


async def test_can_continue(idle: Driver) -> None:
    async def can(episode: dict[str, Any], client: str = "c1") -> bool:
        body = {"client_uuid": client, "episode_uuid": episode["episode_uuid"]}
        answer = (await idle.post("/can_continue_episode", **body)).json()
        assert answer.keys() == {"can_continue"}
        return bool(answer["can_continue"])

    await idle.start()
    episode = await idle.claim()
    assert await can(episode)
    assert not await can(episode, "c2")
    assert not await can({"episode_uuid": "nobody"})
    await idle.group("a")
    await idle.group("b")
    assert (await idle.status())[0] == "ROLLING_POST"
    assert await can(episode)
    await idle.abort(episode)
    assert not await can(episode)
