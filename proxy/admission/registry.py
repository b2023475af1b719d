"""The registry of open groups: admission, joining, leaving, drain.

One request makes one group. The same bytes from the same sender, sent again while the first request
is unanswered, join its group; sent again because the answer did not arrive, they get it once more.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.lane_queue import Lane, item_to_displace
from core.events import (
    AnswerReturned,
    ConsoleAttached,
    ConsoleDetached,
    Event,
    GroupEvent,
    GroupOpened,
    ProxyStarted,
    RatingModeChanged,
    RequestRefused,
)
from core.events.alerts import UsersRefused
from core.reducer.common import Dirty
from proxy.admission.admit import Admission, AdmittedRequest
from proxy.admission.models import check_files, check_model, check_vision, model_names
from proxy.admission.request_count import RequestCount
from proxy.alerts import show_alert
from proxy.context import ProxyContext, ServerHandle
from proxy.dataset_rows import Row, journal_fields
from proxy.dialects.images import image_labels
from proxy.dialects.request import ChatRequest
from proxy.dialects.session_marks import trace_context_of
from proxy.groups.capacity import most_choices, too_many_choices
from proxy.groups.lifecycle import Lifecycle
from proxy.groups.recovery import Recovery
from proxy.groups.rerun import rescoring
from proxy.groups.run import AnswerWaiter, GroupRun, StopReason
from proxy.http.client_timeout import client_timeout
from proxy.http.errors import ApiError, ProxyStopping, overloaded
from proxy.servers.facts import DEFAULT_REPEATS, ServerFacts, is_down
from proxy.servers.observe_mode import context_window_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Times in seconds that are not settings."""

    leave_grace: float = 0.4
    """How long a group stays open after its client has disconnected, so that a retry can join."""
    down_grace: float = 10.0
    """How long a server may be down before requests that wait for it are refused."""
    console_grace: float = 10.0
    """How long a detached console still counts as attached."""
    recover: float = 1.0
    """How long recovery may delay the start; it then continues in the background, and claims wait
    for it."""
    last_ends: float = 5.0
    """How long sealed groups may send their rewards after a drain."""


class Groups:
    """The registry. It belongs to the event loop of the context.

    Args:
        context: The shared parts of the proxy; the watchers run.
        limits: Times that tests shorten.
    """

    def __init__(self, context: ProxyContext, limits: Timeouts | None = None) -> None:
        self.context = context
        self.runs: dict[str, GroupRun] = {}
        """Open groups by id."""
        self.limits = limits or Timeouts()
        self.draining = False
        self._closing = False
        self._had_last_ends = False
        observes = bool(context.settings.upstream.url)
        self._admission = Admission(context.settings.proxy, context.bus, context.runtime, observes)
        self._tasks = Tasks("groups")
        self._rescue_tasks = Tasks("groups-rescue")
        self._background_tasks = Tasks("groups-background")
        self._console_left = 0.0
        self._removers: list[Callable[[], None]] = []
        self.server_facts: dict[str, ServerFacts] = {}
        for name, server in context.servers.items():
            self.server_facts[name] = ServerFacts(server, self._background_tasks)
            server.claimer.queue.limit = context.settings.proxy.max_groups
            self._removers.append(server.watcher.add_listener(partial(self._engine_changed, name)))
        self._lifecycle = Lifecycle(
            self._rescue_tasks,
            draining=lambda: self.draining,
            closing=lambda: self._closing,
            attended_until=lambda: self._console_left + self.limits.console_grace,
        )
        rescore = rescoring(self.runs, self._background_tasks)
        self._removers.append(context.rewards.add_listener(rescore))
        self._recovery = Recovery(context, self.server_facts, self._background_tasks)
        context.bus.listen(
            self._on_event,
            AnswerReturned,
            ProxyStarted,
            ConsoleAttached,
            ConsoleDetached,
            RatingModeChanged,
        )

    # --- queries -------------------------------------------------------------------------------

    @property
    def open_count(self) -> int:
        """Number of open groups."""
        return len(self.runs)

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

    def models(self) -> list[str]:
        """Return the served names, the default first."""
        upstreams = {
            name: server.watcher.pool.training_model_path if server.watcher.pool else None
            for name, server in self.context.servers.items()
        }
        return model_names(self.context.settings, upstreams)

    def context_of(self, model: str) -> int | None:
        """Return the window in tokens of the server behind a model name; None if unknown."""
        server = self.context.server_of(model)
        return context_window_of(server, self.server_facts[server.name].context_length)

    async def recover(self) -> None:
        """End or abort the groups of a killed proxy before new episodes are claimed.

        Bounded: if it takes too long, such as for a server that does not answer, it continues in
        the background.
        """
        await self._recovery.run(self.limits.recover)

    # --- admission -----------------------------------------------------------------------------

    async def submit(self, request: ChatRequest, count: RequestCount | None = None) -> AnswerWaiter:
        """Admit a request, or join the one that it repeats; never waits.

        Args:
            request: The request.
            count: The same object for all prompts of one request; None for one with one prompt.

        Raises:
            ApiError: Overload, drain, an engine that is off or unreachable, a session over its
                limit, an unknown model. Nothing was claimed.
        """
        try:
            return self._admission.find_waiter(request) or self._admit(
                request, count or RequestCount()
            )
        except ApiError as refusal:
            self._admission.on_refusal(request)
            self._publish_refusal(request, refusal)
            raise

    def _publish_refusal(self, request: ChatRequest, refusal: ApiError) -> None:
        """Publish the refusal, so that the operator sees that users get errors."""
        server = self.context.server_of(request.model)
        status = server.watcher.current
        server.watcher.in_demand()
        bus = self.context.bus
        bus.publish(
            RequestRefused(
                server=server.name,
                status=refusal.status,
                cause=str(refusal),
                query=request.query[:200],
            )
        )
        key = f"refused:{server.name}"
        if is_down(status):
            state = status.display_state.value
            if key not in bus.state.alerts and key not in bus.state.dismissed:
                log.warning("users are answered 503: %s is %s", server.name, state)
            show_alert(bus, key, UsersRefused(server=server.name, state=state), level="error")

    def _admit(self, request: ChatRequest, count: RequestCount) -> AnswerWaiter:
        settings = self.context.settings
        if settings.proxy.served_model_name:
            check_model(settings, request.model, self.models())
        if self.draining:
            raise ProxyStopping
        server = self.context.server_of(request.model)
        if is_down(server.watcher.current):
            raise server.overloaded(request.model, 10)
        limit = settings.proxy.queue_limit
        yielding_run: GroupRun | None = None
        if len(self.runs) >= limit and self.waiting >= limit:
            lane = self._admission.lane(request)
            if request.connection is not None:
                request.connection.waited = True
            overtakes = request.lag is not None
            yielding_run = _run_to_replace(self.runs.values(), lane, overtakes)
        if request.shown is not None:
            # Only the embedded engine reports its window; AgentJet's server does not.
            reports_window = self.server_facts[server.name].context_length is not None
            check_vision(server, settings, own=reports_window)
        check_files(server, request.messages)
        if request.n > 1 and (
            refusal := too_many_choices(request.n, most_choices(server, settings))
        ):
            raise refusal
        row = self.context.rows.match(request.headers, request.query)
        if row is not None and not row.train and request.train:
            request = replace(request, train=False)
        untrained = _why_untrained(self.context, request, server)
        if untrained:
            request = replace(request, train=False)
        admitted = self._admission.classify(request, row, server.name, count)
        run = self._open(admitted, None if admitted.request.helper else row, server)
        if untrained:
            run.untrained = untrained
        if yielding_run is not None:
            _end_for_another(yielding_run)
        waiter = run.join(request.stream)
        self.runs[run.group_id] = run
        self._admission.run_opened(run, count)
        run.task = self._tasks.spawn(self._run_group(run), run.group_id)
        return waiter

    def _open(self, admitted: AdmittedRequest, row: Row | None, server: ServerHandle) -> GroupRun:
        request = admitted.request
        described = request.shown
        group_id = self.context.runtime.chance.token(6)
        traceparent, tracestate = trace_context_of(request.headers)
        if row is not None:
            self.context.rows.take(row.row_id)
        facts = self.server_facts[server.name]
        repeats = max(facts.known_repeats, self.context.settings.proxy.repeats)
        run = GroupRun(
            context=self.context,
            facts=facts,
            group_id=group_id,
            request=request,
            row=row,
            n=(repeats or DEFAULT_REPEATS) if request.train else 1,  # shown until claimed
            task_id=f"{row.row_id if row else request.request_id}#{group_id}",
            metadata=_metadata(row),
            opened_at=self.context.clock(),
            on_abandoned=self._abandoned,
            lane=admitted.lane,
            newcomer=admitted.newcomer,
            kind=_kind(request, server),
        )
        if request.helper:
            run.untrained = f"not trained on: helper call {request.helper}"
        run.metadata["task_id"] = run.task_id
        self.context.bus.publish(
            GroupOpened(
                server=server.name,
                group_id=group_id,
                request_id=request.request_id,
                task_id=run.task_id,
                n=run.n,
                query=request.query,
                body=request.body if described is None else {**request.body, "messages": described},
                images=image_labels(described),
                model=request.model,
                stream=request.stream,
                episode_type=run.kind,
                session=request.session,
                turn=admitted.turn,
                helper=request.helper,
                client_timeout=client_timeout(request.headers, request.stream),
                turns=1 + sum([message.get("role") == "assistant" for message in request.messages]),
                traceparent=traceparent,
                tracestate=tracestate,
                **journal_fields(row),
            )
        )
        # The life cycle raises it to the server's number, which may not be known yet.
        run.n = max(self.context.settings.proxy.repeats, 1) if request.train else 1
        return run

    async def _run_group(self, run: GroupRun) -> None:
        alarm: asyncio.TimerHandle | None = None
        if patience := self.context.settings.proxy.queue_timeout:
            loop = asyncio.get_running_loop()
            alarm = loop.call_later(patience, self._stop_if_queued, run)
        try:
            await self._lifecycle.walk(run)
        finally:
            if alarm is not None:
                alarm.cancel()
            self.runs.pop(run.group_id, None)
            run.leave_queue()
            self._admission.run_ended(run)
            run.waiters.clear()  # breaks the reference cycle of run and waiters
            name = run.facts.server.name
            if not self._closing and not self._runs_of(name):
                await run.facts.sync_agreement.agree(lambda: not self._runs_of(name))

    # --- leaving -------------------------------------------------------------------------------

    def _abandoned(self, run: GroupRun) -> None:
        """Handle that the last client of a run has disconnected."""
        asyncio.get_running_loop().call_later(self.limits.leave_grace, self._stop_if_abandoned, run)

    def _stop_if_abandoned(self, run: GroupRun) -> None:
        if run.waiters:
            return
        # An answer that was ready since reached nobody.
        refused = run.final_answer is not None and run.final_answer.index is None
        cause, retry_after = ("no answer in time", 2) if refused else ("client left", 1)
        self.stop(run, StopReason(cause, "ABORTED", overloaded(retry_after)))

    def _stop_if_queued(self, run: GroupRun) -> None:
        if run.phase in ("QUEUED", "CLAIMING"):
            self.stop(run, StopReason("no episodes in time", "ABORTED", run.overloaded(2)))

    def stop(self, run: GroupRun, stop: StopReason) -> bool:
        """End a run early; return False if it is too late for that."""
        if run.sealed or run.closing or run.stop is not None or run.task is None:
            return False
        run.stop = stop
        work = run.task.get_coro()
        if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            # Cancelled before its first step, it would never run and never close the group.
            asyncio.get_running_loop().call_soon(run.task.cancel)
            return True
        return run.task.cancel()

    def postpone(self, name: str, seconds: float) -> None:
        """Move the deadline of every request that waits for episodes of server `name`.

        Args:
            name: Name of the server.
            seconds: How much later, up to the limit of each.
        """
        runs = [run for run in self._runs_of(name) if _is_waiting(run)]
        for waiter in [waiter for run in runs for waiter in run.waiters]:
            waiter.postpone(seconds)

    # --- events --------------------------------------------------------------------------------

    def _engine_changed(self, name: str, status: ServerStatus) -> None:
        self.server_facts[name].engine_changed(status)
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
                self.stop(
                    run,
                    StopReason(
                        f"the server is {status.display_state.value}", "FAILED", run.overloaded(10)
                    ),
                )

    def _runs_of(self, name: str) -> list[GroupRun]:
        return [run for run in self.runs.values() if run.facts.server.name == name]

    def _on_event(self, event: Event, dirty: Dirty) -> None:
        if isinstance(event, GroupEvent) and (run := self.runs.get(event.group_id)) is not None:
            self._admission.on_event(run, event)
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
        self._admission.close()
        self._wake_all()
        stop_reason = StopReason("the proxy stopped", "ABORTED", ProxyStopping())
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
        await self._rescue_tasks.drain(self.limits.last_ends)
        await self._rescue_tasks.close()
        await self._background_tasks.close()
        while self._removers:
            self._removers.pop()()


def _why_untrained(context: ProxyContext, request: ChatRequest, server: ServerHandle) -> str:
    """Return why a request that would be trained on is not; empty if it is."""
    if request.train and context.held_out.matches(request.query, request.messages):
        return "not trained on: held-out prompt of the probe set"
    if request.train and server.paused:
        return f"not trained on: training is paused, {server.paused}"
    return ""


def _is_waiting(run: GroupRun) -> bool:
    """Return whether a run waits for its episodes and was not stopped."""
    return run.phase in ("QUEUED", "CLAIMING") and run.stop is None


def _run_to_replace(runs: Iterable[GroupRun], lane: Lane, overtakes: bool) -> GroupRun:
    """Return the waiting run that ends in favour of a new request of `lane`.

    If the sender already has its share of the queue, a request that may overtake replaces the
    middle run of its lane, or of its key and address if the lane has none: the oldest and the
    newest runs wait least, and the older half keeps its places.

    Raises:
        ApiError: The sender already has its share of the queue.
    """
    waiting = [(run.lane, run) for run in runs if _is_waiting(run)]
    if (displaced := item_to_displace(waiting, lane)) is not None:
        return displaced
    same_sender = [run for run_lane, run in waiting if run_lane == lane]
    same_sender = same_sender or [run for run_lane, run in waiting if run_lane[:-1] == lane[:-1]]
    if not overtakes or len(same_sender) < 3:
        raise overloaded(2)
    return same_sender[len(same_sender) // 2]


def _end_for_another(run: GroupRun) -> None:
    """End a waiting run in favour of another one.

    Cancel it in the next iteration of the loop: a task that never started does not clean up.
    """
    assert run.task is not None
    run.stop = StopReason("gave way to another sender", "ABORTED", run.overloaded(2))
    asyncio.get_running_loop().call_soon(run.task.cancel)


def _kind(request: ChatRequest, server: ServerHandle) -> str:
    if not request.train:
        return "eval"
    return "observe" if server.observes else "train"


def _metadata(row: Row | None) -> dict[str, Any]:
    if row is None:
        return {"dataset_task_id": ""}
    return {**row.metadata, "dataset_task_id": row.task_id}
