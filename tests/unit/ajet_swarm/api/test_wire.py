"""Calls of the swarm server: what is sent, and what an answer means."""

import asyncio
import base64
import json
import socket
from typing import Any

import pytest

from ajet_swarm.api.chat import OVERFLOW, ChatAnswer, chat_answer
from ajet_swarm.api.wire import SwarmWire, _base_url
from ajet_swarm.http.interface import Response
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind, SwarmError, Unreachable
from ajet_swarm.protocol.schemas import (
    AbortKind,
    Claimed,
    ClaimRefused,
    EndKind,
    EngineState,
    RefusedKind,
    WireOutput,
)
from tests.support.scripted.swarm import Denied, ScriptedSwarm
from tests.unit.ajet_swarm.helpers import HELLO, answered, claimed

JOB = "ajet: {model: {path: m}}"

# -- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "localhost:10086", "ftp://host", "http://", "http://[::1"])
async def test_an_invalid_address_is_an_error(transport: HttpTransport, url: str) -> None:
    with pytest.raises(SwarmError, match="address"):
        SwarmWire(url, transport, "me")


@pytest.mark.parametrize(
    ("url", "result", "base"),
    [
        ("http://gpu:1/", "http://localhost:10086/v1", "http://gpu:1/v1"),
        ("http://gpu:1", "http://10.0.0.1:10086//v1/", "http://gpu:1/v1"),
        ("https://gpu/ajet/", "http://localhost:10086/v1", "https://gpu/ajet/v1"),
        ("http://gpu:1", "", "http://gpu:1/v1"),
        ("http://gpu:1", "http://[::1", "http://gpu:1/v1"),
    ],
)
async def test_a_reported_base_url_is_mapped_to_our_server_address(
    transport: HttpTransport, url: str, result: str, base: str
) -> None:
    assert _base_url(SwarmWire(url, transport, "me").url, result) == base


async def test_a_trailing_slash_is_harmless(
    server: ScriptedSwarm, transport: HttpTransport
) -> None:
    client = SwarmWire(server.url + "/", transport, "me")
    assert (await client.status()).state is EngineState.ROLLING
    episode = await claimed(client)
    assert episode.base_url == server.url + "/v1"
    assert (await client.chat(episode, HELLO)).text.startswith("answer 0")


# -- telling ------------------------------------------------------------------------------------


async def test_status_reads_the_known_fields(client: SwarmWire, server: ScriptedSwarm) -> None:
    status = await client.status()
    assert (status.state, status.global_step) == (EngineState.ROLLING, 1)
    server.set_state("MYSTERY.NEW")
    status = await client.status()
    assert (status.state, status.engine_status) == (EngineState.UNKNOWN, "MYSTERY.NEW")


async def test_status_of_another_kind_of_server_is_an_error(
    client: SwarmWire, server: ScriptedSwarm
) -> None:
    server.fail_next("/get_engine_status", 500)
    with pytest.raises(SwarmError, match="500"):
        await client.status()
    assert (await client.status()).state is EngineState.ROLLING


async def test_status_of_an_unreachable_server_is_an_error(transport: HttpTransport) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        client = SwarmWire(f"http://127.0.0.1:{held.getsockname()[1]}", transport, "me")
        with pytest.raises(Unreachable):
            await client.status()


async def test_pool(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await answered(client)
    await client.end(episode.episode_uuid, "t1", WireOutput(reward=0.5))
    held = await claimed(client)
    pool = await client.pool()
    assert pool is not None
    assert (pool.repeat, pool.completed_episodes, pool.completed_task_target) == (4, 1, 4)
    assert pool.completed_tasks_rewards == {"t1": [0.5]}
    assert pool.running_episode_details is not None
    running = pool.running_episode_details[held.episode_uuid]
    assert (running.client_uuid, running.limit, running.calls) == ("me", 240.0, 0)
    assert running.idle is not None
    assert running.idle < 60
    assert not pool.stale
    assert [c.client_uuid for c in pool.active_clients] == ["me"]


async def test_a_pool_with_only_default_values_counts_as_unread(
    client: SwarmWire, server: ScriptedSwarm
) -> None:
    server.pool_default = True
    assert await client.pool() is None
    server.pool_default = False
    server.fail_next("/get_current_batch_rollout_pool_information", 500)
    assert await client.pool() is None


async def test_counters_of_a_stopped_run_are_marked_stale(
    client: SwarmWire, server: ScriptedSwarm
) -> None:
    await client.stop_engine()
    pool = await client.pool()
    assert pool is not None
    assert pool.stale


async def test_the_small_routes(client: SwarmWire, server: ScriptedSwarm) -> None:
    assert await client.experiment_dir() == "/srv/run"
    assert [line.message for line in await client.verbose_logs()] == ["hello"]
    assert "/v1/chat/completions" in await client.features()
    assert await client.features() == await client.features()
    assert server.requests["/openapi.json"] == 1
    await client.features(again=True)
    assert server.requests["/openapi.json"] == 2


async def test_routes_an_older_server_lacks(client: SwarmWire, server: ScriptedSwarm) -> None:
    server.fail_always("/get_verbose_logs", 404)
    server.fail_always("/get_server_experiment_dir", 404)
    assert await client.verbose_logs() == []
    assert await client.experiment_dir() is None


# -- the engine ---------------------------------------------------------------------------------


async def test_start_and_stop(client: SwarmWire, server: ScriptedSwarm) -> None:
    await client.stop_engine()
    with pytest.raises(SwarmError, match="No training config found"):
        await client.start_engine()
    sent = await client.sync_train_config(JOB)
    assert server.config == sent
    assert await client.start_engine() == 4242
    with pytest.raises(SwarmError, match="not offline"):
        await client.sync_train_config(JOB)
    await server.until(lambda: server.state == "ROLLING")
    with pytest.raises(SwarmError, match="already started"):
        await client.start_engine()


async def test_a_failed_start_reports_the_reason(client: SwarmWire, server: ScriptedSwarm) -> None:
    await client.stop_engine()
    server.config_error = "disk full"
    with pytest.raises(SwarmError, match="disk full"):
        await client.sync_train_config(JOB)
    server.config_error = ""
    await client.sync_train_config(JOB)
    server.start_error = "could not parse the job"
    with pytest.raises(SwarmError, match="could not parse the job"):
        await client.start_engine()
    assert (await client.status()).state is EngineState.BOOTING
    await client.stop_engine()
    assert (await client.status()).state is EngineState.OFFLINE


async def test_agreeing_to_sync(client: SwarmWire, server: ScriptedSwarm) -> None:
    with pytest.raises(SwarmError, match="500"):
        await client.agree_sync_weight()
    server.method = "rollout_until_all_clients_agree_sync_weight"
    assert not await client.agree_sync_weight()
    episode = await answered(client)
    await client.end(episode.episode_uuid, "t", WireOutput(reward=1))
    pool = await client.pool()
    assert pool is not None
    assert pool.agree_to_sync
    assert await client.agree_sync_weight()
    await server.until(lambda: server.step == 2)


async def test_a_batch_cycle(client: SwarmWire, server: ScriptedSwarm) -> None:
    """Only tasks with all their repeats count; then the engine waits, syncs and rolls on."""
    server.batch, server.sync_seconds = 1, None
    odd = [await answered(client) for _ in range(3)]
    for episode in odd:
        await client.end(episode.episode_uuid, "short", WireOutput(reward=1))
    full = [await answered(client) for _ in range(4)]
    straggler = await claimed(client)
    for n, episode in enumerate(full):
        await client.end(episode.episode_uuid, "full", WireOutput(reward=n))
    assert (await client.status()).state is EngineState.ROLLING_POST
    assert await client.abort(straggler.episode_uuid) is AbortKind.CONFIRMED
    assert (await client.status()).state is EngineState.WEIGHT_SYNCING
    assert await client.buffer() == []
    server.finish_sync()
    status = await client.status()
    assert (status.state, status.global_step) == (EngineState.ROLLING, 2)
    assert server.batches == [{"short": [1, 1, 1], "full": [0, 1, 2, 3]}]


async def chat_error(client: SwarmWire, episode: Claimed, timeout: float = 5) -> ChatError:
    with pytest.raises(ChatError) as caught:
        await client.chat(episode, HELLO, timeout=timeout)
    return caught.value


# -- claims -------------------------------------------------------------------------------------


async def test_a_claim(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await client.claim("eval", 33.0)
    assert isinstance(episode, Claimed)
    record = server.claimed()[0]
    assert (record.uuid, record.type, record.timeout) == (episode.episode_uuid, "eval", 33.0)
    assert record.client == "me"
    assert episode.api_key not in repr(episode)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("WEIGHT_SYNCING", RefusedKind.SYNCING),
        ("ROLLING_POST", RefusedKind.POST_ROLLING),
        ("BOOTING", RefusedKind.NOT_ROLLING),
        ("OFFLINE", RefusedKind.NOT_ROLLING),
    ],
)
async def test_refused_claims(
    client: SwarmWire, server: ScriptedSwarm, state: str, kind: RefusedKind
) -> None:
    server.automatic = False
    server.set_state(state)
    refused = await client.claim()
    assert isinstance(refused, ClaimRefused)
    assert refused.kind is kind
    assert refused.text == server.refusals[-1]


async def test_no_episode_free(client: SwarmWire, server: ScriptedSwarm) -> None:
    server.unclaimed.clear()
    refused = await client.claim()
    assert isinstance(refused, ClaimRefused)
    assert refused.kind is RefusedKind.NONE_AVAILABLE


@pytest.mark.parametrize("how", ["hang", "drop_after", 500])
async def test_a_lost_claim_is_unknown_and_not_sent_again(
    client: SwarmWire, server: ScriptedSwarm, how: int | str
) -> None:
    server.fail_next("/claim_episode", how)
    refused = await client.claim(timeout=1.0 if how == "hang" else 30.0)
    assert isinstance(refused, ClaimRefused)
    assert refused.kind is RefusedKind.UNKNOWN
    assert server.requests["/claim_episode"] == 1
    if how != 500:
        ours = [r for r in await client.buffer() if r.claimed and r.client_uuid == "me"]
        assert [r.episode_uuid for r in ours] == server.claims


async def test_a_claim_never_sent(transport: HttpTransport) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        client = SwarmWire(f"http://127.0.0.1:{held.getsockname()[1]}", transport, "me")
        refused = await client.claim()
    assert isinstance(refused, ClaimRefused)
    assert refused.kind is RefusedKind.UNREACHABLE


async def test_an_unknown_episode_type_is_refused(client: SwarmWire) -> None:
    refused = await client.claim("test")
    assert isinstance(refused, ClaimRefused)
    assert refused.kind is RefusedKind.OTHER
    assert "episode_type" in refused.text


# -- ends and aborts ----------------------------------------------------------------------------


async def test_an_end(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await answered(client)
    output = WireOutput(reward=1, metadata={"row": 3}, log_metrics={"length": 5})
    outcome = await client.end(episode.episode_uuid, "task#g1", output)
    assert outcome.kind is EndKind.ENDED
    sent = server.ends[0]["workflow_output"]
    assert sent["metadata"] == {"row": 3, "task_id": "task#g1"}
    assert (sent["reward"], sent["log_metrics"]) == (1.0, {"length": 5})
    assert server.ends[0]["declare_client_active"] is True


async def test_ended_twice(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await answered(client)
    await client.end(episode.episode_uuid, "t", WireOutput(reward=1))
    again = await client.end(episode.episode_uuid, "t", WireOutput(reward=1))
    assert again.kind is EndKind.NOT_FOUND
    assert server.duplicate_ends == 1


async def test_an_end_of_an_episode_taken_back(
    client: SwarmWire, server: ScriptedSwarm, transport: HttpTransport
) -> None:
    server.automatic = False
    server.unclaimed[1:] = []
    episode = await claimed(client)
    server.expire(episode.episode_uuid)
    outcome = await client.end(episode.episode_uuid, "t", WireOutput(reward=1))
    assert outcome.kind is EndKind.NOT_CLAIMED
    other = await claimed(SwarmWire(server.url, transport, "other"))
    assert other.episode_uuid == episode.episode_uuid
    foreign = await client.end(episode.episode_uuid, "t", WireOutput(reward=1))
    assert foreign.kind is EndKind.OTHER_CLIENT
    assert server.ends == []


@pytest.mark.parametrize(
    ("state", "kind"), [("WEIGHT_SYNCING", EndKind.SYNCING), ("OFFLINE", EndKind.NOT_ROLLING)]
)
async def test_an_end_too_late(
    client: SwarmWire, server: ScriptedSwarm, state: str, kind: EndKind
) -> None:
    server.automatic = False
    episode = await claimed(client)
    server.set_state(state)
    outcome = await client.end(episode.episode_uuid, "t", WireOutput(reward=1))
    assert outcome.kind is kind
    assert state in outcome.text


@pytest.mark.parametrize("how", ["hang", "drop_after"])
async def test_a_lost_end_is_unknown_and_not_sent_again(
    client: SwarmWire, server: ScriptedSwarm, how: str
) -> None:
    episode = await answered(client)
    server.fail_next("/end_episode", how)
    limit = 1.0 if how == "hang" else 30.0
    outcome = await client.end(episode.episode_uuid, "t", WireOutput(reward=1), timeout=limit)
    assert outcome.kind is EndKind.UNKNOWN_OUTCOME
    assert server.requests["/end_episode"] == 1
    assert server.rewards == {episode.episode_uuid: 1}


async def test_an_end_that_crashes(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await claimed(client)
    server.fail_next("/end_episode", 500)
    outcome = await client.end(episode.episode_uuid, "t", WireOutput(reward=1))
    assert (outcome.kind, outcome.text) == (EndKind.ERROR, "Internal Server Error")


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), None, [1.0, 2.0], "1"])
async def test_a_reward_the_server_would_drop_is_not_sent(
    client: SwarmWire, server: ScriptedSwarm, reward: Any
) -> None:
    with pytest.raises(SwarmError, match="finite"):
        await client.end("x", "t", WireOutput(reward=reward))
    with pytest.raises(SwarmError, match="task id"):
        await client.end("x", "", WireOutput(reward=1))
    assert server.requests["/end_episode"] == 0


async def test_an_abort_frees_the_episode(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await claimed(client)
    assert await client.can_continue(episode.episode_uuid) is True
    assert await client.abort(episode.episode_uuid) is AbortKind.CONFIRMED
    assert server.claimed() == []
    assert server.aborts[0]["declare_client_active"] is False
    assert server.active_clients == {}
    assert await client.can_continue(episode.episode_uuid) is False
    assert await client.abort("no such episode") is AbortKind.CONFIRMED


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("drop", AbortKind.UNKNOWN_OUTCOME),
        ("hang", AbortKind.UNKNOWN_OUTCOME),
        (504, AbortKind.UNKNOWN_OUTCOME),
        (500, AbortKind.REFUSED),
    ],
)
async def test_an_abort_without_confirmation_is_not_repeated(
    client: SwarmWire, server: ScriptedSwarm, how: int | str, kind: AbortKind
) -> None:
    server.fail_next("/abort_episode", how)
    assert await client.abort("x", timeout=1.0 if how == "hang" else 30.0) is kind
    assert server.requests["/abort_episode"] == 1


async def test_can_continue_is_none_after_a_server_error(
    client: SwarmWire, server: ScriptedSwarm
) -> None:
    server.fail_next("/can_continue_episode", 500)
    assert await client.can_continue("x") is None


# -- chat ---------------------------------------------------------------------------------------


async def test_a_chat(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await claimed(client)
    by_mapping = await client.chat(episode, HELLO, headers={"X-Extra": "1"})
    by_bytes = await client.chat(episode, json.dumps(HELLO).encode())
    assert isinstance(by_mapping, ChatAnswer)
    assert by_mapping.text == f"answer 0 of {episode.episode_uuid[:6]}"
    assert by_bytes.text.startswith("answer 1")
    assert by_mapping.finish_reason == "stop"
    assert by_mapping.usage["completion_tokens"] == 4
    assert json.loads(by_mapping.body) == by_mapping.parsed
    name, body, headers = server.chats[0]
    assert (name, body, headers["X-Extra"]) == (episode.episode_uuid, HELLO, "1")


async def test_tool_calls_come_through(client: SwarmWire, server: ScriptedSwarm) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    async def answer(*_: Any) -> dict[str, Any]:
        return {"tool_calls": [call]}

    server.answer = answer
    chat = await client.chat(await claimed(client), HELLO)
    assert chat.text == ""
    assert chat.message["tool_calls"] == [call]
    assert chat.finish_reason == "tool_calls"


async def test_overflow_is_not_an_answer(client: SwarmWire, server: ScriptedSwarm) -> None:
    async def answer(*_: Any) -> str:
        return OVERFLOW + " (5000 > 4096)"

    server.answer = answer
    error = await chat_error(client, await claimed(client))
    assert error.kind is ChatErrorKind.OVERFLOW


@pytest.mark.parametrize("old", [True, False])
async def test_a_bad_key_in_both_dialects(
    client: SwarmWire, server: ScriptedSwarm, old: bool
) -> None:
    server.old_auth = old
    episode = Claimed("x", server.url + "/v1", "sk-ajet-nonsense", "train", 0, 240)
    error = await chat_error(client, episode)
    assert (error.kind, error.status) == (ChatErrorKind.UNAUTHORIZED, 401)
    assert "Invalid authorization" in error.text
    assert "nonsense" not in str(error)


async def test_an_episode_lost_before_the_call(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await claimed(client)
    server.automatic = False
    server.set_state("WEIGHT_SYNCING")
    error = await chat_error(client, episode)
    assert (error.kind, error.status) == (ChatErrorKind.LOST_EPISODE, 404)


async def test_an_episode_lost_during_the_call(client: SwarmWire, server: ScriptedSwarm) -> None:
    server.delay = 30
    episode = await claimed(client)
    async with asyncio.TaskGroup() as group:
        failed = group.create_task(chat_error(client, episode, 20))
        await server.until(lambda: server.chats)
        server.set_state("WEIGHT_SYNCING")
    assert failed.result().kind is ChatErrorKind.LOST_EPISODE


async def test_no_chat_route_at_all(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = Claimed("x", server.url + "/elsewhere", "k", "train", 0, 240)
    assert (await chat_error(client, episode)).kind is ChatErrorKind.UPSTREAM


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_an_unreadable_answer_must_not_be_retried(
    client: SwarmWire, server: ScriptedSwarm, status: int
) -> None:
    async def answer(*_: Any) -> Any:
        return Denied(status, "too bad")

    server.answer = answer
    error = await chat_error(client, await claimed(client))
    assert (error.kind, error.status, error.text) == (ChatErrorKind.REFUSED, status, "too bad")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "Unknown role", "type": "BadRequestError"}}', "Unknown role"),
        (b'{"error": "Unknown role"}', "Unknown role"),
        (b'{"detail": [{"loc": ["body", 1], "msg": "short", "input": "mine"}]}', "body.1: short"),
        (b'{"detail": [["odd"]]}', '[["odd"]]'),
        (b"Unknown role", "Unknown role"),
        (b"<!DOCTYPE html><html>\n<TITLE>502 Bad\n Gateway</TITLE><h1>x</h1>", "502 Bad Gateway"),
        (b"<html><title></title><h1 class='x'>Down</h1>", "Down"),
        (b"<think>no page</think>", "<think>no page</think>"),
        (b"", "HTTP 422"),
    ],
)
def test_the_words_of_a_refusal(body: bytes, text: str) -> None:
    with pytest.raises(ChatError) as caught:
        chat_answer(Response(422, {}, body), "there")
    assert (caught.value.kind, caught.value.text) == (ChatErrorKind.REFUSED, text)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ValueError("boom"), "Internal Server Error"),
        ({"choices": []}, "without a choice"),
        ({"choices": [{"message": None}]}, "without a choice"),
    ],
)
async def test_unusable_answers_are_errors(
    client: SwarmWire, server: ScriptedSwarm, result: Any, text: str
) -> None:
    async def answer(*_: Any) -> Any:
        return result

    server.answer = answer
    error = await chat_error(client, await claimed(client))
    assert error.kind is ChatErrorKind.UPSTREAM
    assert text in error.text
    server.answer = ScriptedSwarm().answer
    assert (await client.chat(await claimed(client), HELLO)).text.startswith("answer")


async def test_a_chat_without_answer(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await claimed(client)
    server.delay = 30
    assert (await chat_error(client, episode, 0.1)).kind is ChatErrorKind.TIMED_OUT
    server.fail_next("/v1/chat/completions", "drop")
    assert (await chat_error(client, episode)).kind is ChatErrorKind.UNREACHABLE


async def test_the_key_names_the_episode(client: SwarmWire) -> None:
    episode = await claimed(client)
    body = json.loads(base64.b64decode(episode.api_key.removeprefix("sk-ajet-")))
    assert body["episode_uuid"] == episode.episode_uuid
