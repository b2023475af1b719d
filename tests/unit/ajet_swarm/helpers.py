"""What several tests of the client do."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.episodes.ends import EpisodeEnds
from ajet_swarm.protocol.errors import SwarmError, TimedOut, Unreachable
from ajet_swarm.protocol.schemas import AbortKind, Claimed, EngineStatus, PoolInfo

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


async def claimed(client: SwarmWire, kind: str = "train") -> Claimed:
    answer = await client.claim(kind)
    assert isinstance(answer, Claimed), answer
    return answer


async def answered(client: SwarmWire) -> Claimed:
    episode = await claimed(client)
    await client.chat(episode, HELLO)
    return episode


class Book:
    """A caller's records: its uuids and the arguments of the callbacks."""

    def __init__(self) -> None:
        self.mine: set[str] = set()
        self.claimed: list[str] = []
        self.returned: list[tuple[list[str], str]] = []
        self.lost: list[str] = []
        """What `reconcile` has given back."""
        self.ends: EpisodeEnds | None = None

    def on_claimed(self, uuid: str) -> None:
        self.mine.add(uuid)
        self.claimed.append(uuid)

    def on_returned(self, uuids: Sequence[str], cause: str) -> None:
        self.mine.difference_update(uuids)
        self.returned.append((list(uuids), cause))

    def watch(self, claimer: EpisodeClaimer) -> EpisodeClaimer:
        """Record what this claimer finds; return it."""
        self.ends, reconcile = claimer.ends, claimer.ends.reconcile

        async def recorded() -> list[str]:
            lost = await reconcile()
            self.lost += lost
            return lost

        claimer.ends.reconcile = recorded  # type: ignore[method-assign]
        return claimer

    def forget(self, uuid: str = "") -> None:
        """Forget one episode, or all."""
        for each in (uuid,) if uuid else tuple(self.mine):
            self.mine.discard(each)
            if self.ends is not None:
                self.ends.holdings.by_uuid.pop(each, None)


def within(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def group(
    claimer: EpisodeClaimer, book: Book, n: int = 4, seconds: float = 60
) -> list[Claimed]:
    return await claimer.claim_group(
        n, deadline=within(seconds), on_claimed=book.on_claimed, on_returned=book.on_returned
    )


async def drop(client: SwarmWire, book: Book, episodes: list[Claimed]) -> None:
    """The group is done: every episode given back by its holder."""
    for episode in episodes:
        assert await client.abort(episode.episode_uuid) is AbortKind.CONFIRMED
        book.forget(episode.episode_uuid)


def idle(claimer: EpisodeClaimer) -> bool:
    """Return whether nobody claims or waits for a claim."""
    queue = claimer.queue
    return (queue.inside, queue.claiming, queue.waiting, queue.starved) == (0, 0, 0, False)


def uuids(episodes: Sequence[Claimed]) -> set[str]:
    return {episode.episode_uuid for episode in episodes}


GONE = Unreachable("no connection", "http://x", sent=False)
FROZEN = TimedOut("no answer within 3 s", "http://x")


class ScriptedClient(SwarmWire):
    """A client whose answers the test sets."""

    def __init__(self) -> None:
        self.name, self.url = "told", "http://told"
        self.stopped_at = 0.0
        self.next_status: EngineStatus | Exception = EngineStatus("ENGINE.ROLLING", None, 1)
        self.pools: list[PoolInfo | SwarmError | None] = []
        self.pool_polls = 0

    async def status(self, *, timeout: float = 1) -> EngineStatus:
        if isinstance(self.next_status, Exception):
            raise self.next_status
        return self.next_status

    async def pool(self, *, timeout: float = 1) -> PoolInfo | None:
        self.pool_polls += 1
        result = self.pools.pop(0)
        if isinstance(result, SwarmError):
            raise result
        return result


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def status(state: str, step: int | None = 1, detail: str | None = None) -> EngineStatus:
    return EngineStatus("ENGINE." + state, detail, step)
