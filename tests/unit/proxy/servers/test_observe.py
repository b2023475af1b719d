"""Observe mode: the fan-out, the winner and the rating, with an upstream that trains nothing."""

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import core.journal.storage
import proxy.servers.observe
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import EndKind, EndOutcome, WireOutput
from core.events import AnswerReturned, CandidateFailed, EngineLost, GroupClosed, GroupSealed
from tests.support.alerts import cause_of
from tests.support.proxy.observed import Observed, observed
from tests.support.proxy.singles import EpisodeEnded
from tests.support.scripted.openai import Failure, ScriptedOpenAI
from tests.support.stored import stored_bytes


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy.servers.observe, "CHECK_EVERY", 0.05)


def always(content: Any) -> Any:
    async def answer(body: dict[str, Any], index: int) -> Any:
        return content

    return answer


# --- the loop -----------------------------------------------------------------------------------


async def test_a_request_is_fanned_out_scored_and_recorded(o: Observed) -> None:
    own = {"temperature": 0.25, "top_p": 0.5, "top_k": 7, "seed": 3, "presence_penalty": 0.5}
    answer = await o.post(**own, made_up=1)
    assert answer.status_code == 200
    assert answer.json()["model"] == "any"
    assert answer.json()["choices"][0]["message"]["content"].startswith("answer ")
    await o.world.closed()
    assert len(o.upstream.calls) == 4
    for body, headers in o.upstream.calls:
        assert body["model"] == "tiny"
        assert {name: body[name] for name in own} == own
        assert body["made_up"] == 1
        assert "stream" not in body
        assert headers["authorization"] == "Bearer EMPTY"
    ids = {headers["x-request-id"] for _, headers in o.upstream.calls}
    assert len(ids) == 4
    assert [kind.outcome for kind in o.world.kinds(EpisodeEnded)] == ["recorded"] * 4
    (sealed,) = o.world.kinds(GroupSealed)
    assert [reward.reward for reward in sealed.rewards] == [0.0, 0.1, 0.2, 0.3]
    (closed,) = o.world.kinds(GroupClosed)
    assert (closed.phase, closed.cause) == ("DONE", "")
    group = next(iter(o.world.state.groups.values()))
    assert group.episode_type == "observe"
    assert group.best == 3
    assert [candidate.phase for candidate in group.candidates] == ["recorded"] * 4
    assert not await o.observe.buffer()


async def test_a_request_does_not_wait_for_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal.storage, "BUSY", 600.0)
    async with observed(tmp_path) as o:
        journal = o.world.context.journal
        await journal.durable(o.world.state.seq)
        with contextlib.closing(sqlite3.connect(journal.path, isolation_level=None)) as other:
            other.execute("begin immediate")  # nothing can be committed
            before = journal.last_seq()
            async with asyncio.timeout(60):  # the writer waits longer for the lock
                assert (await o.post()).status_code == 200
            assert journal.last_seq() == before
            other.execute("rollback")
        await o.world.closed()
        assert [kind.phase for kind in o.world.kinds(GroupClosed)] == ["DONE"]


async def test_rewards_are_not_recorded_while_the_journal_fails(o: Observed) -> None:
    o.upstream.gate = asyncio.Event()
    asking = asyncio.gather(o.post())
    await o.world.until(lambda: o.upstream.running == 4)
    o.world.context.journal.error = "the disk is full"
    o.upstream.gate.set()
    (answered,) = await asking
    assert answered.status_code == 200
    await o.world.closed()
    (closed,) = o.world.kinds(GroupClosed)
    assert (closed.phase, closed.cause) == ("ABORTED", "the journal cannot be written")
    assert not o.world.kinds(EpisodeEnded)
    assert not await o.observe.buffer()


async def test_the_operator_sees_that_nothing_is_trained(o: Observed) -> None:
    await o.post()
    server = o.world.state.servers["upstream"]
    assert server.state == "OBSERVING"
    assert "nothing is trained" in server.detail
    assert server.pool.repeats == 4
    assert server.pool.model == "tiny"
    assert o.world.state.alerts["observe:upstream"].level == "info"
    metrics = (await o.client.get("/metrics")).text
    assert 'ajet_engine_state{server="upstream",state="OBSERVING"} 1' in metrics
    assert 'ajet_engine_state{server="upstream",state="ROLLING"} 0' in metrics
    assert "ajet_rewards_sent_total 0" in metrics


@pytest.mark.world(rating={"mode": "hold"})
async def test_a_rating_by_hand_changes_what_is_recorded(o: Observed) -> None:
    ticket = await o.world.ask("hello")
    group = await o.world.open("AWAITING_RATING")
    assert group.rateable
    await o.world.commands.rate(
        group_id=group.group_id, rating="best", order=(1,), scores=(), rater="me", note=""
    )
    await o.world.commands.accept(group_id=group.group_id)
    reply = await o.world.reply(ticket)
    await o.world.closed()
    assert reply.index == 1
    (sealed,) = o.world.kinds(GroupSealed)
    assert sealed.source == "human"
    assert [reward.reward for reward in sealed.rewards] == [0.0, 1.0, 0.0, 0.0]
    assert [kind.reward for kind in o.world.kinds(EpisodeEnded)] == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("mode", ["best", "live"])
async def test_a_stream(tmp_path: Path, mode: str) -> None:
    async with observed(tmp_path, proxy={"answer": mode}) as o:
        answer = await o.post(stream=True)
        assert answer.status_code == 200
        lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        chunks = [json.loads(line) for line in lines[:-1]]
        text = "".join(
            choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
        )
        assert text.startswith("answer ")
        await o.world.closed()
        streamed = [body for body, _ in o.upstream.calls if body.get("stream")]
        assert len(streamed) == (mode == "live")
        why = o.world.kinds(AnswerReturned)[0].why
        assert why == ("live" if mode == "live" else "winner")


@pytest.mark.parametrize("mode", ["best", "live"])
@pytest.mark.parametrize("stream", [False, True])
async def test_each_of_several_choices_has_a_seed_of_its_own(
    tmp_path: Path, mode: str, stream: bool
) -> None:
    async with observed(tmp_path, proxy={"answer": mode}) as o:
        assert (await o.post(seed=42, n=3, stream=stream)).status_code == 200
        await o.world.closed()
        assert sorted(body["seed"] for body, _ in o.upstream.calls) == [42, 43, 44, 45]


async def test_a_helper_call_keeps_its_temperature_and_seed(o: Observed) -> None:
    body = {"model": "any", "messages": [{"role": "user", "content": "x"}], "temperature": 0.2}
    answer = await o.client.post(
        "/v1/chat/completions", json={**body, "seed": 5}, headers={"X-Ajet-Train": "no"}
    )
    assert answer.status_code == 200
    ((sent, _),) = o.upstream.calls
    assert (sent["temperature"], sent["seed"]) == (0.2, 5)


@pytest.mark.parametrize(
    ("values", "listed", "model", "sent"),
    [
        ({}, ["a", "b"], "b", "b"),
        ({}, ["a", "b"], "c", "a"),
        ({"model": "z"}, ["a"], "a", "z"),
        ({"model": "z"}, None, "a", "z"),
        ({}, None, "a", "a"),
    ],
)
async def test_unknown_models_are_replaced_by_the_default(
    tmp_path: Path, values: dict[str, Any], listed: list[str] | None, model: str, sent: str
) -> None:
    async with ScriptedOpenAI() as upstream:
        upstream.models = listed
        async with observed(tmp_path, upstream, values) as o:
            answer = await o.post(model=model)
            assert answer.json()["model"] == model
            assert {body["model"] for body, _ in upstream.calls} == {sent}


@pytest.mark.world(upstream_settings={"temperature": 0.9}, proxy={"repeats": 2})
async def test_candidates_and_temperature_as_set(o: Observed) -> None:
    assert (await o.post(temperature=0, seed=3)).status_code == 200
    assert len(o.upstream.calls) == 2
    for body, _ in o.upstream.calls:
        assert body["temperature"] == 0.9
        assert "seed" not in body


async def test_without_a_temperature_none_is_sent(o: Observed) -> None:
    assert (await o.post()).status_code == 200
    assert all("temperature" not in body for body, _ in o.upstream.calls)


@pytest.mark.slow
async def test_calls_in_flight_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.servers.observe.MOST_CALLS", 4)
    async with observed(tmp_path) as o:
        o.upstream.gate = asyncio.Event()
        first = asyncio.gather(o.post("one"), o.post("two"), o.post("three"))
        await o.world.until(lambda: o.upstream.running == 4)
        await o.world.until(lambda: o.world.server.claimer.queue.starved)
        assert len(o.upstream.calls) == 4
        o.upstream.gate.set()
        assert [one.status_code for one in await first] == [200] * 3
        assert len(o.upstream.calls) == 12


# --- clients that leave -------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_all_calls(o: Observed, stream: bool) -> None:
    o.upstream.gate = asyncio.Event()
    asking = asyncio.gather(o.post(stream=stream))
    await o.world.until(lambda: o.upstream.running == 4)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await o.world.until(lambda: o.upstream.cancelled == 4, 2)
    await o.world.closed()
    assert o.upstream.running == 0
    assert not await o.observe.buffer()
    assert o.world.kinds(GroupClosed)[0].phase == "ABORTED"


# --- an upstream in trouble ---------------------------------------------------------------------


async def test_a_rate_limit_is_waited_for(o: Observed) -> None:

    async def answer(body: dict[str, Any], index: int) -> Any:
        return "fine" if index > 3 else Failure(429, "slow down", {"Retry-After": "0.05"})

    o.upstream.answer = answer
    answered = await o.post()
    assert answered.status_code == 200
    assert len(o.upstream.calls) == 8
    assert not o.world.kinds(CandidateFailed)


async def test_a_permanent_rate_limit_is_returned_to_the_client(o: Observed) -> None:
    o.upstream.answer = always(Failure(429, "org-secret is over its limit", {"Retry-After": "77"}))
    answered = await o.post()
    assert answered.status_code == 429
    assert answered.headers["retry-after"] == "77"
    assert "org-secret" not in answered.text
    assert len(o.upstream.calls) == 4
    await o.world.until(lambda: "upstream:upstream" in o.world.state.alerts)
    o.upstream.answer = always("fine")
    assert (await o.post("again")).status_code == 200
    await o.world.until(lambda: "upstream:upstream" not in o.world.state.alerts)


async def test_a_wrong_key_raises_an_alert(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI(key="sesame-open-up") as upstream,
        observed(tmp_path, upstream, {"key": "wrong-key-of-ours"}) as o,
    ):
        answered = await o.post()
        assert answered.status_code == 502
        assert len(upstream.calls) == 0
        alert = await o.world.until(lambda: o.world.state.alerts.get("upstream:upstream"))
        assert "key refused (401)" in cause_of(alert)
        upstream.key = "wrong-key-of-ours"
        assert (await o.post("again")).status_code == 200
        await o.world.until(lambda: "upstream:upstream" not in o.world.state.alerts)


async def test_the_key_is_only_on_the_wire(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = "hush-hush-0123456789"
    async with ScriptedOpenAI(key=key) as upstream, observed(tmp_path, upstream, {"key": key}) as o:
        upstream.answer = always(Failure(403, f"{key} may not do this"))
        answered = await o.post()
        assert answered.status_code == 502
        await o.world.closed()
        assert all(call[1]["authorization"] == f"Bearer {key}" for call in upstream.calls)
        causes = [kind.cause for kind in o.world.kinds(CandidateFailed)]
        assert causes == ["unauthorized: [redacted] may not do this"] * 4
        result = str(o.world.events) + answered.text + caplog.text + str(o.world.state)
        assert key not in result
        o.world.context.journal.close()
        assert key.encode() not in stored_bytes(tmp_path)


async def test_an_overflow_is_returned_with_the_upstreams_text(tmp_path: Path) -> None:
    words = "This model's maximum context length is 8192 tokens. However, you sent 9000."
    async with observed(tmp_path) as o:
        o.upstream.answer = always(
            Failure(400, words, code="context_length_exceeded", param="messages")
        )
        answered = await o.post()
        assert answered.status_code == 400
        error = answered.json()["error"]
        assert (error["message"], error["param"]) == (words, "messages")


async def test_a_request_the_upstream_refuses_is_not_sent_again(o: Observed) -> None:
    o.upstream.answer = always(Failure(400, "top_k must be positive", param="top_k"))
    answered = await o.post(stream=True)
    assert "top_k must be positive" in answered.text
    assert len(o.upstream.calls) == 4


async def test_one_broken_call_of_four_is_made_again(o: Observed) -> None:

    async def answer(body: dict[str, Any], index: int) -> Any:
        return Failure(500, "boom") if index == 1 else f"answer {index}"

    o.upstream.answer = answer
    assert (await o.post()).status_code == 200
    await o.world.closed()
    assert len(o.upstream.calls) == 5
    assert len(o.world.kinds(GroupSealed)[0].rewards) == 4


@pytest.mark.world(rewards={"retries": 1})
async def test_an_upstream_that_always_fails_is_no_answer(o: Observed) -> None:
    o.upstream.answer = always(Failure(500, "Traceback: /srv/model.py"))
    answered = await o.post()
    assert answered.status_code == 503
    assert "/srv" not in answered.text
    assert len(o.upstream.calls) == 8


@pytest.mark.parametrize("content", [5, True, {"text": "x"}])
@pytest.mark.world(rewards={"retries": 1})
async def test_content_that_is_not_text_is_a_failure(o: Observed, content: Any) -> None:
    o.upstream.answer = always({"role": "assistant", "content": content})
    assert (await o.post()).status_code == 503
    causes = {kind.cause for kind in o.world.kinds(CandidateFailed)}
    assert causes == {"upstream: its content is not text"}
    assert len(o.upstream.calls) == 8


@pytest.mark.parametrize("content", [None, [], "", "  "])
async def test_an_empty_answer_is_an_answer(o: Observed, content: Any) -> None:
    o.upstream.answer = always({"role": "assistant", "content": content})
    answered = await o.post()
    assert answered.status_code == 200
    (choice,) = answered.json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (content or None, "stop")
    await o.world.closed()
    assert not o.world.kinds(CandidateFailed)
    assert len(o.upstream.calls) == 4


@pytest.mark.parametrize("stream", [False, True])
async def test_a_redirect_is_not_followed_and_named(tmp_path: Path, stream: bool) -> None:
    there = {"Location": "https://me:secret@other.example:8443/v1/hidden?key=x"}
    async with observed(tmp_path) as o:
        o.upstream.answer = always(Failure(307, "see there", there))
        answered = await o.post(stream=stream)
        assert "other.example" not in answered.text
        assert len(o.upstream.calls) == 4
        await o.world.until(lambda: o.world.kinds(GroupClosed))
        result = "it redirects to https://other.example:8443 (HTTP 307): the base URL is wrong"
        assert {kind.cause for kind in o.world.kinds(CandidateFailed)} == {f"refused: {result}"}
        alert = await o.world.until(lambda: o.world.state.alerts.get("upstream:upstream"))
        assert result in cause_of(alert)
        o.upstream.answer = always("fine")
        assert (await o.post("again")).status_code == 200
        await o.world.until(lambda: "upstream:upstream" not in o.world.state.alerts)


@pytest.mark.slow
async def test_requests_wait_for_an_unreachable_upstream(o: Observed) -> None:
    assert (await o.post("before")).status_code == 200
    o.upstream.hang_up = True
    asking = asyncio.gather(o.post("meanwhile"))
    await o.world.until(lambda: o.world.kinds(EngineLost))
    o.upstream.hang_up = False
    (answered,) = await asking
    assert answered.status_code == 200


@pytest.mark.upstream(hang_up=True)
@pytest.mark.world(ready=False)
async def test_an_upstream_that_never_answered_is_503(o: Observed) -> None:
    answered = await o.post()
    assert answered.status_code == 503
    assert answered.headers["retry-after"]
    assert (await o.client.get("/health")).status_code == 503


@pytest.mark.upstream(health=503)
@pytest.mark.world(ready=False)
async def test_an_unhealthy_upstream_gets_no_calls(o: Observed) -> None:
    assert (await o.post()).status_code == 503
    assert not o.upstream.calls
    o.upstream.health = 200
    await o.world.until(lambda: o.world.server.watcher.current.reachable)
    assert (await o.post()).status_code == 200


@pytest.mark.upstream(health=None)
async def test_an_upstream_without_a_health_route_is_checked_by_its_models(o: Observed) -> None:
    assert (await o.post()).status_code == 200
    await o.world.until(lambda: o.upstream.requests["/v1/models"] > 3)
    assert o.upstream.requests["/health"] == 1


# --- killed -------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_after_a_kill_there_is_nothing_to_return(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as upstream:
        async with observed(tmp_path, upstream) as o:
            upstream.gate = asyncio.Event()
            await o.world.ask("hello")
            await o.world.until(lambda: upstream.running == 4)
            o.world.kill()
        upstream.gate = None
        async with observed(tmp_path, upstream) as o:
            (group,) = o.world.state.groups.values()
            assert group.phase == "ABORTED"
            assert group.cause == "the proxy ended"
            assert (await o.post("next")).status_code == 200


async def test_rewards_that_were_sealed_are_recorded(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as upstream:
        async with observed(tmp_path, upstream) as o:
            client = o.observe

            async def never(*_: Any, **__: Any) -> Any:
                await asyncio.Event().wait()

            client.end = never  # type: ignore[method-assign]
            await o.world.ask("hello")
            await o.world.until(lambda: o.world.kinds(GroupSealed))
            o.world.kill()
        async with observed(tmp_path, upstream) as o:
            (group,) = o.world.state.groups.values()
            assert group.phase == "DONE"
            assert [candidate.phase for candidate in group.candidates] == ["recorded"] * 4


async def test_an_upstream_answers_each_call_of_a_server_without_an_engine(o: Observed) -> None:
    client = o.world.server.client
    calls = len(o.upstream.calls)
    job = "ajet: {model: {path: m}}"
    for call in (
        client.sync_train_config(job),
        client.start_engine(),
        client.stop_engine(),
        client.agree_sync_weight(),
    ):
        with pytest.raises(SwarmError, match="nothing is trained"):
            await call
    assert not await client.is_embedded()
    assert (await client.verbose_logs(), await client.experiment_dir()) == ([], None)
    recorded = await client.end("uuid", "task", WireOutput(reward=1.0))
    assert recorded == EndOutcome(EndKind.RECORDED)
    assert len(o.upstream.calls) == calls
