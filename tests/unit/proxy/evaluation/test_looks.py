"""Looks: what they leave out, what follows one that is worse, restarts, parts without weight."""

from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.protocol.errors import SwarmError
from core.events import LookEnded, LookStarted, PartFigures, ProbeSetLoaded, TrainingRunIdentified
from core.verdict.betting import share
from proxy.evaluation.probe_set import SHIPPED, shipped_probe_set
from proxy.evaluation.service import Evaluation, MeasurementService
from proxy.rewards.parts.reference import is_right
from proxy.servers.reader import ServerReader
from tests.support.proxy.measured import (
    PROMPTS,
    SAMPLES,
    Measured,
    Policy,
    ended,
    measured,
    progress,
)
from tests.support.proxy.world import World
from tests.support.scripted.judge import ScriptedJudge

pytestmark = pytest.mark.slow


@pytest.mark.world(0.1, samples=8)
async def test_a_policy_below_its_best_look_raises_an_alert_until_it_is_not(m: Measured) -> None:
    await ended(m, 1)
    best = await m.look(0.9)
    assert (best.verdict and best.verdict.outcome, best.against_best) == ("better", None)
    known = progress(m).best_rewards
    assert (known.look_id, known.prompts[0].example) == (best.look_id, "")
    fallen = await m.look(0.3)
    alert = await m.until(lambda: m.state.alerts.get("below_best:s"))
    compared = fallen.against_best
    assert (compared.look_id, compared.step, compared.below) == (best.look_id, 1, True)
    assert compared.effect == pytest.approx(fallen.mean - best.mean)
    assert compared.alpha == share(2), "one earlier look"
    assert (alert.alert_kind, alert.level) == ("below_best", "warning")
    assert alert.params["below"] == pytest.approx(-compared.effect)
    assert (alert.params["least"], alert.params["most"]) == (-compared.high, -compared.low)
    assert (alert.params["step"], alert.params["than"], alert.params["best"]) == (1, 1, 1)
    risen = await m.look(0.9)
    assert not risen.against_best.below
    assert risen.against_best.alpha == share(3) / 2
    await m.until(lambda: "below_best:s" not in m.state.alerts)
    await m.look(0.3)
    await m.until(lambda: "below_best:s" in m.state.alerts)
    m.service.reaction.rewound(best.look_id, "progress-1")
    assert "below_best:s" not in m.state.alerts
    await m.look(0.3)
    await m.until(lambda: "below_best:s" in m.state.alerts)
    await m.look(0.3, "baseline")
    assert "below_best:s" not in m.state.alerts
    assert progress(m).best_rewards is None


@pytest.fixture
def no_run_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test alone report training runs, as `identify` does: the reader would number the
    same start a second time."""
    monkeypatch.setattr(ServerReader, "on_status", lambda reader, status: None)


def identify(w: World, number: int, name: str, start: str = "") -> None:
    w.context.bus.publish(TrainingRunIdentified(server="s", number=number, name=name, start=start))


async def start_again(w: World) -> None:
    """Stop the engine and start it at the step that it had."""
    starts = w.state.servers["s"].engine_run
    w.swarm.state = "OFFLINE"
    await w.until(lambda: w.state.servers["s"].state == "OFFLINE")
    w.swarm.state = "ROLLING"
    await w.until(lambda: w.state.servers["s"].engine_run > starts)


@pytest.mark.usefixtures("no_run_reader")
@pytest.mark.world(0.5)
async def test_other_weights_at_the_same_step_are_measured_and_not_comparable(m: Measured) -> None:
    identify(m, 1, "aaaa1111")
    await ended(m, 1)
    assert (await m.look(demand="baseline")).run == 1
    await start_again(m)
    identify(m, 2, "bbbb2222")
    third = await ended(m, 3)  # without a command, although the step is the same
    assert (third.step, third.run, third.role) == (1, 2, "baseline")
    assert third.restarted == ("the engine has other weights, of training run 2: not comparable")
    assert m.kinds(LookStarted)[-1].run == 2
    assert [look.run for look in progress(m).looks[1:]] == [1, 2]


@pytest.mark.usefixtures("no_run_reader")
@pytest.mark.parametrize(
    ("first", "second", "start", "alone"),
    [
        ((1, "aaaa1111"), (1, "aaaa1111"), "", False),
        ((1, "chat.1"), (2, "chat.2"), "", True),
        ((1, "aaaa1111"), (2, "bbbb2222"), "progress-1", True),
    ],
    ids=["the embedded engine continues", "a trainer resumes its experiment", "rewind"],
)
@pytest.mark.world(0.5)
async def test_a_restart_that_continues_the_training_continues_the_comparison(
    m: Measured, first: tuple[int, str], second: tuple[int, str], start: str, alone: bool
) -> None:
    identify(m, *first)
    await ended(m, 1)
    baseline = await m.look(demand="baseline")
    if start:
        m.service.reaction.rewound(baseline.look_id, start)
    await start_again(m)
    identify(m, *second, start)
    if not alone:
        assert not m.service._due(), "its weights were measured"
    third = await ended(m, 3) if alone else await m.look()
    assert (third.role, third.restarted, third.run) == ("look", "", second[0])
    assert third.baseline_id == baseline.look_id


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


async def test_a_prompt_longer_than_the_window_is_left_out_and_named(tmp_path: Path) -> None:
    policy = WindowedPolicy(0.3)
    policy.too_long = frozenset({7})
    async with measured(tmp_path, policy) as (w, service):
        baseline = await ended(w, 1)
        assert baseline.outcome == "complete", baseline.cause
        assert baseline.left_out == ("1 prompt: longer than the window of the model: p7",)
        assert "p7" not in {prompt.id for prompt in baseline.prompts}
        policy.share, policy.too_long = 1.0, frozenset({7, 9})
        service.demand("look")
        look = await ended(w, 2)
        assert look.left_out == ("2 prompts: longer than the window of the model: p7, p9",)
        assert (look.verdict.outcome, look.verdict.prompts) == ("better", PROMPTS - 2)


async def test_a_set_of_prompts_that_are_all_too_long_gives_no_verdict(tmp_path: Path) -> None:
    policy = WindowedPolicy(0.3)
    policy.too_long = frozenset(range(1, PROMPTS + 1))
    async with measured(tmp_path, policy) as (w, _):
        look = await ended(w, 1)
        assert (look.outcome, look.verdict) == ("failed", None)
        assert "all prompts are longer than the window of the model" in look.cause


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
            assert {part.part for part in look.parts} >= {"right", "helpful"}
            assert len(judge.requests) == PROMPTS * SAMPLES
            assert {len(request.answers) for request in judge.requests} == {1}
        else:
            assert look.left_out == (
                "helpful: a judge costs a call for each answer: `probe.judges: true`",
            )
            assert not judge.requests


async def test_a_judge_that_compares_is_left_out_though_judges_are_allowed(tmp_path: Path) -> None:
    async with ScriptedJudge() as judge:
        rewards = JUDGED.format(url=judge.url, mode="pairwise")
        async with measured(tmp_path, Policy(1.0), rewards=rewards, judges=True) as (w, _):
            look = await ended(w, 1)
            await closed(w.context.rewards)
        assert look.outcome == "complete", look.cause
        assert [reason.partition(":")[0] for reason in look.left_out] == ["helpful"]
        assert not judge.requests


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
    await source.close()


WRONG = """parts:
  evasive: {kind: format, must: [idea]}
  right: {kind: exact, weight: 0}
"""


ONLY_COMPARES = """parts:
  varied: {kind: diversity}
  right: {kind: exact, weight: 0}
"""


def part(look: LookEnded, name: str) -> PartFigures:
    return next(part for part in look.parts if part.part == name)


@pytest.mark.world(0.6, rewards=WRONG, samples=8)
async def test_a_reward_for_wrong_answers_is_better_and_right_answers_are_worse(
    m: Measured,
) -> None:
    baseline = await ended(m, 1)
    for name in ("right", "right answers"):
        assert part(baseline, name).mean == pytest.approx(0.6, abs=0.05)
        assert (part(baseline, name).counts, part(baseline, name).outcome) == (False, "")
    look = await m.look(0.1)
    assert (look.verdict.outcome, part(look, "evasive").outcome) == ("better", "better")
    for name in ("right", "right answers"):
        assert part(look, name).outcome == "worse"
        assert part(look, name).before == pytest.approx(0.6, abs=0.05)
    alert = await m.until(lambda: m.state.alerts.get("worse_parts:s"))
    assert (alert.alert_kind, alert.level, alert.params["verdict"]) == (
        "worse_parts",
        "warning",
        "better",
    )
    assert [part["part"] for part in alert.params["parts"]] == ["right", "right answers"]
    await m.look(0.6)
    await m.until(lambda: "worse_parts:s" not in m.state.alerts)


@pytest.mark.parametrize("rewards", [ONLY_COMPARES, ""], ids=["parts", "another source"])
async def test_they_are_measured_where_the_reward_only_compares(
    rewards: str, tmp_path: Path
) -> None:
    policy = Policy(0.9)
    async with measured(tmp_path, policy, rewards=rewards, samples=8) as (w, service):
        await ended(w, 1)
        policy.share = 0.1
        service.demand("look")
        look = await ended(w, 2)
        assert (look.outcome, look.mode) == ("complete", "wins"), look.cause
        names = ["right", "right answers"] if rewards else ["right answers"]
        assert [part.part for part in look.parts if part.outcome] == names
        assert {part(look, name).outcome for name in names} == {"worse"}


@pytest.mark.parametrize(
    ("text", "reference", "right"),
    [
        ("so it is 42", "42", True),
        ("42, no: 41", "42", False),
        ("It is Paris.", "Paris", True),
        ("It is Rome.", "Paris", False),
        (
            "anything",
            "a text of more than twelve words that no answer is right or wrong about",
            None,
        ),
        ("41", "a text of more than twelve words that ends with its result #### 42", False),
    ],
)
def test_a_right_answer(text: str, reference: str, right: bool | None) -> None:
    assert is_right(text, reference) is right


@pytest.mark.world(file="")
async def test_an_embedded_engine_named_by_its_url_has_the_shipped_probe_set(
    m: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [SwarmError("no response", "s"), True]

    async def is_embedded() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, SwarmError):
            raise answer
        return answer

    await m.until(lambda: m.service._shipped is False)
    monkeypatch.setattr(m.server.client, "is_embedded", is_embedded)
    service = MeasurementService(
        m.context, m.server, m.service._facts, tmp_path, shipped=False, user_waits=lambda: False
    )
    evaluation = Evaluation({"s": service})
    await evaluation.start()
    loaded = m.kinds(ProbeSetLoaded)
    assert [event.error.partition(":")[0] for event in loaded] == ["no probe set"] * 2
    await m.until(lambda: m.kinds(ProbeSetLoaded)[-1].source == SHIPPED)
    await ended(m, 1)
    await evaluation.close()
    assert m.kinds(ProbeSetLoaded)[-1].prompts == shipped_probe_set().prompts
    assert answers == [], "asked until it answers, and not again"
