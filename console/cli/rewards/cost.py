"""Estimates the judge calls of a `rewards test` and their cost, before any call is made."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ajet_swarm.common.text import one_line
from console.cli.common import count
from proxy.rewards.part import KINDS
from proxy.rewards.rescore.rescorer import RewardChoice, hooks_of, model_of

if TYPE_CHECKING:
    from core.runtime.home import Home
    from core.settings import Settings
    from proxy.rewards.model.spec import PartSpec
    from proxy.rewards.rescore.cases import Case

_INSTRUCTION_CHARS = 2_000
"""Approximate number of characters of instructions and rubric in a prompt."""
_TOKEN_CHARS = 4
"""Approximate number of characters per token."""


class JudgeCost(msgspec.Struct, frozen=True):
    """Upper bounds for the calls of one judge; verdicts from its cache cost nothing."""

    name: str
    calls: int
    prompt_tokens: int
    """Estimated from the texts, with 4 characters per token."""
    cost: float | None
    """Assumes replies of maximum length; None without prices."""

    @property
    def words(self) -> str:
        """`judge helpful: at most 300 calls, cost at most 0.12`."""
        price = "cost unknown (no price_in, price_out)"
        if self.cost is not None:
            price = f"cost at most about {self.cost:.2f}"
        calls = f"at most {count(self.calls, 'call')}, about {self.prompt_tokens:,} prompt tokens"
        return f"judge {one_line(self.name, 40)}: {calls}, {price}"


def costs_of(
    home: "Home", settings: "Settings", choice: RewardChoice, cases: "Sequence[Case]"
) -> list[JudgeCost]:
    """Return the estimate of each judge for these cases.

    Raises:
        AjetError: the rewards do not load.
    """
    return [_cost(spec, cases) for spec in _judges(home, settings, choice)]


def _judges(home: "Home", settings: "Settings", choice: RewardChoice) -> "Iterator[PartSpec]":
    if hooks_of(settings, choice) is None:
        model, _ = model_of(home, settings, choice)
        yield from (spec for spec in model.active if spec.kind == "judge")


def _cost(spec: "PartSpec", cases: "Sequence[Case]") -> JudgeCost:
    def setting(name: str) -> Any:
        return spec.settings.get(name, KINDS["judge"].settings[name].default)

    calls = chars = 0
    for case in cases:
        context = case.context
        case_calls, times = _calls(setting("mode"), len(context.answers))
        talk = sum(len(str(message.get("content") or "")) for message in context.messages)
        answers = sum(
            min(len(str(answer.message.get("content") or "")), setting("answer_chars"))
            for answer in context.answers
        )
        calls += case_calls
        chars += (
            case_calls * (min(talk, setting("conversation_chars")) + _INSTRUCTION_CHARS)
            + times * answers
        )
    tokens = chars // _TOKEN_CHARS
    price_in, price_out = setting("price_in"), setting("price_out")
    cost = None
    if price_in is not None or price_out is not None:
        replies = calls * setting("max_tokens")
        cost = (tokens * (price_in or 0.0) + replies * (price_out or 0.0)) / 1e6
    return JudgeCost(spec.name, calls, tokens, cost)


def _calls(mode: str, n: int) -> tuple[int, int]:
    """Return the calls for a group of `n` answers, and how many of them contain each answer."""
    if mode == "pointwise":
        return n, 1
    if mode == "pairwise":
        return n * (n - 1), 2 * (n - 1)
    return 1, 1
