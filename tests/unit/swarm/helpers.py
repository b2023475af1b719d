"""What several tests of the client do."""

import asyncio
from collections.abc import Sequence
from typing import Any

from swarm.answers import Claimed
from swarm.claims import ClaimDesk
from swarm.client import AsyncSwarmClient

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


async def claimed(client: AsyncSwarmClient, kind: str = "train") -> Claimed:
    answer = await client.claim(kind)
    assert isinstance(answer, Claimed), answer
    return answer


async def answered(client: AsyncSwarmClient) -> Claimed:
    episode = await claimed(client)
    await client.chat(episode, HELLO)
    return episode


class Book:
    """What a caller keeps: the uuids it answers for, and what it was told."""

    def __init__(self) -> None:
        self.mine: set[str] = set()
        self.claimed: list[str] = []
        self.returned: list[tuple[list[str], str]] = []
        self.strays: list[str] = []

    def on_claimed(self, uuid: str) -> None:
        self.mine.add(uuid)
        self.claimed.append(uuid)

    def on_returned(self, uuids: Sequence[str], cause: str) -> None:
        self.mine.difference_update(uuids)
        self.returned.append((list(uuids), cause))

    def on_stray(self, uuids: Sequence[str]) -> None:
        self.strays.extend(uuids)


def within(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def group(desk: ClaimDesk, book: Book, n: int = 4, seconds: float = 10) -> list[Claimed]:
    return await desk.claim_group(
        n, deadline=within(seconds), on_claimed=book.on_claimed, on_returned=book.on_returned
    )


async def drop(client: AsyncSwarmClient, book: Book, episodes: list[Claimed]) -> None:
    """The group is done: every episode given back by its holder."""
    for episode in episodes:
        assert await client.abort(episode.episode_uuid)
        book.mine.discard(episode.episode_uuid)


def uuids(episodes: Sequence[Claimed]) -> set[str]:
    return {episode.episode_uuid for episode in episodes}
