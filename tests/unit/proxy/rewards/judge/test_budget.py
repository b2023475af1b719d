"""The cost of a judge: counted, published at most once a second, limited, never paid twice."""

import logging
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.events import JudgeSpent, ProxyStarted, decode, encode
from core.state import State, reduce
from proxy.rewards.judge import question
from proxy.rewards.judge.question import Cache
from tests.support.proxy.until import until
from tests.support.scripted.judge import ScriptedJudge, bench
from tests.unit.proxy.rewards.conftest import group


async def test_calls_tokens_and_cost_are_counted(judge: ScriptedJudge) -> None:
    async with bench(judge.url, mode="pointwise", price_in=2.0, price_out=10.0) as one:
        await one.score(group("a", "b", "c"))
        spent = one.spent
    assert (spent.judge, spent.model, spent.mode) == ("helpful", "judge-1", "pointwise")
    assert (spent.calls, spent.groups, spent.failures) == (3, 1, 0)
    assert (spent.prompt_tokens, spent.completion_tokens, spent.untold) == (300, 30, 0)
    assert spent.cost == pytest.approx(3 * (100 * 2.0 + 10 * 10.0) / 1e6)
    assert spent.priced
    assert spent.seconds > 0


@pytest.mark.parametrize(
    "usage",
    [
        False,
        {"prompt_tokens": -1, "completion_tokens": 2},
        {"prompt_tokens": "many"},
        {"prompt_tokens": 1e308, "completion_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        [],
        "free",
    ],
)
async def test_unreported_tokens_are_counted_as_unknown(usage: Any, judge: ScriptedJudge) -> None:
    judge.usage = usage
    async with bench(judge.url, price_in=2.0) as one:
        assert await one.values(group("a q=1")) == [0.1]
        assert (one.spent.untold, one.spent.prompt_tokens, one.spent.cost) == (1, 0, 0.0)


async def test_the_spend_limit_stops_further_calls(judge: ScriptedJudge) -> None:
    async with bench(judge.url, price_in=1000.0, spend_limit=0.15) as one:
        await one.score(group("a"))
        await one.score(group("b"))
        assert one.part.health().ok
        assert "has spent 0.20 of the 0.15" in await one.cause(group("c"))
        assert "spend_limit" in str(one.part.health().error)
        assert "0.20" in one.spent.trouble
    assert len(judge.calls) == 2


async def test_a_repeated_question_is_answered_from_the_cache(
    judge: ScriptedJudge, tmp_path: Path
) -> None:
    context = group("a q=1", "b q=9")
    async with bench(judge.url, tmp_path) as one:
        first = await one.score(context)
        assert await one.score(context) == first
        assert (one.spent.calls, one.spent.hits) == (1, 1)
    async with bench(judge.url, tmp_path) as one:  # and after a restart
        assert await one.score(context) == first
        assert (one.spent.calls, one.spent.hits) == (0, 1)
    assert len(judge.calls) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "pairwise"},
        {"mode": "pointwise"},
        {"low": -1},
        {"high": 20},
        {"temperature": 0.5},
        {"max_tokens": 99},
        {"extra": {"seed": 1}},
        {"model": "judge-2"},
        {"reference": True},
        {"rubric": "rubric.md"},
        {"answer_chars": 100},
    ],
    ids=str,
)
async def test_any_setting_that_affects_the_verdict_misses_the_cache(
    change: dict[str, Any], judge: ScriptedJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge.models = ["judge-1", "judge-2"]
    monkeypatch.chdir(tmp_path)
    Path("rubric.md").write_text("Be kind.")
    context = group("a q=1 " + "x" * 200, "b q=9", reference="r")
    async with bench(judge.url, tmp_path) as one:
        await one.score(context)
    before = len(judge.calls)
    async with bench(judge.url, tmp_path, **change) as one:
        await one.score(context)
        assert one.spent.hits == 0
    assert len(judge.calls) > before


@pytest.mark.parametrize("change", ["query", "answers", "group_id"])
async def test_another_group_misses_the_cache(
    change: str, judge: ScriptedJudge, tmp_path: Path
) -> None:
    context = group("a q=1", "b q=9", "c q=3", "d q=4")
    other = {
        "query": group("a q=1", "b q=9", "c q=3", "d q=4", query="Another?"),
        "answers": group("a q=1", "b q=9", "c q=3", "e q=4"),
        "group_id": msgspec.structs.replace(context, group_id="another"),  # another order
    }[change]
    async with bench(judge.url, tmp_path) as one:
        await one.score(context)
        await one.score(other)
    assert len(judge.calls) == 2


async def test_failures_are_not_cached(judge: ScriptedJudge, tmp_path: Path) -> None:
    judge.script = ["prose", "prose"]
    async with bench(judge.url, tmp_path) as one:
        await one.cause(group("a q=1"))
        assert await one.values(group("a q=1")) == [0.1]


async def test_a_cache_can_be_off(judge: ScriptedJudge, tmp_path: Path) -> None:
    async with bench(judge.url, tmp_path, cache=False) as one:
        await one.score(group("a"))
        await one.score(group("a"))
    assert len(judge.calls) == 2
    assert not list(tmp_path.iterdir())


async def test_a_broken_cache_only_causes_more_calls(judge: ScriptedJudge, tmp_path: Path) -> None:
    file = tmp_path / "judge.db"
    file.write_bytes(b"not a database " * 100)
    async with bench(judge.url, tmp_path) as one:  # made again
        await one.score(group("a q=1"))
        assert await one.values(group("a q=1")) == [0.1]
        assert one.spent.hits == 1
    db = sqlite3.connect(file)
    db.execute("update verdicts set value = ?", (b'{"of": "another version"}',))
    db.commit()
    db.close()
    async with bench(judge.url, tmp_path) as one:
        assert await one.values(group("a q=1")) == [0.1]
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder must be")
    async with bench(judge.url, blocked) as one:
        assert await one.values(group("a q=1")) == [0.1]


@pytest.mark.slow
async def test_a_cache_stays_bounded_and_private(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "judge.db", rows=3)
    for number in range(1, 1003):
        await cache.put(number.to_bytes(2, "big"), b"[]")
    assert await cache.get((1).to_bytes(2, "big")) is None
    assert await cache.get((1001).to_bytes(2, "big")) == b"[]"
    assert stat.S_IMODE(os.stat(tmp_path / "judge.db").st_mode) == 0o600
    await cache.close()
    assert await cache.get((1001).to_bytes(2, "big")) is None


async def test_the_cache_holds_no_prompt(judge: ScriptedJudge, tmp_path: Path) -> None:
    async with bench(judge.url, tmp_path) as one:
        await one.score(group("UNIQUE-ANSWER q=1", query="UNIQUE-QUERY"))
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"because 1" in stored
    assert b"UNIQUE" not in stored


async def test_counts_are_published_at_most_once_a_second(
    judge: ScriptedJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "EVERY", 3600.0)
    async with bench(judge.url, mode="pointwise") as one:
        for number in range(3):
            await one.score(group(*(f"{number} {other}" for other in range(8))))
        assert len(one.events) <= 1
    assert one.events[-1].calls == 24  # closing reports the rest


async def test_the_last_counts_come_by_themselves(
    judge: ScriptedJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "EVERY", 0.01)
    async with bench(judge.url, mode="pointwise") as one:
        await one.score(group("a", "b"))
        await until(lambda: getattr(one.events[-1], "calls", 0) == 2)


async def test_a_rebuilt_judge_continues_its_counts(judge: ScriptedJudge) -> None:
    kept: dict[str, Any] = {"another part": 0}
    for calls in (1, 2):
        async with bench(judge.url, kept=kept) as one:
            await one.score(group("a"))
            assert one.spent.calls == calls
    async with bench(judge.url) as one:  # another run of the proxy
        assert one.spent.calls == 0


def test_state_has_the_counts_of_the_run() -> None:
    state = State()
    for calls in (3, 5):
        event = JudgeSpent(
            judge="helpful", calls=calls, prompt_tokens=10 * calls, cost=0.5 * calls, at=9.0
        )
        assert reduce(state, decode(encode(event))) == {"judges", "rewards"}
    assert state.judges["helpful"].calls == 5
    assert state.judges["helpful"].at == 9.0
    assert (state.judges["helpful"].tokens, state.judges["helpful"].cost) == (50, 2.5)
    started = ProxyStarted(client_uuid="c", pid=1, url="", version="", servers={}, rewards="")
    assert "judges" in reduce(state, started)
    assert state.judges == {}
    reduce(state, JudgeSpent(judge="helpful", calls=2))
    assert state.judges["helpful"].calls == 2
    old = msgspec.json.decode(msgspec.json.encode(State()), type=dict[str, Any])
    del old["judges"]
    assert msgspec.convert(old, State).judges == {}


@pytest.mark.parametrize("step", [400, 401, 429, 500])
async def test_the_key_appears_nowhere(
    step: int,
    judge: ScriptedJudge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(question, "BACKOFF", 0.001)
    key = judge.key = "plainlooking9471"
    monkeypatch.setenv("JUDGE_KEY", key)
    judge.forever, judge.secret_in_errors = step, True
    async with bench(
        judge.url, tmp_path, start=True, key_env="JUDGE_KEY", retries=1, breaker_after=1
    ) as one:
        cause = await one.cause(group("a", "b"))
        assert "scripted failure" in cause
        result = [cause, str(one.part.health()), str(one.events)]
    judge.forever = lambda request: f'{{"scores": [{{"index": 1, "reason": "{key}", "score": 1}}]}}'
    async with bench(judge.url, tmp_path, key_env="JUDGE_KEY") as one:
        result.append(str(await one.score(group("echo"))))
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert key not in " ".join((*result, caplog.text))
    assert key.encode() not in stored
