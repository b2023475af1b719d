"""Spans and events on their way to a collector or a file."""

import asyncio
import random
import sys
import threading
from random import Random
from typing import Any

import pytest

from ajet_swarm.runtime import Chance
from core.bus import Bus
from core.events import (
    AnsweredCandidate,
    AnswerReturned,
    CandidateFailed,
    CandidatesAnswered,
    ClaimedEpisode,
    EpisodeAborted,
    EpisodesClaimed,
    GroupClosed,
    GroupEvent,
    GroupOpened,
    GroupRated,
)
from core.settings import TelemetrySettings
from core.state import Group, Server
from proxy.dialects.client_marks import trace_context_of
from proxy.telemetry import service
from proxy.telemetry.service import Recorder, telemetry
from tests.support.capped_clock import loop_time
from tests.support.otlp import attributes, collector
from tests.support.proxy.until import until

pytestmark = pytest.mark.slow


def requests(bus: Bus, count: int) -> None:
    """Publish the events of a number of requests."""
    for number in range(count):
        name = str(number)
        bus.publish(GroupOpened(group_id=name, request_id="r", task_id="t", n=1, query="", body={}))
        bus.publish(GroupClosed(group_id=name, phase="DONE"))


def send_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("BSP", "BLRP"):
        monkeypatch.setenv(f"OTEL_{kind}_SCHEDULE_DELAY", "10")


def settings(url: str) -> TelemetrySettings:
    return TelemetrySettings(enabled=True, sample=1.0, endpoint=url)


async def test_off_imports_and_listens_to_nothing(bus: Bus) -> None:
    listeners = len(bus._listeners)
    async with telemetry(bus, TelemetrySettings()) as recorder:
        assert recorder is None
        assert len(bus._listeners) == listeners


async def test_a_collector_that_refuses_is_one_alert_until_it_accepts(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send_at_once(monkeypatch)
    with collector() as seen:
        seen.status = 400
        async with telemetry(bus, settings(seen.url)):
            requests(bus, 1)
            await until(lambda: "telemetry" in bus.state.alerts)
            posts = seen.posts
            requests(bus, 3)
            await until(lambda: seen.posts > posts)
            assert (
                len([record for record in caplog.records if "collector" in record.getMessage()])
                == 1
            )
            assert "400" in str(bus.state.alerts["telemetry"].params)
            seen.status = 200
            requests(bus, 1)
            await until(lambda: "telemetry" not in bus.state.alerts)
    assert seen.spans


async def test_a_silent_collector_delays_neither_the_bus_nor_the_end(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_at_once(monkeypatch)
    with collector() as seen:
        seen.gate.clear()
        async with telemetry(bus, settings(seen.url), flush_seconds=0.2) as recorder:
            assert recorder is not None
            requests(bus, 600)
            await until(lambda: seen.posts)
            began = loop_time()
        assert loop_time() - began < 10


async def test_what_a_silent_collector_does_not_take_is_dropped(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    with collector() as seen:
        seen.gate.clear()
        async with telemetry(bus, settings(seen.url), flush_seconds=20.0):
            requests(bus, 60)
            await until(lambda: seen.posts)
            requests(bus, 60)
            seen.gate.set()
    assert 4 < len(seen.spans) <= 16
    assert {attributes(span)["ajet.group.id"] for span in seen.spans} >= {"58", "59"}


async def test_nothing_is_tried_again_after_the_end(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that goes on changes the random state of a script, or of a test that comes next."""
    send_at_once(monkeypatch)
    others = set(threading.enumerate())
    async with telemetry(bus, settings("http://127.0.0.1:9"), flush_seconds=0.1):
        requests(bus, 1)
        await until(lambda: "telemetry" in bus.state.alerts)
    state = random.getstate()
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("Otel"):
            await asyncio.to_thread(thread.join)
    assert random.getstate() == state


async def test_without_the_sdk_the_alert_says_what_to_install(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "proxy.telemetry.export")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    async with telemetry(bus, settings("")) as recorder:
        assert recorder is None
    error = str(bus.state.alerts["telemetry"].params["error"])
    assert "pip install 'ajet-console[otel]'" in error


async def test_a_wrong_endpoint_is_an_alert(bus: Bus) -> None:
    async with telemetry(bus, settings("localhost:4318")) as recorder:
        assert recorder is None
        assert "is not a URL" in str(bus.state.alerts["telemetry"].params["error"])


async def test_the_standard_variable_turns_it_off(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with telemetry(bus, settings("")) as recorder:
        assert recorder is None


async def test_standard_variables_are_respected(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as seen:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", seen.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=seven%20,x-more=1")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        async with telemetry(bus, settings(""), flush_seconds=20.0):
            requests(bus, 1)
        assert seen.resources[0]["service.name"] == "ours"
        assert seen.resources[0]["deployment.environment.name"] == "test"
        assert (seen.headers[0]["x-team"], seen.headers[0]["x-more"]) == ("seven", "1")
        assert seen.headers[0]["content-encoding"] == "gzip"


async def test_no_message_names_the_credentials_of_the_endpoint(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send_at_once(monkeypatch)
    url = "http://ana:S3cret@127.0.0.1:9/base?key=K3y"  # nothing listens on this port
    async with telemetry(bus, settings(url), flush_seconds=0.1):
        requests(bus, 1)
        await until(lambda: "telemetry" in bus.state.alerts)
    error = str(bus.state.alerts["telemetry"].params["error"])
    assert "http://127.0.0.1:9/base/v1/" in error
    for text in (error, caplog.text):
        assert "S3cret" not in text
        assert "K3y" not in text


@pytest.mark.parametrize("limit", ["0", "-1", "1e400", "ten"])
async def test_a_wrong_timeout_is_an_alert(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", limit)
    async with telemetry(bus, settings("http://127.0.0.1:9")) as recorder:
        assert recorder is None
        assert "milliseconds" in str(bus.state.alerts["telemetry"].params["error"])


@pytest.mark.parametrize(
    ("rewards", "labels"),
    [
        ((1.0, 0.0, 0.0), {1: "best", 2: "not_best", 3: "not_best"}),
        ((0.0, 0.0, 0.0), {1: None, 2: None, 3: None}),
    ],
)
async def test_a_vote_belongs_to_the_candidates_that_answered(
    bus: Bus, rewards: tuple[float, ...], labels: dict[int, str | None]
) -> None:
    with collector() as seen:
        async with telemetry(bus, settings(seen.url), flush_seconds=20.0):
            opened = GroupOpened(group_id="g", request_id="r", task_id="t", n=4, query="", body={})
            bus.publish(opened)
            bus.publish(
                EpisodesClaimed(
                    group_id="g",
                    episodes=tuple(ClaimedEpisode(at, f"e{at}") for at in range(4)),
                    expires_at=1.0,
                )
            )
            bus.publish(CandidateFailed(group_id="g", index=0, episode_uuid="e0", cause="broken"))
            answers = tuple(
                AnsweredCandidate(at, {"content": "yes"}, "stop", 0.1) for at in (1, 2, 3)
            )
            bus.publish(CandidatesAnswered(group_id="g", candidates=answers))
            bus.publish(GroupRated(group_id="g", rating="best", rewards=rewards))
            bus.publish(GroupClosed(group_id="g", phase="DONE"))
    places = {one.span_id: attributes(one)["ajet.candidate.index"] for one in seen.named("chat")}
    assert {
        places[log.span_id]: attributes(log).get("gen_ai.evaluation.score.label")
        for log in seen.logs
    } == labels


async def test_calls_have_the_times_and_failures_of_their_events(bus: Bus) -> None:
    def claims(at: float, attempt: int, *indices: int) -> EpisodesClaimed:
        episodes = tuple(ClaimedEpisode(index, f"e{index}", attempt) for index in indices)
        return EpisodesClaimed(group_id="g", at=at, episodes=episodes, expires_at=99.0)

    with collector() as seen:
        async with telemetry(bus, settings(seen.url), flush_seconds=20.0):
            for event in (
                GroupOpened(
                    group_id="g", at=1.0, request_id="r", task_id="t", n=4, query="", body={}
                ),
                claims(2.0, 1, 0, 1, 2),
                CandidateFailed(group_id="g", at=3.0, index=0, episode_uuid="e0", cause="broken"),
                EpisodeAborted(group_id="g", at=4.0, index=0, episode_uuid="e0", reason="failed"),
                EpisodeAborted(group_id="g", at=5.0, index=1, episode_uuid="e1", reason="left"),
                CandidateFailed(
                    group_id="g",
                    at=6.0,
                    index=2,
                    episode_uuid="e2",
                    cause="late",
                    failure="timeout",
                ),
                claims(7.0, 2, 2),
                CandidatesAnswered(
                    group_id="g",
                    at=9.0,
                    candidates=(AnsweredCandidate(2, {"content": "yes"}, "stop", 1.5),),
                ),
                GroupClosed(group_id="g", at=10.0, phase="FAILED", cause_kind="no_answers"),
            ):
                bus.publish(event)
    calls = {}
    for call in seen.named("chat"):
        values = attributes(call)
        calls[values["ajet.candidate.index"]] = (
            call.start_time_unix_nano / 1e9,
            call.end_time_unix_nano / 1e9,
            values.get("error.type"),
            values.get("ajet.candidate.attempt"),
        )
    assert calls == {
        0: (2.0, 3.0, "failed", None),
        1: (2.0, 5.0, "aborted", None),
        2: (7.5, 9.0, None, 2),
    }
    (request,) = seen.named("ajet.request")
    assert attributes(request)["error.type"] == "no_answers"
    assert attributes(request)["ajet.candidates"] == 3


def open_group(bus: Bus, name: str, traceparent: str = "") -> None:
    bus.publish(
        GroupOpened(
            group_id=name, request_id="r", task_id="t", n=1, query="", body={},
            traceparent=traceparent,
        )
    )  # fmt: skip


class Kept:
    """The groups that a recorder hands over, each with the kinds of its events."""

    def __init__(self) -> None:
        self.groups: dict[str, list[str]] = {}

    def write_group(self, group: Group, events: list[GroupEvent], server: Server | None) -> None:
        self.groups[group.group_id] = [type(event).__name__ for event in events]


def listen(bus: Bus, share: float) -> Kept:
    kept: Any = Kept()
    Recorder(bus, share, Chance(Random(1)), kept)
    return kept  # type: ignore[no-any-return]  # stands in for the writer


def close_group(bus: Bus, name: str) -> None:
    bus.publish(AnswerReturned(group_id=name, index=0, why="winner", waited=0.1))
    bus.publish(GroupClosed(group_id=name, phase="DONE"))


def test_a_share_of_the_requests_is_kept(bus: Bus) -> None:
    kept = listen(bus, 0.25)
    for number in range(200):
        open_group(bus, str(number))
        close_group(bus, str(number))
    assert 30 < len(kept.groups) < 70


@pytest.mark.parametrize(("flags", "share", "sampled"), [("01", 0.0, 1), ("00", 1.0, 0)])
def test_a_client_decides_on_its_own_trace(
    bus: Bus, flags: str, share: float, sampled: int
) -> None:
    kept = listen(bus, share)
    open_group(bus, "a", f"00-{'a' * 32}-{'b' * 16}-{flags}")
    close_group(bus, "a")
    assert len(kept.groups) == sampled


def test_records_of_open_groups_are_bounded(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_OPEN", 2)
    kept = listen(bus, 1.0)
    for name in "abc":
        open_group(bus, name)
    for name in "ca":
        close_group(bus, name)
    assert kept.groups == {"a": ["GroupOpened", "AnswerReturned", "GroupClosed"]}
    open_group(bus, "d")
    close_group(bus, "d")
    assert "d" in kept.groups


@pytest.mark.parametrize(
    ("parent", "valid"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", True),
        (f"01-{'a' * 32}-{'b' * 16}-01-more", True),
        (f"ff-{'a' * 32}-{'b' * 16}-01", False),
        (f"00-{'0' * 32}-{'b' * 16}-01", False),
        (f"00-{'a' * 32}-{'0' * 16}-01", False),
        (f"00-{'A' * 32}-{'b' * 16}-01", False),
        (f"00-{'a' * 32}-{'b' * 16}-01x", False),
        ("\x1b[31m", False),
    ],
)
def test_only_a_valid_trace_context_is_kept(parent: str, valid: bool) -> None:
    headers = {"traceparent": parent, "tracestate": "a=1"}
    kept, state = trace_context_of(headers)
    assert (bool(kept), bool(state)) == (valid, valid)
    assert len(kept) in (0, 55)


def test_a_tracestate_that_is_too_long_or_hostile_is_left_out() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    for state in ("a=" + "x" * 600, "a=\x1b[31m", "a=\n"):
        assert trace_context_of({"traceparent": parent, "tracestate": state}) == (parent, "")
