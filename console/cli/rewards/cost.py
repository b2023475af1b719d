"""What a `reward-test` asks of the judges of a model, estimated before anything is asked."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ajet_swarm.common.text import one_line
from console.cli.common import count
from proxy.rewards.part import KINDS
from proxy.rewards.trial.source import TrialChoice, hooks_of, model_of

if TYPE_CHECKING:
    from core.runtime.home import Home
    from core.settings import Settings
    from proxy.rewards.model.spec import PartSpec
    from proxy.rewards.trial.replay import Case

_AROUND = 2_000
"""Characters of instructions and rubric in a prompt, roughly."""
_CHARS = 4
"""Characters of a token, roughly."""


class JudgeCost(msgspec.Struct, frozen=True):
    """What one judge would be asked at most; verdicts in its cache cost none of it."""

    name: str
    calls: int
    prompt_tokens: int
    """Estimated from the texts, 4 characters a token."""
    cost: float | None
    """With replies of the longest length; None without prices."""

    @property
    def words(self) -> str:
        """`judge helpful: at most 300 calls, cost at most 0.12`."""
        price = "cost not known (no price_in, price_out)"
        if self.cost is not None:
            price = f"cost at most about {self.cost:.2f}"
        calls = f"at most {count(self.calls, 'call')}, about {self.prompt_tokens:,} prompt tokens"
        return f"judge {one_line(self.name, 40)}: {calls}, {price}"


def has_judges(home: "Home", settings: "Settings", choice: TrialChoice) -> bool:
    """Whether the rewards to try have a judge.

    Raises:
        UsageError: they do not load.
    """
    return any(True for _ in _judges(home, settings, choice))


def costs_of(
    home: "Home", settings: "Settings", choice: TrialChoice, cases: "Sequence[Case]"
) -> list[JudgeCost]:
    """What each judge would be asked for these cases."""
    return [_cost(spec, cases) for spec in _judges(home, settings, choice)]


def _judges(home: "Home", settings: "Settings", choice: TrialChoice) -> "Iterator[PartSpec]":
    if hooks_of(settings, choice) is None:
        model, _ = model_of(home, settings, choice)
        yield from (spec for spec in model.active if spec.kind == "judge")


def _cost(spec: "PartSpec", cases: "Sequence[Case]") -> JudgeCost:
    def setting(name: str) -> Any:
        return spec.settings.get(name, KINDS["judge"].settings[name].default)

    calls = chars = 0
    for case in cases:
        context = case.context
        asked, times = _asked(setting("mode"), len(context.answers))
        talk = sum(len(str(one.get("content") or "")) for one in context.messages)
        answers = sum(
            min(len(str(one.message.get("content") or "")), setting("answer_chars"))
            for one in context.answers
        )
        calls += asked
        chars += asked * (min(talk, setting("conversation_chars")) + _AROUND) + times * answers
    tokens = chars // _CHARS
    price_in, price_out = setting("price_in"), setting("price_out")
    cost = None
    if price_in is not None or price_out is not None:
        replies = calls * setting("max_tokens")
        cost = (tokens * (price_in or 0.0) + replies * (price_out or 0.0)) / 1e6
    return JudgeCost(spec.name, calls, tokens, cost)


def _asked(mode: str, n: int) -> tuple[int, int]:
    """Calls for a group of `n` answers, and in how many of them each answer stands."""
    if mode == "pointwise":
        return n, 1
    if mode == "pairwise":
        return n * (n - 1), 2 * (n - 1)
    return 1, 1
