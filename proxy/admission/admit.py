"""Classifies a request before it becomes a group: a retry, a helper call, one of many of a session.

Nothing here claims an episode or waits.
"""

import asyncio
import time
from collections.abc import Mapping

import msgspec

from ajet_swarm.claims.lane_queue import Lane
from ajet_swarm.common.text import one_line
from core.bus import Bus
from core.events import AnswerReturned, GroupEvent, RequestJoined, RequestReplayed
from core.settings import ProxySettings
from proxy.admission.conversations import Conversations
from proxy.admission.helper_calls import helper_of
from proxy.admission.replay_cache import ReplayCache, is_retry, joins
from proxy.admission.sessions import MINUTE, LimitExceeded, RequestLimits
from proxy.alerts import clear_alert, show_alert
from proxy.dataset_rows import HEADER, Row, own_words
from proxy.dialects.request import ChatRequest
from proxy.dialects.session_marks import key_of, sender_of, session_of, trace_of
from proxy.groups.fair_queue import FairGate, Turn
from proxy.groups.run import AnswerWaiter, GroupRun
from proxy.http.errors import ApiError

TRAIN_HEADER = "x-ajet-train"
JUDGE_HEADER = "x-ajet-judge"
"""A request that one of our judges sends to the fake vLLM is neither trained on nor judged."""
OWN = frozenset({"temperature", "seed"})
"""Fields that the run decides itself in training: with one seed all candidates would be equal."""
ALERTS = 20
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
    """It is the first request of its session, on an idle connection."""


class Admission:
    """Remembers earlier requests; one for all servers. It belongs to the event loop of the context.

    Args:
        settings: Limits, windows and the switch of the helper rules.
        bus: Where events for the operator are published.
        observes: Observe mode, in which a request keeps its temperature and its seed.
    """

    def __init__(self, settings: ProxySettings, bus: Bus, observes: bool = False) -> None:
        clock = time.monotonic
        self._run_samples = not observes
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._joinable: dict[str, GroupRun] = {}
        """Runs by the key of their request."""
        self._kept: set[str] = set()
        """Runs whose answer is in `replay`."""
        self.replay = ReplayCache(settings.replay_window, clock, mode=settings.replay)
        self.conversations = Conversations()
        self.sessions = RequestLimits(settings.session_cap, settings.session_calls, clock)
        self.keys = RequestLimits(settings.key_cap, settings.key_calls, clock)
        """The same limits for API keys, by the name that `key_of` gives them."""
        self._gates: dict[str, FairGate] = {}
        self._over: dict[str, float] = {}
        """Alerts of sessions and keys over their limit: when they were refused last."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # --- the same request again -----------------------------------------------------------------

    def again(self, request: ChatRequest) -> AnswerWaiter | None:
        """Return a waiter for the group of an identical earlier request; None for a new request."""
        run = self._joinable.get(request.key)
        waits = run is not None and run.final_answer is None and run.stop is None
        if run is not None and waits and self._joins(request):
            waiter = run.join(request.stream)
            self._bus.publish(RequestJoined(server=run.facts.server.name, group_id=run.group_id))
            return waiter
        if run is not None:
            self._keep(run)
        found = self.replay.find(request.key, request.headers, request.body)
        if found is None:
            return None
        group = self._bus.state.groups.get(found.group_id)
        server = group.server if group is not None else ""
        self._bus.publish(RequestReplayed(server=server, group_id=found.group_id))
        return self.replay.waiter(found, request.stream)

    def _joins(self, request: ChatRequest) -> bool:
        headers = request.headers
        return is_retry(headers) or (self._settings.join and joins(headers))

    def refused(self, request: ChatRequest) -> None:
        """Forget the cached answer: the request got an error, so its retry is a new one."""
        self.replay.forget(request.key)

    def happened(self, run: GroupRun, event: GroupEvent) -> None:
        """Handle an event of a run: it may have its answer."""
        if isinstance(event, AnswerReturned):
            self._keep(run)
            if run.final_answer is not None and run.final_answer.answer is not None:
                self.conversations.answered(run.request.session, run.final_answer.answer.message)

    def _keep(self, run: GroupRun) -> None:
        reply = run.final_answer
        if reply is not None and reply.answers and run.group_id not in self._kept:
            self._kept.add(run.group_id)
            self.replay.remember(run.request.key, run.group_id, reply, tuple(run.waiters))

    # --- a new one ------------------------------------------------------------------------------

    def lane(self, request: ChatRequest) -> Lane:
        """Return key, address and marked session of a request.

        Where a key is required all requests share one, whatever else they carry.
        """
        key = "" if self._settings.api_key else key_of(request.headers)
        session = session_of(request.headers, request.body) or request.session
        return (key, request.address, session)

    def place(self, request: ChatRequest, row: Row | None, server: str) -> AdmittedRequest:
        """Find a request's session, and whether it is a helper call.

        Args:
            request: A new one.
            row: The row of a dataset it belongs to. Named by the request it is no helper call; what
                an agent asks beside it in the same session, or with the same last words, may be.
            server: Where it would go.

        Raises:
            ApiError: its key or its session is over a cap.
        """
        headers, body = request.headers, request.body
        key, address, marked = self.lane(request)
        session = marked
        helper = "judge" if JUDGE_HEADER in headers else ""
        sure = _wants(headers) or (row is not None and HEADER in headers)
        if request.train and self._settings.helpers and not (sure or helper):
            agent = bool(session) and self.sessions.has_tools(session)
            words = "" if row is not None and own_words(row, request.query) else request.query
            helper = helper_of(body, words, stream=request.stream, agent=agent)
        if not session:
            session = self._by_content(request, helper)
        turn = self._open(key, session, request, helper, server)
        if helper:
            request = msgspec.structs.replace(request, session=session, helper=helper, train=False)
        elif session != request.session:
            request = msgspec.structs.replace(request, session=session)
        if request.train and self._run_samples and not OWN.isdisjoint(body):
            own = {name: value for name, value in body.items() if name not in OWN}
            request = msgspec.structs.replace(request, body=own)
        # Conversations that begin unmarked share a lane: else many of them would be many sessions.
        name = session if marked or turn > 1 else ""
        lane = (key, address, f"{name} {helper}" if helper else name)
        return AdmittedRequest(request, turn, lane, request.idle and turn == 1)

    def _open(self, key: str, session: str, request: ChatRequest, helper: str, server: str) -> int:
        """Count a request of its key and its session; returns which turn of the session it is."""
        try:
            self.keys.open(key)
        except LimitExceeded as over:
            self._told("key", key[:8] or "none", request, over, server)
            raise _too_many("with this key", over) from None
        if not session:
            return 0
        try:
            tools = bool(request.body.get("tools"))
            return self.sessions.open(session, helper=bool(helper), tools=tools)
        except LimitExceeded as over:
            self.keys.close(key)
            self._told("session", session, request, over, server)
            raise _too_many("in this session", over) from None

    def _by_content(self, request: ChatRequest, helper: str) -> str:
        sender, trace = sender_of(request.headers), trace_of(request.headers)
        if helper:  # no turn of the conversation, though it may repeat all of it
            return self.conversations.find(request.messages, sender, trace)
        return self.conversations.match(request.messages, sender, trace).session

    def opened(self, run: GroupRun) -> None:
        """Record that the request became this run."""
        self._joinable[run.request.key] = run
        settings, name = self._settings, run.facts.server.name
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = FairGate(settings.max_groups)
        run.gate = gate.turn()

    def over(self, run: GroupRun) -> None:
        """Record that the run is over."""
        self._keep(run)
        self._kept.discard(run.group_id)
        if self._joinable.get(run.request.key) is run:
            del self._joinable[run.request.key]
        if isinstance(run.gate, Turn):
            run.gate.leave()
        self.sessions.close(run.request.session)
        self.keys.close(run.lane[0])

    # --- sessions and keys over their cap -------------------------------------------------------

    def _told(
        self, what: str, name: str, request: ChatRequest, over: LimitExceeded, server: str
    ) -> None:
        alert = f"{what}:{name}"
        known = alert in self._over
        if not known and len(self._over) >= ALERTS:
            return
        self._over[alert] = self._clock()
        if known:
            return
        groups = self._bus.state.groups.values()
        show_alert(
            self._bus,
            alert,
            f"{what} {one_line(name, 60)} is answered 429, it is over {over.limit}: "
            f"{one_line(request.query, 60)}",
            f"Stop that client, or raise proxy.{what}_calls and proxy.{what}_cap",
            groups=[one.group_id for one in groups if what == "session" and one.session == name],
            server=server,
        )
        self._look_again(alert)

    def _look_again(self, alert: str) -> None:
        loop = asyncio.get_running_loop()
        self._timers[alert] = loop.call_later(MINUTE, self._calm, alert)

    def _calm(self, alert: str) -> None:
        if self._clock() - self._over[alert] < MINUTE:
            self._look_again(alert)
            return
        del self._over[alert], self._timers[alert]
        clear_alert(self._bus, alert)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()


def _too_many(where: str, over: LimitExceeded) -> ApiError:
    text = f"Too many requests {where}: {over.limit}. Please try again later."
    return ApiError(429, over.retry_after, text, kind="Too Many Requests")


def _wants(headers: Mapping[str, str]) -> bool:
    return headers.get(TRAIN_HEADER, "").strip().lower() in ("yes", "true", "1", "on")
