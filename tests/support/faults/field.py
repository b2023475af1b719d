"""A proxy with its HTTP front, a swarm server that can fail in every way, and users at work.

async with field(tmp_path, seed=1) as f:
    await f.moment()            # some requests later
    ...                         # break something
    await f.served(5)           # and that many are answered again
books, wrong = f.books          # once the context is left
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

import ajet_swarm.api.watcher
import ajet_swarm.episodes.claim
import ajet_swarm.episodes.ends
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.protocol.schemas import EndKind, EndOutcome
from core.settings import Settings
from tests.support.faults.audit import Books, audit
from tests.support.faults.load import Load
from tests.support.faults.relay import FarSwarm, far_swarm
from tests.support.proxy.front import Front, fronted
from tests.support.proxy.world import settings

PATIENCE = 1.0
"""Seconds a claim, an abort or an end may take; real claims and aborts get 30, ends 310."""
GONE_FOR, FROZEN_FOR, POLL = 0.6, 0.9, 0.3
"""Seconds; the real ones are 10, 25 and 3."""
BUDGET = 15.0
"""Seconds for an answer, of both kinds."""


@dataclass
class Field:
    """All parts."""

    front: Front
    swarm: FarSwarm
    load: Load
    rng: random.Random
    books: tuple[Books, list[str]] = field(default_factory=lambda: (Books(), []))

    async def moment(self, most: int = 40) -> None:
        """Some requests at the swarm server later: a moment that differs with the seed."""
        target = self.swarm.requests.total() + self.rng.randint(1, most)
        await self.swarm.until(lambda: self.swarm.requests.total() >= target, 20)

    async def served(self, more: int = 4) -> None:
        """That many requests, begun from now on, are answered."""
        since = asyncio.get_running_loop().time()
        await self.swarm.until(lambda: self.load.answered(since) >= more, BUDGET + 10)

    async def met(self, route: str, times: int = 1) -> None:
        """The server was asked that often more."""
        target = self.swarm.requests[route] + times
        await self.swarm.until(lambda: self.swarm.requests[route] >= target, 20)

    async def consumed(self, route: str) -> None:
        """All failures that `fail_next` has in store for the route have happened."""
        left = self.swarm._failures[route]
        await self.swarm.until(lambda: not left, 20)

    async def start_engine(self) -> None:
        """Boot an engine that is off, as a user would."""
        self.swarm.set_state("BOOTING")
        self.swarm.set_state("ROLLING", 1)


CERTAIN = {EndKind.ENDED, EndKind.NOT_FOUND, EndKind.NOT_CLAIMED, EndKind.OTHER_CLIENT}
"""Outcomes after which an end must not be sent again."""


class Hasty(SwarmWire):
    """Ends as every end, but does not wait for half a minute; notes what is sent again."""

    closed: set[tuple[str, str]]
    """Episode and task of each end that is in flight, or whose outcome is certain."""
    resent: list[str]
    """Episodes whose end was sent again nevertheless."""

    async def end(self, episode_uuid: str, task_id: str, *args: Any, **more: Any) -> EndOutcome:
        key = (episode_uuid, task_id)
        if key in self.closed:
            self.resent.append(episode_uuid)
        self.closed.add(key)
        outcome = await super().end(episode_uuid, task_id, *args, **{**more, "timeout": PATIENCE})
        if outcome.kind not in CERTAIN:
            self.closed.discard(key)
        return outcome


def configured(**more: Any) -> Settings:
    """Quick, without caps on sessions."""
    proxy = {
        "answer_budget": BUDGET,
        "answer_limit": BUDGET,
        "stream_budget": BUDGET,
        "keepalive": 0.2,
        "session_cap": 0,
        "session_calls": 0,
        **more,
    }
    return settings(proxy=proxy, rewards={"time_limit": 0.3})


@contextlib.asynccontextmanager
async def field_of(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    clients: int = 4,
    wanted: Settings | None = None,
) -> AsyncIterator[Field]:
    """Everything up, some requests answered; afterwards all is drained and the books are kept."""
    rng = random.Random(seed)
    monkeypatch.setattr(ajet_swarm.api.watcher, "GONE_FOR", GONE_FOR)
    monkeypatch.setattr(ajet_swarm.api.watcher, "FROZEN_FOR", FROZEN_FOR)
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0, 0.1, 0.3))
    monkeypatch.setattr(ajet_swarm.episodes.ends, "SILENT_PAUSES", (0.0, 0.1, 0.3))
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP_AFTER", 0.3)
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP", (0.3, 0.9))

    async def answer(name: str, body: dict[str, Any], index: int) -> str:
        await asyncio.sleep(rng.uniform(0.02, 0.15))
        return f"answer {index} of {name[:6]}"

    far = FarSwarm(batch=4, slots=28, answer=answer, sync_seconds=0.1)
    async with far_swarm(far):
        async with fronted(home, far, wanted or configured()) as front:
            server = front.world.server
            hasty = cast(Hasty, server.client)
            hasty.__class__ = Hasty
            hasty.closed, hasty.resent = set(), []
            server.watcher.poll_timeout = POLL
            server.claimer.ends.timeout = PATIENCE
            server.claimer.ends.holdings.abort_timeout = PATIENCE
            load = Load(front.url, rng, budget=BUDGET + 5.0)
            made = Field(front, far, load, rng)
            async with load.running(clients):
                await made.served(2)
                yield made
            await front.world.closed(BUDGET)
            with contextlib.suppress(TimeoutError):
                await far.until(lambda: not far.ours(), 10)
            assert await front.world.groups.drain(5)
        made.books = audit(home / "j.db", far, load, "me", hasty.resent)
