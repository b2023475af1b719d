"""The control API: snapshot, feed, commands, rows and facts, for clients with a token.

A handler returns the value of its answer, which `_answered` sends as JSON, or raises an error,
which `_failed` sends with its status.

The snapshot of the control API, whole or brief, and what a brief one leaves out.
"""

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from core.bus import Bus, Subscription
from core.dialects.errors import ApiError
from core.events import (
    AnyEvent,
    ConsoleAttached,
    ConsoleDetached,
    Event,
    MockFinished,
    MockRowDone,
    MockStarted,
)
from core.roles import AccessRole, NotPermitted, require
from core.runtime.access import AccessTokens
from core.settings.effective import EffectiveSettings, shown_settings
from core.state import Group
from core.state.brief import brief_groups, brief_runs
from proxy.context import ProxyContext, ServerHandle
from proxy.control.dispatch import CommandHandler
from proxy.control.group_commands import caught_up
from proxy.control.job_commands import job_info
from proxy.control.job_store import JobStore
from proxy.control.permissions import Clients, UnknownClient, require_own_console
from proxy.control.progress_commands import rewind_plan
from proxy.dataset_rows import Row
from proxy.servers.extensions import tokens
from proxy.servers.slots import read_details

IDS_CAP = 200
"""Maximum number of groups, or of curves, read at once."""
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def integer(text: str, name: str) -> int:
    """Return the whole number of a parameter in the query of a request.

    Raises:
        UsageError: it is not a whole number; names the parameter.
    """
    if not _INTEGER.fullmatch(text):
        raise UsageError(f"`{name}` must be a whole number")
    return int(text)


async def snapshot(bus: Bus, request: Request) -> dict[str, Any]:
    """Return the state and its sequence number; brief with the parameter `whole`.

    See `ControlClient.snapshot` for the parameter.
    """
    state = bus.state
    if (whole := request.query_params.get("whole")) is not None:
        groups = brief_groups(state.groups, max(0, integer(whole, "whole")))
        state = replace(state, groups=groups, engine_runs=brief_runs(state.engine_runs))
    return {"seq": state.seq, "identity": request.state.identity, "state": state}


async def groups(bus: Bus, request: Request) -> dict[str, list[Group]]:
    """Return the groups of the parameter `ids` that are in the state."""
    known = bus.state.groups
    return {"groups": [known[name] for name in _list(request, "ids") if name in known]}


async def curves(bus: Bus, request: Request) -> dict[str, Any]:
    """Return the curves of the engine runs whose numbers are in the parameter `runs`."""
    numbers = (integer(number, "runs") for number in _list(request, "runs"))
    runs = [bus.state.engine_runs.numbered(number) for number in numbers]
    return {"curves": {run.number: run.curve for run in runs if run is not None}}


def _list(request: Request, name: str) -> list[str]:
    """Return the parts of a parameter with commas."""
    text = request.query_params.get(name, "")
    return text.split(",")[:IDS_CAP] if text else []


T = TypeVar("T")

NAME_CAP = 40
"""Maximum characters of the id of a console and of the name of its rater."""
PING_EVERY = 5.0
REPLAY_CAP = 20_000
"""Maximum number of events replayed to a client; beyond it the client reads the snapshot."""
PACKED_BYTES = 16_384
"""Size of an answer from which it is compressed, for clients that accept it."""

Read = Callable[[Request], Awaitable[Any]]


class _Refused(ApiError):
    """A request to the control API that is answered with an error status."""

    def __init__(self, status: int, what: str, todo: str = "") -> None:
        super().__init__(status, None, what)
        self.todo = todo


class _Fact(msgspec.Struct):
    id: str
    event: AnyEvent


class _EndedRow(msgspec.Struct):
    row_id: str


class ControlApi:
    """The control API of one proxy.

    Args:
        context: The proxy's shared parts.
        commands: Executes commands.
        token: The owner's token.
        hosts: Host names it answers to, besides those of loopback.
        access: The named tokens; None for none.
    """

    def __init__(
        self,
        context: ProxyContext,
        commands: CommandHandler,
        token: str,
        hosts: frozenset[str],
        access: AccessTokens | None = None,
    ) -> None:
        self.context = context
        self._commands = commands
        self._clients = Clients(token, hosts, access)
        self._consoles = 0
        self._closed = False
        self._subscriptions: set[Subscription] = set()
        self._facts: dict[str, int] = {}
        """Sequence numbers of posted facts by their id, to recognize a repeated post."""

    def close(self) -> None:
        """End the feeds, so that the server can stop without waiting for their clients."""
        self._closed = True
        for subscription in self._subscriptions:
            subscription.wake()

    def app(self) -> Starlette:
        """Return the application, which is mounted at `/control`."""
        bus = self.context.bus
        table: tuple[tuple[str, str, Read, AccessRole], ...] = (
            ("GET", "/snapshot", lambda request: snapshot(bus, request), "viewer"),
            ("GET", "/snapshot/groups", lambda request: groups(bus, request), "viewer"),
            ("GET", "/snapshot/curves", lambda request: curves(bus, request), "viewer"),
            ("GET", "/settings", self._settings, "viewer"),
            ("GET", "/events", self._events, "viewer"),
            ("POST", "/commands/{name}", self._command, "viewer"),  # each command has its own
            ("POST", "/plan/{name}", self._plan, "viewer"),
            ("GET", "/groups", self._groups, "viewer"),
            ("GET", "/groups/{group_id}", self._group, "viewer"),
            ("GET", "/tokens/{episode_uuid}", self._tokens, "viewer"),
            ("GET", "/look/{server}", self._server_details, "viewer"),
            ("GET", "/job/{server}", self._job, "operator"),
            ("GET", "/rewind/{server}", self._rewind, "operator"),
            ("POST", "/rows", self._row, "operator"),
            ("POST", "/rows/over", self._end_row, "operator"),
            ("GET", "/mock", self._mock, "operator"),
            ("POST", "/facts", self._fact, "operator"),
        )
        return Starlette(
            routes=[
                Route(path, self._answered(handler, role), methods=[method])
                for method, path, handler, role in table
            ],
            exception_handlers={HTTPException: _no_route, AjetError: _failed},
        )

    def _answered(
        self, handler: Read, role: AccessRole
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a handler: permitted to a role, answered with its value."""

        async def answered(request: Request) -> Response:
            identity = self._clients.identify(request.headers)
            require(identity, role, f"{request.method} {request.url.path}")
            request.state.identity = identity
            value = await handler(request)
            if isinstance(value, Response):
                return value
            data, headers = msgspec.json.encode(value), {}
            if len(data) >= PACKED_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
                data = await asyncio.to_thread(gzip.compress, data, 1, mtime=0)
                headers["content-encoding"] = "gzip"
            return Response(data, headers=headers, media_type="application/json")

        return answered

    # --- reading --------------------------------------------------------------------------------

    async def _settings(self, request: Request) -> EffectiveSettings:
        servers = {name: server.url for name, server in self.context.servers.items()}
        return EffectiveSettings(settings=shown_settings(self.context.settings), servers=servers)

    async def _groups(self, request: Request) -> Any:
        first = integer(request.query_params.get("first", "0"), "first")
        limit = integer(request.query_params.get("limit", "50"), "limit")
        await caught_up(self.context)
        return await asyncio.to_thread(self.context.journal.page, first, max(1, limit))

    async def _group(self, request: Request) -> dict[str, Any]:
        group_id = request.path_params["group_id"]
        await caught_up(self.context)
        events = await asyncio.to_thread(self.context.journal.group_events, group_id)
        if not events:
            raise _Refused(404, f"there is no group {group_id}")
        return {"events": events}

    async def _tokens(self, request: Request) -> Any:
        server = request.query_params.get("server") or next(iter(self.context.servers), "")
        return await tokens(self.context, request.path_params["episode_uuid"], server)

    async def _server_details(self, request: Request) -> Any:
        return await read_details(self.context, request.path_params["server"])

    async def _job(self, request: Request) -> Any:
        store = JobStore.beside(self.context.journal.path)
        return await job_info(self.context, self._server(request), store)

    async def _rewind(self, request: Request) -> Any:
        path = request.query_params.get("path", "")
        return await rewind_plan(self.context, self._server(request), path)

    def _server(self, request: Request) -> ServerHandle:
        server = self.context.servers.get(request.path_params["server"])
        if server is None:
            known = f"Known: {', '.join(self.context.servers)}"
            raise _Refused(404, "there is no such server", known)
        return server

    async def _events(self, request: Request) -> Response:
        sent, identity, bus = request.query_params, request.state.identity, self.context.bus
        after = integer(sent.get("after", "0"), "after")
        if sent.get("run", "") not in ("", bus.run_id):
            after = -1  # of a run that may have lost its last events: send a reset
        # A viewer cannot vote: no group waits for one because a viewer is connected.
        console = sent.get("console") == "1" and identity.permits("rater")
        holder = one_line(sent.get("holder", ""), NAME_CAP)
        rater = identity.name or one_line(sent.get("rater", ""), NAME_CAP)
        if identity.name:
            require_own_console(identity, holder, bus.state, self.context.clock())
        return StreamingResponse(
            self._feed(after, (holder, rater) if console else None, request),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    async def _feed(
        self, after: int, console: tuple[str, str] | None, request: Request
    ) -> AsyncIterator[bytes]:
        """Yield the frames of a feed.

        Args:
            after: Sequence number of the client's last event; -1 for none.
            console: Id, as in a lease, and rater of an attached console; None for other clients.
            request: The request.
        """
        bus, identity = self.context.bus, request.state.identity
        until = bus.state.seq
        subscription = bus.subscribe()
        self._subscriptions.add(subscription)
        holder, rater = console or ("", "")
        try:
            if console is not None:
                self._consoles += 1
                attached = ConsoleAttached(consoles=self._consoles, holder=holder, rater=rater)
                bus.publish(attached)
            async for chunk in self._missed(after, until):
                yield chunk
            while not self._closed:
                events = await subscription.next(PING_EVERY)
                if not self._clients.valid(request.headers, identity):
                    return  # revoked or expired meanwhile
                if subscription.gap:
                    subscription.resume()
                    yield _frame(bus.state.seq, "reset", b"{}")
                elif not events:
                    yield b"event: ping\ndata: {}\n\n"
                else:
                    yield b"".join(_event(event) for event in events)
        finally:
            self._subscriptions.discard(subscription)
            bus.unsubscribe(subscription)
            if console is not None:
                self._consoles -= 1
                bus.publish(ConsoleDetached(consoles=self._consoles, holder=holder))

    async def _missed(self, after: int, until: int) -> AsyncIterator[bytes]:
        """Yield the events between the client's last one and the subscription, from the journal."""
        if not 0 <= after <= until or until - after > REPLAY_CAP:
            yield _frame(until, "reset", b"{}")
            return
        await caught_up(self.context)
        while after < until:
            page = await asyncio.to_thread(self.context.journal.events, after, 500)
            missed = [event for event in page if event.seq <= until]
            if not missed:
                return
            after = missed[-1].seq
            yield b"".join(_event(event) for event in missed)

    # --- writing --------------------------------------------------------------------------------

    async def _command(self, request: Request) -> dict[str, Any]:
        name, args = request.path_params["name"], await _body(request, dict[str, Any], _ARGUMENTS)
        message, result = await self._commands.execute(name, args, request.state.identity)
        return {"ok": True, "message": message, "result": result}

    async def _plan(self, request: Request) -> Any:
        name, args = request.path_params["name"], await _body(request, dict[str, Any], _ARGUMENTS)
        return await self._commands.plan(name, args, request.state.identity)

    async def _row(self, request: Request) -> dict[str, str]:
        row = await _body(request, Row, "this is not a row")
        directive = self._commands.directive(row.mock_id, for_row=True)
        if directive == "run":
            self.context.rows.register(row)
        return {"directive": directive}

    async def _end_row(self, request: Request) -> dict[str, bool]:
        ended = await _body(request, _EndedRow, "this does not end a row")
        self.context.rows.release(ended.row_id)
        return {"ok": True}

    async def _mock(self, request: Request) -> dict[str, str]:
        mock_id = request.query_params.get("mock_id", "")
        self.context.rows.alive(mock_id)
        return {"directive": self._commands.directive(mock_id)}

    async def _fact(self, request: Request) -> dict[str, bool]:
        fact = await _body(request, _Fact, "this is not a fact")
        event = fact.event
        if not event.kind.startswith("mock_"):
            raise _Refused(403, f"`{event.kind}` cannot be posted: only the mock user's facts can")
        if not self._is_recorded(fact.id, event):
            self._end_rows(event)
            stamped = msgspec.structs.replace(event, at=self.context.clock())
            self._facts[fact.id] = self.context.bus.publish(stamped)
            while len(self._facts) > REPLAY_CAP:
                del self._facts[next(iter(self._facts))]
        # A repeated post waits for the event of the first one.
        await self.context.journal.committed(self._facts.get(fact.id, 0))
        return {"ok": True}

    def _end_rows(self, event: Event) -> None:
        """Stop waiting for the rows that the fact ends."""
        if isinstance(event, MockRowDone):
            self.context.rows.release(event.row_id)
        elif isinstance(event, MockStarted):
            self.context.rows.end_earlier(event.mock_id)
        elif isinstance(event, MockFinished):
            self.context.rows.end_run(event.mock_id)

    def _is_recorded(self, fact_id: str, event: Event) -> bool:
        """Return whether the journal has the fact, posted to this proxy or to an earlier one."""
        mock = self.context.bus.state.mock
        if fact_id in self._facts or mock is None:
            return fact_id in self._facts
        if isinstance(event, MockStarted):
            return event.mock_id == mock.mock_id and mock.ended_at is None
        if isinstance(event, MockRowDone) and event.mock_id == mock.mock_id:
            return any(row.row_id == event.row_id for row in mock.rows)
        return False


_ARGUMENTS = "the arguments of a command are a JSON object"


async def _body(request: Request, kind: type[T], wrong: str) -> T:
    """Return the body of a request; `wrong` says that it is JSON of another form."""
    try:
        return msgspec.convert(msgspec.json.decode(await request.body() or b"{}"), kind)
    except msgspec.ValidationError as error:
        raise _Refused(400, f"{wrong}: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Refused(400, f"the body is not JSON: {error}") from error


_STATUSES: Mapping[type[AjetError], int] = {UsageError: 400, UnknownClient: 401, NotPermitted: 403}
"""Kind of an error -> the status of its answer, 409 for all others."""


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, AjetError)
    if isinstance(error, ApiError):
        return _error(error, error.status)
    statuses = (status for kind, status in _STATUSES.items() if isinstance(error, kind))
    return _error(error, next(statuses, 409))


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(AjetError(error.detail), error.status_code, error.headers)


def _error(error: AjetError, status: int, headers: Mapping[str, str] | None = None) -> Response:
    fields = {"message": error.what, "where": error.where, "todo": error.todo}
    sent = {**(headers or {}), **({"retry-after": "5"} if status == 503 else {})}
    data = msgspec.json.encode({"error": fields})
    return Response(data, status, sent, media_type="application/json")


def _frame(seq: int, kind: str, data: bytes) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, kind.encode(), data)


def _event(event: Event) -> bytes:
    return _frame(event.seq, event.kind, msgspec.json.encode(event))
