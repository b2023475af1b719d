"""Conversion of the watchers' readings of the swarm servers into events and alerts."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from ajet_swarm.api.outcomes import AbortKind
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.api.wire import RUNNER
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from core.events import EngineChanged, EngineLost, PoolChanged
from core.events.alerts import AlertParams, params_of
from core.runtime.home import Home, running
from core.state import ANSWERS_WITHIN, STARTS_WITHIN
from proxy.alerts import clear_alert, show_alert
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.abort_watch import AbortWatch
from proxy.servers.held_batch import HeldBatch
from proxy.servers.memory_probe import probe_result
from proxy.servers.reader import ServerReader
from proxy.servers.restart_loss import RestartLoss

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

    # --- state ----------------------------------------------------------------------------------

    def _on_status(self, status: ServerStatus) -> None:
        bus = self.context.bus
        name = self.server.name
        self._restart_loss.on_status(status)
        if not status.reachable:
            known = bus.state.servers.get(name)
            if not self._lost or known is None or known.lost != status.error:
                bus.publish(EngineLost(server=name, error=status.error, seen_at=status.seen_at))
            self._lost = True
            return
        known = bus.state.servers.get(name)
        others = known.pool.other_clients if known is not None and known.pool is not None else ()
        state = self.server.state
        same = known is not None and (known.state, known.raw, known.detail, known.step) == (
            state,
            status.raw,
            status.detail,
            status.step,
        )
        if status.state in (EngineState.OFFLINE, EngineState.BOOTING):
            self._last_pool = None  # the server still reports the pool of the last run
        if self._lost or not same:
            self._lost = False
            self._clear_obsolete_alerts(status)
            bus.publish(
                EngineChanged(
                    server=name,
                    url=self.server.url,
                    state=state,
                    raw=status.raw,
                    detail=status.detail,
                    step=status.step,
                )
            )
            self._update_upstream_alerts()
        if status.trouble in STOPPED:
            clients, probe = self._other_clients(others), self._probes.get(status.since, "")
            self._alert(
                params_of("off", server=name, trouble=status.trouble, clients=clients, probe=probe)
            )
        self._reader.on_status(status)

    def _update_upstream_alerts(self) -> None:
        """Report that nothing is trained, and what is wrong with an upstream."""
        bus, name, trouble = self.context.bus, self.server.name, self.server.client.trouble
        if not self.server.trains:
            show_alert(bus, f"observe:{name}", params_of("observe"), server=name)
        if trouble:
            params = params_of("upstream", error=trouble)
            show_alert(bus, f"upstream:{name}", params, server=name)
        else:
            clear_alert(bus, f"upstream:{name}")

    def _other_clients(self, others: tuple[str, ...]) -> tuple[str, ...]:
        """Return the other clients at the time of the stop; keep them as long as the alert."""
        alert = self.context.bus.state.alerts.get(f"off:{self.server.name}")
        if alert is not None and not others:
            return tuple(alert.params.get("clients", ()))
        return tuple(client[:40] for client in others[:4])

    def _clear_obsolete_alerts(self, status: ServerStatus) -> None:
        obsolete = ["lost"]
        if status.state is not EngineState.OFFLINE:
            obsolete.append("refused")
        if status.trouble not in STOPPED:
            obsolete.append("off")
        if status.state is not EngineState.BOOTING:
            obsolete.append("boot")
        if status.state.rolling or status.state is EngineState.WEIGHT_SYNCING:
            obsolete.append("start")
        for name in obsolete:
            clear_alert(self.context.bus, f"{name}:{self.server.name}")

    async def _check_periodically(self) -> None:
        """Raise alerts that depend on time, and find an embedded engine that has a new address."""
        while True:
            await asyncio.sleep(CHECK_EVERY)
            status = self.server.watcher.current
            now = self.context.clock()
            await self._follow_moved_engine()
            self._check_ratings(status)
            await self._find_probe(status)
            await self._check_batch(status)
            self._update_refused_alert(status)
            self._publish_first_pool(status)
            self._restart_loss.check(
                status,
                self.server.watcher.pool,
                self.server.watcher.pool_at,
                knows_checkpoints=self._reader.has_read,
            )
            last_seen = status.seen_at or self.context.bus.state.started_at
            unseen_limit = UNSEEN_LIMIT if self.home is None else STARTS_WITHIN
            limit = LOST_LIMIT if status.seen_at else unseen_limit
            if not status.reachable and now - last_seen > limit:
                self._alert(params_of("lost", server=self.server.name, error=status.error))
            elif status.state is EngineState.BOOTING and now - status.since > BOOT_STALLED_AFTER:
                self._alert(
                    params_of("boot", server=self.server.name, minutes=BOOT_STALLED_AFTER / 60)
                )

    async def _find_probe(self, status: ServerStatus) -> None:
        """Look once for the result of a memory probe after the trainer has ended."""
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
        state = self.context.bus.state
        open_groups = [group for group in state.open_groups() if group.server == self.server.name]
        awaiting = [
            group
            for group in open_groups
            if group.phase == "AWAITING_RATING" and group.rating is None
        ]
        since = self.context.clock() - HELD_UP_AFTER
        waiting = [
            group for group in open_groups if group.phase == "CLAIMING" and group.opened_at <= since
        ]
        rows = sum(bool(group.row_id) for group in waiting)
        holds_update = (
            bool(awaiting) and status.reachable and status.state is EngineState.ROLLING_POST
        )
        if holds_update or (waiting and any(group.awaiting != "window" for group in awaiting)):
            params = params_of(
                "hold",
                ratings=len(awaiting),
                unscored=sum(bool(group.abstained) for group in awaiting),
                users=0 if holds_update else len(waiting) - rows,
                rows=0 if holds_update else rows,
            )
            self._alert(params, [group.group_id for group in awaiting])
        else:
            clear_alert(self.context.bus, f"hold:{self.server.name}")

    async def _check_batch(self, status: ServerStatus) -> None:
        """Raise an alert about the episodes that keep ROLLING_POST from ending, and their owners.

        While other clients hold them, requests that wait for the next batch get more time. Episodes
        of a client that seems dead are aborted if the settings demand it.
        """
        now = asyncio.get_running_loop().time()
        elapsed, self._checked_at = now - (self._checked_at or now), now
        if (held := self._held_batch.update(status)) is not None:
            self._alert(held, self._held_batch.groups)
        else:
            clear_alert(self.context.bus, f"held:{self.server.name}")
        if self._held_batch.foreign and self._on_held is not None:
            self._on_held(elapsed)
        if limit := self.context.settings.proxy.abort_dead_clients:
            for uuid, idle in self._held_batch.foreign.items():
                if idle >= limit:
                    await self._abort_foreign(uuid, idle)

    async def _abort_foreign(self, uuid: str, idle: float) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._foreign_aborts.get(uuid, 0.0):
            return
        kind = await self.server.client.abort(uuid, timeout=ABORT_LIMIT)
        self._foreign_aborts.pop(uuid, None)
        if kind is AbortKind.UNKNOWN_OUTCOME:
            self._foreign_aborts[uuid] = now + RUNNER
        outcome = "aborted" if kind is AbortKind.CONFIRMED else "could not abort"
        text = "%s: %s episode %.8s of another client: no call for %.0f s"
        log.warning(text, self.server.name, outcome, uuid, idle)
        self.server.watcher.nudge()

    def _update_refused_alert(self, status: ServerStatus) -> None:
        """Update the alert about refused users with the current state."""
        if f"refused:{self.server.name}" in self.context.bus.state.alerts:
            state = status.display_state.value
            self._alert(params_of("refused", server=self.server.name, state=state))

    def _alert(self, params: AlertParams, groups: Sequence[str] = ()) -> None:
        key = f"{params.kind}:{self.server.name}"
        show_alert(self.context.bus, key, params, groups=groups)

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
        ours = self.context.client_uuid
        details = pool.running_episode_details or {}
        others = [
            episode.client_uuid or "?"
            for episode in details.values()
            if episode.client_uuid != ours
        ]
        event = PoolChanged(
            server=self.server.name,
            method=pool.sample_collection_method or "",
            completed_episodes=pool.completed_episodes or 0,
            episode_target=pool.completed_episode_target or 0,
            completed_tasks=pool.completed_tasks or 0,
            task_target=pool.completed_task_target or 0,
            non_dummy_tasks=pool.completed_non_dummy_tasks or 0,
            repeats=pool.repeat,
            running=len(details),
            running_others=len(others),
            other_clients=tuple(sorted(set(others))),
            model=pool.training_model_path or "",
        )
        if event != self._last_pool:
            self._last_pool = event
            self.context.bus.publish(event)
