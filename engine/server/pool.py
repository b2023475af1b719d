"""Episodes of one batch: registered, claimed, finished. Plain data, no I/O, no clock of its own.

Life of a record: protocol section 4.2.
"""

import asyncio
import secrets
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.interface import Completion

EpisodeType = Literal["train", "eval"]

CLIENT_TIMEOUT = 600.0
"""Seconds after which a client that does nothing leaves the active list."""


@dataclass(slots=True, eq=False)
class Episode:
    """A slot that one client at a time may claim."""

    uuid: str
    address: str
    """The part of the key that cannot be guessed."""
    active_at: float
    """Clock reading of the last claim or call."""
    status: Literal["registered", "claimed"] = "registered"
    type: EpisodeType = "train"
    client: str = ""
    timeout: float = -1.0
    task_id: str = ""
    """Only of claims with a throttle policy."""
    call_count: int = 0
    turn: int = 0
    """How many times it was given back: tells one owner from the next."""
    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    """Calls in flight."""
    completions: list[Completion] = field(default_factory=list)
    serial: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the call that is drawn, where calls are drawn one after the other."""

    def cancel_calls(self) -> None:
        """Free the sampler's rows of calls that nobody owns any more."""
        for call in self.calls:
            call.cancel()
        self.calls.clear()


@dataclass(frozen=True, slots=True)
class FinishedEpisode:
    """An ended train episode with a reward."""

    uuid: str
    client: str
    task_id: str
    reward: float
    throttled: bool
    completions: tuple[Completion, ...]


class Pool:
    """The records of the current batch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._live: dict[str, Episode] = {}
        self._unclaimed: deque[Episode] = deque()
        self.finished: dict[str, list[FinishedEpisode]] = {}
        """By task id, in the order of their ends."""

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._live.values())

    def __len__(self) -> int:
        return len(self._live)

    @property
    def unclaimed(self) -> int:
        """Episodes that wait for a client."""
        return len(self._unclaimed)

    @property
    def claimed(self) -> list[Episode]:
        """Episodes that a client holds."""
        return [episode for episode in self if episode.status == "claimed"]

    def find(self, name: str) -> Episode | None:
        """The live record, None when there is none."""
        return self._live.get(name)

    def register(self, name: str | None = None) -> Episode:
        """Open a new slot at the end of the queue; under a name of its own unless one is given."""
        episode = Episode(
            uuid=name or str(uuid.uuid4()),
            address=f"embedded://{secrets.token_hex(16)}",
            active_at=self._clock(),
        )
        self._live[episode.uuid] = episode
        self._unclaimed.append(episode)
        return episode

    def claim(
        self, client: str, kind: EpisodeType, timeout: float, task_id: str = ""
    ) -> Episode | None:
        """Hand out the oldest unclaimed episode; None when all are taken."""
        if not self._unclaimed:
            return None
        episode = self._unclaimed.popleft()
        episode.status, episode.type, episode.client = "claimed", kind, client
        episode.timeout, episode.task_id = timeout, task_id
        episode.call_count = 0
        episode.active_at = self._clock()
        return episode

    def finish(self, episode: Episode, task_id: str, reward: float) -> None:
        """Count a train episode; its slot is gone."""
        self.drop(episode)
        self.finished.setdefault(task_id, []).append(
            FinishedEpisode(
                uuid=episode.uuid,
                client=episode.client,
                task_id=task_id,
                reward=reward,
                throttled=bool(episode.task_id),
                completions=tuple(episode.completions),
            )
        )

    def revert(self, episode: Episode) -> None:
        """Back to registered under the same uuid and key; what was sampled is forgotten."""
        episode.cancel_calls()
        episode.status, episode.type, episode.client = "registered", "train", ""
        episode.timeout, episode.task_id, episode.call_count = -1.0, "", 0
        episode.completions = []
        episode.turn += 1
        self._unclaimed.append(episode)

    def drop(self, episode: Episode) -> None:
        """Delete a record."""
        episode.cancel_calls()
        episode.turn += 1
        del self._live[episode.uuid]
        if episode.status == "registered":
            self._unclaimed.remove(episode)

    def drop_unclaimed(self) -> int:
        """Delete what nobody holds; how many."""
        for episode in self._unclaimed:
            del self._live[episode.uuid]
        count = len(self._unclaimed)
        self._unclaimed.clear()
        return count

    def idle(self) -> list[Episode]:
        """Claimed episodes without a call for longer than their claim allows."""
        now = self._clock()
        return [
            episode
            for episode in self.claimed
            if not episode.calls and now - episode.active_at > episode.timeout
        ]

    def take(self) -> list[FinishedEpisode]:
        """All finished episodes, by task; the pool forgets them."""
        batch = [episode for group in self.finished.values() for episode in group]
        self.finished = {}
        return batch

    def wipe(self) -> None:
        """Forget every record; calls in flight are cancelled."""
        for episode in self._live.values():
            episode.cancel_calls()
            episode.turn += 1
        self._live.clear()
        self._unclaimed.clear()
        self.finished = {}


@dataclass(slots=True)
class _ClientActivity:
    at: float
    wall: float
    allowed: bool = False


class ActiveClients:
    """Clients that ended an episode since the last sync, and whether they agree to sync."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock = clock
        self._wall = wall
        self._seen: dict[str, _ClientActivity] = {}

    def declare(self, client: str) -> None:
        """Put a client on the list, or refresh it."""
        kept = self._seen.get(client)
        allowed = kept.allowed if kept else False
        self._seen[client] = _ClientActivity(self._clock(), self._wall(), allowed)

    def refresh(self, client: str) -> None:
        """Note activity of a client that is on the list."""
        if client in self._seen:
            self.declare(client)

    def agree(self, client: str) -> bool:
        """Record its agreement; False when it is not on the list."""
        if client not in self._seen:
            return False
        self.declare(client)
        self._seen[client].allowed = True
        return True

    def expire(self) -> None:
        """Take off those that did nothing for ten minutes."""
        since = self._clock() - CLIENT_TIMEOUT
        self._seen = {name: seen for name, seen in self._seen.items() if seen.at >= since}

    def clear(self) -> None:
        """Empty the list."""
        self._seen = {}

    @property
    def votes(self) -> list[bool]:
        """One agreement a client."""
        return [seen.allowed for seen in self._seen.values()]

    def as_json(self) -> list[dict[str, Any]]:
        """The list as the wire has it."""
        return [
            {
                "client_uuid": name,
                "last_activity_at": seen.wall,
                "allowed_sync_weight": seen.allowed,
            }
            for name, seen in self._seen.items()
        ]
