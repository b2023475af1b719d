"""Admits requests, or says why not: retry, limits, helper call, session, a new group.

One request makes one group. The same bytes from the same sender, sent again while the first request
is unanswered, join its group; sent again because the answer did not arrive, they get it once more
(`ReplayCache`). A new request is refused by the state of its server, by `Limits`, or by its
content; else it becomes a `Run`. Nothing here claims an episode or waits.

A helper call (a title, a summary, follow-up questions, tags, memory notes) is answered from one
episode and not trained on: it is not a turn of the conversation, and no one rates it. All rules are
in `helper_rules.toml`; each one names its client, its conditions and the reason why it is safe. All
conditions of a rule must hold; the first matching rule counts. A rule only checks the beginning of
the system prompt (`system`) and of the last user text (`user`), and is specific enough that no task
of a dataset matches it. These are never helper calls: a request whose text matches only because a
dataset row has that text, a request that names its row (`X-Ajet-Row`), one with `X-Ajet-Train:
yes`, and any request if the setting `proxy.helpers` is off. A client can mark other helper calls
with `X-Ajet-Train: no`.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ajet_swarm.common.text import content_text, one_line
from ajet_swarm.episodes.queue import Origin
from core.dialects.errors import ApiError
from core.events import GroupOpened, RequestJoined, RequestRefused, RequestReplayed
from core.events.alerts import params_of
from proxy.admission.replay_cache import ReplayCache, is_retry, may_join
from proxy.admission.sessions import (
    Conversations,
    LimitExceeded,
    Limits,
    RequestCount,
    RequestLimits,
)
from proxy.alerts import clear_alert, show_alert
from proxy.context import ServerHandle
from proxy.dataset_rows import HEADER, Row, journal_fields, own_words
from proxy.dialects.client_marks import (
    client_timeout,
    key_of,
    sender_of,
    session_of,
    trace_context_of,
)
from proxy.dialects.images import image_labels
from proxy.dialects.request import ChatRequest
from proxy.groups.answer import AnswerWaiter
from proxy.groups.claim import check_servable
from proxy.groups.run import EpisodeEvents, GroupTask, Run, RunEnded, Slots, Votes
from proxy.http.errors import ProxyStopping
from proxy.servers.facts import DEFAULT_REPEATS, ServerFacts, is_down

if TYPE_CHECKING:
    from proxy.admission.registry import Groups

log = logging.getLogger(__name__)

TRAIN_HEADER = "x-ajet-train"
JUDGE_HEADER = "x-ajet-judge"
"""Marks a request that one of our judges sends to the fake vLLM: not trained on, not judged."""
RUN_SAMPLING = frozenset({"temperature", "seed"})
"""Fields that the run decides itself in training: with one seed all candidates would be equal."""


class AdmittedRequest(msgspec.Struct, frozen=True):
    """A request that may become a group."""

    request: ChatRequest
    """With its session, and marked as a helper call if it is one."""
    turn: int
    """Its number within its session, from 1; 0 for helper calls and without a session."""
    origin: Origin
    """Fairness key: API key, address, session."""
    may_overtake: bool
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
        self._counts: dict[str, RequestCount] = {}
        """Group id of an open run -> its request in the limits."""
        self._newest = 0
        """Milliseconds in the newest group id."""
        self._alerts: dict[str, asyncio.TimerHandle] = {}
        """Alert key of a session over its limit -> when the alert is cleared."""

    def admit(self, request: ChatRequest, count: RequestCount | None = None) -> AnswerWaiter:
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
        open_run = run is not None and run.answer.final is None and run.stop is None
        if run is not None and open_run and (is_retry(headers) or may_join(headers)):
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

    def _new(self, request: ChatRequest, count: RequestCount) -> AnswerWaiter:
        context, settings = self._context, self._context.settings
        self._groups.check_model(request.model)
        if self._groups.draining:
            raise ProxyStopping
        server = context.server_of(request.model)
        if is_down(server.watcher.current):
            raise server.overloaded(request.model, 10)
        displaced: Run | None = None
        if self._groups.is_full:
            request.connection.waited = True
            overtakes = request.connection.lag is not None
            displaced = self._groups.next_displaced(self._origin(request), overtakes)
        facts = self._groups.server_facts[server.name]
        check_servable(request, server, settings)
        row = context.rows.match(request.headers, request.query)
        if row is not None and not row.train and request.train:
            request = replace(request, train=False)
        untrained = ""
        if request.train and context.held_out.matches(request.query, request.messages):
            untrained = "not trained on: held-out prompt of the probe set"
        elif request.train and server.paused:
            untrained = f"not trained on: training is paused, {server.paused}"
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
        self, request: ChatRequest, row: Row | None, server: ServerHandle, count: RequestCount
    ) -> AdmittedRequest:
        """Determine a new request's session, and whether it is a helper call; count it.

        Args:
            request: The request.
            row: The dataset row it belongs to, or None. A request that names its row is never a
                helper call; other requests of an agent for the same row may be.
            server: The request's server.
            count: Counts the request; one for all prompts of a request.

        Raises:
            ApiError: The request's session is over a limit.
        """
        headers, body = request.headers, request.body
        key, address, named_session = self._origin(request)
        session = named_session
        helper = "judge" if JUDGE_HEADER in headers else ""
        demanded = headers.get(TRAIN_HEADER, "").strip().lower() in ("yes", "true", "1", "on")
        excluded = demanded or (row is not None and HEADER in headers)
        if request.train and self._settings.helpers and not (excluded or helper):
            from_agent = bool(session) and self.sessions.has_tools(session)
            query = "" if row is not None and own_words(row, request.query) else request.query
            helper = helper_of(body, query, stream=request.stream, agent=from_agent)
        if not session:
            sender, trace = sender_of(headers), trace_context_of(headers)[0][3:35]
            if helper:  # not a turn, though it may repeat the whole conversation
                session = self._conversations.find(request.messages, sender, trace)
            else:
                session = self._conversations.match(request.messages, sender, trace).session
        if helper:
            request = replace(request, session=session, helper=helper, train=False)
        elif session != request.session:
            request = replace(request, session=session)
        turn = self._count(count, request, server.name)
        if request.train and server.run_samples and not RUN_SAMPLING.isdisjoint(body):
            remaining = {name: value for name, value in body.items() if name not in RUN_SAMPLING}
            request = replace(request, body=remaining)
        # New conversations without a named session share an origin: else each would have its share.
        name = session if named_session or turn > 1 else ""
        origin = (key, address, f"{name} {helper}" if helper else name)
        may_overtake = request.connection.lag is not None and turn == 1
        return AdmittedRequest(request, turn, origin, may_overtake)

    def _next_group_id(self) -> str:
        """Return an id that sorts by time: the journal's index of groups then grows at its end."""
        runtime = self._context.runtime
        self._newest = max(int(runtime.clock.wall() * 1_000), self._newest + 1)
        return f"{self._newest & 0xFFFF_FFFF:08x}{runtime.chance.token(2)}"

    def _open(self, admitted: AdmittedRequest, row: Row | None, facts: ServerFacts) -> Run:
        request, context, server = admitted.request, self._context, facts.server
        described = request.shown
        group_id = self._next_group_id()
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
            may_overtake=admitted.may_overtake,
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
                images=image_labels(described) if described else (),
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
                **(journal_fields(row) if row else {}),
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

    # --- limits and refusals --------------------------------------------------------------------

    def _count(self, count: RequestCount, request: ChatRequest, server: str) -> int:
        """Count a request for its session; return its turn within the session."""
        session, helper = request.session, bool(request.helper)
        if not session:
            return 0
        try:
            tools = bool(request.body.get("tools"))
            return self.sessions.open(session, count, helper=helper, tools=tools)
        except LimitExceeded as exceeded:
            raise self._over_limit(session, exceeded, request, server) from None

    def _over_limit(
        self, name: str, exceeded: LimitExceeded, request: ChatRequest, server: str
    ) -> ApiError:
        """Show for a while that a session is over its limit; return the refusal."""
        alert = f"session:{name}"
        timer = self._alerts.get(alert)
        if timer is not None:
            timer.cancel()
        elif len(self._alerts) < self._limits.alerts:
            groups = self._bus.state.groups.values()
            affected = [group.group_id for group in groups if group.session == name]
            shown, query = one_line(name, 60), one_line(request.query, 60)
            params = params_of("session", name=shown, limit=exceeded.limit, query=query)
            show_alert(self._bus, alert, params, groups=affected, server=server)
        if timer is not None or alert in self._bus.state.alerts:
            later = asyncio.get_running_loop().call_later
            self._alerts[alert] = later(self._limits.alert_time, self._clear_limit_alert, alert)
        text = f"Too many requests in this session: {exceeded.limit}. Please try again later."
        return ApiError(429, exceeded.retry_after, text, kind="Too Many Requests")

    def _clear_limit_alert(self, alert: str) -> None:
        del self._alerts[alert]
        clear_alert(self._bus, alert)

    def _publish_refusal(self, request: ChatRequest, refusal: ApiError) -> None:
        """Publish the refusal, so that the operator sees that users get errors."""
        server, bus = self._context.server_of(request.model), self._bus
        status = server.watcher.current
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


def _end_for_another(run: Run) -> None:
    """End a waiting run in favour of another one.

    Cancel it in the next iteration of the loop: a task that never started does not clean up.
    """
    assert run.work is not None
    run.stop = RunEnded("ABORTED", "displaced by another sender", refusal=run.overloaded(2))
    asyncio.get_running_loop().call_soon(run.work.cancel)


# --- helper calls --------------------------------------------------------------------------------

_SYSTEM = 600
_USER = 1200
"""Characters of the two texts that are checked."""


class Rule(msgspec.Struct, frozen=True):
    """One kind of helper call; see `helper_rules.toml`."""

    name: str
    client: str
    why: str
    """Why this is a helper call, and why no other request matches."""
    system: str = ""
    """Regular expression for the beginning of the system prompt."""
    user: str = ""
    """Regular expression for the beginning of the last user text."""
    tools: bool | None = None
    """Whether the request offers tools; None for both."""
    stream: bool | None = None
    agent: bool = False
    """Only if the client names its session and that session has sent requests with tools."""


def _read_rules() -> tuple[Rule, ...]:
    """Read the rules; a pattern may be a list of pieces, and name a common part in braces."""
    found = msgspec.toml.decode(Path(__file__).with_name("helper_rules.toml").read_bytes())
    for rule in found["rules"]:
        for field in ("system", "user"):
            pattern = "".join(rule.get(field, ""))
            for name, part in found["parts"].items():
                pattern = pattern.replace(f"{{{name}}}", part)
            rule[field] = pattern
    return msgspec.convert(tuple(found["rules"]), tuple[Rule, ...])


RULES = _read_rules()

_Matcher = Callable[[str], re.Match[str] | None]
_Named = tuple[str, _Matcher]
"""Name of a rule, and what matches the user's text."""


def _matcher(pattern: str) -> _Matcher:
    """Compile a pattern; one that begins with `^` is only matched at the beginning of a text.

    Alternatives of such a pattern must be in a group.
    """
    compiled = re.compile(pattern, re.IGNORECASE)
    return compiled.match if pattern.startswith("^") else compiled.search


_COMPILED = tuple(
    (rule, re.compile(rule.system, re.IGNORECASE).search, _matcher(rule.user)) for rule in RULES
)


def helper_of(
    body: Mapping[str, Any], query: str, *, stream: bool = False, agent: bool = False
) -> str:
    """Return the name of the rule that classifies a request as a helper call; empty for none.

    Args:
        body: The request's body, in the form of chat completions.
        query: Text of the last user message.
        stream: Whether the answer is streamed.
        agent: Whether the request's session has sent requests with tools.
    """
    system, user = _system(body.get("messages")), query[:_USER]
    begins, rules, others = _candidates(system, bool(body.get("tools")), stream, agent)
    for name, matches in rules if begins(user) else others:
        if matches(user):
            return name
    return ""


@lru_cache(maxsize=256)
def _candidates(
    system: str, tools: bool, stream: bool, agent: bool
) -> tuple[_Matcher, tuple[_Named, ...], tuple[_Named, ...]]:
    """Return the rules whose conditions hold, except for the user's text.

    Cached, as all requests of an application have the same system prompt.

    Returns:
        What matches the beginning of a text by any rule that depends on it, which is fast, since
        most texts match none; all rules; the rules that do not depend on that beginning.
    """
    candidates = [
        (rule, matches)
        for rule, in_system, matches in _COMPILED
        if rule.tools in (None, tools)
        and rule.stream in (None, stream)
        and (agent or not rule.agent)
        and (not rule.system or (system and in_system(system)))
    ]
    beginnings = [rule.user for rule, _ in candidates if rule.user.startswith("^")]
    return (
        re.compile("|".join(f"(?:{part})" for part in beginnings) or "(?!)", re.I).match,
        tuple((rule.name, matches) for rule, matches in candidates),
        tuple((rule.name, matches) for rule, matches in candidates if rule.user[:1] != "^"),
    )


def _system(messages: Any) -> str:
    for message in messages or ():
        if message.get("role") not in ("system", "developer"):
            return ""
        if text := content_text(message.get("content")):
            return text[:_SYSTEM]
    return ""
