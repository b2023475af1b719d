"""Marks of sessions as clients send them, caps, and answers that are kept for a retry."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ajet_swarm.api.chat import answer_of
from proxy.admission.replay_cache import ReplayCache, is_retry
from proxy.admission.sessions import LimitExceeded, RequestLimits
from proxy.dialects.client_marks import sender_of, session_of, trace_context_of
from proxy.groups.answer import AnswerWaiter, FinalAnswer

UUID = "0199c5f2-7d51-7c62-a1c8-6b7f6c1f3f0a"


@pytest.mark.parametrize(
    ("headers", "body", "wanted"),
    [
        ({}, {}, ""),
        # opencode: the same for its title call
        ({"x-session-id": "ses_5f1", "x-session-affinity": "ses_5f1"}, {}, "ses_5f1"),
        ({"x-session-affinity": "ses_5f1"}, {}, "ses_5f1"),
        # Codex
        (
            {"session-id": UUID, "thread-id": "t-1", "x-client-request-id": "r"},
            {"prompt_cache_key": UUID, "client_metadata": {"x-codex-installation-id": "i"}},
            UUID,
        ),
        ({}, {"prompt_cache_key": UUID}, UUID),
        ({}, {"client_metadata": {"thread_id": "t-9"}}, "t-9"),
        ({"thread-id": "t-1"}, {}, "t-1"),
        # opencode on the Responses API
        ({}, {"prompt_cache_key": "ses_5f1abcdef"}, "ses_5f1abcdef"),
        # Claude Code
        ({"x-claude-code-session-id": "cc-1"}, {"metadata": {"user_id": "x"}}, "cc-1"),
        ({}, {"metadata": {"user_id": f"user_a1_account__session_{UUID}"}}, UUID),
        ({}, {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": UUID})}}, UUID),
        # vLLM's own field; a header precedes it; the address precedes all
        ({}, {"session_id": "s-1"}, "s-1"),
        ({"x-session-id": "h"}, {"session_id": "b"}, "h"),
        ({"x-ajet-session": "url", "x-session-id": "h"}, {"session_id": "b"}, "url"),
        ({"x-openwebui-chat-id": "chat-7"}, {}, "chat-7"),
        # one key for each session
        ({"authorization": "Bearer sk-ajet-session-lab-3"}, {}, "lab-3"),
        ({"authorization": "bearer  sk-ajet-session-lab-3 "}, {}, "lab-3"),
        ({"x-api-key": "sk-ajet-session-lab-4"}, {}, "lab-4"),
        # no sessions
        ({"authorization": "Bearer sk-1234"}, {}, ""),
        ({"authorization": "Basic sk-ajet-session-x"}, {}, ""),
        ({}, {"prompt_cache_key": "customer-support-v2-prompt"}, ""),
        ({}, {"user": "u-1"}, ""),
        ({}, {"metadata": {"user_id": "user_a1"}}, ""),
        ({}, {"metadata": {"user_id": "{broken"}}, ""),
        ({}, {"metadata": {"user_id": "[1]"}}, ""),
        ({}, {"metadata": "text", "client_metadata": 7, "session_id": 4}, ""),
        ({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, {}, ""),
    ],
)
def test_sessions_are_read_from_headers_body_and_key(
    headers: dict[str, str], body: dict[str, Any], wanted: str
) -> None:
    assert session_of(headers, body) == wanted


def test_a_session_name_is_short_and_printable() -> None:
    assert session_of({"x-session-id": "a\x1b[31m b\nc\u202ed"}, {}) == "a[31mbcd"
    assert len(session_of({"x-session-id": "x" * 5000}, {})) == 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=8,
)


NAMES = ("session_id", "metadata", "client_metadata", "prompt_cache_key", "user_id")


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(NAMES), json_values))
def test_any_body_can_be_searched_for_a_session(body: dict[str, Any]) -> None:
    result = session_of({}, body)
    assert len(result) <= 200
    assert result.isprintable()


def test_traces_and_senders_are_read_from_headers() -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    parent = f"00-{trace}-00f067aa0ba902b7-01"
    assert trace_context_of({"traceparent": parent})[0][3:35] == trace
    assert trace_context_of({"traceparent": "nonsense"}) == ("", "")
    assert trace_context_of({}) == ("", "")
    assert sender_of({"authorization": "Bearer a", "x-api-key": "b"}) == "Bearer a"
    assert sender_of({"x-api-key": "b"}) == "b"
    assert sender_of({}) == ""


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_open_requests_of_a_session_are_limited() -> None:
    sessions = RequestLimits(2, 0, Clock())
    assert [sessions.open("a"), sessions.open("a"), sessions.open("b")] == [1, 2, 1]
    with pytest.raises(LimitExceeded) as over:
        sessions.open("a")
    assert over.value.retry_after >= 1
    assert "2 open requests" in str(over.value)
    sessions.close("a")
    assert sessions.open("a") == 3


def test_requests_per_minute_of_a_session_are_limited() -> None:
    clock = Clock()
    sessions = RequestLimits(0, 3, clock)
    for _ in range(3):
        sessions.open("a")
        sessions.close("a")
        clock.now += 10
    with pytest.raises(LimitExceeded) as over:
        sessions.open("a")
    assert over.value.retry_after == 31  # the first of them was 30 s ago
    clock.now += over.value.retry_after
    sessions.open("a")
    with pytest.raises(LimitExceeded):
        sessions.open("a")
    clock.now += 600
    assert sessions.open("a") == 5


def test_zero_means_no_limit() -> None:
    sessions = RequestLimits(0, 0, Clock())
    assert [sessions.open("a") for _ in range(500)][-1] == 500


def test_helper_calls_count_as_requests_but_not_as_turns() -> None:
    sessions = RequestLimits(0, 3, Clock())
    assert sessions.open("a", helper=True) == 0
    assert not sessions.has_tools("a")
    assert sessions.open("a", tools=True) == 1
    assert sessions.open("a") == 2
    assert sessions.has_tools("a")
    assert not sessions.has_tools("b")
    with pytest.raises(LimitExceeded):
        sessions.open("a", helper=True)


def test_idle_sessions_are_forgotten_open_ones_are_not() -> None:
    sessions = RequestLimits(1, 0, Clock(), max_names=10)
    sessions.open("busy")
    for number in range(50):
        sessions.open(f"s{number}")
        sessions.close(f"s{number}")
    assert len(sessions) == 10
    with pytest.raises(LimitExceeded):
        sessions.open("busy")
    sessions.close("nobody")


RETRY = {"x-stainless-retry-count": "1"}


def reply(text: str = "hello", size: int = 100) -> FinalAnswer:
    parsed: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    body = msgspec.json.encode(parsed)
    return FinalAnswer(0, (answer_of(200, body + b" " * (size - len(body)), parsed),), "winner")


class Run:
    group_id = "g1"
    pieces: tuple[Any, ...] = ()

    def spend_budget(self, ticket: AnswerWaiter) -> float:
        return ticket.limit

    def left(self, ticket: AnswerWaiter) -> None: ...


@pytest.fixture
async def ticket() -> AnswerWaiter:
    return AnswerWaiter(Run(), True, 10.0)


async def test_an_answer_is_replayed_until_each_listener_has_it(ticket: AnswerWaiter) -> None:
    replay = ReplayCache(30.0, Clock())
    other = AnswerWaiter(Run(), False, 10.0)
    replay.remember("k", "g1", reply(), (ticket, other))
    other.confirm_delivery()
    assert replay.find("k", {}) is not None
    ticket.confirm_delivery()
    assert replay.find("k", {}) is None


def test_answers_expire_after_the_window() -> None:
    clock = Clock()
    replay = ReplayCache(30.0, clock)
    replay.remember("k", "g1", reply(), ())
    clock.now += 29.0
    assert replay.find("k", {}) is not None
    clock.now += 2.0
    assert replay.find("k", RETRY) is None
    assert (len(replay), replay.size) == (0, 0)


def test_the_cache_is_bounded_in_number_and_bytes() -> None:
    replay = ReplayCache(30.0, Clock(), max_entries=10, max_bytes=1000)
    for number in range(50):
        replay.remember(f"k{number}", "g", reply(size=90), ())
    assert (len(replay), replay.size) == (10, 900)
    replay.remember("big", "g", reply(size=800), ())
    assert replay.find("big", {}) is not None
    assert replay.size <= 1000
    replay.remember("too big", "g", reply(size=1001), ())
    assert replay.find("too big", {}) is None
    replay.forget("big")
    replay.forget("big")
    assert replay.size == 90 * len(replay)


def test_a_newer_answer_replaces_the_older_one() -> None:
    replay = ReplayCache(30.0, Clock())
    replay.remember("k", "g1", reply(), ())
    replay.remember("k", "g2", reply(), ())
    result = replay.find("k", {})
    assert result.group_id == "g2"
    assert (len(replay), replay.size) == (1, 100)


@pytest.mark.parametrize(
    ("result", "wanted"), [("1", True), ("12", True), ("0", False), ("", False), ("x", False)]
)
def test_retry_headers_are_recognized(result: str, wanted: bool) -> None:
    assert is_retry({"x-stainless-retry-count": result}) is wanted
    assert not is_retry({})


@pytest.mark.parametrize(
    ("mode", "delivered", "replayed"),
    [("marked", False, False), ("owed", False, True), ("always", True, True)],
)
async def test_the_setting_determines_which_requests_get_a_replay(
    ticket: AnswerWaiter, mode: str, delivered: bool, replayed: bool
) -> None:
    replay = ReplayCache(30.0, Clock(), mode=mode)
    replay.remember("k", "g1", reply(), (ticket,))
    assert (replay.find("k", {}) is not None) == replayed
    ticket.confirm_delivery()
    assert (replay.find("k", {}) is not None) == delivered
    assert replay.find("k", RETRY) is not None


async def test_a_session_gets_a_replay_only_immediately(ticket: AnswerWaiter) -> None:
    clock = Clock()
    replay = ReplayCache(30.0, clock)
    replay.remember("k", "g1", reply(), (ticket,))
    ticket.confirm_delivery()
    mark = {"x-session-id": "ses_1"}
    assert replay.find("k", mark) is not None
    assert replay.find("k", {}, {"metadata": {"session_id": "ses_1"}}) is not None
    assert replay.find("k", {**mark, "x-ajet-join": "no"}) is None
    clock.now += 3.1
    assert replay.find("k", mark) is None
