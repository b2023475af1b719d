"""One episode on several servers: claimed on all or on none, ended or given back on all.

`JointSwarm` is for threads, `AsyncJointSwarm` for asyncio.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar

from ajet_swarm.api.outcomes import EndKind, EndOutcome
from ajet_swarm.client.episode import AsyncEpisode, Episode, as_output, check_claim, wire_output
from ajet_swarm.client.multi_server_drivers import (
    AnyClients,
    AsyncDriver,
    AsyncJointPart,
    CallDriver,
    JointPart,
    SyncDriver,
    run_through,
)
from ajet_swarm.protocol.errors import EpisodeLost, GaveUp, SwarmError
from ajet_swarm.protocol.task import Task, WorkflowOutput
from ajet_swarm.runtime import SYSTEM, Runtime

P = TypeVar("P", bound=Episode | AsyncEpisode)

PATIENCE = 0.5
"""Seconds to wait for a free episode of one server while holding episodes of others, whose batches
cannot end meanwhile."""
AGAIN = (0.05, 0.4)
"""Seconds before the next attempt, drawn at random so that two clients do not block each other
for ever."""


class _Joint(Generic[P]):
    """Episodes of several servers, held together."""

    def __init__(
        self, driver: CallDriver, clients: AnyClients, task: Task | str, parts: Mapping[str, P]
    ) -> None:
        self._driver, self._clients = driver, clients
        self.task = task
        self.parts = parts
        self.finished = False
        """The episode was ended or given back."""

    def __getitem__(self, name: str) -> P:
        return self.parts[name]

    def __str__(self) -> str:
        return "episode " + ", ".join(f"{n} {one.uuid}" for n, one in self.parts.items())

    async def _end(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, EndOutcome]:
        try:
            checked = self._checked(outputs)
            held = await self._each(self._is_held)
            lost = sorted(name for name, answer in held.items() if answer is not True)
            if lost:
                raise EpisodeLost(
                    EndKind.NOT_CLAIMED.value,
                    f"{', '.join(lost)} no longer holds it; it was given back on all servers",
                    str(self),
                )
        except BaseException:
            await self._abort()
            raise
        self.finished = True
        ends = await self._each(lambda name: self._end_on(name, checked[name]))
        foreign = {n for n, e in ends.items() if not isinstance(e, EndOutcome | SwarmError)}
        if foreign:  # errors of clients outside this library, which may still hold the episode
            held = {name: self.parts[name].uuid for name in sorted(foreign)}
            await _give_back(self._driver, self._clients, held)
        outcomes = {name: end for name, end in ends.items() if isinstance(end, EndOutcome)}
        failed = {name: _why(end) for name, end in ends.items() if not _counts(end)}
        if failed:
            counts = sorted(set(self.parts) - set(failed)) or ["none"]
            raise EpisodeLost(
                EndKind.ERROR.value,
                f"{'; '.join(f'{n}: {why}' for n, why in failed.items())} (it counts on "
                f"{', '.join(counts)})",
                str(self),
            )
        return outcomes

    async def _abort(self) -> None:
        if not self.finished:
            self.finished = True
            held = {name: one.uuid for name, one in self.parts.items()}
            await _give_back(self._driver, self._clients, held)

    def _checked(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, WorkflowOutput]:
        if set(outputs) != set(self.parts):
            raise SwarmError(
                f"rewards for {', '.join(sorted(outputs)) or 'nobody'}",
                str(self),
                f"Give one for each of {', '.join(sorted(self.parts))}",
            )
        complete = {name: as_output(output) for name, output in outputs.items()}
        for name, output in complete.items():
            wire_output(self.task, self.parts[name].uuid, output)
        return complete

    async def _is_held(self, name: str) -> Any:
        return await self._driver.wait(
            self._clients[name].can_continue_episode(self.parts[name].uuid)
        )

    async def _end_on(self, name: str, output: WorkflowOutput) -> Any:
        return await self._driver.wait(self.parts[name].end(output))

    async def _each(self, do: Callable[[str], Coroutine[Any, Any, Any]]) -> dict[str, Any]:
        """Return the result of `do` for each server, in parallel; an error is a result."""

        async def guarded(name: str) -> Any:
            try:
                return await do(name)
            except Exception as error:  # noqa: BLE001  of a client; the caller reports it
                return error

        names = list(self.parts)
        return dict(zip(names, await self._driver.each(names, guarded), strict=True))


class JointEpisode(_Joint[Episode]):
    """Episodes of several servers, held together.

    `joint["planner"].base_url` is the address of the episode of one server.
    """

    def end(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, EndOutcome]:
        """End the episode on all servers, each with its own reward.

        First check that all servers still hold the episode. If one does not, or does not respond,
        give it back on all. Only a failure between this check and the end can make the episode
        count on some servers and not on others; the error then names them.

        Args:
            outputs: Server name to output, or just to reward.

        Raises:
            SwarmError: a reward is missing or cannot be sent; the episode was given back on all
                servers.
            EpisodeLost: a server no longer holds the episode; the text names the servers on which
                it counts.
        """
        return run_through(self._end(outputs))

    def abort(self) -> None:
        """Give the episode back on all servers; do nothing once it has finished."""
        run_through(self._abort())


class AsyncJointEpisode(_Joint[AsyncEpisode]):
    """`JointEpisode` for asyncio."""

    async def end(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, EndOutcome]:
        """See `JointEpisode.end`."""
        return await self._end(outputs)

    async def abort(self) -> None:
        """See `JointEpisode.abort`."""
        await self._abort()


class _Servers(Generic[P]):
    """Base of the clients of several servers."""

    _driver: CallDriver
    _part: Callable[..., P]

    def __init__(
        self, clients: AnyClients, *, patience: float = PATIENCE, runtime: Runtime = SYSTEM
    ) -> None:
        if not clients:
            raise SwarmError("no server", type(self).__name__, "Give at least one client")
        self._clients: Any = dict(clients)
        self.patience = patience
        self._clock = runtime.clock.monotonic
        self._chance = runtime.chance

    async def _claim(
        self,
        task: Task | str,
        idle: float,
        kind: str,
        timeout: float | None,
        lifetime: float | None,
    ) -> dict[str, P]:
        check_claim(idle, kind, None, timeout, lifetime)
        wait_for = self._driver.wait
        until = None if timeout is None else self._clock() + timeout
        while True:
            for client in self._clients.values():  # wait before anything is held
                await wait_for(client.wait_until_rolling(timeout=self._left(until)))
            held: dict[str, P] = {}
            try:
                for name, client in self._clients.items():
                    wait = _least(self.patience, self._left(until)) if held else self._left(until)
                    claim = client.begin_episode(idle, kind, timeout=wait, lifetime=lifetime)
                    uuid, api = await wait_for(claim)
                    held[name] = type(self)._part(client, task, uuid, api)
                return held
            except GaveUp:
                await self._give_back(held)
                if not held or (until is not None and self._clock() >= until):
                    raise
            except BaseException:
                await self._give_back(held)
                raise
            await self._driver.sleep(self._chance.uniform(*AGAIN))

    def _left(self, until: float | None) -> float | None:
        """Return the seconds left; never 0, which no client accepts."""
        return None if until is None else max(0.001, until - self._clock())

    async def _give_back(self, held: Mapping[str, P]) -> None:
        uuids = {name: one.uuid for name, one in held.items()}
        await _give_back(self._driver, self._clients, uuids)


class JointSwarm(_Servers[Episode]):
    """Client of several servers whose episodes belong together, such as planner and executor.

    Any number of threads may use it.

    Args:
        clients: Name to client; episodes are claimed in this order.
        patience: Seconds to hold episodes of some servers while another one has none free.
        runtime: Source of times and pauses.
    """

    _driver = SyncDriver()
    _part = Episode

    def __init__(
        self,
        clients: Mapping[str, JointPart],
        *,
        patience: float = PATIENCE,
        runtime: Runtime = SYSTEM,
    ) -> None:
        super().__init__(clients, patience=patience, runtime=runtime)

    @property
    def clients(self) -> dict[str, JointPart]:
        """The servers' clients, by name."""
        return dict(self._clients)

    @contextmanager
    def episode(
        self,
        task: Task | str,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> Iterator[JointEpisode]:
        """Context of an episode on all servers.

        The episode is given back on all servers if the context is left without an end. The
        arguments are those of `SwarmClient.begin_episode`, for each server.

        Raises:
            GaveUp: not all servers had a free episode within `timeout` seconds; none is held.
        """
        work = self._claim(task, discard_episode_timeout, episode_type, timeout, lifetime)
        joint = JointEpisode(self._driver, self._clients, task, run_through(work))
        try:
            yield joint
        finally:
            joint.abort()


class AsyncJointSwarm(_Servers[AsyncEpisode]):
    """`JointSwarm` for asyncio; its clients are `AsyncSwarm`s of the same event loop."""

    _driver = AsyncDriver()
    _part = AsyncEpisode

    def __init__(
        self,
        clients: Mapping[str, AsyncJointPart],
        *,
        patience: float = PATIENCE,
        runtime: Runtime = SYSTEM,
    ) -> None:
        super().__init__(clients, patience=patience, runtime=runtime)

    @property
    def clients(self) -> dict[str, AsyncJointPart]:
        """The servers' clients, by name."""
        return dict(self._clients)

    @asynccontextmanager
    async def episode(
        self,
        task: Task | str,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> AsyncIterator[AsyncJointEpisode]:
        """See `JointSwarm.episode`."""
        parts = await self._claim(task, discard_episode_timeout, episode_type, timeout, lifetime)
        joint = AsyncJointEpisode(self._driver, self._clients, task, parts)
        try:
            yield joint
        finally:
            await joint.abort()


async def _give_back(driver: CallDriver, clients: AnyClients, held: Mapping[str, str]) -> None:
    """Give back all episodes, even if one of them fails."""
    failed: BaseException | None = None
    for name, uuid in held.items():
        try:
            await driver.wait(clients[name].abort_episode(uuid))
        except SwarmError:  # the server takes it back by itself
            pass
        except BaseException as error:  # noqa: BLE001  raised below, after all the others
            failed = failed or error
    if failed is not None:
        raise failed


def _counts(end: object) -> bool:
    return isinstance(end, EndOutcome) and end.ended


def _why(end: object) -> str:
    if isinstance(end, EndOutcome):
        return f"{end.kind.value} {end.text}"
    return str(end) if isinstance(end, SwarmError) else f"{type(end).__name__}: {end}"


def _least(seconds: float, other: float | None) -> float:
    return seconds if other is None else min(seconds, other)
