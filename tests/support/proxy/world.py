"""A proxy in the test's own loop: scripted swarm server, journal, context, groups.

async with world(tmp_path) as w:
    ticket = await w.ask("hello")
    reply = await w.reply(ticket)
    await w.closed()
"""

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.interface import Request, Response, Streamed
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import Unreachable
from ajet_swarm.runtime import Clock, Runtime
from core.bus import Bus
from core.commands import COMMANDS, validate
from core.dialects.errors import ApiError
from core.events import AnyEvent, ConsoleAttached, Event, Part, ProxyStarted
from core.journal.writer import Journal
from core.roles import OWNER, Identity
from core.settings import Settings
from core.state import Group
from proxy.admission.registry import Groups
from proxy.admission.sessions import Limits
from proxy.context import ProxyContext, ServerHandle
from proxy.control.dispatch import CommandDispatcher, CommandHandler
from proxy.control.group_commands import GroupCommands
from proxy.dataset_rows import Rows
from proxy.dialects.chat.request import read_request
from proxy.groups.answer import AnswerWaiter, FinalAnswer
from proxy.groups.recovery import mode_at_start
from proxy.rewards.source import (
    Abstention,
    GroupContext,
    Listener,
    RequestReport,
    Score,
    ScoreSheet,
    SourceHealth,
)
from proxy.servers.watch import ServerWatch
from tests.support.capped_clock import skip
from tests.support.proxy.singles import singles
from tests.support.scripted.ajetc_transport import AjetcTransport
from tests.support.scripted.swarm import ScriptedSwarm

FAST = {
    "leave_grace": 0.05,
    "down_grace": 0.3,
    "console_grace": 0.1,
    "recover": 0.5,
    "last_ends": 0.2,
}
HEADERS = {"content-type": "application/json"}

Scorer = Callable[[GroupContext], Awaitable[list[float]]]


async def by_index(ctx: GroupContext) -> list[float]:
    """The last candidate is the best."""
    return [answer.index / 10 for answer in ctx.answers]


class Source:
    """A reward source whose scorer a test can change."""

    name = "scripted"
    version = "v1"

    def __init__(self) -> None:
        self.scorer: Scorer = by_index
        self.abstains = ""
        self.contexts: list[GroupContext] = []
        self.report = RequestReport()
        self.listeners: list[Listener] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        return RequestReport(metadata, self.report.repeat, self.report.error)

    async def score(self, ctx: GroupContext) -> ScoreSheet:
        self.contexts.append(ctx)
        if self.abstains:
            return ScoreSheet((), Abstention("judge", self.abstains, "line 1"), self.version, 0.0)
        rewards = await self.scorer(ctx)
        scores = tuple(
            Score(answer.index, reward, (Part("taste", reward),))
            for answer, reward in zip(ctx.answers, rewards, strict=True)
        )
        return ScoreSheet(scores, None, self.version, 0.001)

    def health(self) -> SourceHealth:
        return SourceHealth(True, None, self.version)

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        self.listeners.append(listener)

        def remove() -> None:
            if listener in self.listeners:
                self.listeners.remove(listener)

        return remove

    def load(self, version: str) -> None:
        """Another version serves from now on."""
        self.version = version
        for listener in self.listeners:
            listener(self.health())


class OperatorCommands:
    """Sends the commands on groups as an operator does: `commands.rate("g1", "best", (0,))`.

    Values without a name are the command's arguments in their order.
    """

    def __init__(self, groups: Groups) -> None:
        self._handler = CommandHandler(groups.context, GroupCommands(groups).table)

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[str]]:
        name = "rating.mode" if verb == "set_mode" else f"group.{verb}"

        async def send(*values: Any, **more: Any) -> str:
            args = {
                arg.name: value for arg, value in zip(COMMANDS[name].args, values, strict=False)
            }
            return (await self._handler.execute(name, args | more))[0]

        return send


class Line:
    """The transport, with a switch: a killed proxy sends nothing more."""

    def __init__(self, transport: HttpTransport) -> None:
        self.transport = transport
        self.cut = False

    async def request(self, request: Request) -> Response:
        if self.cut:
            raise Unreachable("killed", request.url, sent=False)
        return await self.transport.request(request)

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Streamed]:
        if self.cut:
            raise Unreachable("killed", request.url, sent=False)
        async with self.transport.stream(request) as answer:
            yield answer


@dataclass
class World:
    """One proxy and its server."""

    swarm: ScriptedSwarm
    context: ProxyContext
    groups: Groups
    source: Source
    line: Line
    events: list[AnyEvent] = field(default_factory=list)

    @property
    def state(self) -> Any:
        return self.context.bus.state

    @property
    def server(self) -> ServerHandle:
        return next(iter(self.context.servers.values()))

    @property
    def commands(self) -> OperatorCommands:
        """The operator's commands on one group."""
        return OperatorCommands(self.groups)

    async def ask(
        self, text: str = "hello", headers: Mapping[str, str] | None = None, **body: Any
    ) -> AnswerWaiter:
        """Submit one chat request."""
        result = {"model": "m", "messages": [{"role": "user", "content": text}], **body}
        data = json.dumps(result).encode()
        return self.groups.admission.admit(
            read_request(data, {**HEADERS, **(headers or {})}, "host")
        )

    async def reply(self, ticket: AnswerWaiter, seconds: float = 20.0) -> FinalAnswer:
        """The user's whole answer, after all pieces."""
        async with asyncio.timeout(seconds):
            while not isinstance(result := await ticket.next(1.0), FinalAnswer):
                assert not ticket.left
        ticket.confirm_delivery()
        return result

    async def complete(
        self, text: str = "hello", headers: Mapping[str, str] | None = None, **body: Any
    ) -> tuple[Group, FinalAnswer]:
        """Ask, read the answer, and wait until no group is open."""
        ticket = await self.ask(text, headers, **body)
        reply = await self.reply(ticket)
        await self.closed()
        return self.group(ticket), reply

    async def refused(self, ticket: AnswerWaiter, seconds: float = 20.0) -> ApiError:
        """The error that the user gets."""
        reply = await self.reply(ticket, seconds)
        assert reply.error is not None
        return reply.error

    async def held(self, text: str = "hello", **body: Any) -> tuple[AnswerWaiter, Group]:
        """Ask; give the group once one waits for a rating, with or without an answer."""
        ticket = await self.ask(text, **body)
        return ticket, await self.open("AWAITING_RATING")

    async def awaiting(self, text: str = "hello", **body: Any) -> Group:
        """Ask and read the answer; give the group once it waits for a rating."""
        ticket = await self.ask(text, **body)
        await self.reply(ticket)
        await self.until(lambda: self.group(ticket).phase == "AWAITING_RATING")
        return self.group(ticket)

    async def embedded(self, *missing: str) -> AjetcTransport:
        """Let its server answer as an embedded engine, without the routes `missing`."""
        client: Any = self.server.client
        engine = AjetcTransport(client.transport, self.swarm)
        engine.paths = tuple(path for path in engine.paths if path not in missing)
        client.transport = engine
        await client.features(again=True)
        return engine

    def hold(self, *places: int, then: Any = None) -> asyncio.Event:
        """Let the answers to these claims, without places to all, wait for the event.

        The held ones are `then` if it is given; all others are texts.
        """
        gate = asyncio.Event()

        async def answer(name: str, body: dict[str, Any], index: int) -> Any:
            claims = dict(enumerate(self.swarm.claims))
            if not places or any(name == claims.get(place) for place in places):
                await gate.wait()
                if then is not None:
                    return then
            return f"fine {name[:6]}"

        self.swarm.answer = answer
        return gate

    def hold_piece(self, number: int) -> asyncio.Event:
        """Let each stream wait for the event before this piece."""
        gate = asyncio.Event()

        async def on_token(name: str, index: int) -> None:
            if index == number:
                await gate.wait()

        self.swarm.on_token = on_token
        return gate

    async def answered(self, ticket: AnswerWaiter, count: int) -> None:
        """Wait until so many candidates of a group have answered."""
        await self.until(lambda: sum(bool(c.text) for c in self.group(ticket).candidates) == count)

    async def knows(self, state: str) -> None:
        """Set the state of its server and wait until it was seen."""
        self.swarm.set_state(state)
        await self.until(lambda: self.server.watcher.current.state == state)

    @functools.cached_property
    def dispatcher(self) -> CommandHandler:
        """Carries out all commands."""
        return CommandDispatcher(self.context, self.groups)

    async def order(self, name: str, /, identity: Identity = OWNER, **args: Any) -> str:
        """Carry out a command as the control API does; give its message."""
        return (await self.dispatcher.execute(name, validate(name, args), identity))[0]

    async def vote(self, group: Group, rater: str, best: int, **more: Any) -> str:
        """Vote for one answer."""
        args = {"group_id": group.group_id, "rating": "best", "order": [best], "rater": rater}
        return await self.order("group.rate", **{**args, **more})

    async def closed(self, seconds: float = 20.0) -> None:
        """Wait until no group is open."""
        await self.until(lambda: not self.groups.runs, seconds)

    async def until(self, test: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Wait for a condition."""
        async with asyncio.timeout(seconds):
            while not (result := test()):
                await asyncio.sleep(0.005)
        return result

    async def open(self, phase: str) -> Group:
        """Wait for a group in `phase`."""
        group: Group = await self.until(
            lambda: next(
                (group for group in self.state.groups.values() if group.phase == phase), None
            )
        )
        return group

    def group(self, ticket: AnswerWaiter) -> Group:
        group: Group = self.state.groups[ticket.group_id]
        return group

    def console(self, count: int = 1) -> None:
        """A console follows the feed."""
        self.context.bus.publish(ConsoleAttached(consoles=count))

    def kinds(self, *wanted: type[Event]) -> list[Any]:
        """Events of these kinds, in order."""
        return [event for event in singles(self.events) if isinstance(event, wanted)]

    def kill(self) -> None:
        """Simulate a kill -9: no further byte is sent or written."""
        self.line.cut = True
        self.context.tasks.spawn(self.line.transport.close(), "killed")
        self.context.journal.close()


def settings(**sections: Mapping[str, Any]) -> Settings:
    """Settings with limits no busy machine reaches; `rating={"mode": "hold"}` changes a section."""
    result: dict[str, dict[str, Any]] = {
        "proxy": {"answer_budget": 60.0, "stream_budget": 60.0, "keepalive": 20.0},
        "rating": {"window": 0.1},
        "rewards": {"time_limit": 20.0},
    }
    for name, values in sections.items():
        result.setdefault(name, {}).update(values)
    return msgspec.convert(result, Settings)


@contextlib.asynccontextmanager
async def world(
    home: Path,
    swarm: ScriptedSwarm | None = None,
    configured: Settings | None = None,
    limits: Mapping[str, float] = FAST,
    recover: bool = True,
    watched: bool = False,
    others: Mapping[str, ScriptedSwarm] | None = None,
) -> AsyncIterator[World]:
    """A proxy on `swarm` (one of its own when not given), with its journal in `home`.

    With `watched` what the watcher sees becomes events, too. `others` are further servers by name,
    after `s`.
    """
    configured = configured or settings()
    async with contextlib.AsyncExitStack() as stack:
        if swarm is None:
            swarm = await stack.enter_async_context(ScriptedSwarm())
        line = Line(await stack.enter_async_context(HttpTransport()))
        journal = Journal(home / "j.db")
        stack.callback(journal.close)
        runtime = Runtime(Clock(wall=loop_clock()))
        bus = Bus(journal, "run", clock=runtime.clock.wall)
        tasks = await stack.enter_async_context(Tasks("proxy"))
        servers: dict[str, ServerHandle] = {}
        for name, one in {"s": swarm, **(others or {})}.items():
            client = SwarmWire(one.url, line, "me", name=name, runtime=runtime)
            watcher = Watcher(client, runtime.clock.wall)
            claimer = EpisodeClaimer(client, watcher, search_again=0.05, runtime=runtime)
            stack.push_async_callback(claimer.close, 0.5)
            servers[name] = ServerHandle(name, one.url, client, watcher, claimer)
        source = Source()
        context = ProxyContext(
            settings=configured,
            journal=journal,
            bus=bus,
            servers=servers,
            rewards=source,
            rows=Rows(),
            tasks=tasks,
            client_uuid="me",
            runtime=runtime,
        )
        # A busy machine may not cut short what a test takes as done.
        patient = {"recover": 20.0} if recover else {}
        groups = Groups(context, Limits.of(configured.proxy, **{**limits, **patient}))
        stack.push_async_callback(groups.close)
        made = World(swarm, context, groups, source, line)
        bus.listen(lambda event, _: made.events.append(event))
        bus.publish(
            ProxyStarted(
                client_uuid="me",
                pid=1,
                url="",
                version="0",
                servers={name: handle.url for name, handle in servers.items()},
                rewards="scripted",
                rating_mode=mode_at_start(context),
            )
        )
        for name, server in servers.items():
            full = ServerWatch(context, server, on_held=partial(groups.postpone, name))
            watch = full.run() if watched else server.watcher.run()
            tasks.spawn(watch, "watcher")
            await server.watcher.wait_for(lambda status: status.reachable, 20)
        if recover:
            await groups.recover()
        yield made


async def let(seconds: float, *worlds: World, step: float = 1.0) -> None:
    """Let time pass in steps, in which everything that is due is done."""
    clock = asyncio.get_running_loop().time
    until = clock() + seconds
    while clock() < until:
        skip(min(step, until - clock()))
        for _ in range(4):
            await asyncio.gather(*(w.context.journal.committed(w.state.seq) for w in worlds))
            await asyncio.sleep(0.002)


def loop_clock() -> Callable[[], float]:
    """A clock of Unix seconds that advances with the loop's clock."""
    loop = asyncio.get_running_loop()
    began = time.time() - loop.time()
    return lambda: began + loop.time()


def texts(*by_call: Any) -> Any:
    """Answers in the order of the calls, the last one for all that follow."""
    calls = iter(by_call)
    last = by_call[-1]

    async def answer(name: str, body: dict[str, Any], index: int) -> Any:
        return next(calls, last)

    return answer


def sent(swarm: ScriptedSwarm) -> dict[str, list[float]]:
    """Rewards by task."""
    values: dict[str, list[float]] = {}
    for _, task, reward in swarm.reward_log:
        values.setdefault(task, []).append(reward)
    return values
