"""Admits requests, or says why not: retry, limits, helper call, session, a new group.

One request makes one group. The same bytes from the same sender, sent again while the first request
is unanswered, join its group; sent again because the answer did not arrive, they get it once more.
A new request is refused by the state of its server, by `Limits`, or by its content; else it becomes
a `Run`. Nothing here claims an episode or waits.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ajet_swarm.common.text import one_line
from ajet_swarm.episodes.fair_queue import Origin
from core.events import GroupOpened, RequestJoined, RequestRefused, RequestReplayed
from core.events.alerts import AlertParams, params_of
from core.settings import ProxySettings
from proxy.admission.conversations import Conversations
from proxy.admission.helper_calls import helper_of
from proxy.admission.replay_cache import ReplayCache, is_retry, may_join
from proxy.alerts import clear_alert, show_alert
from proxy.context import ProxyContext, ServerHandle
from proxy.dataset_rows import HEADER, Row, journal_fields, own_words
from proxy.dialects.images import image_labels
from proxy.dialects.request import ChatRequest
from proxy.dialects.session_marks import key_of, sender_of, session_of, trace_context_of, trace_of
from proxy.groups.answer import AnswerWaiter
from proxy.groups.gate import check_servable
from proxy.groups.run import EpisodeEvents, GroupTask, Run, RunEnded, Slots, Votes
from proxy.http.client_timeout import client_timeout
from proxy.http.errors import ApiError, ProxyStopping
from proxy.servers.facts import DEFAULT_REPEATS, ServerFacts, is_down

if TYPE_CHECKING:
    from proxy.admission.registry import Groups

log = logging.getLogger(__name__)

TRAIN_HEADER = "x-ajet-train"
JUDGE_HEADER = "x-ajet-judge"
"""Marks a request that one of our judges sends to the fake vLLM: not trained on, not judged."""
RUN_SAMPLING = frozenset({"temperature", "seed"})
"""Fields that the run decides itself in training: with one seed all candidates would be equal."""
MINUTE = 60.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All bounds of admission. A number of 0 is no bound; times are in seconds."""

    queue: int
    """Requests that wait for their episodes; a further one takes the place of another, if any."""
    queue_timeout: float
    """How long a request may wait for its episodes."""
    groups: int
    """Groups of one server that hold episodes."""
    session_open: int
    """Open requests of one session."""
    session_minute: int
    """Requests of one session in a minute."""
    key_open: int
    key_minute: int
    names: int = 4096
    """Sessions whose requests are counted, and as many API keys."""
    conversations: int = 2048
    """Conversations that are found again by their content."""
    replay_window: float
    """How long an answer is kept for a client that did not receive it."""
    replays: int = 1024
    replay_bytes: int = 16 << 20
    alerts: int = 20
    """Sessions and API keys over their limit that have an alert."""
    alert_time: float = 60.0
    """How long such an alert stays after the last refusal."""
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

    @classmethod
    def of(cls, settings: ProxySettings, **others: float) -> "Limits":
        """Return the limits by the settings; `others` are those that no setting has."""
        return cls(
            queue=settings.queue_limit,
            queue_timeout=settings.queue_timeout,
            groups=settings.max_groups,
            session_open=settings.session_cap,
            session_minute=settings.session_calls,
            key_open=settings.key_cap,
            key_minute=settings.key_calls,
            replay_window=settings.replay_window,
            **others,  # type: ignore[arg-type]
        )


class AdmittedRequest(msgspec.Struct, frozen=True):
    """A request that may become a group."""

    request: ChatRequest
    """With its session, and marked as a helper call if it is one."""
    turn: int
    """Its number within its session, from 1; 0 for helper calls and without a session."""
    origin: Origin
    """Fairness key: API key, address, session."""
    newcomer: bool
    """It is the first request of its session, and its connection lets it overtake."""


class Admission:
    """Admits requests and remembers earlier ones; one for all servers.

    It belongs to the event loop of the context.

    Args:
        groups: The open groups.
        limits: All bounds.
    """

    def __init__(self, groups: "Groups", limits: Limits) -> None:
        context = groups.context
        settings, clock = context.settings.proxy, context.runtime.clock.monotonic
        self._groups = groups
        self._context = context
        self._settings = settings
        self._limits = limits
        self._bus = context.bus
        self._joinable: dict[str, Run] = {}
        """Open runs by the key of their request."""
        self._replay = ReplayCache(
            limits.replay_window, clock, limits.replays, limits.replay_bytes, settings.replay
        )
        self._conversations = Conversations(context.runtime.chance, limits.conversations)
        self.sessions = RequestLimits(
            limits.session_open, limits.session_minute, clock, limits.names
        )
        self.keys = RequestLimits(limits.key_open, limits.key_minute, clock, limits.names)
        """The same limits for API keys, by the name that `key_of` gives them."""
        self._counts: dict[str, RequestCount] = {}
        """Group id of an open run -> its request in the limits."""
        self._alerts: dict[str, asyncio.TimerHandle] = {}
        """Alert key of a session or API key over its limit -> when the alert is cleared."""

    def admit(self, request: ChatRequest, count: "RequestCount | None" = None) -> AnswerWaiter:
        """Open a group for a request, or join the one that it repeats.

        Args:
            request: The request.
            count: The same object for all prompts of one request; None for one with one prompt.

        Raises:
            ApiError: Overload, drain, an engine that is off or unreachable, a session over its
                limit, an unknown model. Nothing was claimed.
        """
        count = RequestCount() if count is None else count
        try:
            return self._repeated(request) or self._new(request, count)
        except ApiError as refusal:
            self._replay.forget(request.key)  # it got an error, so its retry is a new request
            self._publish_refusal(request, refusal)
            raise

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._alerts.values():
            timer.cancel()

    # --- repeated requests ----------------------------------------------------------------------

    def _repeated(self, request: ChatRequest) -> AnswerWaiter | None:
        """Return a waiter for the group of an identical earlier request; None for a new request."""
        run, headers = self._joinable.get(request.key), request.headers
        joins = is_retry(headers) or (self._settings.join and may_join(headers))
        if run is not None and run.answer.final is None and run.stop is None and joins:
            waiter = run.join(request.stream)
            self._bus.publish(RequestJoined(server=run.facts.server.name, group_id=run.group_id))
            return waiter
        cached = self._replay.find(request.key, headers, request.body)
        if cached is None:
            return None
        group = self._bus.state.groups.get(cached.group_id)
        server = group.server if group is not None else ""
        self._bus.publish(RequestReplayed(server=server, group_id=cached.group_id))
        return self._replay.waiter(cached, request.stream)

    def _answered(self, run: Run) -> None:
        """Keep the answer of a run for a client that did not receive it, and for the next turn."""
        reply = run.answer.final
        if reply is not None and reply.answer is not None:
            self._replay.remember(run.request.key, run.group_id, reply, tuple(run.answer.waiters))
            self._conversations.add_answer(run.request.session, reply.answer.message)

    # --- new requests ---------------------------------------------------------------------------

    def _new(self, request: ChatRequest, count: "RequestCount") -> AnswerWaiter:
        context, settings = self._context, self._context.settings
        self._groups.check_model(request.model)
        if self._groups.draining:
            raise ProxyStopping
        server = context.server_of(request.model)
        if is_down(server.watcher.current):
            raise server.overloaded(request.model, 10)
        displaced: Run | None = None
        if self._groups.is_full:
            if request.connection is not None:
                request.connection.waited = True
            displaced = self._groups.next_displaced(self._origin(request), request.lag is not None)
        facts = self._groups.server_facts[server.name]
        check_servable(request, server, settings)
        row = context.rows.match(request.headers, request.query)
        if row is not None and not row.train and request.train:
            request = replace(request, train=False)
        untrained = _why_untrained(context, request, server)
        if untrained:
            request = replace(request, train=False)
        admitted = self.classify(request, row, server, count)
        if helper := admitted.request.helper:
            row, untrained = None, untrained or f"not trained on: helper call {helper}"
        run = self._open(admitted, row, facts)
        run.task.untrained = untrained or run.task.untrained
        if displaced is not None:
            _end_for_another(displaced)
        waiter = run.join(request.stream)
        self._joinable[request.key] = run
        self._counts[run.group_id] = count
        self._groups.begin(run)
        return waiter

    def _origin(self, request: ChatRequest) -> tuple[str, str, str]:
        """Return API key, address and named session of a request.

        If the proxy requires its API key, the key is empty: all requests have the same.
        """
        key = "" if self._settings.api_key else key_of(request.headers)
        session = session_of(request.headers, request.body) or request.session
        return (key, request.address, session)

    def classify(
        self, request: ChatRequest, row: Row | None, server: ServerHandle, count: "RequestCount"
    ) -> AdmittedRequest:
        """Determine a new request's session, and whether it is a helper call; count it.

        Args:
            request: The request.
            row: The dataset row it belongs to, or None. A request that names its row is never a
                helper call; other requests of an agent for the same row may be.
            server: The request's server.
            count: Counts the request; one for all prompts of a request.

        Raises:
            ApiError: The request's API key or session is over a limit.
        """
        headers, body = request.headers, request.body
        key, address, named_session = self._origin(request)
        session = named_session
        helper = "judge" if JUDGE_HEADER in headers else ""
        excluded = _demands_training(headers) or (row is not None and HEADER in headers)
        if request.train and self._settings.helpers and not (excluded or helper):
            from_agent = bool(session) and self.sessions.has_tools(session)
            query = "" if row is not None and own_words(row, request.query) else request.query
            helper = helper_of(body, query, stream=request.stream, agent=from_agent)
        if not session:
            sender, trace = sender_of(headers), trace_of(headers)
            if helper:  # not a turn, though it may repeat the whole conversation
                session = self._conversations.find(request.messages, sender, trace)
            else:
                session = self._conversations.match(request.messages, sender, trace).session
        turn = self._count(count, key, session, request, helper, server.name)
        if helper:
            request = replace(request, session=session, helper=helper, train=False)
        elif session != request.session:
            request = replace(request, session=session)
        if request.train and server.run_samples and not RUN_SAMPLING.isdisjoint(body):
            remaining = {name: value for name, value in body.items() if name not in RUN_SAMPLING}
            request = replace(request, body=remaining)
        # New conversations without a named session share an origin: else each would have its share.
        name = session if named_session or turn > 1 else ""
        origin = (key, address, f"{name} {helper}" if helper else name)
        return AdmittedRequest(request, turn, origin, request.lag is not None and turn == 1)

    def _open(self, admitted: AdmittedRequest, row: Row | None, facts: ServerFacts) -> Run:
        request, context, server = admitted.request, self._context, facts.server
        described = request.shown
        group_id = context.runtime.chance.token(6)
        traceparent, tracestate = trace_context_of(request.headers)
        if row is not None:
            context.rows.take(row.row_id)
        repeats = max(facts.known_repeats, self._settings.repeats)
        task_id = f"{row.row_id if row else request.request_id}#{group_id}"
        known = {**row.metadata, "dataset_task_id": row.task_id} if row else {"dataset_task_id": ""}
        kind = "eval" if not request.train else "train" if server.trains else "observe"
        repeats = (repeats or DEFAULT_REPEATS) if request.train else 1  # shown until claimed
        run = Run(
            context=context,
            facts=facts,
            group_id=group_id,
            opened_at=context.clock(),
            request=request,
            task=GroupTask(task_id, {**known, "task_id": task_id}, row, kind),
            slots=Slots(facts, repeats),
            origin=admitted.origin,
            newcomer=admitted.newcomer,
            on_abandoned=self._groups.abandoned,
            on_answer=self._answered,
            events=EpisodeEvents(self._bus, server.name, group_id),
            votes=Votes(needed=context.settings.rating.overlap),
        )
        self._bus.publish(
            GroupOpened(
                server=server.name,
                group_id=group_id,
                request_id=request.request_id,
                task_id=task_id,
                n=run.slots.n,
                query=request.query,
                body=request.body if described is None else {**request.body, "messages": described},
                images=image_labels(described),
                model=request.model,
                stream=request.stream,
                episode_type=run.task.kind,
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
        run.slots.n = max(self._settings.repeats, 1) if request.train else 1
        return run

    def ended(self, run: Run) -> None:
        """Record that a run has ended."""
        if self._joinable.get(run.request.key) is run:
            del self._joinable[run.request.key]
        count = self._counts.pop(run.group_id)
        if run.request.session:
            self.sessions.close(run.request.session, count)
        self.keys.close(run.origin[0], count)

    # --- limits and refusals --------------------------------------------------------------------

    def _count(
        self,
        count: "RequestCount",
        key: str,
        session: str,
        request: ChatRequest,
        helper: str,
        server: str,
    ) -> int:
        """Count a request for its key and its session; return its turn within the session."""
        query = one_line(request.query, 60)
        try:
            self.keys.open(key, count)
        except LimitExceeded as exceeded:
            name = key[:8] or "none"
            by_key = params_of("key", name=name, limit=exceeded.limit, query=query)
            self._raise_limit_alert(f"key:{name}", by_key, server)
            raise _too_many("with this key", exceeded) from None
        if not session:
            return 0
        try:
            tools = bool(request.body.get("tools"))
            return self.sessions.open(session, count, helper=bool(helper), tools=tools)
        except LimitExceeded as exceeded:
            self.keys.close(key, count)
            name = one_line(session, 60)
            limited = params_of("session", name=name, limit=exceeded.limit, query=query)
            self._raise_limit_alert(f"session:{session}", limited, server, session)
            raise _too_many("in this session", exceeded) from None

    def _raise_limit_alert(
        self, alert: str, params: AlertParams, server: str, session: str = ""
    ) -> None:
        """Show that a session or key is over its limit; `alert` is the key of the alert."""
        if (timer := self._alerts.get(alert)) is not None:
            timer.cancel()
        elif len(self._alerts) >= self._limits.alerts:
            return
        else:
            groups = self._bus.state.groups.values() if session else ()
            affected = [group.group_id for group in groups if group.session == session]
            show_alert(self._bus, alert, params, groups=affected, server=server)
        loop = asyncio.get_running_loop()
        self._alerts[alert] = loop.call_later(
            self._limits.alert_time, self._clear_limit_alert, alert
        )

    def _clear_limit_alert(self, alert: str) -> None:
        del self._alerts[alert]
        clear_alert(self._bus, alert)

    def _publish_refusal(self, request: ChatRequest, refusal: ApiError) -> None:
        """Publish the refusal, so that the operator sees that users get errors."""
        server, bus = self._context.server_of(request.model), self._bus
        status = server.watcher.current
        server.watcher.in_demand()
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
            show_alert(bus, key, params_of("refused", server=server.name, state=state))


# --- pure rules -----------------------------------------------------------------------------------


def _why_untrained(context: ProxyContext, request: ChatRequest, server: ServerHandle) -> str:
    """Return why a request that would be trained on is not; empty if it is."""
    if request.train and context.held_out.matches(request.query, request.messages):
        return "not trained on: held-out prompt of the probe set"
    if request.train and server.paused:
        return f"not trained on: training is paused, {server.paused}"
    return ""


def _demands_training(headers: Mapping[str, str]) -> bool:
    value = headers.get(TRAIN_HEADER)
    return value is not None and value.strip().lower() in ("yes", "true", "1", "on")


def _end_for_another(run: Run) -> None:
    """End a waiting run in favour of another one.

    Cancel it in the next iteration of the loop: a task that never started does not clean up.
    """
    assert run.work is not None
    run.stop = RunEnded("ABORTED", "gave way to another sender", refusal=run.overloaded(2))
    asyncio.get_running_loop().call_soon(run.work.cancel)


# --- requests of one session or API key ----------------------------------------------------------


class LimitExceeded(Exception):
    """A session or an API key has reached a limit.

    Attributes:
        retry_after: Whole seconds after which the next request is accepted.
        limit: The limit in words, such as "8 open requests".
    """

    def __init__(self, limit: str, retry_after: int) -> None:
        super().__init__(limit)
        self.limit = limit
        self.retry_after = retry_after


def _too_many(where: str, exceeded: LimitExceeded) -> ApiError:
    text = f"Too many requests {where}: {exceeded.limit}. Please try again later."
    return ApiError(429, exceeded.retry_after, text, kind="Too Many Requests")


class RequestCount(Counter[tuple["RequestLimits", str]]):
    """Open groups of one request by limits and name: each of its prompts makes a group."""


class _Session(msgspec.Struct, eq=False, gc=False):
    calls: list[float] = []
    """Times of its newest requests, at most as many as are allowed per minute."""
    open: int = 0
    turn: int = 0
    tools: bool = False


class RequestLimits:
    """Counters of the requests per session: open ones, and those of the last minute.

    Args:
        max_open: Requests open at once; 0 is no limit.
        calls_per_minute: Requests per minute; 0 is no limit.
        clock: Monotonic clock in seconds.
        max_sessions: Number of sessions that are remembered.
    """

    def __init__(
        self,
        max_open: int,
        calls_per_minute: int,
        clock: Callable[[], float],
        max_sessions: int = 4096,
    ) -> None:
        self._max_open = max_open
        self._calls_per_minute = calls_per_minute
        self._clock = clock
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session: str,
        count: RequestCount | None = None,
        *,
        helper: bool = False,
        tools: bool = False,
    ) -> int:
        """Count one more open request; call `close` when it ends.

        Args:
            session: Name of the session.
            count: The request, which counts once, however many groups it makes; None for one group.
            helper: The request is a helper call, not a turn of the conversation.
            tools: The request offers tools, so the session is an agent's.

        Returns:
            Number of the turn within the session, from 1; 0 for a helper call.

        Raises:
            LimitExceeded: A limit is reached; the request is not counted.
        """
        record = self._sessions.get(session)
        if record is None:
            record = self._sessions[session] = _Session()
        self._sessions.move_to_end(session)
        groups = 0 if count is None else count[self, session]
        if not groups:
            self._check(record)
            record.calls.append(self._clock())
            if len(record.calls) > self._calls_per_minute:
                del record.calls[0]
            record.open += 1
            record.tools = record.tools or tools
            record.turn += not helper
            self._prune()
        if count is not None:
            count[self, session] = groups + 1
        return 0 if helper else record.turn

    def close(self, session: str, count: RequestCount | None = None) -> None:
        """Record that a request of the session has ended, or one of its groups."""
        if count is not None:
            count[self, session] -= 1
            if count[self, session]:
                return
        if (record := self._sessions.get(session)) is not None:
            record.open -= 1

    def has_tools(self, session: str) -> bool:
        """Return whether the session has sent requests with tools."""
        record = self._sessions.get(session)
        return record is not None and record.tools

    def _check(self, record: _Session) -> None:
        if self._max_open and record.open >= self._max_open:
            raise LimitExceeded(f"{self._max_open} open requests", 2)
        if self._calls_per_minute and len(record.calls) >= self._calls_per_minute:
            wait = record.calls[0] + MINUTE - self._clock()
            if wait > 0:
                raise LimitExceeded(f"{self._calls_per_minute} requests a minute", int(wait) + 1)

    def _prune(self) -> None:
        """Drop the least recently used sessions without open requests."""
        excess = len(self._sessions) - self._max_sessions
        if excess > 0:
            idle = (name for name, record in self._sessions.items() if not record.open)
            for name in [next(idle, "") for _ in range(excess)]:
                self._sessions.pop(name, None)
