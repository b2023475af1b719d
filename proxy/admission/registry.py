"""The registry of open groups: from admission to the last reward, stop, drain."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.queue import Origin, item_to_displace
from core.dialects.errors import ApiError
from core.events import ConsoleAttached, ConsoleDetached, Event, ProxyStarted, RatingModeChanged
from core.state.common import Dirty
from proxy.admission.admit import Admission
from proxy.admission.sessions import Limits
from proxy.context import ProxyContext
from proxy.groups.lifecycle import Lifecycle, Sealing
from proxy.groups.recovery import Recovery
from proxy.groups.run import Run, RunEnded
from proxy.groups.score import rescoring
from proxy.http.errors import ProxyStopping, overloaded
from proxy.servers.facts import ServerFacts, is_down

DEFAULT_MODEL = "ajet"
"""Model name if neither the settings nor the server give one."""


class Groups:
    """The registry. It belongs to the event loop of the context.

    Args:
        context: The shared parts of the proxy; the watchers run.
        limits: All bounds; those by the settings if None.
    """

    def __init__(self, context: ProxyContext, limits: Limits | None = None) -> None:
        self.context = context
        self.runs: dict[str, Run] = {}
        """Open groups by id."""
        self.limits = limits or Limits.of(context.settings.proxy)
        self.draining = False
        self._closing = False
        self._had_last_ends = False
        self.admission = Admission(self, self.limits)
        self._tasks = Tasks("groups")
        self._cleanup_tasks = Tasks("groups-cleanup")
        self._background_tasks = Tasks("groups-background")
        self._console_left = 0.0
        self._removers: list[Callable[[], None]] = []
        self.server_facts: dict[str, ServerFacts] = {}
        for name, server in context.servers.items():
            self.server_facts[name] = ServerFacts(server, self._background_tasks)
            server.claimer.queue.limit = self.limits.groups
            self._removers.append(server.watcher.add_listener(partial(self._engine_changed, name)))
        sealing = Sealing(
            draining=lambda: self.draining,
            closing=lambda: self._closing,
            attended_until=lambda: self._console_left + self.limits.console_grace,
        )
        self._lifecycle = Lifecycle(self._cleanup_tasks, sealing)
        rescore = rescoring(self.runs, self._background_tasks)
        self._removers.append(context.rewards.add_listener(rescore))
        self._recovery = Recovery(context, self.server_facts, self._background_tasks)
        context.bus.listen(
            self._on_event,
            ProxyStarted,
            ConsoleAttached,
            ConsoleDetached,
            RatingModeChanged,
        )

    # --- queries -------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Number of requests that wait for their episodes."""
        return sum(map(_is_waiting, self.runs.values()))

    @property
    def serving(self) -> bool:
        """Whether a request would now be queued and answered."""
        return not self.draining and not all(
            is_down(server.watcher.current) for server in self.context.servers.values()
        )

    @property
    def is_full(self) -> bool:
        """Whether a further request takes the place of another one, or is refused."""
        limit = self.limits.queue
        return len(self.runs) >= limit and self.waiting >= limit

    def next_displaced(self, origin: Origin, overtakes: bool) -> Run:
        """Return the waiting run that ends in favour of a new request of `origin`.

        If the sender already has its share of the queue, a request that may overtake replaces the
        middle run of its origin, or of its key and address if the origin has none: the oldest and
        the newest runs wait least, and the older half keeps its places.

        Raises:
            ApiError: The sender already has its share of the queue.
        """
        waiting = [(run.origin, run) for run in self.runs.values() if _is_waiting(run)]
        if (displaced := item_to_displace(waiting, origin)) is not None:
            return displaced
        same_sender = [run for other, run in waiting if other == origin]
        same_sender = same_sender or [run for other, run in waiting if other[:-1] == origin[:-1]]
        if not overtakes or len(same_sender) < 3:
            raise overloaded(2)
        return same_sender[len(same_sender) // 2]

    def models(self) -> list[str]:
        """Return the served names, the default first."""
        servers = self.context.servers
        pool = next(iter(servers.values())).watcher.pool if servers else None
        first = public_name(pool.training_model_path if pool else None)
        default = self.context.settings.proxy.served_model_name or first or DEFAULT_MODEL
        return [default, *(name for name in servers if len(servers) > 1 and name != default)]

    def check_model(self, model: str) -> None:
        """Refuse an unknown model if `served_model_name` is set; an empty name is accepted.

        Raises:
            ApiError: vLLM's 404.
        """
        served = self.context.settings.proxy.served_model_name
        if served and model and model not in self.models():
            raise no_model(model, self.models())

    async def recover(self) -> None:
        """End or abort the groups of a killed proxy before new episodes are claimed.

        Bounded: if it takes too long, such as for a server that does not answer, it continues in
        the background.
        """
        await self._recovery.run(self.limits.recover)

    # --- from the first step to the last ---------------------------------------------------------

    def begin(self, run: Run) -> None:
        """Run the phases of a new group."""
        self.runs[run.group_id] = run
        run.work = self._tasks.spawn(self._run_group(run), run.group_id)

    async def _run_group(self, run: Run) -> None:
        try:
            await self._lifecycle.walk(run)
        finally:
            self.runs.pop(run.group_id, None)
            run.leave_queue()
            self.admission.ended(run)
            run.answer.waiters.clear()  # breaks the reference cycle of run and waiters
            name = run.facts.server.name
            if not self._closing and not self._runs_of(name):
                run.facts.sync_agreement.agree(lambda: not self._runs_of(name))

    # --- leaving -------------------------------------------------------------------------------

    def abandoned(self, run: Run) -> None:
        """Handle that the last client of a run has disconnected."""
        asyncio.get_running_loop().call_later(self.limits.leave_grace, self._stop_if_abandoned, run)

    def _stop_if_abandoned(self, run: Run) -> None:
        if run.answer.waiters:
            return
        # An answer that was ready since reached nobody.
        refused = run.answer.final is not None and run.answer.final.index is None
        cause, retry_after = ("no answer in time", 2) if refused else ("client left", 1)
        self.stop(run, RunEnded("ABORTED", cause, refusal=overloaded(retry_after)))

    def stop(self, run: Run, stop: RunEnded) -> bool:
        """End a run early; return False if it is too late for that."""
        if run.sealed or run.closing or run.stop is not None or run.work is None:
            return False
        run.stop = stop
        work = run.work.get_coro()
        if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            # Cancelled before its first step, it would never run and never close the group.
            asyncio.get_running_loop().call_soon(run.work.cancel)
            return True
        return run.work.cancel()

    def postpone(self, name: str, seconds: float) -> None:
        """Move the deadline of every request that waits for episodes of server `name`.

        Args:
            name: Name of the server.
            seconds: How much later, up to the limit of each.
        """
        runs = [run for run in self._runs_of(name) if _is_waiting(run)]
        for waiter in [waiter for run in runs for waiter in run.answer.waiters]:
            waiter.postpone(seconds)

    # --- events --------------------------------------------------------------------------------

    def _engine_changed(self, name: str, status: ServerStatus) -> None:
        if is_down(status):
            loop = asyncio.get_running_loop()
            loop.call_later(self.limits.down_grace, self._stop_if_down, name, status.since)
        for run in self._runs_of(name):
            run.wake.set()

    def _stop_if_down(self, name: str, since: float) -> None:
        status = self.context.servers[name].watcher.current
        if not is_down(status) or status.since != since:
            return
        for run in self._runs_of(name):
            if run.phase in ("QUEUED", "CLAIMING"):
                cause = f"the server is {status.display_state.value}"
                self.stop(run, RunEnded("FAILED", cause, refusal=run.overloaded(10)))

    def _runs_of(self, name: str) -> list[Run]:
        return [run for run in self.runs.values() if run.facts.server.name == name]

    def _on_event(self, event: Event, dirty: Dirty) -> None:
        if "proxy" not in dirty:
            return
        if isinstance(event, ConsoleDetached) and not event.consoles:
            self._console_left = self.context.clock()
        self._wake_all()

    def _wake_all(self) -> None:
        for run in self.runs.values():
            run.wake.set()

    # --- the end -------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> bool:
        """Accept no new requests and let those in flight end.

        Windows of mode off close at once; groups that wait for the operator may use the time, then
        their fallback applies.

        Returns:
            False if something had to be cut short.
        """
        self.draining = True
        self._wake_all()
        done = await self._tasks.drain(seconds)
        if not done:
            self._closing = True
            self._wake_all()
            await self._tasks.drain(self.limits.last_ends)
            self._had_last_ends = True
        return done

    async def close(self) -> None:
        """Stop what still runs; held episodes are returned, sealed rewards get a little more
        time."""
        self.draining = self._closing = True
        self.admission.close()
        self._wake_all()
        stop_reason = RunEnded("ABORTED", "the proxy stopped", refusal=ProxyStopping())
        stopped = [
            run
            for run in tuple(self.runs.values())
            if run.phase not in ("AWAITING_RATING", "SUBMITTING")
        ]
        for run in stopped:
            self.stop(run, stop_reason)
        if stopped or not self._had_last_ends:
            await self._tasks.drain(self.limits.last_ends)
        await self._tasks.close()
        await self._cleanup_tasks.drain(self.limits.last_ends)
        await self._cleanup_tasks.close()
        await self._background_tasks.close()
        while self._removers:
            self._removers.pop()()


def public_name(path: str | None) -> str:
    """Return a model's name for clients: of a local path only the last part."""
    name = (path or "").replace("\\", "/").rstrip("/")
    local = name.startswith(("/", ".", "~")) or name[1:2] == ":"
    return name.rpartition("/")[2] if local else name


def no_model(model: str, names: Sequence[str]) -> ApiError:
    """Return vLLM's 404 for an unknown model."""
    text = f"The model `{model}` does not exist. Valid aliases: {', '.join(names)}."
    return ApiError(404, None, text, param="model")


def _is_waiting(run: Run) -> bool:
    """Return whether a run waits for its episodes and was not stopped."""
    return run.phase in ("QUEUED", "CLAIMING") and run.stop is None
