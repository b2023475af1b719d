"""All failures of a judge: the group abstains with the cause, and no value is made up."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ajet_swarm.common.tasks import Tasks
from proxy.rewards.judge import question
from proxy.rewards.source import SourceHealth
from tests.support.capped_clock import loop_time
from tests.support.scripted.judge import (
    MISHAPS,
    ODD_BODIES,
    THOUGHTS,
    ScriptedJudge,
    bench,
    scores_of,
)
from tests.unit.proxy.rewards.conftest import group


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    async with Tasks("test") as value:
        yield value


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question, "BACKOFF", 0.001)


@pytest.mark.parametrize("mishap", sorted(MISHAPS))
async def test_a_bad_reply_is_repaired_once(mishap: str, judge: ScriptedJudge) -> None:
    judge.script = [mishap]
    async with bench(judge.url) as one:
        assert await one.values(group("a q=2", "b q=8", "c q=4")) == [0.2, 0.8, 0.4]
        assert (one.spent.calls, one.spent.repairs, one.spent.failures) == (2, 1, 0)
    assert [request.repair for request in judge.requests] == [False, True]
    calls = judge.calls[1]["messages"][-1]["content"]
    assert calls.startswith("Your reply cannot be used: ")


@pytest.mark.parametrize("around", sorted(THOUGHTS))
async def test_a_judge_that_thinks_is_asked_once(around: str, judge: ScriptedJudge) -> None:
    judge.forever = lambda request: THOUGHTS[around](scores_of(request.qualities))
    async with bench(judge.url) as one:
        assert await one.values(group("a q=2", "b q=8")) == [0.2, 0.8]
        assert (one.spent.calls, one.spent.repairs, one.spent.failures) == (1, 0, 0)


@pytest.mark.parametrize(
    ("mode", "mishap"),
    [
        *(("listwise", mishap) for mishap in sorted(MISHAPS)),
        *itertools.product(("pointwise", "pairwise"), ("prose", "nan", "huge", "half")),
    ],
)
async def test_a_bad_reply_twice_abstains(mode: str, mishap: str, judge: ScriptedJudge) -> None:
    judge.forever = mishap
    async with bench(judge.url, mode=mode) as one:
        cause = await one.cause(group("a q=2", "b q=8"))
        assert "could not be used" in cause
        assert "asked again" in cause
        assert (one.spent.groups, one.spent.failures) == (1, 1)
    if mode == "listwise":
        assert len(judge.calls) == 2  # one repair, never more


@pytest.mark.parametrize(
    ("mishap", "words"),
    [
        ("prose", "not one JSON object"),
        ("few", "1 scores for 2 answers, none for index 2"),
        ("many", "no answer with index 3"),
        ("zero-based", "no answer with index 0"),
        ("twice", "index 1 came twice"),
        ("nan", "malformed"),
        ("huge", "1e+308 is not between 0 and 10"),
        ("over", "out of range"),
        ("eleven", "11 is not between 0 and 10"),
        ("words", "Expected `float`, got `str`"),
        ("half", "cut off at the limit of tokens"),
        ("html text", "not one JSON object"),
        ("empty", "it is empty"),
    ],
)
async def test_the_abstention_names_the_fault_of_the_reply(
    mishap: str, words: str, judge: ScriptedJudge
) -> None:
    judge.forever = mishap
    async with bench(judge.url) as one:
        assert words in await one.cause(group("a", "b"))


@pytest.mark.parametrize("step", [429, 500, 502, 503, 529, 408, "drop", *sorted(ODD_BODIES)])
async def test_temporary_failures_are_retried(step: Any, judge: ScriptedJudge) -> None:
    judge.script = [step, step]
    async with bench(judge.url, retries=2) as one:
        if step == "flood":
            assert "larger than 2 MiB" in await one.cause(group("a", "b"))
            return
        assert await one.values(group("a q=1", "b q=2")) == [0.1, 0.2]
        assert (one.spent.calls, one.spent.retries) == (3, 2)


@pytest.mark.parametrize("step", [429, 500, "drop", "html"])
async def test_the_retries_of_a_group_are_bounded(step: Any, judge: ScriptedJudge) -> None:
    judge.forever = step
    async with bench(judge.url, retries=2, mode="pointwise", breaker_after=99) as one:
        cause = await one.cause(group("a", "b", "c", "d"))
    assert cause.startswith("the judge failed: ")
    assert "2 retries of the group are used up" in cause
    assert len(judge.calls) <= 4 + 2  # four questions and two retries for all of them


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_permanent_failures_are_not_retried(status: int, judge: ScriptedJudge) -> None:
    judge.forever = status
    async with bench(judge.url) as one:
        assert f"{status}" in await one.cause(group("a", "b"))
    assert len(judge.calls) == 1


async def test_a_fault_of_one_request_does_not_stop_other_groups(judge: ScriptedJudge) -> None:
    judge.script = [400, 413, 422, 400]
    async with bench(judge.url, breaker_after=2) as one:
        for number in range(4):
            assert "scripted failure" in await one.cause(group("too long", str(number)))
        assert await one.values(group("a q=1")) == [0.1]


async def test_a_hang_ends_at_the_timeout(judge: ScriptedJudge) -> None:
    judge.script = ["hang"]
    async with bench(judge.url, timeout=0.15) as one:
        assert await one.values(group("a q=1", "b q=2")) == [0.1, 0.2]
    judge.forever = "hang"
    async with bench(judge.url, timeout=0.05, retries=1) as one:
        assert "no answer within 0.05 s" in await one.cause(group("a", "b"))
    await judge.until(0)


async def test_the_time_of_a_group_is_limited(judge: ScriptedJudge) -> None:
    judge.forever = "hang"
    async with bench(judge.url, group_seconds=0.2) as one:
        began = loop_time()
        assert "not done within 0.2 s" in await one.cause(group("a", "b"))
        assert loop_time() - began < 2
    async with bench(judge.url, seconds=0.2) as one:  # the time limit of the rewards is shorter
        assert "not done within 0.2 s" in await one.cause(group("a", "b"))


async def test_a_requested_wait_is_respected_or_the_judge_abstains(judge: ScriptedJudge) -> None:
    judge.script, judge.retry_after = [429], "0.3"
    async with bench(judge.url) as one:
        began = time.monotonic()
        await one.score(group("a", "b"))
        assert time.monotonic() - began >= 0.3
        judge.script, judge.retry_after = [429], "3600"
        assert "no time to ask again in 3600" in await one.cause(group("a", "c"))


async def test_one_failed_answer_makes_the_whole_group_abstain(judge: ScriptedJudge) -> None:
    judge.forever = lambda request: (
        "prose" if request.answers[0]["text"] == "c" else MISHAPS["few"](request)
    )
    async with bench(judge.url, mode="pointwise") as one:
        assert "could not be used" in await one.cause(group("a", "b", "c"))


async def test_an_unreachable_endpoint_abstains() -> None:
    async with ScriptedJudge() as closed_judge:
        url = closed_judge.url
    async with bench(url, model="m", retries=1) as one:
        assert f"no answer from {url}" in await one.cause(group("a", "b"))
    async with bench(url) as one:  # not even the model's name can be learnt
        assert "cannot be used" in await one.cause(group("a", "b"))


async def test_calls_in_flight_are_limited(judge: ScriptedJudge, tasks: Tasks) -> None:
    judge.gate = asyncio.Event()
    async with bench(judge.url, mode="pointwise", concurrency=3) as one:
        scoring = tasks.spawn(one.score(group(*(f"answer {n}" for n in range(9)))), "score")
        await judge.until(3)
        judge.gate.set()
        await scoring
    assert judge.most == 3
    assert len(judge.calls) == 9


async def test_the_breaker_suspends_calls_and_tries_again_later(judge: ScriptedJudge) -> None:
    judge.forever = 500
    healths: list[SourceHealth] = []
    async with bench(
        judge.url, model="judge-1", retries=0, breaker_after=3, breaker_seconds=0.2
    ) as one:
        one.part.add_listener(healths.append)
        for number in range(3):
            assert "500" in await one.cause(group("a", f"b{number}"))
        opened = len(judge.calls)
        cause = await one.cause(group("a", "b"))
        assert "failed 3 times in a row" in cause
        assert len(judge.calls) == opened == 3  # not asked
        assert one.spent.trouble
        assert not one.part.health().ok
        assert one.part.health().version  # it passes, and the cache serves meanwhile
        await asyncio.sleep(0.25)
        assert "500" in await one.cause(group("a", "b"))  # one call is sent, and fails
        assert len(judge.calls) == 4
        assert "in a row" in await one.cause(group("a", "b"))
        await asyncio.sleep(0.25)
        judge.forever = None
        assert await one.values(group("a q=1", "b q=2")) == [0.1, 0.2]
        assert one.part.health().ok
        assert one.part.health().version
        assert one.spent.trouble == ""
        judge.forever = 500
        assert "500" in await one.cause(group("a", "c"))  # the first failure in a row again
        assert one.spent.trouble == ""
    assert [ok for ok, _ in itertools.groupby(health.ok for health in healths)] == [False, True]


async def test_the_breaker_reports_the_newest_cause(judge: ScriptedJudge) -> None:
    judge.forever = 500
    async with bench(judge.url, retries=0, breaker_after=1, breaker_seconds=0.05) as one:
        await one.cause(group("a"))
        assert "500" in one.spent.trouble
        judge.forever = 401
        await asyncio.sleep(0.1)
        await one.cause(group("b"))
        assert "2 times in a row" in one.spent.trouble
        assert "401" in one.spent.trouble
        assert "401" in str(one.part.health().error)


async def test_a_half_open_breaker_lets_one_question_try_for_all(
    judge: ScriptedJudge, tasks: Tasks
) -> None:
    judge.forever = 500
    async with bench(
        judge.url, mode="pointwise", retries=0, breaker_after=1, breaker_seconds=0.05
    ) as one:
        await one.cause(group("a"))
        await asyncio.sleep(0.1)
        judge.forever, judge.gate = None, asyncio.Event()
        before = len(judge.calls)
        scoring = tasks.spawn(one.score(group("a", "b", "c", "d")), "score")
        await judge.until(1)
        await asyncio.sleep(0.05)
        assert judge.running == 1
        judge.gate.set()
        assert len(await scoring) == 4
    assert len(judge.calls) == before + 4


async def test_a_cancelled_probe_question_lets_the_next_one_probe(
    judge: ScriptedJudge, tasks: Tasks
) -> None:
    judge.script = [500, "hang"]
    async with bench(judge.url, retries=0, breaker_after=1, breaker_seconds=0.05) as one:
        await one.cause(group("a"))
        await asyncio.sleep(0.1)
        scoring = tasks.spawn(one.score(group("b")), "score")
        await judge.until(1)
        scoring.cancel()
        await asyncio.wait([scoring])
        assert (one.spent.groups, one.spent.failures) == (1, 1)  # a cancelled group is no failure
        assert await one.values(group("c q=4")) == [0.4]


async def test_unusable_replies_open_the_breaker_too(judge: ScriptedJudge) -> None:
    judge.forever = "prose"
    async with bench(judge.url, breaker_after=2) as one:
        await one.cause(group("a"))
        await one.cause(group("b"))
        assert "in a row" in await one.cause(group("c"))
    assert len(judge.calls) == 4


async def test_closing_releases_all_connections(judge: ScriptedJudge, tasks: Tasks) -> None:
    judge.forever = "hang"
    async with bench(judge.url, start=True) as one:
        scoring = tasks.spawn(one.score(group("a", "b")), "score")
        await judge.until(1)
        scoring.cancel()
        await asyncio.wait([scoring])
        await judge.until(0)
    assert scoring.cancelled()
