"""Turns what the watchers see of the swarm servers into events."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from core.events import EngineChanged, EngineLost, PoolChanged
from core.events.alerts import (
    AlertParams,
    BootStalled,
    RatingsHoldUp,
    ServerLost,
    ServerOff,
    UsersRefused,
)
from core.runtime.home import Home, running
from core.state import ANSWERS_WITHIN, STARTS_WITHIN
from proxy.alerts import clear_alert, show_alert
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.abort_watch import AbortWatch
from proxy.servers.held_batch import HeldBatch
from proxy.servers.observe_client import STATE
from proxy.servers.observe_mode import update_alerts
from proxy.servers.restart_loss import RestartLoss
from proxy.servers.updates import UpdateReader

log = logging.getLogger(__name__)

GUARD_EVERY = 1.0
"""Seconds between two checks for the alerts that come with time."""
LOST_LIMIT = 20.0
"""Seconds without an answer after which an alert is raised."""
NEVER_LIMIT = ANSWERS_WITHIN
"""The same for a server that never answered: its URL may be wrong."""
BOOT_LIMIT = 300.0
"""Seconds in BOOTING after which a start is taken for failed: the real server stays there."""
ABORT_LIMIT = 5.0
"""Seconds the abort of another client's episode may take."""
STOPPED = frozenset({"stopped by another client", "restarted"})
"""Troubles of an engine that is off and was not stopped here."""


class ServerWatch:
    """Watches one server for one proxy.

    Args:
        context: The proxy's shared parts.
        server: The server.
        home: Of the embedded engine, whose address may change with a restart; else None.
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
        self._updates = UpdateReader(context, server)
        self._taken = AbortWatch(context, server)
        self._batch = HeldBatch(context, server)
        self._restart = RestartLoss(context, server, keeps_tokens=home is not None)

    async def run(self) -> None:
        """Watch until cancelled."""
        watcher = self.server.watcher
        watcher.add_listener(self._seen)
        watcher.add_pool_listener(self._pool)
        async with asyncio.TaskGroup() as group:
            group.create_task(watcher.run())
            group.create_task(self._updates.run())
            group.create_task(self._guard())

    # --- state ----------------------------------------------------------------------------------

    def _seen(self, seen: ServerStatus) -> None:
        bus = self.context.bus
        name = self.server.name
        self._restart.seen(seen)
        if not seen.reachable:
            known = bus.state.servers.get(name)
            if not self._lost or known is None or known.lost != seen.error:
                bus.publish(EngineLost(server=name, error=seen.error, seen_at=seen.seen_at))
            self._lost = True
            return
        known = bus.state.servers.get(name)
        others = known.pool.other_clients if known is not None and known.pool is not None else ()
        state = STATE if self.server.observes else seen.state.value
        same = known is not None and (known.state, known.raw, known.detail, known.step) == (
            state,
            seen.raw,
            seen.detail,
            seen.step,
        )
        if seen.state in (EngineState.OFFLINE, EngineState.BOOTING):
            self._last_pool = (
                None  # what the server still tells of its pool is of a run that is over
            )
        if self._lost or not same:
            self._lost = False
            self._alerts_gone(seen)
            bus.publish(
                EngineChanged(
                    server=name,
                    url=self.server.url,
                    state=state,
                    raw=seen.raw,
                    detail=seen.detail,
                    step=seen.step,
                )
            )
            if self.server.observes:
                update_alerts(bus, self.server)
        if seen.trouble in STOPPED:
            clients = self._suspects(others)
            self._alert(ServerOff(server=name, trouble=seen.trouble, clients=clients))
        self._updates.seen(seen)

    def _suspects(self, others: tuple[str, ...]) -> tuple[str, ...]:
        """Return who else was on the server when it went off; kept while the alert stands."""
        alert = self.context.bus.state.alerts.get(f"off:{self.server.name}")
        if alert is not None and not others:
            return tuple(alert.params.get("clients", ()))
        return tuple(one[:40] for one in others[:4])

    def _alerts_gone(self, seen: ServerStatus) -> None:
        gone = ["lost"]
        if seen.state is not EngineState.OFFLINE:
            gone.append("refused")
        if seen.trouble not in STOPPED:
            gone.append("off")
        if seen.state is not EngineState.BOOTING:
            gone.append("boot")
        if seen.state.rolling or seen.state is EngineState.WEIGHT_SYNCING:
            gone.append("start")
        for what in gone:
            clear_alert(self.context.bus, f"{what}:{self.server.name}")

    async def _guard(self) -> None:
        """Raise the alerts that come with time, and find an embedded engine that has moved."""
        while True:
            await asyncio.sleep(GUARD_EVERY)
            seen = self.server.watcher.current
            now = self.context.clock()
            await self._refind()
            self._held_up(seen)
            await self._held_batch(seen)
            self._refused(seen)
            self._same_pool(seen)
            since = seen.seen_at or self.context.bus.state.started_at
            never = NEVER_LIMIT if self.home is None else STARTS_WITHIN
            limit = LOST_LIMIT if seen.seen_at else never
            if not seen.reachable and now - since > limit:
                self._alert(ServerLost(server=self.server.name, error=seen.error))
            elif seen.state is EngineState.BOOTING and now - seen.since > BOOT_LIMIT:
                self._alert(BootStalled(server=self.server.name, minutes=BOOT_LIMIT / 60))

    def _held_up(self, seen: ServerStatus) -> None:
        """Say when our open ratings hold up the weight update, or users that wait for episodes."""
        state = self.context.bus.state
        open_groups = [one for one in state.open_groups() if one.server == self.server.name]
        rated = [one for one in open_groups if one.phase == "AWAITING_RATING"]
        users = sum(one.phase == "CLAIMING" for one in open_groups)
        update = bool(rated) and seen.reachable and seen.state is EngineState.ROLLING_POST
        if update or (users and any(one.awaiting != "window" for one in rated)):
            unscored = sum(bool(one.abstained) for one in rated)
            params = RatingsHoldUp(
                ratings=len(rated), unscored=unscored, users=0 if update else users
            )
            self._alert(params, [one.group_id for one in rated])
        else:
            clear_alert(self.context.bus, f"hold:{self.server.name}")

    async def _held_batch(self, seen: ServerStatus) -> None:
        """Say which episodes keep ROLLING_POST from ending, and who holds them.

        While they are other clients' the requests that wait for the next batch get more time; those
        of a client without a sign of life are aborted where the settings say so.
        """
        now = asyncio.get_running_loop().time()
        since, self._checked_at = now - (self._checked_at or now), now
        if (held := self._batch.update(seen)) is not None:
            self._alert(held, self._batch.groups)
        else:
            clear_alert(self.context.bus, f"held:{self.server.name}")
        if self._batch.foreign and self._on_held is not None:
            self._on_held(since)
        if limit := self.context.settings.proxy.abort_dead_clients:
            for uuid, idle in self._batch.foreign.items():
                if idle >= limit:
                    await self._abort_foreign(uuid, idle)

    async def _abort_foreign(self, uuid: str, idle: float) -> None:
        taken = await self.server.client.abort(uuid, timeout=ABORT_LIMIT)
        what = "aborted" if taken else "could not abort"
        text = "%s: %s episode %.8s of another client: no call for %.0f s"
        log.warning(text, self.server.name, what, uuid, idle)
        self.server.watcher.nudge()

    def _refused(self, seen: ServerStatus) -> None:
        """Give the alert about refused users the state of now."""
        if f"refused:{self.server.name}" in self.context.bus.state.alerts:
            state = seen.display_state.value
            self._alert(UsersRefused(server=self.server.name, state=state))

    def _alert(self, params: AlertParams, groups: Sequence[str] = ()) -> None:
        key = f"{params.kind}:{self.server.name}"
        show_alert(self.context.bus, key, params, level="error", groups=groups)

    async def _refind(self) -> None:
        """Also while one answers: it may be another home's, at the port that ours found taken."""
        if self.home is None:
            return
        info = await asyncio.to_thread(running, self.home, "engine")
        if info is not None and info.url and info.url != self.server.client.url:
            log.info("the embedded engine now listens on %s", info.url)
            self.server.url = self.server.client.url = info.url
            self.server.watcher.nudge()

    # --- pool -----------------------------------------------------------------------------------

    def _same_pool(self, seen: ServerStatus) -> None:
        """A new run may begin with the very counters the run before had: those are news too."""
        watcher = self.server.watcher
        pool = watcher.pool if watcher.pool_at > seen.since and seen.state.rolling else None
        if self._last_pool is None and pool is not None and not pool.stale:
            self._pool(pool)

    def _pool(self, pool: PoolInfo) -> None:
        self._updates.pool(pool)
        self._taken.pool(pool)
        ours = self.context.client_uuid
        details = pool.running_episode_details or {}
        others = [one.client_uuid or "?" for one in details.values() if one.client_uuid != ours]
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
