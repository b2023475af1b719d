"""Claims, ends, aborts and chat calls: every quirk of the survive list on their way."""

import asyncio
import base64
import json
import socket
from typing import Any

import pytest

from ajet_swarm.api.chat import OVERFLOW, ChatAnswer, chat_answer
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.http.interface import Response
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind, SwarmError
from ajet_swarm.protocol.schemas import (
    AbortKind,
    Claimed,
    ClaimRefused,
    EndKind,
    RefusedKind,
    WireOutput,
)
from tests.support.scripted.swarm import Denied, ScriptedSwarm
from tests.unit.ajet_swarm.helpers import HELLO, answered, claimed


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
