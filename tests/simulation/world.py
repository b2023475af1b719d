"""One run of a plan: the proxy of this repository on the simulated loop, server and journal.

outcome = simulate(plan(seed))
assert not outcome.violations
"""

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import msgspec

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.runtime import Chance, Clock, Runtime
from core.bus import Bus
from core.dialects.errors import ApiError
from core.events import ConsoleAttached, GroupRated, ProxyStarted, ProxyStopped
from core.journal.file import JournalError
from core.journal.writer import Journal
from core.settings import Settings
from core.state import Group
from proxy.admission.registry import Groups
from proxy.context import ProxyContext, ServerHandle
from proxy.dataset_rows import Rows
from proxy.dialects.chat.request import read_request
from proxy.groups.answer import AnswerWaiter, FinalAnswer
from proxy.groups.recovery import alert_waited, mode_at_start
from proxy.rewards.source import GroupContext
from proxy.servers.watch import ServerWatch
from tests.simulation.journal import JournalFile, SimulatedJournal
from tests.simulation.loop import Incarnation, SimulatedLoop, context_of, simulated_loop
from tests.simulation.plan import BEHAVIOURS, OUTAGES, Act, Arrival, Fault, Plan
from tests.simulation.server import EPOCH, ME, URL, SimulatedServer, SimulatedTransport, Trouble
from tests.support.proxy.world import OperatorCommands, Source

SETTLE = 900.0
"""Seconds after the last arrival within which everything must have ended."""
INJECTED = "a fault of the rewards"
"""Text of the error that the rewards of some plans raise."""
REST = 15.0
"""Seconds without users before the final checks: late recoveries and sweeps end within them."""


@dataclass
class Asked:
    """One request of a user, as the user sees it."""

    prompt: str
    stream: bool
    began: float
    ended: float | None = None
    outcome: str = ""
    """answered, refused, left or cut; empty while it waits."""
    text: str = ""


@dataclass
class Outcome:
    """What a run did, for the checks of `tests.simulation.invariants`."""

    plan: Plan
    server: SimulatedServer
    file: JournalFile
    asked: list[Asked] = field(default_factory=list)
    lives: list[tuple[float, float | None]] = field(default_factory=list)
    """From when to when each incarnation ran; None for the end of the run."""
    problems: list[str] = field(default_factory=list)
    """What was found wrong while it ran."""
    violations: list[str] = field(default_factory=list)
    log: list[tuple[float, str]] = field(default_factory=list)
    """Steps of tasks in order."""


class Proxy:
    """One incarnation of the proxy."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.incarnation = Incarnation(f"proxy {number}")
        self.context = context_of(self.incarnation)
        self.ready = asyncio.Event()
        """Set when it accepts requests."""
        self._stop = asyncio.Event()
        self._number = number
        self.journal: SimulatedJournal
        self.parts: ProxyContext
        self.groups: Groups
        self.task = self.spawn(self._run(), self.incarnation.name)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task of this incarnation."""
        return self.world.loop.create_task(work, name=name, context=self.context.copy())

    def run_here(self, function: Any, *args: Any) -> Any:
        """Call a function in the context of this incarnation."""
        return self.context.copy().run(function, *args)

    def accepts(self) -> bool:
        """Return whether a user can connect."""
        return self.ready.is_set() and not self.incarnation.killed and not self._stop.is_set()

    async def stop(self) -> None:
        """Stop in order, as SIGTERM does, and check that nothing is left."""
        self._stop.set()
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        world, number = self.world, self._number
        plan, clock = world.plan, world.clock
        chance = Chance(random.Random(f"proxy {plan.seed} {number}"))
        runtime = Runtime(clock, chance)
        self.journal = SimulatedJournal(
            world.file, self.incarnation, random.Random(f"journal {plan.seed} {number}")
        )
        bus = Bus(cast(Journal, self.journal), f"run{number}", clock=clock.wall)
        transport = SimulatedTransport(world.server, self.incarnation)
        client = SwarmWire(URL, transport, ME, name="s", runtime=runtime)
        watcher = Watcher(client, clock.wall)
        claimer = EpisodeClaimer(client, watcher, runtime=runtime)
        handle = ServerHandle("s", URL, client, watcher, claimer)
        async with Tasks("proxy") as tasks:
            self.parts = ProxyContext(
                settings=msgspec.convert(plan.settings, Settings),
                journal=cast(Journal, self.journal),
                bus=bus,
                servers={"s": handle},
                rewards=world.source(number),
                rows=Rows(),
                tasks=tasks,
                client_uuid=ME,
                runtime=runtime,
            )
            self.groups = Groups(self.parts)
            bus.publish(
                ProxyStarted(
                    client_uuid=ME,
                    pid=number,
                    url="",
                    version="0",
                    servers={"s": URL},
                    rewards="scripted",
                    rating_mode=mode_at_start(self.parts),
                )
            )
            alert_waited(self.parts)
            if plan.console:
                bus.publish(ConsoleAttached(consoles=1))
            watch = ServerWatch(self.parts, handle, on_held=partial(self.groups.postpone, "s"))
            tasks.spawn(watch.run(), "watch")
            await self.groups.recover()
            self.ready.set()
            await self._stop.wait()
            await self.groups.drain(10.0)
            await self.groups.close()
            await claimer.close()
            bus.publish(ProxyStopped(reason="asked to"))
        self.journal.close()
        self._check_left()

    def _check_left(self) -> None:
        """Record what is still in memory after an orderly stop."""
        held = [
            name
            for name in ("runs", "_tasks", "_cleanup_tasks", "_background_tasks")
            if len(getattr(self.groups, name))
        ]
        if held:
            self.world.problem(f"left in memory after the stop: {', '.join(held)}")


class World:
    """The parts of one run; use it inside the loop."""

    def __init__(self, plan: Plan, loop: SimulatedLoop) -> None:
        self.plan, self.loop = plan, loop
        self.chance = random.Random(f"world {plan.seed}")
        self.clock = Clock(wall=lambda: EPOCH + loop.time(), monotonic=loop.time)
        self.file = JournalFile()
        self.server = SimulatedServer(random.Random(f"server {plan.seed}"), self.file.holds_reward)
        for name, value in plan.server.items():
            setattr(self.server.pool, name, value)
        self.outcome = Outcome(plan, self.server, self.file)
        self._starts = 0
        self.proxy = self.start()
        self._cut = asyncio.Event()
        """Set at each kill, then replaced."""

    def problem(self, text: str) -> None:
        """Record something that is wrong."""
        self.outcome.problems.append(f"{self.loop.time():.2f} s: {text}")

    def start(self) -> Proxy:
        """Start the proxy."""
        self._starts += 1
        self.outcome.lives.append((self.loop.time(), None))
        return Proxy(self, self._starts)

    def source(self, number: int) -> Source:
        """Return the rewards of one incarnation."""
        chance = random.Random(f"source {self.plan.seed} {number}")
        kind, source = self.plan.source, Source()

        async def score(group: GroupContext) -> list[float]:
            await asyncio.sleep(chance.uniform(3.0, 10.0) if kind == "slow" else chance.random())
            if kind == "raise" and chance.random() < 0.5:
                raise RuntimeError(INJECTED)
            return [0.5 if kind == "equal" else chance.random() for _ in group.answers]

        source.scorer = score
        if kind == "abstain":
            source.abstains = "the judge does not answer"
        return source

    async def run(self) -> Outcome:
        """Run the plan and return what happened."""
        self.server.start()
        plan, loop = self.plan, self.loop
        await self.proxy.ready.wait()
        async with asyncio.TaskGroup() as group:
            for number in range(plan.competitors):
                group.create_task(self.server.compete(f"other{number}", 60.0))
            for number, happening in enumerate(plan.happenings):
                match happening:
                    case Arrival():
                        group.create_task(self._user(happening, f"question {number}"))
                    case Act():
                        group.create_task(self._act(happening))
                    case Fault():
                        group.create_task(self._fault(happening))
        await self.proxy.ready.wait()
        until = loop.time() + SETTLE
        while (self.proxy.groups.runs or self._is_troubled()) and loop.time() < until:
            await asyncio.sleep(1.0)
        await asyncio.sleep(REST)
        if self.proxy.groups.runs:
            phases = [f"{run.group_id} {run.phase}" for run in self.proxy.groups.runs.values()]
            self.problem(f"groups are still open: {', '.join(phases)}")
        await self.proxy.stop()
        self.outcome.log = loop.log
        return self.outcome

    def _is_troubled(self) -> bool:
        """Return whether a fault goes on: a proxy that is stopped then may reach no server."""
        return any(trouble.until > self.loop.time() for trouble in self.server.troubles)

    # --- users ----------------------------------------------------------------------------------

    async def _user(self, arrival: Arrival, prompt: str) -> None:
        await asyncio.sleep(arrival.at)
        give_up = self.loop.time() + arrival.patience
        for _ in range(20):
            asked = Asked(prompt, arrival.stream, self.loop.time())
            self.outcome.asked.append(asked)
            await self._ask(arrival, asked, give_up)
            asked.ended = self.loop.time()
            if asked.outcome in ("answered", "left") or self.loop.time() >= give_up:
                return
            await asyncio.sleep(self.chance.uniform(0.5, 4.0))

    async def _ask(self, arrival: Arrival, asked: Asked, give_up: float) -> None:
        proxy = self.proxy
        if not proxy.accepts():
            asked.outcome = "refused"
            return
        done: asyncio.Future[None] = self.loop.create_future()
        holder: list[AnswerWaiter] = []
        proxy.spawn(self._serve(proxy, arrival, asked, holder, done), f"request {asked.prompt}")
        timer = self.loop.call_at(give_up, _resolve, done)
        cut = self._cut
        waiting = [self.loop.create_task(_wait(done)), self.loop.create_task(cut.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        timer.cancel()
        if asked.outcome:
            return
        if proxy.incarnation.killed:
            asked.outcome = "cut"
            return
        asked.outcome = "left"
        if holder:
            proxy.run_here(holder[0].leave)

    async def _serve(
        self,
        proxy: Proxy,
        arrival: Arrival,
        asked: Asked,
        holder: list[AnswerWaiter],
        done: "asyncio.Future[None]",
    ) -> None:
        body = {
            "model": "m",
            "stream": arrival.stream,
            "messages": [{"role": "user", "content": asked.prompt}],
        }
        headers = {"content-type": "application/json"}
        if not arrival.train:
            headers["x-ajet-train"] = "no"
        try:
            waiter = proxy.groups.admission.admit(
                read_request(json.dumps(body).encode(), headers, "host")
            )
            holder.append(waiter)
            while not isinstance(result := await waiter.next(10.0), FinalAnswer):
                if waiter.left:
                    return
            if asked.outcome:
                return
            if result.error is not None:
                asked.outcome, asked.text = "refused", str(result.error)
            else:
                asked.outcome = "answered"
                asked.text = result.answer.text if result.answer else ""
                waiter.confirm_delivery()
        except ApiError as error:
            asked.outcome, asked.text = "refused", str(error)
        _resolve(done)

    # --- operator -------------------------------------------------------------------------------

    async def _act(self, act: Act) -> None:
        await asyncio.sleep(act.at)
        proxy = self.proxy
        if not proxy.accepts():
            return
        group = self._pick(proxy, act)
        if group is None and act.command not in ("off", "answer_first", "hold"):
            return
        acting = proxy.spawn(self._command(proxy, act, group), f"operator {act.command}")
        cut = self.loop.create_task(self._cut.wait())
        await asyncio.wait([acting, cut], timeout=60.0, return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()

    def _pick(self, proxy: Proxy, act: Act) -> Group | None:
        groups = [group for group in proxy.parts.bus.state.open_groups() if group.best is not None]
        return groups[int(act.pick * len(groups))] if groups else None

    async def _command(self, proxy: Proxy, act: Act, group: Group | None) -> None:
        commands = OperatorCommands(proxy.groups)
        try:
            if act.command in ("off", "answer_first", "hold"):
                await commands.set_mode(mode=act.command)
                return
            assert group is not None
            group_id = group.group_id
            if act.command == "unrate":
                await commands.unrate(group_id)
            elif act.command == "accept":
                await commands.accept(group_id)
            elif act.command == "abort":
                await commands.abort(group_id)
            else:
                answered = [each.index for each in group.candidates if each.phase == "answered"]
                if not answered:
                    return
                best = answered[int(act.pick * 997) % len(answered)]
                order = (best,) if act.command == "best" else ()
                await commands.rate(group_id, act.command, order)
                if not any(
                    isinstance(event, GroupRated) and event.group_id == group_id
                    for event in self.file.events()
                ):
                    self.problem(f"the vote on {group_id} is acknowledged and not committed")
        except (AjetError, JournalError):
            return

    # --- faults ---------------------------------------------------------------------------------

    async def _fault(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        if fault.route and fault.kind in OUTAGES:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(60.0):
                    await asyncio.shield(self.server.next_request(fault.route))
            await asyncio.sleep(self.chance.choice((0.0, 0.005, 0.02, 0.1)))
        seconds = fault.seconds
        match fault.kind:
            case "freeze":
                await self.server.freeze(min(2 * seconds, 19.0))
            case "restart":
                await self.server.restart(seconds)
            case "stop engine":
                await self.server.stop_engine(seconds)
            case "stall disk" | "fill disk":
                await self._break_disk(fault.kind, seconds)
            case "kill":
                await self._kill(fault)
            case "stop proxy":
                await self._restart_proxy(seconds)
            case kind:
                now, longer = (
                    self.loop.time(),
                    (6 if fault.route or kind in BEHAVIOURS else 2) * seconds,
                )
                self.server.trouble(Trouble(kind, now, longer, fault.share, fault.route))

    async def _break_disk(self, kind: str, seconds: float) -> None:
        proxy = self.proxy
        if not proxy.ready.is_set() or proxy.incarnation.killed:
            return
        self.server.troubles.append(Trouble("disk", self.loop.time(), seconds))
        proxy.run_here(proxy.journal.stall if kind == "stall disk" else proxy.journal.fill)
        await asyncio.sleep(seconds)
        if not proxy.incarnation.killed:
            proxy.run_here(proxy.journal.resume)

    async def _kill(self, fault: Fault) -> None:
        proxy = self.proxy
        if not proxy.accepts():
            return
        proxy.journal.cut(with_open_batch=fault.share > 0.2)
        self.loop.kill(proxy.incarnation)
        await self._down(fault.seconds)

    async def _restart_proxy(self, seconds: float) -> None:
        proxy = self.proxy
        if not proxy.accepts():
            return
        await proxy.stop()
        await self._down(seconds)

    async def _down(self, seconds: float) -> None:
        began, _ = self.outcome.lives[-1]
        self.outcome.lives[-1] = (began, self.loop.time())
        self.server.troubles.append(Trouble("proxy down", self.loop.time(), seconds))
        cut, self._cut = self._cut, asyncio.Event()
        cut.set()
        await asyncio.sleep(seconds)
        self.proxy = self.start()
        await self.proxy.ready.wait()


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _wait(future: "asyncio.Future[None]") -> None:
    await future


class _Errors(logging.Handler):
    """Keeps log records with the traceback of an unexpected error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        expected = isinstance(error, JournalError) or INJECTED in str(error)
        if error is not None and not expected:
            self.texts.append(f"{record.getMessage()}: {type(error).__name__}: {error}")


@contextlib.contextmanager
def _captured() -> Iterator[_Errors]:
    handler, root = _Errors(), logging.getLogger()
    before = [*root.handlers], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.ERROR)
    try:
        yield handler
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])


def simulate(plan: Plan) -> Outcome:
    """Run a plan and check it; see `Outcome.violations`."""
    from tests.simulation.invariants import violations

    with _captured() as errors, simulated_loop(plan.seed, max_steps=3e6, max_seconds=1e4) as loop:

        async def run() -> Outcome:
            return await World(plan, loop).run()

        outcome: Outcome = loop.run_until_complete(run())
        for context in loop.errors:
            outcome.problems.append(
                f"not handled: {context.get('message')}: {context.get('exception')!r}"
            )
        outcome.problems += errors.texts
        outcome.violations = [*outcome.problems, *violations(outcome)]
    return outcome
