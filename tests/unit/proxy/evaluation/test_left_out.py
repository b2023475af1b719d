"""What a look leaves out: prompts that are too long, parts that do not score one answer."""

from pathlib import Path
from typing import Any

import pytest

from proxy.rewards.model.source import ComposedSource
from tests.support.proxy.measured import PROMPTS, SAMPLES, Policy, ended, measured
from tests.support.scripted.judge import ScriptedJudge

TOO_LONG = {
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "AgentJet: Exceeded max model context length. Skipped.",
            },
            "finish_reason": "length",
        }
    ]
}
JUDGED = """parts:
  right: {{kind: exact, weight: 0.5}}
  helpful:
    {{kind: judge, weight: 0.5, url: "{url}", model: judge-1, mode: {mode}, cache: false,
     retries: 0}}
"""


class WindowedPolicy(Policy):
    """A policy whose server refuses prompts of some numbers as too long."""

    too_long: frozenset[int] = frozenset()

    async def __call__(self, name: str, body: dict[str, Any], index: int) -> Any:
        if any(f"What is {n} + {n}?" in str(body["messages"][-1]) for n in self.too_long):
            return TOO_LONG
        return await super().__call__(name, body, index)


@pytest.mark.slow
async def test_a_prompt_longer_than_the_window_is_left_out_and_named(tmp_path: Path) -> None:
    policy = WindowedPolicy(0.3)
    policy.too_long = frozenset({7})
    async with measured(tmp_path, policy) as (w, service):
        baseline = await ended(w, 1)
        assert baseline.outcome == "complete", baseline.cause
        assert baseline.left_out == ("1 prompt: longer than the window of the model: p7",)
        assert "p7" not in {one.id for one in baseline.prompts}
        policy.share, policy.too_long = 1.0, frozenset({7, 9})
        service.demand("look")
        look = await ended(w, 2)
        assert look.left_out == ("2 prompts: longer than the window of the model: p7, p9",)
        assert look.verdict is not None
        assert (look.verdict.outcome, look.verdict.prompts) == ("better", PROMPTS - 2)


@pytest.mark.slow
async def test_a_set_of_prompts_that_are_all_too_long_gives_no_verdict(tmp_path: Path) -> None:
    policy = WindowedPolicy(0.3)
    policy.too_long = frozenset(range(1, PROMPTS + 1))
    async with measured(tmp_path, policy) as (w, _):
        look = await ended(w, 1)
        assert (look.outcome, look.verdict) == ("failed", None)
        assert "all prompts are longer than the window of the model" in look.cause


@pytest.mark.slow
@pytest.mark.parametrize("judges", [True, False])
async def test_a_judge_of_single_answers_scores_looks_where_that_is_allowed(
    judges: bool, tmp_path: Path
) -> None:
    async with ScriptedJudge() as judge:
        rewards = JUDGED.format(url=judge.url, mode="pointwise")
        async with measured(tmp_path, Policy(1.0), rewards=rewards, judges=judges) as (w, _):
            look = await ended(w, 1)
            await closed(w.context.rewards)
        assert (look.outcome, look.mode) == ("complete", "absolute"), look.cause
        if judges:
            assert look.left_out == ()
            assert {one.part for one in look.parts} >= {"right", "helpful"}
            assert len(judge.requests) == PROMPTS * SAMPLES
            assert {len(one.answers) for one in judge.requests} == {1}
        else:
            assert look.left_out == (
                "helpful: a judge costs a call for each answer: `probe.judges: true`",
            )
            assert not judge.requests


@pytest.mark.slow
async def test_a_judge_that_compares_is_left_out_though_judges_are_allowed(tmp_path: Path) -> None:
    async with ScriptedJudge() as judge:
        rewards = JUDGED.format(url=judge.url, mode="pairwise")
        async with measured(tmp_path, Policy(1.0), rewards=rewards, judges=True) as (w, _):
            look = await ended(w, 1)
            await closed(w.context.rewards)
        assert look.outcome == "complete", look.cause
        assert [one.partition(":")[0] for one in look.left_out] == ["helpful"]
        assert not judge.requests


@pytest.mark.slow
async def test_a_judge_that_fails_in_the_middle_of_a_look_gives_no_verdict(tmp_path: Path) -> None:
    async with ScriptedJudge() as judge:
        judge.script = [None] * 20
        judge.forever = 500
        rewards = JUDGED.format(url=judge.url, mode="pointwise")
        async with measured(tmp_path, Policy(1.0), rewards=rewards, judges=True) as (w, _):
            look = await ended(w, 1)
            await closed(w.context.rewards)
        assert (look.outcome, look.verdict) == ("failed", None)
        assert "helpful: " in look.cause
        assert "prompt p" in look.cause


async def closed(source: Any) -> None:
    assert isinstance(source, ComposedSource)
    await source.close()
