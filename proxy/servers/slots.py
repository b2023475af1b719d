"""Readings of who holds a server's episodes: a summary for the journal, all details on demand."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.secrets import redact
from ajet_swarm.common.text import content_text, known_names
from ajet_swarm.protocol.errors import ServerRefusal, SwarmError
from ajet_swarm.protocol.schemas import EpisodeRecord, PoolInfo, VerboseLog
from core.control_payloads import DETAILS_CAP, EpisodeDetails, LogLine, ServerDetails, TaskDetails
from core.events import ClientSeen, SlotsSeen
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.extensions import ask, engine_info, offers

log = logging.getLogger(__name__)

POLL_EVERY = 2.0
"""Seconds between two readings of who holds the episodes."""
MAX_CLIENTS = 20
"""Maximum number of clients in an event."""
REPLAY = "/replay_latest_llm_call"
REPLAY_LIMIT = 10.0
"""Timeout in seconds of that route."""
MAX_CHARS = 2_000
"""Maximum number of characters of a text that are passed on."""


class SlotsReader:
    """Publisher of who holds the episodes of one server, on each change."""

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
                self._publish(await self.server.client.buffer())
                self._trouble = ""
            except SwarmError as error:
                if str(error) != self._trouble:  # log it once, not with every reading
                    log.info("%s does not report its episodes: %s", self.server.name, error)
                self._trouble = str(error)
            await asyncio.sleep(POLL_EVERY)

    def _publish(self, records: Sequence[EpisodeRecord]) -> None:
        clients = clients_of(records, self.server.watcher.pool)
        event = SlotsSeen(
            server=self.server.name,
            free=sum(not record.claimed for record in records),
            claimed=sum(record.claimed for record in records),
            clients=clients[:MAX_CLIENTS],
            more=max(0, len(clients) - MAX_CLIENTS),
        )
        known = self.context.bus.state.servers.get(self.server.name)
        if event != self._last or known is None or known.slots is None:
            self._last = event
            self.context.bus.publish(event)


def clients_of(records: Sequence[EpisodeRecord], pool: PoolInfo | None) -> tuple[ClientSeen, ...]:
    """Return the clients that hold episodes or count as active, those with most episodes first."""
    running = Counter(record.client_uuid or "?" for record in records if record.claimed)
    active = {record.client_uuid or "?": record for record in (pool.active_clients if pool else ())}
    names = {**running, **active}
    clients = [
        ClientSeen(
            name=name,
            running=running[name],
            active=name in active,
            agreed=name in active and bool(active[name].allowed_sync_weight),
        )
        for name in names
    ]
    return tuple(sorted(clients, key=lambda record: (-record.running, record.name)))


async def read_details(context: ProxyContext, name: str) -> ServerDetails:
    """Read everything that a server reports.

    Raises:
        AjetError: There is no such server, or it is an upstream without episodes.
    """
    server = context.servers.get(name)
    if server is None:
        raise AjetError(f"there is no server `{name:.80}`", todo=known_names(name, context.servers))
    if not server.trains:
        raise AjetError("an upstream has no pool of episodes", server.name)
    client = server.client
    missing: list[str] = []
    async with asyncio.TaskGroup() as group:
        records = group.create_task(_optional(client.buffer(), "episodes", missing))
        pool = group.create_task(_optional(client.pool(), "the pool", missing))
        lines = group.create_task(_optional(client.verbose_logs(), "its log", missing))
        folder = group.create_task(_optional(client.experiment_dir(), "its folder", missing))
        call = group.create_task(_optional(_latest_call(server), "its newest call", missing))
        device = group.create_task(_optional(engine_info(client), "its hardware", missing))
    held, batch, info = records.result(), pool.result(), device.result()
    fresh = batch if batch is not None and not batch.stale else None
    question, answer = call.result() or ("", "")
    return ServerDetails(
        server=name,
        at=context.clock(),
        free=None if held is None else sum(not record.claimed for record in held),
        claimed=None if held is None else sum(record.claimed for record in held),
        clients=clients_of(held or (), fresh),
        episodes=_episodes(held or (), fresh, context.clock()),
        tasks=_tasks(fresh),
        folder=folder.result() or "",
        booting_since=batch.booting_start_time if batch is not None else None,
        log=_lines(lines.result() or ()),
        asked=question,
        answered=answer,
        hardware=None if info is None else info.hardware,
        missing=tuple(missing),
    )


async def _optional(request: Any, name: str, missing: list[str]) -> Any:
    """Await a response; return None and add the reason to `missing` if the request fails."""
    try:
        return await request
    except (SwarmError, msgspec.MsgspecError, RecursionError) as error:
        reason = error.what if isinstance(error, SwarmError) else "it cannot be read"
        missing.append(f"{name}: {reason}")
        return None


def _episodes(
    records: Sequence[EpisodeRecord], pool: PoolInfo | None, now: float
) -> tuple[EpisodeDetails, ...]:
    """Return claimed episodes, longest idle first; idle times by the server's clock if known."""
    running = (pool.running_episode_details if pool is not None else None) or {}

    def idle_seconds(record: EpisodeRecord) -> float | None:
        known = running.get(record.episode_uuid)
        if known is not None and known.idle is not None:
            return known.idle
        latest = record.latest_activity_timestamp
        return max(0.0, now - latest) if latest else None

    episodes = [
        EpisodeDetails(
            uuid=record.episode_uuid,
            client=record.client_uuid or "",
            kind=record.episode_type or "train",
            idle=idle_seconds(record),
            limit=record.discard_episode_timeout,
            calls=record.llm_call_count,
            task=record.optional_task_id or "",
        )
        for record in records
        if record.claimed
    ]
    return tuple(sorted(episodes, key=lambda episode: -(episode.idle or 0.0))[:DETAILS_CAP])


def _tasks(pool: PoolInfo | None) -> tuple[TaskDetails, ...]:
    if pool is None:
        return ()
    rewards = pool.completed_tasks_rewards or {}
    clients = pool.completed_tasks_client_uuids or {}
    tasks = [
        TaskDetails(
            task=task,
            episodes=len(episodes),
            rewards=tuple(rewards.get(task, ())),
            clients=tuple(sorted(set(clients.get(task, ())))),
        )
        for task, episodes in (pool.completed_tasks_details or {}).items()
    ]
    return tuple(sorted(tasks, key=lambda task_: (-task_.episodes, task_.task))[:DETAILS_CAP])


def _lines(entries: Sequence[VerboseLog]) -> tuple[LogLine, ...]:
    return tuple(
        LogLine(
            at=float(entry.timestamp) if isinstance(entry.timestamp, int | float) else None,
            tag=entry.tag or "",
            text=redact(entry.message or "")[:MAX_CHARS],
        )
        for entry in entries[-DETAILS_CAP:]
    )


async def _latest_call(server: ServerHandle) -> tuple[str, str] | None:
    """Return question and answer of the newest call; None if the server does not provide it."""
    if not await offers(server, REPLAY):
        return None
    try:
        call = await ask(server, dict[str, Any], REPLAY, {}, limit=REPLAY_LIMIT)
    except ServerRefusal:  # there was no call yet
        return None
    return _question(call.get("input")), _answer(call.get("output"))


def _question(call: Any) -> str:
    """Return the last user text of a request in any of the server's three formats."""
    if not isinstance(call, dict):
        return ""
    messages = call.get("messages", call.get("input"))
    if isinstance(messages, str):
        return redact(messages)[:MAX_CHARS]
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            return redact(content_text(message.get("content")))[:MAX_CHARS]
    return ""


def _answer(answer: Any) -> str:
    """Return the text of an answer in any of the three formats."""
    if not isinstance(answer, dict):
        return ""
    for choice in answer.get("choices") or ():
        if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
            return redact(content_text(choice["message"].get("content")))[:MAX_CHARS]
    parts = answer.get("output") if isinstance(answer.get("output"), list) else [answer]
    texts = [content_text(part.get("content")) for part in parts or () if isinstance(part, dict)]
    return redact("\n".join(text for text in texts if text))[:MAX_CHARS]
