"""Runners of which some are silent, fail, or break off their streams before the first chunk."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from core.events import ClaimIntended, GroupClosed, GroupSealed
from tests.support.scripted.swarm import Cut, End, ScriptedSwarm

SILENT = 600.0
"""Seconds a silent runner would take."""


@dataclass
class FaultyRunners:
    """Scripts a share of all chat calls of a swarm server to fail.

    A request that is not trained on has one candidate, and the proxy asks a second runner in place
    of a silent one, once: at most one call of such a request is silent.

    Args:
        swarm: The server; its `answer` and `on_token` are set.
        rng: Decides which call fails, and how long the others take.
        share: Share of calls that fail.
        kinds: What may happen: `silent`, `error`, `empty`; of streams alone `cut` (200, then the
            connection breaks) and `end` (200, then the end), both before the first chunk.
    """

    swarm: ScriptedSwarm
    rng: random.Random
    share: float
    kinds: tuple[str, ...] = ("silent", "error", "empty", "cut", "end")
    counts: Counter[str] = field(default_factory=Counter)
    """How often each kind happened; `fine` for a call that was answered."""

    def __post_init__(self) -> None:
        self._broken: dict[str, type[Exception]] = {}
        self._silent_questions: set[str] = set()
        """Messages of untrained requests of which a call was silent."""
        self.swarm.answer = self._answer
        self.swarm.on_token = self._on_token

    async def _answer(self, name: str, body: dict[str, Any], index: int) -> Any:
        streams = bool(body.get("stream"))
        kinds = [kind for kind in self.kinds if streams or kind not in ("cut", "end")]
        kind = self.rng.choice(kinds) if self.rng.random() < self.share else "fine"
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
