"""The spans and evaluation results of a request, as a collector receives them."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Proto
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, server_attributes

from core.events import Part, UpdateDone
from core.settings import TelemetrySettings
from proxy.rewards.source import Score, ScoreSheet
from proxy.telemetry.service import telemetry
from tests.support.otlp import Collector, attributes, collector
from tests.support.proxy.world import World, settings, texts, world
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
NOTHING = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NOTHING:
        monkeypatch.delenv(name, raising=False)


@contextlib.asynccontextmanager
async def observed(
    tmp_path: Path, seen: Collector, swarm: ScriptedSwarm | None = None, **more: Any
) -> AsyncIterator[World]:
    """A proxy whose telemetry has been sent completely when the context ends."""
    chosen = TelemetrySettings(**{"enabled": True, "sample": 1.0, "endpoint": seen.url, **more})
    async with (
        world(tmp_path, swarm, settings(proxy={"repeats": 4})) as made,
        telemetry(made.context.bus, chosen, flush_seconds=20.0),
    ):
        yield made


async def test_names_of_attributes_are_those_of_the_conventions(tmp_path: Path) -> None:
    parameters = ("top_p", "top_k", "frequency_penalty", "presence_penalty")
    others = {"max_completion_tokens": 9, "stop": "END"}
    with collector() as seen:
        async with observed(tmp_path, seen, content=True) as w:
            body = dict.fromkeys(parameters, 1) | others
            await w.complete("a question", {"x-session-id": "talk"}, **body)
    conventions = {
        value
        for module in (gen_ai_attributes, server_attributes, error_attributes)
        for name, value in vars(module).items()
        if name.isupper()
    }
    sent = {name for span in (*seen.spans, *seen.logs) for name in attributes(span)}
    names = {name for name in sent if not name.startswith("ajet.")}
    assert names <= conventions
    assert {f"gen_ai.request.{name}" for name in parameters} | {
        "gen_ai.request.max_tokens",
        "gen_ai.request.stop_sequences",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
    } <= names


async def test_a_request_with_four_candidates(tmp_path: Path) -> None:
    with collector() as seen:
        async with observed(tmp_path, seen) as w:
            group, _ = await w.complete(
                "a question", {"x-session-id": "talk"}, max_tokens=9, top_p=0.5, stop=["END"]
            )
            server = w.server
    (request,) = seen.named("ajet.request")
    assert request.kind == Proto.SPAN_KIND_SERVER
    assert not request.parent_span_id
    assert attributes(request)["gen_ai.conversation.id"] == "talk"
    assert attributes(request)["ajet.group.id"] == group.group_id
    assert attributes(request)["ajet.phase"] == "DONE"
    chats = seen.named("chat")
    assert len(chats) == 4
    for chat in chats:
        assert (chat.name, chat.kind) == ("chat m", Proto.SPAN_KIND_CLIENT)
        assert (chat.trace_id, chat.parent_span_id) == (request.trace_id, request.span_id)
        assert request.start_time_unix_nano <= chat.start_time_unix_nano <= chat.end_time_unix_nano
        values = attributes(chat)
        required = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "agentjet",
            "gen_ai.request.model": "m",
            "gen_ai.request.max_tokens": 9,
            "gen_ai.request.top_p": 0.5,
            "gen_ai.request.stop_sequences": ["END"],
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.conversation.id": "talk",
            "server.address": "127.0.0.1",
            "server.port": int(server.url.rpartition(":")[2]),
        }
        assert {name: values.get(name) for name in required} == required
        assert values["gen_ai.usage.output_tokens"] >= 0
        assert not {"gen_ai.input.messages", "gen_ai.output.messages"} & set(values)
    assert sorted(attributes(chat)["ajet.candidate.index"] for chat in chats) == [0, 1, 2, 3]
    (score,) = seen.named("ajet.score")
    assert score.parent_span_id == request.span_id
    assert attributes(score)["ajet.reward.version"] == "v1"
    assert "error.type" not in attributes(request)
    assert seen.schemas == {"https://opentelemetry.io/schemas/1.41.1"}
    assert seen.resources[0]["service.name"] == "ajet-console"
    by_span = {chat.span_id: attributes(chat)["ajet.candidate.index"] for chat in chats}
    assert len(seen.logs) == 8  # the reward and its one part, of four candidates
    for record in seen.logs:
        values = attributes(record)
        assert record.event_name == "gen_ai.evaluation.result"
        assert record.trace_id == request.trace_id
        assert values["gen_ai.evaluation.score.value"] == by_span[record.span_id] / 10
        assert "gen_ai.evaluation.explanation" not in values
    rewards = [one for one in map(attributes, seen.logs) if "gen_ai.evaluation.score.label" in one]
    labels = [reward["gen_ai.evaluation.score.label"] for reward in rewards]
    assert sorted(labels) == ["best", "not_best", "not_best", "not_best"]
    names = {attributes(log)["gen_ai.evaluation.name"] for log in seen.logs}
    assert names == {"reward", "taste"}


async def test_the_trace_of_the_client_goes_on(tmp_path: Path) -> None:
    with collector() as seen:
        async with observed(tmp_path, seen, sample=0.0) as w:
            for flags, state in (("01", "vendor=a1"), ("00", ""), ("03", "")):
                headers = {"traceparent": f"00-{TRACE}-{PARENT}-{flags}", "tracestate": state}
                await w.reply(await w.ask(f"question {flags}", headers))
            await w.complete("without a trace")
    requests = seen.named("ajet.request")
    assert len(requests) == 2
    for request in requests:
        assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    assert [request.trace_state for request in requests] == ["vendor=a1", ""]
    assert len(seen.spans) == 2 * 6


async def test_content_is_sent_by_setting_only(tmp_path: Path) -> None:
    async def scored(ctx: Any) -> ScoreSheet:
        part = Part("judge", 1.0, reason="it says Paris", gate=True)
        scores = tuple(Score(answer.index, 0.5, (part,)) for answer in ctx.answers)
        return ScoreSheet(scores, None, "v1", 0.001)

    results = {}
    for content in (False, True):
        home = tmp_path / str(content)
        home.mkdir()
        with collector() as seen:
            async with ScriptedSwarm() as swarm, observed(home, seen, swarm, content=content) as w:
                swarm.answers = texts("Paris is it")
                w.source.score = scored  # type: ignore[method-assign]  # scripted
                await w.complete("Which capital?")
        results[content] = seen
    sent = b"".join(
        span.SerializeToString() for span in (*results[False].spans, *results[False].logs)
    )
    assert b"capital" not in sent
    assert b"Paris" not in sent
    values = attributes(results[True].named("chat")[0])
    assert json.loads(values["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Which capital?"}]}
    ]
    (answer,) = json.loads(values["gen_ai.output.messages"])
    assert (answer["role"], answer["finish_reason"]) == ("assistant", "stop")
    every = map(attributes, results[True].logs)
    parts = [one for one in every if one["gen_ai.evaluation.name"] == "judge"]
    assert {part["gen_ai.evaluation.explanation"] for part in parts} == {"it says Paris"}
    assert {part["gen_ai.evaluation.score.label"] for part in parts} == {"pass"}


async def test_a_vote_is_an_evaluation_and_a_failure_an_error(tmp_path: Path) -> None:
    with collector() as seen:
        async with observed(tmp_path, seen) as w:
            w.console()
            w.source.abstains = "the judge is away"
            ticket, group = await w.held("rate this")
            await w.commands.rate(group.group_id, "best", (2,))
            await w.reply(ticket)
            await w.closed()
    votes = [log for log in seen.logs if attributes(log)["gen_ai.evaluation.name"] == "human"]
    places = {one.span_id: attributes(one)["ajet.candidate.index"] for one in seen.named("chat")}
    scores = {
        places[vote.span_id]: attributes(vote)["gen_ai.evaluation.score.value"] for vote in votes
    }
    assert max(scores, key=lambda index: scores[index]) == 2
    assert len(scores) == 4
    (score,) = seen.named("ajet.score")
    assert score.status.code == Status.STATUS_CODE_ERROR
    assert attributes(score)["error.type"] == "abstained"


async def test_a_weight_update_is_a_span_whatever_the_share(tmp_path: Path) -> None:
    with collector() as seen:
        async with observed(tmp_path, seen, sample=0.0) as w:
            stats = {"sync_seconds": 2.0, "loss": 0.25}
            w.context.bus.publish(UpdateDone(server="s", step=7, stats=stats, run=1, at=1000.0))
    (update,) = seen.spans
    assert update.name == "ajet.weight_update"
    assert update.end_time_unix_nano - update.start_time_unix_nano == 2_000_000_000
    values = attributes(update)
    assert (values["ajet.server"], values["ajet.step"]) == ("s", 7)
    assert values["ajet.update.loss"] == 0.25
