"""What follows a look that is below the best verified one."""

from pathlib import Path

import pytest

from core.events import LookEnded
from core.verdict.betting import share
from tests.support.proxy.measured import Policy, ended, measured, progress


@pytest.mark.slow
async def test_a_policy_below_its_best_look_raises_an_alert_until_it_is_not(tmp_path: Path) -> None:
    policy = Policy(0.1)
    async with measured(tmp_path, policy, samples=8) as (w, service):

        async def look(correct: float, count: int, demand: str = "look") -> LookEnded:
            policy.share = correct
            service.demand(demand)  # type: ignore[arg-type]
            return await ended(w, count)

        await ended(w, 1)
        best = await look(0.9, 2)
        assert (best.verdict and best.verdict.outcome, best.against_best) == ("better", None)
        known = progress(w).best_rewards
        assert known is not None
        assert (known.look_id, known.prompts[0].example) == (best.look_id, "")
        fallen = await look(0.3, 3)
        alert = await w.until(lambda: w.state.alerts.get("below_best:s"))
        compared = fallen.against_best
        assert compared is not None
        assert (compared.look_id, compared.step, compared.below) == (best.look_id, 1, True)
        assert compared.effect == pytest.approx(fallen.mean - best.mean)
        assert compared.alpha == share(2), "one earlier look"
        assert (alert.alert_kind, alert.level) == ("below_best", "warning")
        assert alert.params["below"] == pytest.approx(-compared.effect)
        assert (alert.params["least"], alert.params["most"]) == (-compared.high, -compared.low)
        assert (alert.params["step"], alert.params["than"], alert.params["best"]) == (1, 1, 1)
        risen = await look(0.9, 4)
        assert risen.against_best is not None
        assert not risen.against_best.below
        assert risen.against_best.alpha == share(3) / 2
        await w.until(lambda: "below_best:s" not in w.state.alerts)
        await look(0.3, 5)
        await w.until(lambda: "below_best:s" in w.state.alerts)
        service.reaction.rewound(best.look_id, "progress-1")
        assert "below_best:s" not in w.state.alerts
        await look(0.3, 6)
        await w.until(lambda: "below_best:s" in w.state.alerts)
        await look(0.3, 7, "baseline")
        assert "below_best:s" not in w.state.alerts
        assert progress(w).best_rewards is None
