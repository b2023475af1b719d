"""Reads who holds a server's episodes: small facts for the journal, everything on demand."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import content_text, known_names, redact
from ajet_swarm.http.interface import Request
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import EpisodeRecord, PoolInfo, RunningEpisode, VerboseLog
from core.control_payloads import DETAILS_CAP, EpisodeDetails, LogLine, ServerDetails, TaskDetails
from core.events import ClientSeen, SlotsSeen
from proxy.context import ProxyContext, ServerHandle

T = TypeVar("T")

log = logging.getLogger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two readings of who holds the episodes."""
LISTED = 20
"""Clients an event carries."""
REPLAY = "/replay_latest_llm_call"
TEXT = 2_000
"""Characters of a call that are handed on."""


class SlotsReader:
    """Tells the journal who holds the episodes of one server, when that changes."""

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self.context = context
        self.server = server
        self._last: SlotsSeen | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Read until cancelled, while the engine rolls."""
        watcher = self.server.watcher
        while True:
            await watcher.wait_for(lambda seen: seen.reachable and seen.state.rolling)
            try:
                self._tell(await self.server.client.buffer())
                self._trouble = ""
            except SwarmError as error:
                if str(error) != self._trouble:  # it comes back with every reading
                    log.info("%s does not report its episodes: %s", self.server.name, error)
                self._trouble = str(error)
            await asyncio.sleep(LOOK_EVERY)

    def _tell(self, records: Sequence[EpisodeRecord]) -> None:
        clients = clients_of(records, self.server.watcher.pool)
        told = SlotsSeen(
            server=self.server.name,
            free=sum(not one.claimed for one in records),
            claimed=sum(one.claimed for one in records),
            clients=clients[:LISTED],
            more=max(0, len(clients) - LISTED),
        )
        known = self.context.bus.state.servers.get(self.server.name)
        if told != self._last or known is None or known.slots is None:
            self._last = told
            self.context.bus.publish(told)


def clients_of(records: Sequence[EpisodeRecord], pool: PoolInfo | None) -> tuple[ClientSeen, ...]:
    """Who holds episodes or counts as active, those with most episodes first."""
    running = Counter(one.client_uuid or "?" for one in records if one.claimed)
    active = {one.client_uuid or "?": one for one in (pool.active_clients if pool else ())}
    names = {**running, **active}
    found = [
        ClientSeen(
            name=name,
            running=running[name],
            active=name in active,
            agreed=name in active and bool(active[name].allowed_sync_weight),
        )
        for name in names
    ]
    return tuple(sorted(found, key=lambda one: (-one.running, one.name)))


async def read_details(context: ProxyContext, name: str) -> ServerDetails:
    """Ask a server everything it tells.

    Raises:
        AjetError: there is no such server, or it has no episodes of its own.
    """
    server = context.servers.get(name)
    if server is None:
        raise AjetError(f"there is no server `{name:.80}`", todo=known_names(name, context.servers))
    if server.observes:
        raise AjetError("an upstream has no pool of episodes", server.name)
    client = server.client
    missing: list[str] = []
    async with asyncio.TaskGroup() as group:
        records = group.create_task(_told(client.buffer(), "episodes", missing))
        pool = group.create_task(_told(client.pool(), "the pool", missing))
        lines = group.create_task(_told(client.verbose_logs(), "its log", missing))
        folder = group.create_task(_told(client.experiment_dir(), "its folder", missing))
        call = group.create_task(_told(_latest(server), "its newest call", missing))
    held, batch = records.result(), pool.result()
    fresh = batch if batch is not None and not batch.stale else None
    asked, answered = call.result() or ("", "")
    return ServerDetails(
        server=name,
        at=context.clock(),
        free=None if held is None else sum(not one.claimed for one in held),
        claimed=None if held is None else sum(one.claimed for one in held),
        clients=clients_of(held or (), fresh),
        episodes=_episodes(held or (), fresh, context.clock()),
        tasks=_tasks(fresh),
        folder=folder.result() or "",
        booting_since=batch.booting_start_time if batch is not None else None,
        log=_lines(lines.result() or ()),
        asked=asked,
        answered=answered,
        missing=tuple(missing),
    )


async def _told(asked: Any, what: str, missing: list[str]) -> Any:
    """What a question brings; None, with the reason noted, when the server does not answer it."""
    try:
        return await asked
    except (SwarmError, msgspec.MsgspecError, RecursionError) as error:
        what_failed = error.what if isinstance(error, SwarmError) else "it cannot be read"
        missing.append(f"{what}: {what_failed}")
        return None


def _episodes(
    records: Sequence[EpisodeRecord], pool: PoolInfo | None, now: float
) -> tuple[EpisodeDetails, ...]:
    """Claimed episodes, the longest idle first; idle times by the server's own clock if it can."""
    details = (pool.running_episode_details if pool is not None else None) or {}
    found = [_episode(one, details, now) for one in records if one.claimed]
    return tuple(sorted(found, key=lambda one: -(one.idle or 0.0))[:DETAILS_CAP])


def _episode(
    one: EpisodeRecord, details: Mapping[str, RunningEpisode], now: float
) -> EpisodeDetails:
    told = details.get(one.episode_uuid)
    idle = told.idle if told is not None else None
    if idle is None and one.latest_activity_timestamp:
        idle = max(0.0, now - one.latest_activity_timestamp)
    return EpisodeDetails(
        uuid=one.episode_uuid,
        client=one.client_uuid or "",
        kind=one.episode_type or "train",
        idle=idle,
        limit=one.discard_episode_timeout,
        calls=one.llm_call_count,
        task=one.optional_task_id or "",
    )


def _tasks(pool: PoolInfo | None) -> tuple[TaskDetails, ...]:
    if pool is None:
        return ()
    rewards = pool.completed_tasks_rewards or {}
    clients = pool.completed_tasks_client_uuids or {}
    found = [
        TaskDetails(
            task=task,
            episodes=len(episodes),
            rewards=tuple(rewards.get(task, ())),
            clients=tuple(sorted(set(clients.get(task, ())))),
        )
        for task, episodes in (pool.completed_tasks_details or {}).items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.episodes, one.task))[:DETAILS_CAP])


def _lines(entries: Sequence[VerboseLog]) -> tuple[LogLine, ...]:
    return tuple(
        LogLine(
            at=float(one.timestamp) if isinstance(one.timestamp, int | float) else None,
            tag=one.tag or "",
            text=redact(one.message or "")[:TEXT],
        )
        for one in entries[-DETAILS_CAP:]
    )


async def _latest(server: ServerHandle) -> tuple[str, str] | None:
    """Question and answer of the newest call; None of a server that keeps none."""
    client = server.client
    if REPLAY not in await client.features():
        return None
    response = await client.transport.request(
        Request(
            "POST",
            client.url + REPLAY,
            body=b"{}",
            headers={"content-type": "application/json"},
            timeout=10.0,
            repeatable=True,
        )
    )
    if response.status != 200:
        return None
    found = msgspec.json.decode(response.body)
    if not isinstance(found, dict):
        return None
    return _asked(found.get("input")), _answer(found.get("output"))


def _asked(call: Any) -> str:
    """The last user text of a request in any of the three forms a server takes."""
    if not isinstance(call, dict):
        return ""
    messages = call.get("messages", call.get("input"))
    if isinstance(messages, str):
        return redact(messages)[:TEXT]
    for one in reversed(messages if isinstance(messages, list) else []):
        if isinstance(one, dict) and one.get("role") == "user":
            return redact(content_text(one.get("content")))[:TEXT]
    return ""


def _answer(answer: Any) -> str:
    """The text of an answer in any of the three forms."""
    if not isinstance(answer, dict):
        return ""
    for choice in answer.get("choices") or ():
        if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
            return redact(content_text(choice["message"].get("content")))[:TEXT]
    parts = answer.get("output") if isinstance(answer.get("output"), list) else [answer]
    texts = [content_text(one.get("content")) for one in parts or () if isinstance(one, dict)]
    return redact("\n".join(text for text in texts if text))[:TEXT]
