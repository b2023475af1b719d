"""Prompts with answers whose order people agree on, and how often rewards keep that order.

The files of `tests/data/rewards` hold prompts of an assistant, of a coding agent and sums with
references. Each names its answers by what they are (`good`, `refusal`, `cut`) and has an `order`:
chains like `good brief > mediocre > refusal; good > wrong`, in which every answer is better than
those further right; names that a prompt does not have are ignored. Answers that no chain compares
have no order. All prompts were written before the rewards were tuned; those under `held`
are for measuring alone: tune on the others.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from proxy.rewards.source import Answer, GroupContext, Score

FOLDER = Path(__file__).parents[2] / "data" / "rewards"
NAMES = ("assistant", "agent", "sums")
Scorer = Callable[[GroupContext], Sequence[Score]]


@dataclass(frozen=True)
class Prompt:
    """One prompt with its answers."""

    source: str
    """`assistant`, `agent` or `sums`."""
    held: bool
    query: str
    names: tuple[str, ...]
    """What each answer is, in the order of the group."""
    pairs: tuple[tuple[int, int], ...]
    """Places of a better and of a worse answer."""
    context: GroupContext


@dataclass(frozen=True)
class Miss:
    """A pair in the wrong order, or with equal rewards."""

    prompt: Prompt
    better: str
    worse: str
    rewards: tuple[float, float]


@dataclass(frozen=True)
class Outcome:
    """How often rewards keep the order."""

    pairs: int
    misses: tuple[Miss, ...]

    @property
    def share(self) -> float:
        """Of the pairs, those in the right order; 0 to 1."""
        return 1.0 - len(self.misses) / self.pairs

    def kinds(self) -> list[tuple[str, int]]:
        """Which kinds of pairs are wrong, most frequent first."""
        return Counter(f"{miss.better} > {miss.worse}" for miss in self.misses).most_common()


def prompts(source: str, held: bool | None = None) -> Iterator[Prompt]:
    """The prompts of one file; those held out, the others, or all."""
    data = _data(source)
    for key in ("tuning", "held"):
        if held is None or held == (key == "held"):
            for number, row in enumerate(data[key]):
                yield _prompt(source, key == "held", number, row, data)


@cache
def _data(source: str) -> Mapping[str, Any]:
    """The content of one file, read once; do not change it."""
    content: Mapping[str, Any] = yaml.safe_load((FOLDER / f"{source}.yaml").read_text("utf-8"))
    return content


def measured(some: Iterator[Prompt], score: Scorer) -> Outcome:
    """How often `score` keeps the order of the answers."""
    pairs, misses = 0, []
    for prompt in some:
        rewards = [one.reward for one in score(prompt.context)]
        pairs += len(prompt.pairs)
        for better, worse in prompt.pairs:
            if not rewards[better] > rewards[worse] + 1e-6:
                names = prompt.names[better], prompt.names[worse]
                misses.append(Miss(prompt, *names, (rewards[better], rewards[worse])))
    return Outcome(pairs, tuple(misses))


def _prompt(
    source: str, held: bool, number: int, row: Mapping[str, Any], data: Mapping[str, Any]
) -> Prompt:
    names = tuple(row["answers"])
    reference = row.get("reference")
    answers = tuple(
        _answer(index, one if isinstance(one, dict) else {"text": one})
        for index, one in enumerate(row["answers"].values())
    )
    context = GroupContext(
        group_id=f"{source}-{'held' if held else 'tuning'}-{number}",
        request_id="r",
        task_id="t",
        query=row["query"],
        messages=[{"role": "user", "content": row["query"]}],
        metadata={},
        reference=None if reference is None else str(reference),
        answers=answers,
        tools=_tools(data["tools"]) if row.get("tools") else (),
    )
    pairs = tuple(sorted(_pairs(row.get("order", data["order"]), names)))
    return Prompt(source, held, row["query"], names, pairs, context)


def _pairs(order: str, names: Sequence[str]) -> set[tuple[int, int]]:
    result = set()
    for chain in order.split(";"):
        levels = [level.split() for level in chain.split(">")]
        for place, level in enumerate(levels):
            for worse in (name for later in levels[place + 1 :] for name in later):
                for better in level:
                    if better in names and worse in names:
                        result.add((names.index(better), names.index(worse)))
    return result


def _answer(index: int, one: Mapping[str, Any]) -> Answer:
    calls = [
        {
            "id": f"c{place}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": value if isinstance(value, str) else json.dumps(value),
            },
        }
        for place, (name, value) in enumerate(one.get("calls", ()))
    ]
    message: dict[str, Any] = {"role": "assistant", "content": one.get("text")}
    if calls:
        message["tool_calls"] = calls
    finish = one.get("finish", "tool_calls" if calls else "stop")
    return Answer(index, message, finish, f"e{index}", 1.0, {})


def _tools(declared: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {
                        field: {"type": kind.rstrip("?")} for field, kind in fields.items()
                    },
                    "required": [field for field, kind in fields.items() if kind[-1] != "?"],
                },
            },
        }
        for name, fields in declared.items()
    ]
