"""Episodes of one batch: registered, claimed, finished. Plain data without I/O.

Life cycle of an episode: protocol section 4.2.
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
"""Seconds of inactivity after which a client leaves the active list."""


@dataclass(slots=True, eq=False)
class Episode:
    """A slot that one client at a time may claim."""

    uuid: str
    address: str
    """The unguessable part of the key."""
    active_at: float
    """Clock reading of the last claim or call."""
    status: Literal["registered", "claimed"] = "registered"
    type: EpisodeType = "train"
    client: str = ""
    timeout: float = -1.0
    task_id: str = ""
    """Set only by claims with a throttle policy."""
    call_count: int = 0
    turn: int = 0
    """Number of owners so far; tells one owner's calls from the next one's."""
    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    """Calls in flight."""
    completions: list[Completion] = field(default_factory=list)
    serial: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the call being sampled when calls are sampled one at a time."""

    def cancel_calls(self) -> None:
        """Cancel the calls in flight, which frees their rows in the sampler."""
        for call in self.calls:
            call.cancel()
        self.calls.clear()


@dataclass(frozen=True, slots=True)
class FinishedEpisode:
    """A train episode that ended with a reward."""

    uuid: str
    client: str
    task_id: str
    reward: float
    throttled: bool
    completions: tuple[Completion, ...]


class Pool:
    """The episodes of the current batch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._live: dict[str, Episode] = {}
        self._unclaimed: deque[Episode] = deque()
        self.finished: dict[str, list[FinishedEpisode]] = {}
        """Finished episodes by task id, in the order of their ends."""

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._live.values())

    def __len__(self) -> int:
        return len(self._live)

    @property
    def unclaimed(self) -> int:
        """Number of episodes that wait for a client."""
        return len(self._unclaimed)

    @property
    def claimed(self) -> list[Episode]:
        """Episodes that a client holds."""
        return [episode for episode in self if episode.status == "claimed"]

    def find(self, name: str) -> Episode | None:
        """Return the live episode, or None."""
        return self._live.get(name)

    def register(self, name: str | None = None) -> Episode:
        """Add a slot at the end of the queue, under a new uuid unless a name is given."""
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
        """Claim the oldest unclaimed episode; return None when all are taken."""
        if not self._unclaimed:
            return None
        episode = self._unclaimed.popleft()
        episode.status, episode.type, episode.client = "claimed", kind, client
        episode.timeout, episode.task_id = timeout, task_id
        episode.call_count = 0
        episode.active_at = self._clock()
        return episode

    def finish(self, episode: Episode, task_id: str, reward: float) -> None:
        """Move a train episode to the finished ones; its slot is freed."""
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
        """Make an episode claimable again under the same uuid and key; discard its completions."""
        episode.cancel_calls()
        episode.status, episode.type, episode.client = "registered", "train", ""
        episode.timeout, episode.task_id, episode.call_count = -1.0, "", 0
        episode.completions = []
        episode.turn += 1
        self._unclaimed.append(episode)

    def drop(self, episode: Episode) -> None:
        """Delete an episode."""
        episode.cancel_calls()
        episode.turn += 1
        del self._live[episode.uuid]
        if episode.status == "registered":
            self._unclaimed.remove(episode)

    def drop_unclaimed(self) -> int:
        """Delete the unclaimed episodes; return how many."""
        for episode in self._unclaimed:
            del self._live[episode.uuid]
        count = len(self._unclaimed)
        self._unclaimed.clear()
        return count

    def idle(self) -> list[Episode]:
        """Return the claimed episodes without a call for longer than their timeout."""
        now = self._clock()
        return [
            episode
            for episode in self.claimed
            if not episode.calls and now - episode.active_at > episode.timeout
        ]

    def take(self) -> list[FinishedEpisode]:
        """Remove and return all finished episodes, grouped by task."""
        batch = [episode for group in self.finished.values() for episode in group]
        self.finished = {}
        return batch

    def wipe(self) -> None:
        """Delete every episode and cancel the calls in flight."""
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
    agreed: bool = False


class ActiveClients:
    """Clients that ended an episode since the last sync, and whether they agree to sync."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock = clock
        self._wall = wall
        self._clients: dict[str, _ClientActivity] = {}

    def declare(self, client: str) -> None:
        """Add a client to the list, or refresh it."""
        entry = self._clients.get(client)
        agreed = entry.agreed if entry else False
        self._clients[client] = _ClientActivity(self._clock(), self._wall(), agreed)

    def refresh(self, client: str) -> None:
        """Record activity of a listed client."""
        if client in self._clients:
            self.declare(client)

    def agree(self, client: str) -> bool:
        """Record a client's agreement; return False when it is not listed."""
        if client not in self._clients:
            return False
        self.declare(client)
        self._clients[client].agreed = True
        return True

    def expire(self) -> None:
        """Remove the clients that were inactive for ten minutes."""
        since = self._clock() - CLIENT_TIMEOUT
        self._clients = {name: entry for name, entry in self._clients.items() if entry.at >= since}

    def clear(self) -> None:
        """Empty the list."""
        self._clients = {}

    @property
    def votes(self) -> list[bool]:
        """One agreement flag per client."""
        return [entry.agreed for entry in self._clients.values()]

    def as_json(self) -> list[dict[str, Any]]:
        """Return the list in the form of the wire."""
        return [
            {
                "client_uuid": name,
                "last_activity_at": entry.wall,
                "allowed_sync_weight": entry.agreed,
            }
            for name, entry in self._clients.items()
        ]
