"""Answers that did not get through: kept for a while, bounded, given to whom they are owed."""

from typing import Any

import msgspec
import pytest

from ajet_swarm.api.chat import answer_of
from proxy.admission.replay_cache import ReplayCache, is_retry
from proxy.groups.answer import AnswerWaiter, FinalAnswer

RETRY = {"x-stainless-retry-count": "1"}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


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


async def test_a_delivered_answer_is_not_replayed(ticket: AnswerWaiter) -> None:
    replay = ReplayCache(30.0, Clock())
    replay.remember("k", "g1", reply(), (ticket,))
    assert replay.find("k", {}) is not None
    ticket.confirm_delivery()
    ticket.confirm_delivery()
    assert replay.find("k", {}) is None
    assert replay.find("k", RETRY) is not None  # its header marks it as a retry
    assert replay.find("other", RETRY) is None


async def test_the_retry_gets_the_same_answer_and_then_it_is_delivered(
    ticket: AnswerWaiter,
) -> None:
    replay = ReplayCache(30.0, Clock())
    value = reply()
    replay.remember("k", "g1", value, (ticket,))
    result = replay.find("k", {})
    assert result is not None
    again = replay.waiter(result, stream=True)
    assert again.group_id == "g1"
    assert await again.next(1.0) == value
    assert replay.find("k", {}) is not None  # broke off again
    again.confirm_delivery()
    again.leave()
    assert replay.find("k", {}) is None


async def test_an_answer_is_replayed_until_each_listener_has_it(ticket: AnswerWaiter) -> None:
    replay = ReplayCache(30.0, Clock())
    other = AnswerWaiter(Run(), False, 10.0)
    replay.remember("k", "g1", reply(), (ticket, other))
    other.confirm_delivery()
    assert replay.find("k", {}) is not None
    ticket.confirm_delivery()
    assert replay.find("k", {}) is None


async def test_a_client_that_left_before_the_answer_gets_it_on_retry() -> None:
    replay = ReplayCache(30.0, Clock())
    replay.remember("k", "g1", reply(), ())
    assert replay.find("k", {}) is not None


def test_answers_expire_after_the_window() -> None:
    clock = Clock()
    replay = ReplayCache(30.0, clock)
    replay.remember("k", "g1", reply(), ())
    clock.now += 29.0
    assert replay.find("k", {}) is not None
    clock.now += 2.0
    assert replay.find("k", RETRY) is None
    assert (len(replay), replay.size) == (0, 0)


def test_nothing_is_cached_when_off_or_without_an_answer() -> None:
    off = ReplayCache(0.0, Clock())
    off.remember("k", "g1", reply(), ())
    assert off.find("k", RETRY) is None
    replay = ReplayCache(30.0, Clock())
    replay.remember("k", "g1", FinalAnswer(None, (), "error"), ())
    assert replay.find("k", RETRY) is None


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
    assert result is not None
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
