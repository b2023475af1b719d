"""Runners of which some are silent, fail, or break off their streams before the first chunk."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from core.events import ClaimIntended, GroupClosed, GroupSealed
from tests.support.scripted.swarm import Cut, End, ScriptedSwarm

SILENT = 600.0
"""Seconds a silent runner would take."""
KINDS = ("silent", "error", "empty")
OF_STREAMS = ("cut", "end")
"""200, then the connection breaks, or ends, before the first chunk."""


@dataclass
class FaultyRunners:
    """Scripts a share of all chat calls of a swarm server to fail.

    The kinds of failure take turns, among streamed calls and among the others: few are streamed,
    and were the kinds drawn, a test that waits for all of them could wait for hundreds of requests.

    A request that is not trained on has one candidate, and the proxy asks a second runner in place
    of a silent one, once: at most one call of such a request is silent.

    Args:
        swarm: The server; its `answer` and `on_token` are set.
        rng: Decides which call fails, and how long the others take.
        calls: One of so many calls fails.
    """

    swarm: ScriptedSwarm
    rng: random.Random
    calls: int
    counts: Counter[str] = field(default_factory=Counter)
    """How often each kind happened; `fine` for a call that was answered."""

    def __post_init__(self) -> None:
        self._broken: dict[str, type[Exception]] = {}
        self._outcomes = {
            True: self._outcomes_of(OF_STREAMS + KINDS),
            False: self._outcomes_of(KINDS),
        }
        """Outcomes of the calls that are streamed, and of those that are not."""
        self._silent_questions: set[str] = set()
        """Messages of untrained requests of which a call was silent."""
        self.swarm.answer = self._answer
        self.swarm.on_token = self._on_token

    def _outcomes_of(self, kinds: tuple[str, ...]) -> Iterator[str]:
        """Of each `calls` in a row, one at random fails."""
        for kind in cycle(kinds):
            yield from self.rng.sample([kind, *["fine"] * (self.calls - 1)], self.calls)

    async def _answer(self, name: str, body: dict[str, Any], index: int) -> Any:
        kind = next(self._outcomes[bool(body.get("stream"))])
        if kind == "silent" and self.swarm.episodes[name].type == "eval":
            question = str(body["messages"])
            kind = "fine" if question in self._silent_questions else kind
            self._silent_questions.add(question)
        self.counts[kind] += 1
        self._broken.pop(name, None)
        if kind == "silent":
            await asyncio.sleep(SILENT)
        if kind in ("cut", "end"):
            self._broken[name] = Cut if kind == "cut" else End
        await asyncio.sleep(self.rng.uniform(0.01, 0.05))
        if kind == "error":
            return RuntimeError("broken")
        return "" if kind == "empty" else f"answer {index} of {name[:6]}"

    async def _on_token(self, name: str, index: int) -> None:
        if name in self._broken:
            raise self._broken[name]


def unmarked(events: list[Any]) -> list[str]:
    """Groups that were trained on with fewer rewards than candidates, without a mark of it."""
    sizes: dict[str, int] = {}
    short: set[str] = set()
    bad: list[str] = []
    for event in events:
        if isinstance(event, ClaimIntended):
            sizes[event.group_id] = event.n
        elif isinstance(event, GroupSealed) and len(event.rewards) < sizes[event.group_id]:
            short.add(event.group_id)
        elif isinstance(event, GroupClosed) and event.group_id in short:
            if "short: " not in event.cause:
                bad.append(f"{event.group_id}: {event.cause!r}")
            short.discard(event.group_id)
    return [*bad, *(f"{name}: not closed" for name in short)]
