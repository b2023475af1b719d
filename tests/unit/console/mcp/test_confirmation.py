"""Tokens of destructive commands: one command, its arguments, its state, once, for a while."""

import pytest
from msgspec.structs import replace

from ajet_swarm.common.errors import UsageError
from console.mcp.confirmation import VALID_SECONDS, Confirmations
from core.commands.plan import Plan

PLAN = Plan("group.abort", {"group_id": "g1"}, "would abort", targets=("AWAITING_RATING",))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_valid_once() -> None:
    made = Confirmations()
    token = made.issue(PLAN)
    made.redeem(token, PLAN)
    with pytest.raises(UsageError, match="used already"):
        made.redeem(token, PLAN)


@pytest.mark.parametrize("token", ["", "x", None, 5, ["a"], {}])
def test_what_is_no_token_is_refused(token: object) -> None:
    made = Confirmations()
    made.issue(PLAN)
    with pytest.raises(UsageError, match="unknown"):
        made.redeem(token, PLAN)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (replace(PLAN, command="engine.stop"), "another command"),
        (replace(PLAN, args={"group_id": "g2"}), "other arguments"),
        (replace(PLAN, args={"group_id": "g1", "reason": "x"}), "other arguments"),
        (replace(PLAN, targets=("DONE",)), "state has changed"),
    ],
)
def test_a_token_of_another_plan_is_refused_and_used_up(other: Plan, why: str) -> None:
    made = Confirmations()
    token = made.issue(PLAN)
    with pytest.raises(UsageError, match=why):
        made.redeem(token, other)
    with pytest.raises(UsageError, match="used already"):
        made.redeem(token, PLAN)


def test_a_token_expires() -> None:
    clock = Clock()
    made = Confirmations(clock)
    token = made.issue(PLAN)
    clock.now = VALID_SECONDS
    with pytest.raises(UsageError, match="expired"):
        made.redeem(token, PLAN)


def test_the_oldest_of_many_tokens_is_dropped() -> None:
    made = Confirmations()
    first, *_, last = [made.issue(PLAN) for _ in range(100)]
    with pytest.raises(UsageError, match="unknown"):
        made.redeem(first, PLAN)
    made.redeem(last, PLAN)
