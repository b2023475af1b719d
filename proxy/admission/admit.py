"""Classification of a request before it becomes a group: retry, helper call, session, limits.

Nothing here claims an episode or waits.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from ajet_swarm.common.text import one_line
from ajet_swarm.episodes.lane_queue import Lane
from ajet_swarm.runtime import Runtime
from core.bus import Bus
from core.events import AnswerReturned, GroupEvent, RequestJoined, RequestReplayed
from core.events.alerts import KeyLimited, SessionLimited
from core.settings import ProxySettings
from proxy.admission.conversations import Conversations
from proxy.admission.helper_calls import helper_of
from proxy.admission.replay_cache import ReplayCache, is_retry, may_join
from proxy.admission.request_count import RequestCount
from proxy.admission.sessions import MINUTE, LimitExceeded, RequestLimits
from proxy.alerts import clear_alert, show_alert
from proxy.dataset_rows import HEADER, Row, own_words
from proxy.dialects.request import ChatRequest
from proxy.dialects.session_marks import key_of, sender_of, session_of, trace_of
from proxy.groups.run import AnswerWaiter, GroupRun
from proxy.http.errors import ApiError

TRAIN_HEADER = "x-ajet-train"
JUDGE_HEADER = "x-ajet-judge"
"""Marks a request that one of our judges sends to the fake vLLM: not trained on, not judged."""
RUN_SAMPLING = frozenset({"temperature", "seed"})
"""Fields that the run decides itself in training: with one seed all candidates would be equal."""
MAX_ALERTS = 20
"""Maximum number of sessions with an alert at a time."""


class AdmittedRequest(msgspec.Struct, frozen=True):
    """A request that may become a group."""

    request: ChatRequest
    """With its session, and marked as a helper call if it is one."""
    turn: int
    """Its number within its session, from 1; 0 for helper calls and without a session."""
    lane: Lane
    """Fairness key: API key, address, session."""
    newcomer: bool
    """It is the first request of its session, and its connection lets it overtake."""


class Admission:
    """Remembers earlier requests; one for all servers. It belongs to the event loop of the context.

    Args:
        settings: Limits, windows and the switch of the helper rules.
        bus: Where events for the operator are published.
        runtime: Its clock of the windows and its chance for the names of sessions.
        observes: Observe mode, in which a request keeps its temperature and its seed.
    """

    def __init__(
        self, settings: ProxySettings, bus: Bus, runtime: Runtime, observes: bool = False
    ) -> None:
        clock = runtime.clock.monotonic
        self._run_samples = not observes
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._joinable: dict[str, GroupRun] = {}
        """Open runs by the key of their request."""
        self._cached: set[str] = set()
        """Ids of open runs whose answer is in `replay`."""
        self.replay = ReplayCache(settings.replay_window, clock, mode=settings.replay)
        self.conversations = Conversations(runtime.chance)
        self.sessions = RequestLimits(settings.session_cap, settings.session_calls, clock)
        self.keys = RequestLimits(settings.key_cap, settings.key_calls, clock)
        """The same limits for API keys, by the name that `key_of` gives them."""
        self._counts: dict[str, RequestCount] = {}
        """Group id of an open run -> its request in the limits."""
        self._limit_alerts: dict[str, float] = {}
        """Alert key of a session or API key over its limit -> time of its last refusal."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # --- repeated requests ----------------------------------------------------------------------

    def find_waiter(self, request: ChatRequest) -> AnswerWaiter | None:
        """Return a waiter for the group of an identical earlier request; None for a new request."""
        run = self._joinable.get(request.key)
        waits = run is not None and run.final_answer is None and run.stop is None
        if run is not None and waits and self._joins(request):
            waiter = run.join(request.stream)
            self._bus.publish(RequestJoined(server=run.facts.server.name, group_id=run.group_id))
            return waiter
        if run is not None:
            self._cache_answer(run)
        cached = self.replay.find(request.key, request.headers, request.body)
        if cached is None:
            return None
        group = self._bus.state.groups.get(cached.group_id)
        server = group.server if group is not None else ""
        self._bus.publish(RequestReplayed(server=server, group_id=cached.group_id))
        return self.replay.waiter(cached, request.stream)

    def _joins(self, request: ChatRequest) -> bool:
        headers = request.headers
        return is_retry(headers) or (self._settings.join and may_join(headers))

    def on_refusal(self, request: ChatRequest) -> None:
        """Forget the cached answer: the request got an error, so its retry is a new one."""
        self.replay.forget(request.key)

    def on_event(self, run: GroupRun, event: GroupEvent) -> None:
        """Handle an event of a run; cache its answer once it has one."""
        if isinstance(event, AnswerReturned):
            self._cache_answer(run)
            if run.final_answer is not None and run.final_answer.answer is not None:
                self.conversations.add_answer(run.request.session, run.final_answer.answer.message)

    def _cache_answer(self, run: GroupRun) -> None:
        reply = run.final_answer
        if reply is not None and reply.answers and run.group_id not in self._cached:
            self._cached.add(run.group_id)
            self.replay.remember(run.request.key, run.group_id, reply, tuple(run.waiters))

    # --- new requests ---------------------------------------------------------------------------

    def lane(self, request: ChatRequest) -> Lane:
        """Return API key, address and named session of a request.

        If the proxy requires its API key, the key is empty: all requests have the same.
        """
        key = "" if self._settings.api_key else key_of(request.headers)
        session = session_of(request.headers, request.body) or request.session
        return (key, request.address, session)

    def classify(
        self, request: ChatRequest, row: Row | None, server: str, count: RequestCount
    ) -> AdmittedRequest:
        """Determine a new request's session, and whether it is a helper call.

        Args:
            request: The request.
            row: The dataset row it belongs to, or None. A request that names its row is never a
                helper call; other requests of an agent for the same row may be.
            server: Name of the request's server.
            count: Counts the request; one for all prompts of a request.

        Raises:
            ApiError: The request's API key or session is over a limit.
        """
        headers, body = request.headers, request.body
        key, address, named_session = self.lane(request)
        session = named_session
        helper = "judge" if JUDGE_HEADER in headers else ""
        excluded = _demands_training(headers) or (row is not None and HEADER in headers)
        if request.train and self._settings.helpers and not (excluded or helper):
            from_agent = bool(session) and self.sessions.has_tools(session)
            query = "" if row is not None and own_words(row, request.query) else request.query
            helper = helper_of(body, query, stream=request.stream, agent=from_agent)
        if not session:
            session = self._by_content(request, helper)
        turn = self._open(count, key, session, request, helper, server)
        if helper:
            request = msgspec.structs.replace(request, session=session, helper=helper, train=False)
        elif session != request.session:
            request = msgspec.structs.replace(request, session=session)
        if request.train and self._run_samples and not RUN_SAMPLING.isdisjoint(body):
            remaining = {name: value for name, value in body.items() if name not in RUN_SAMPLING}
            request = msgspec.structs.replace(request, body=remaining)
        # New conversations without a named session share a lane: else each would get its own share.
        name = session if named_session or turn > 1 else ""
        lane = (key, address, f"{name} {helper}" if helper else name)
        return AdmittedRequest(request, turn, lane, request.lag is not None and turn == 1)

    def _open(
        self,
        count: RequestCount,
        key: str,
        session: str,
        request: ChatRequest,
        helper: str,
        server: str,
    ) -> int:
        """Count a request for its key and its session; return its turn within the session."""
        try:
            count.open(self.keys, key)
        except LimitExceeded as exceeded:
            params = KeyLimited(
                name=key[:8] or "none", limit=exceeded.limit, query=one_line(request.query, 60)
            )
            self._raise_limit_alert(params, server)
            raise _too_many("with this key", exceeded) from None
        if not session:
            return 0
        try:
            tools = bool(request.body.get("tools"))
            return count.open(self.sessions, session, helper=bool(helper), tools=tools)
        except LimitExceeded as exceeded:
            count.close(self.keys, key)
            limited = SessionLimited(
                name=one_line(session, 60), limit=exceeded.limit, query=one_line(request.query, 60)
            )
            self._raise_limit_alert(limited, server, session)
            raise _too_many("in this session", exceeded) from None

    def _by_content(self, request: ChatRequest, helper: str) -> str:
        sender, trace = sender_of(request.headers), trace_of(request.headers)
        if helper:  # not a turn, though it may repeat the whole conversation
            return self.conversations.find(request.messages, sender, trace)
        return self.conversations.match(request.messages, sender, trace).session

    def run_opened(self, run: GroupRun, count: RequestCount) -> None:
        """Record that the request that `count` counts became this run."""
        self._joinable[run.request.key] = run
        self._counts[run.group_id] = count

    def run_ended(self, run: GroupRun) -> None:
        """Record that the run has ended."""
        self._cache_answer(run)
        self._cached.discard(run.group_id)
        if self._joinable.get(run.request.key) is run:
            del self._joinable[run.request.key]
        count = self._counts.pop(run.group_id)
        if run.request.session:
            count.close(self.sessions, run.request.session)
        count.close(self.keys, run.lane[0])

    # --- sessions and keys over their limit -----------------------------------------------------

    def _raise_limit_alert(
        self, params: KeyLimited | SessionLimited, server: str, session: str = ""
    ) -> None:
        alert = f"{params.kind}:{session or params.name}"
        known = alert in self._limit_alerts
        if not known and len(self._limit_alerts) >= MAX_ALERTS:
            return
        self._limit_alerts[alert] = self._clock()
        if known:
            return
        groups = self._bus.state.groups.values() if session else ()
        affected = [group.group_id for group in groups if group.session == session]
        show_alert(
            self._bus,
            alert,
            params,
            groups=affected,
            server=server,
        )
        self._check_later(alert)

    def _check_later(self, alert: str) -> None:
        loop = asyncio.get_running_loop()
        self._timers[alert] = loop.call_later(MINUTE, self._clear_if_past, alert)

    def _clear_if_past(self, alert: str) -> None:
        if self._clock() - self._limit_alerts[alert] < MINUTE:
            self._check_later(alert)
            return
        del self._limit_alerts[alert], self._timers[alert]
        clear_alert(self._bus, alert)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()


def _too_many(where: str, exceeded: LimitExceeded) -> ApiError:
    text = f"Too many requests {where}: {exceeded.limit}. Please try again later."
    return ApiError(429, exceeded.retry_after, text, kind="Too Many Requests")


def _demands_training(headers: Mapping[str, str]) -> bool:
    value = headers.get(TRAIN_HEADER)
    return value is not None and value.strip().lower() in ("yes", "true", "1", "on")
