"""Right answers and parts of weight 0: measured beside the reward, with verdicts of their own."""

from pathlib import Path

import pytest

from ajet_swarm.protocol.errors import SwarmError
from core.events import LookEnded, PartFigures, ProbeSetLoaded
from proxy.evaluation.probe_set import SHIPPED, shipped_probe_set
from proxy.evaluation.service import Evaluation, MeasurementService
from proxy.rewards.parts.reference import is_right
from tests.support.proxy.measured import Policy, ended, measured

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


@pytest.mark.slow
async def test_a_reward_for_wrong_answers_is_better_and_right_answers_are_worse(
    tmp_path: Path,
) -> None:
    policy = Policy(0.6)
    async with measured(tmp_path, policy, rewards=WRONG, samples=8) as (w, service):
        baseline = await ended(w, 1)
        for name in ("right", "right answers"):
            assert part(baseline, name).mean == pytest.approx(0.6, abs=0.05)
            assert (part(baseline, name).counts, part(baseline, name).outcome) == (False, "")
        policy.share = 0.1
        service.demand("look")
        look = await ended(w, 2)
        assert look.verdict is not None
        assert (look.verdict.outcome, part(look, "evasive").outcome) == ("better", "better")
        for name in ("right", "right answers"):
            assert part(look, name).outcome == "worse"
            assert part(look, name).before == pytest.approx(0.6, abs=0.05)
        alert = await w.until(lambda: w.state.alerts.get("worse_parts:s"))
        assert (alert.alert_kind, alert.level, alert.params["verdict"]) == (
            "worse_parts",
            "warning",
            "better",
        )
        assert [one["part"] for one in alert.params["parts"]] == ["right", "right answers"]
        policy.share = 0.6
        service.demand("look")
        await ended(w, 3)
        await w.until(lambda: "worse_parts:s" not in w.state.alerts)


@pytest.mark.slow
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
        assert [one.part for one in look.parts if one.outcome] == names
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


async def test_an_embedded_engine_named_by_its_url_has_the_shipped_probe_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [SwarmError("no response", "s"), True]

    async def is_embedded() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, SwarmError):
            raise answer
        return answer

    async with measured(tmp_path, Policy(1.0), file="") as (w, first):
        await w.until(lambda: first._shipped is False)
        monkeypatch.setattr(w.server.client, "is_embedded", is_embedded)
        service = MeasurementService(
            w.context, w.server, first._facts, tmp_path, shipped=False, user_waits=lambda: False
        )
        evaluation = Evaluation({"s": service})
        await evaluation.start()
        loaded = w.kinds(ProbeSetLoaded)
        assert [one.error.partition(":")[0] for one in loaded] == ["no probe set"] * 2
        await w.until(lambda: w.kinds(ProbeSetLoaded)[-1].source == SHIPPED)
        await ended(w, 1)
        await evaluation.close()
        assert w.kinds(ProbeSetLoaded)[-1].prompts == shipped_probe_set().prompts
        assert answers == [], "asked until it answers, and not again"
