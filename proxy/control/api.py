"""The control API: snapshot, feed, commands, rows and facts, for clients with a token."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from core.bus import Subscription
from core.events import (
    AnyEvent,
    ConsoleAttached,
    ConsoleDetached,
    Event,
    MockFinished,
    MockRowDone,
    MockStarted,
)
from core.journal.file import JournalError
from core.roles import AccessRole, Identity, NotPermitted, require
from core.runtime.access import AccessTokens
from core.settings.effective import EffectiveSettings, shown_settings
from proxy.context import ProxyContext, ServerHandle
from proxy.control.dispatch import CommandHandler
from proxy.control.job_info import job_info
from proxy.control.job_store import JobStore
from proxy.control.permissions import Clients, UnknownClient, require_own_console
from proxy.control.query import integer
from proxy.control.rewind import rewind_plan
from proxy.control.snapshot import SnapshotRequests
from proxy.dataset_rows import Row
from proxy.http.errors import ApiError
from proxy.servers.extensions import tokens
from proxy.servers.slots import read_details

NAME_CAP = 40
"""Maximum characters of the id of a console and of the name of its rater."""
PING_EVERY = 5.0
REPLAY_CAP = 20_000
"""Maximum number of events replayed to a client; beyond it the client reads the snapshot."""


class _Refused(ApiError):
    """A request to the control API that is answered with an error status."""

    def __init__(self, status: int, what: str, todo: str = "") -> None:
        super().__init__(status, None, what)
        self.todo = todo


class _Console(NamedTuple):
    """A console that follows the feed: its id as in a lease, and its rater."""

    holder: str
    rater: str


class _Fact(msgspec.Struct):
    id: str
    event: AnyEvent


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _error(error: AjetError, status: int) -> Response:
    fields = {"message": error.what, "where": error.where, "todo": error.todo}
    response = _json({"error": fields}, status)
    if status == 503:
        response.headers["retry-after"] = "5"
    return response


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _error(AjetError(error.detail), error.status_code)
    response.headers.update(error.headers or {})
    return response


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
        snapshot = SnapshotRequests(self.context.bus)
        table: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]], AccessRole], ...] = (
            ("GET", "/snapshot", snapshot.read, "viewer"),
            ("GET", "/snapshot/groups", snapshot.groups, "viewer"),
            ("GET", "/snapshot/curves", snapshot.curves, "viewer"),
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
        routes = [
            Route(path, self._guarded(handler, role), methods=[method])
            for method, path, handler, role in table
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _no_route})

    def _guarded(
        self, handler: Callable[[Request], Awaitable[Response]], role: AccessRole
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                identity = self._clients.identify(request.headers)
                require(identity, role, f"{request.method} {request.url.path}")
                request.state.identity = identity
                return await handler(request)
            except ApiError as error:
                return _error(error, error.status)
            except UsageError as error:
                return _error(error, 400)
            except UnknownClient as error:
                return _error(error, 401)
            except NotPermitted as error:
                return _error(error, 403)
            except AjetError as error:
                return _error(error, 409)

        return guarded

    # --- reading --------------------------------------------------------------------------------

    async def _settings(self, request: Request) -> Response:
        servers = {name: server.url for name, server in self.context.servers.items()}
        shown = shown_settings(self.context.settings)
        return _json(EffectiveSettings(settings=shown, servers=servers))

    async def _groups(self, request: Request) -> Response:
        first = integer(request.query_params.get("first", "0"), "first")
        limit = integer(request.query_params.get("limit", "50"), "limit")
        await self._wait_for_journal()
        page = await asyncio.to_thread(self.context.journal.page, first, max(1, limit))
        return _json(page)

    async def _group(self, request: Request) -> Response:
        group_id = request.path_params["group_id"]
        await self._wait_for_journal()
        events = await asyncio.to_thread(self.context.journal.group_events, group_id)
        if not events:
            raise _Refused(404, f"there is no group {group_id}")
        return _json({"events": events})

    async def _tokens(self, request: Request) -> Response:
        server = request.query_params.get("server") or next(iter(self.context.servers), "")
        return _json(await tokens(self.context, request.path_params["episode_uuid"], server))

    async def _server_details(self, request: Request) -> Response:
        return _json(await read_details(self.context, request.path_params["server"]))

    async def _job(self, request: Request) -> Response:
        store = JobStore.beside(self.context.journal.path)
        return _json(await job_info(self.context, self._server(request), store))

    async def _rewind(self, request: Request) -> Response:
        path = request.query_params.get("path", "")
        return _json(await rewind_plan(self.context, self._server(request), path))

    def _server(self, request: Request) -> ServerHandle:
        server = self.context.servers.get(request.path_params["server"])
        if server is None:
            known = f"Known: {', '.join(self.context.servers)}"
            raise _Refused(404, "there is no such server", known)
        return server

    async def _wait_for_journal(self) -> None:
        """Wait until everything published before now can be read from the journal."""
        try:
            await self.context.journal.committed(self.context.bus.state.seq)
        except JournalError:
            return  # an alert reports it; what is on disk is still returned

    async def _events(self, request: Request) -> Response:
        after = integer(request.query_params.get("after", "0"), "after")
        identity: Identity = request.state.identity
        # A viewer cannot vote: no group waits for one because a viewer is connected.
        console = request.query_params.get("console") == "1" and identity.permits("rater")
        if request.query_params.get("run", "") not in ("", self.context.bus.run_id):
            after = -1  # of a run that may have lost its last events: send a reset
        sent = request.query_params
        attached = _Console(
            one_line(sent.get("holder", ""), NAME_CAP),
            identity.name or one_line(sent.get("rater", ""), NAME_CAP),
        )
        if identity.name:
            state, now = self.context.bus.state, self.context.clock()
            require_own_console(identity, attached.holder, state, now)
        return StreamingResponse(
            self._feed(after, attached if console else None, request),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    async def _feed(
        self, after: int, console: _Console | None, request: Request
    ) -> AsyncIterator[bytes]:
        bus = self.context.bus
        until = bus.state.seq
        subscription = bus.subscribe()
        self._subscriptions.add(subscription)
        try:
            if console is not None:
                self._consoles += 1
                bus.publish(
                    ConsoleAttached(
                        consoles=self._consoles, holder=console.holder, rater=console.rater
                    )
                )
            async for chunk in self._missed(after, until):
                yield chunk
            while not self._closed:
                events = await subscription.next(PING_EVERY)
                if not self._clients.valid(
                    request.headers, request.state.identity
                ):  # revoked or expired meanwhile
                    return
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
                bus.publish(ConsoleDetached(consoles=self._consoles, holder=console.holder))

    async def _missed(self, after: int, until: int) -> AsyncIterator[bytes]:
        """Yield the events between the client's last one and the subscription, from the journal."""
        if not 0 <= after <= until or until - after > REPLAY_CAP:
            yield _frame(until, "reset", b"{}")
            return
        await self._wait_for_journal()
        while after < until:
            page = await asyncio.to_thread(self.context.journal.events, after, 500)
            missed = [event for event in page if event.seq <= until]
            if not missed:
                return
            after = missed[-1].seq
            yield b"".join(_event(event) for event in missed)

    # --- writing --------------------------------------------------------------------------------

    async def _command(self, request: Request) -> Response:
        name, args = request.path_params["name"], await _arguments(request)
        message, result = await self._commands.execute(name, args, request.state.identity)
        return _json({"ok": True, "message": message, "result": result})

    async def _plan(self, request: Request) -> Response:
        name, args = request.path_params["name"], await _arguments(request)
        return _json(await self._commands.plan(name, args, request.state.identity))

    async def _row(self, request: Request) -> Response:
        try:
            row = msgspec.convert(await _body(request), Row)
        except msgspec.ValidationError as error:
            raise _Refused(400, f"this is not a row: {error}") from error
        directive = self._commands.directive(row.mock_id, for_row=True)
        if directive == "run":
            self.context.rows.register(row)
        return _json({"directive": directive})

    async def _end_row(self, request: Request) -> Response:
        body = await _body(request)
        row_id = body.get("row_id") if isinstance(body, Mapping) else None
        if not isinstance(row_id, str):
            raise _Refused(400, "`row_id` is missing")
        self.context.rows.release(row_id)
        return _json({"ok": True})

    async def _mock(self, request: Request) -> Response:
        mock_id = request.query_params.get("mock_id", "")
        self.context.rows.alive(mock_id)
        return _json({"directive": self._commands.directive(mock_id)})

    async def _fact(self, request: Request) -> Response:
        try:
            fact = msgspec.convert(await _body(request), _Fact)
        except msgspec.ValidationError as error:
            raise _Refused(400, f"this is not a fact: {error}") from error
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
        return _json({"ok": True})

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
        if fact_id in self._facts:
            return True
        mock = self.context.bus.state.mock
        if mock is None:
            return False
        if isinstance(event, MockStarted):
            return event.mock_id == mock.mock_id and mock.ended_at is None
        if isinstance(event, MockRowDone) and event.mock_id == mock.mock_id:
            return any(row.row_id == event.row_id for row in mock.rows)
        return False


async def _arguments(request: Request) -> Mapping[str, Any]:
    """Return the arguments of a command."""
    args = await _body(request)
    if not isinstance(args, Mapping):
        raise _Refused(400, "the arguments of a command are a JSON object")
    return args


async def _body(request: Request) -> Any:
    data = await request.body()
    if not data:
        return {}
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Refused(400, f"the body is not JSON: {error}") from error


def _frame(seq: int, kind: str, data: bytes) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, kind.encode(), data)


def _event(event: Event) -> bytes:
    return _frame(event.seq, event.kind, msgspec.json.encode(event))
