"""Conversion of the watchers' readings of the swarm servers into events and alerts."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.api.wire import RUNNER
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import AbortKind, EngineState, PoolInfo, VerboseLog
from core.events import EngineChanged, EngineLost, PoolChanged
from core.events.alerts import AlertParams, params_of
from core.runtime.home import Home, running
from core.state import Server
from core.state.proxy import ANSWERS_WITHIN, STARTS_WITHIN
from proxy.alerts import clear_alert, show_alert
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.losses import AbortWatch, HeldBatch, RestartLoss
from proxy.servers.reader import ServerReader

log = logging.getLogger(__name__)

CHECK_EVERY = 1.0
"""Seconds between two checks for alerts that depend on time."""
LOST_LIMIT = 20.0
"""Seconds without an answer after which an alert is raised."""
HELD_UP_AFTER = 2.0
"""Seconds after which a waiting request counts as held up: another group may end for it."""
UNSEEN_LIMIT = ANSWERS_WITHIN
"""The same for a server that never answered: its URL may be wrong."""
BOOT_STALLED_AFTER = 300.0
"""Seconds in BOOTING after which a start counts as failed: a real server stays in that state."""
ABORT_LIMIT = 5.0
"""Timeout in seconds for the abort of another client's episode."""
STOPPED = frozenset({"stopped by another client", "restarted"})
"""Troubles of an engine that is off and that this proxy did not stop."""
_PROBE_TAG = "find_max_ppo_token_len"
_PROBE_KEY = "ajet.rollout.ppo_max_token_len_per_gpu"
_RECOMMENDED = re.compile(r"Recommended.*ppo_max_token_len_per_gpu *= *(\d{1,9})")
_FITS = re.compile(r"L=(\d{1,9}) tok/gpu.*-> OK +peak=([\d.]{1,9})GB")


class ServerWatch:
    """Watch over one server.

    Args:
        context: The shared parts of the proxy.
        server: The server.
        home: Home of the embedded engine, whose address may change with a restart; else None.
        on_held: Called with the seconds since the last check while other clients' episodes hold up
            the batch.
    """

    def __init__(
        self,
        context: ProxyContext,
        server: ServerHandle,
        home: Home | None = None,
        on_held: Callable[[float], None] | None = None,
    ) -> None:
        self.context = context
        self.server = server
        self.home = home
        self._on_held = on_held
        self._checked_at = 0.0
        """When the batch was last checked, on the loop's clock."""
        self._lost = True
        self._last_pool: PoolChanged | None = None
        self._reader = ServerReader(context, server)
        self._abort_watch = AbortWatch(context, server)
        self._held_batch = HeldBatch(context, server)
        self._foreign_aborts: dict[str, float] = {}
        """Other clients' episodes whose abort got no answer, with the time from which it may be
        sent again, on the loop's clock: the server may still process it, and then grant the episode
        to another client."""
        self._probes: dict[float, str] = {}
        """When the engine was seen OFFLINE -> result of the memory probe that ended it."""
        self._restart_loss = RestartLoss(context, server, keeps_tokens=home is not None)

    async def run(self) -> None:
        """Watch until cancelled."""
        watcher = self.server.watcher
        watcher.add_listener(self._on_status)
        watcher.add_pool_listener(self._on_pool)
        loops = {
            "status": watcher.run,
            "updates": self._reader.run,
            "checks": self._check_periodically,
        }
        async with asyncio.TaskGroup() as group:
            for part, loop in loops.items():
                name = f"{part} of {self.server.name}"
                group.create_task(self.context.keep_running(loop, name), name=name)

    @property
    def _known(self) -> Server | None:
        return self.context.bus.state.servers.get(self.server.name)

    def _alert(
        self,
        kind: str,
        params: AlertParams | None,
        groups: Sequence[str] = (),
        server: str = "",
    ) -> None:
        """Show the alert of this kind about the server, or clear it if there are no parameters."""
        key = f"{kind}:{self.server.name}"
        if params is None:
            clear_alert(self.context.bus, key)
        else:
            show_alert(self.context.bus, key, params, groups=groups, server=server)

    # --- state ----------------------------------------------------------------------------------

    def _on_status(self, status: ServerStatus) -> None:
        self._restart_loss.on_status(status)
        name, known = self.server.name, self._known
        if not status.reachable:
            if not self._lost or known is None or known.lost != status.error:
                lost = EngineLost(server=name, error=status.error, seen_at=status.seen_at)
                self.context.bus.publish(lost)
            self._lost = True
            return
        others = known.pool.other_clients if known is not None and known.pool is not None else ()
        if status.state in (EngineState.OFFLINE, EngineState.BOOTING):
            self._last_pool = None  # the server still reports the pool of the last run
        changed = EngineChanged(
            server=name,
            url=self.server.url,
            state=self.server.state,
            raw=status.raw,
            detail=status.detail,
            step=status.step,
        )
        if self._lost or known is None or _described(changed) != _described(known):
            self._lost = False
            self._clear_obsolete_alerts(status)
            self.context.bus.publish(changed)
            self._update_upstream_alerts()
        if status.trouble in STOPPED:
            clients, probe = self._other_clients(others), self._probes.get(status.since, "")
            off = {"server": name, "trouble": status.trouble, "clients": clients, "probe": probe}
            self._alert("off", params_of("off", **off))
        self._reader.on_status(status)

    def _update_upstream_alerts(self) -> None:
        """Report that nothing is trained, and what is wrong with an upstream."""
        name, trouble = self.server.name, self.server.client.facts.trouble
        if not self.server.trains:
            self._alert("observe", params_of("observe"), server=name)
        params = params_of("upstream", error=trouble) if trouble else None
        self._alert("upstream", params, server=name)

    def _other_clients(self, others: tuple[str, ...]) -> tuple[str, ...]:
        """Return the other clients at the time of the stop; keep them as long as the alert."""
        alert = self.context.bus.state.alerts.get(f"off:{self.server.name}")
        if alert is not None and not others:
            return tuple(alert.params.get("clients", ()))
        return tuple(client[:40] for client in others[:4])

    def _clear_obsolete_alerts(self, status: ServerStatus) -> None:
        works = status.state.rolling or status.state is EngineState.WEIGHT_SYNCING
        obsolete = {
            "lost": True,
            "refused": status.state is not EngineState.OFFLINE,
            "off": status.trouble not in STOPPED,
            "boot": status.state is not EngineState.BOOTING,
            "start": works,
        }
        for kind, is_obsolete in obsolete.items():
            if is_obsolete:
                self._alert(kind, None)

    # --- checks ---------------------------------------------------------------------------------

    async def _check_periodically(self) -> None:
        """Raise alerts that depend on time, and find an embedded engine that has a new address."""
        watcher = self.server.watcher
        while True:
            await asyncio.sleep(CHECK_EVERY)
            status = watcher.current
            await self._follow_moved_engine()
            self._check_ratings(status)
            await self._find_probe(status)
            await self._check_batch(status)
            if f"refused:{self.server.name}" in self.context.bus.state.alerts:
                state = status.display_state.value
                self._alert("refused", params_of("refused", server=self.server.name, state=state))
            self._publish_first_pool(status)
            self._restart_loss.check(
                status, watcher.pool, watcher.pool_at, knows_checkpoints=self._reader.has_read
            )
            self._check_answers(status)

    def _check_answers(self, status: ServerStatus) -> None:
        """Raise an alert about a server without an answer, or whose engine does not start."""
        now = self.context.clock()
        last_seen = status.seen_at or self.context.bus.state.started_at
        unseen_limit = UNSEEN_LIMIT if self.home is None else STARTS_WITHIN
        limit = LOST_LIMIT if status.seen_at else unseen_limit
        if not status.reachable and now - last_seen > limit:
            self._alert("lost", params_of("lost", server=self.server.name, error=status.error))
        elif status.state is EngineState.BOOTING and now - status.since > BOOT_STALLED_AFTER:
            minutes = BOOT_STALLED_AFTER / 60
            self._alert("boot", params_of("boot", server=self.server.name, minutes=minutes))

    async def _find_probe(self, status: ServerStatus) -> None:
        """Read once the result of a memory probe after the trainer has ended."""
        ended = status.state is EngineState.OFFLINE and status.trouble in STOPPED
        if not ended or not status.reachable or status.since in self._probes:
            return
        self._probes = {status.since: ""}
        with contextlib.suppress(SwarmError):
            found = probe_result(await self.server.client.verbose_logs())
            self._probes = {status.since: found}
        if self._probes[status.since]:
            self._on_status(self.server.watcher.current)

    def _check_ratings(self, status: ServerStatus) -> None:
        """Raise an alert when open ratings hold up the weight update or waiting users."""
        opened = self.context.bus.state.open_groups()
        groups = [group for group in opened if group.server == self.server.name]
        awaiting = [
            group for group in groups if group.phase == "AWAITING_RATING" and group.rating is None
        ]
        since = self.context.clock() - HELD_UP_AFTER
        waiting = [
            group for group in groups if group.phase == "CLAIMING" and group.opened_at <= since
        ]
        holds_update = bool(awaiting) and status.is_in({EngineState.ROLLING_POST})
        holds_users = bool(waiting) and any(group.awaiting != "window" for group in awaiting)
        rows = 0 if holds_update else sum(bool(group.row_id) for group in waiting)
        params = params_of(
            "hold",
            ratings=len(awaiting),
            unscored=sum(bool(group.abstained) for group in awaiting),
            users=0 if holds_update else len(waiting) - rows,
            rows=rows,
        )
        holds = holds_update or holds_users
        self._alert("hold", params if holds else None, [group.group_id for group in awaiting])

    async def _check_batch(self, status: ServerStatus) -> None:
        """Raise an alert about the episodes that keep ROLLING_POST from ending, and their owners.

        While other clients hold them, requests that wait for the next batch get more time. Episodes
        of a client that seems dead are aborted if the settings demand it.
        """
        now = asyncio.get_running_loop().time()
        elapsed, self._checked_at = now - (self._checked_at or now), now
        held = self._held_batch.update(status)
        self._alert("held", held, self._held_batch.groups)
        if self._held_batch.foreign and self._on_held is not None:
            self._on_held(elapsed)
        if limit := self.context.settings.proxy.abort_dead_clients:
            for uuid, idle in self._held_batch.foreign.items():
                if idle >= limit and now >= self._foreign_aborts.get(uuid, 0.0):
                    await self._abort_foreign(uuid, idle)

    async def _abort_foreign(self, uuid: str, idle: float) -> None:
        now = asyncio.get_running_loop().time()
        kind = await self.server.client.abort(uuid, timeout=ABORT_LIMIT)
        self._foreign_aborts.pop(uuid, None)
        if kind is AbortKind.UNKNOWN_OUTCOME:
            self._foreign_aborts[uuid] = now + RUNNER
        outcome = "aborted" if kind is AbortKind.CONFIRMED else "could not abort"
        text = "%s: %s episode %.8s of another client: no call for %.0f s"
        log.warning(text, self.server.name, outcome, uuid, idle)
        self.server.watcher.nudge()

    async def _follow_moved_engine(self) -> None:
        """Use the engine's current address, even if an engine answers at the old one: it may belong
        to another home."""
        if self.home is None:
            return
        info = await asyncio.to_thread(running, self.home, "engine")
        if info is not None and info.url and info.url != self.server.client.url:
            log.info("the embedded engine now listens on %s", info.url)
            self.server.url = self.server.client.url = info.url
            self.server.watcher.nudge()

    # --- pool -----------------------------------------------------------------------------------

    def _publish_first_pool(self, status: ServerStatus) -> None:
        """Publish the pool of a new run, even if its counters equal those of the last run."""
        watcher = self.server.watcher
        pool = watcher.pool if watcher.pool_at > status.since and status.state.rolling else None
        if self._last_pool is None and pool is not None and not pool.stale:
            self._on_pool(pool)

    def _on_pool(self, pool: PoolInfo) -> None:
        self._reader.on_pool(pool)
        self._abort_watch.on_pool(pool)
        running_episodes = (pool.running_episode_details or {}).values()
        clients = [episode.client_uuid for episode in running_episodes]
        others = [client or "?" for client in clients if client != self.context.client_uuid]
        event = PoolChanged(
            server=self.server.name,
            method=pool.sample_collection_method or "",
            completed_episodes=pool.completed_episodes or 0,
            episode_target=pool.completed_episode_target or 0,
            completed_tasks=pool.completed_tasks or 0,
            task_target=pool.completed_task_target or 0,
            non_dummy_tasks=pool.completed_non_dummy_tasks or 0,
            repeats=pool.repeat,
            running=len(clients),
            running_others=len(others),
            other_clients=tuple(sorted(set(others))),
            model=pool.training_model_path or "",
        )
        if event != self._last_pool:
            self._last_pool = event
            self.context.bus.publish(event)


def _described(server: EngineChanged | Server) -> tuple[str, str, str, int | None]:
    return server.state, server.raw, server.detail, server.step


def probe_result(lines: Iterable[VerboseLog]) -> str:
    """Return what a memory probe of AgentJet found, as text; empty if the log has no line of it.

    A server that was started with `AGENTJET_FIND_MAX_PPO_TOKEN_LEN` measures in the first update
    how many tokens fit on a GPU, logs each measurement, and ends its trainer with an error, whose
    text has the recommended value.
    """
    log_text = "\n".join(line.message or "" for line in lines if line.tag == _PROBE_TAG)
    if not log_text:
        return ""
    fits = max(_FITS.findall(log_text), key=lambda found: int(found[0]), default=None)
    if recommended := _RECOMMENDED.findall(log_text):
        result = f"{_PROBE_KEY} = {recommended[-1]} is recommended"
    elif fits is not None:
        result = f"{fits[0]} tokens per GPU fit ({fits[1]} GB); the server's log has the "
        result += f"recommended {_PROBE_KEY}"
    else:
        result = "no size that fits; the server's log has the reason"
    variable = "AGENTJET_FIND_MAX_PPO_TOKEN_LEN"
    return f"its memory probe has ended: {result}; restart the server without {variable}"
