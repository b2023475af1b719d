"""What happens in one run, chosen by a seed: users, operator, faults, settings of server and proxy.

A plan is data, so that a failing one can be reduced: `reduced` drops one event after another while
the run still fails.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

SPAN = 40.0
"""Seconds in which users arrive and faults begin."""
TROUBLES = ("lost before", "lost after", "crash", "slow")
"""They hit the requests to one route, or to all."""
BEHAVIOURS = ("garbled", "straggler", "straggler", "straggler", "silent", "failing")
VOTES = ("best",) * 5 + ("tie", "skip", "unrate", "accept", "abort")
MODES = ("off", "answer_first", "hold")
RULES = ("tasks", "tasks", "episodes")
ROUTES = ("/claim_episode", "/end_episode", "/abort_episode", "/v1/chat/completions")
OUTAGES = ("freeze", "restart", "stop engine", "stall disk", "fill disk", "kill", "stop proxy")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A user sends a request, and the same one again after a lost connection or a 503."""

    at: float
    stream: bool
    train: bool
    patience: float
    """Seconds after which the user leaves."""


@dataclass(frozen=True, slots=True)
class Act:
    """The operator gives a command on one of the groups that are open then."""

    at: float
    command: str
    """One of `VOTES`, or a rating mode."""
    pick: float
    """Chooses the group and the candidate, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something breaks for some seconds."""

    at: float
    kind: str
    """One of `TROUBLES`, `BEHAVIOURS` or `OUTAGES`."""
    seconds: float
    share: float
    """Probability that a trouble hits one request; for a kill, whether the open batch is kept."""
    route: str = ""
    """Route of the requests that a trouble hits, or after whose next one an outage begins; empty
    for all, and for `at`."""


Happening = Arrival | Act | Fault


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    server: dict[str, Any]
    """Attributes of the server's pool."""
    settings: dict[str, dict[str, Any]]
    """Sections of the proxy's settings that differ from their defaults."""
    mode: str
    """Rating mode at the first start."""
    console: bool
    competitors: int
    """Number of other clients."""
    source: str
    """What the rewards do: score, equal, abstain, raise or slow."""
    happenings: tuple[Happening, ...]


def plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(f"plan {seed}")
    repeat, batch = chance.choice((2, 3, 4, 4, 8)), chance.choice((1, 2, 4))
    burst = chance.uniform(0.0, SPAN)
    together = chance.choice((0.0, 0.3, 0.8))
    users = [
        Arrival(
            at=burst if chance.random() < together else chance.uniform(0.0, SPAN),
            stream=chance.random() < 0.5,
            train=chance.random() < 0.85,
            patience=chance.choice((2.0, 10.0, 1000.0, 1000.0, 1000.0)),
        )
        for _ in range(chance.randint(1, 12))
    ]
    mode = chance.choice(("off", "off", "off", "answer_first", "hold"))
    rates = mode != "off" or chance.random() < 0.3
    acts = [_act(chance) for _ in range(chance.randint(1, 12) if rates else 0)]
    faults = [_fault(chance) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 5)))]
    return Plan(
        seed=seed,
        server={
            "repeat": repeat,
            "batch": batch,
            "slots": repeat * chance.choice((1, batch, batch)),
            "sync_seconds": chance.uniform(0.5, 6.0),
            "method": f"rollout_until_finish_enough_{chance.choice(RULES)}",
        },
        settings={
            "proxy": {
                "answer_budget": chance.choice((20.0, 90.0)),
                "stream_budget": 120.0,
                "straggler_limit": chance.choice((0.0, 20.0)),
                "straggler": "replace" if chance.random() < 0.3 else "answer",
            },
            "rating": {
                "mode": mode,
                "discard_timeout": chance.choice((120.0, 240.0)),
                "discard_timeout_rating": 120.0,
                "fallback": chance.choice(("accept", "accept", "abort")),
            },
            "rewards": {"short_group": chance.choice(("send", "abort"))},
        },
        mode=mode,
        console=mode != "off" or chance.random() < 0.5,
        competitors=chance.choice((0, 0, 1, 3)),
        source=chance.choice(("score",) * 6 + ("equal", "abstain", "raise", "slow")),
        happenings=tuple(sorted([*users, *acts, *faults], key=lambda happening: happening.at)),
    )


def _act(chance: random.Random) -> Act:
    kinds = VOTES if chance.random() < 0.9 else MODES
    return Act(chance.uniform(1.0, SPAN + 20.0), chance.choice(kinds), chance.random())


def _fault(chance: random.Random) -> Fault:
    kinds = (*TROUBLES, "lost after", "lost after", *BEHAVIOURS, *OUTAGES, "kill", "kill", "kill")
    kind = chance.choice(kinds)
    return Fault(
        at=chance.uniform(0.0, SPAN),
        kind=kind,
        seconds=chance.choice((0.5, 3.0, 10.0)) * chance.uniform(0.5, 1.5),
        share=chance.choice((0.1, 0.3, 0.8)),
        route="" if kind in BEHAVIOURS else chance.choice(("", *ROUTES)),
    )


def reduced(whole: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Return a plan from which no single happening can be dropped so that it still fails."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _without_one(whole):
            if fails(candidate):
                whole, smaller = candidate, True
                break
    return whole


def _without_one(whole: Plan) -> Iterator[Plan]:
    if whole.competitors:
        yield replace(whole, competitors=0)
    for index in range(len(whole.happenings)):
        kept = whole.happenings[:index] + whole.happenings[index + 1 :]
        yield replace(whole, happenings=kept)
