"""One episode on several servers: claimed on all or on none, ended or given back on all.

`JointSwarm` is for threads, `AsyncJointSwarm` for asyncio.
"""

import random
import time
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

P = TypeVar("P", bound=Episode | AsyncEpisode)

PATIENCE = 0.5
"""Seconds one server's free episode is waited for while another's is held already: its batch
waits for that one."""
AGAIN = (0.05, 0.4)
"""Seconds before the next try, drawn anew each time: two clients must not take turns for ever."""


class _Joint(Generic[P]):
    """Episodes of several servers that are ours."""

    def __init__(
        self, hands: CallDriver, clients: AnyClients, task: Task | str, parts: Mapping[str, P]
    ) -> None:
        self._hands, self._clients = hands, clients
        self.task = task
        self.parts = parts
        self.over = False
        """It was ended or given back."""

    def __getitem__(self, name: str) -> P:
        return self.parts[name]

    def __str__(self) -> str:
        return "episode " + ", ".join(f"{n} {one.uuid}" for n, one in self.parts.items())

    async def _end(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, EndOutcome]:
        try:
            given = self._checked(outputs)
            held = await self._each(self._asked)
            lost = sorted(name for name, found in held.items() if found is not True)
            if lost:
                raise EpisodeLost(
                    EndKind.NOT_CLAIMED.value,
                    f"{', '.join(lost)} has it no more; it was given back on all servers",
                    str(self),
                )
        except BaseException:
            await self._abort()
            raise
        self.over = True
        ends = await self._each(lambda name: self._ended(name, given[name]))
        foreign = {n for n, e in ends.items() if not isinstance(e, EndOutcome | SwarmError)}
        if foreign:  # ours give back by themselves
            held = {name: self.parts[name].uuid for name in sorted(foreign)}
            await _give_back(self._hands, self._clients, held)
        outcomes = {n: found for n, found in ends.items() if isinstance(found, EndOutcome)}
        failed = {n: _why(found) for n, found in ends.items() if not _counts(found)}
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
        if not self.over:
            self.over = True
            held = {name: one.uuid for name, one in self.parts.items()}
            await _give_back(self._hands, self._clients, held)

    def _checked(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, WorkflowOutput]:
        if set(outputs) != set(self.parts):
            raise SwarmError(
                f"rewards for {', '.join(sorted(outputs)) or 'nobody'}",
                str(self),
                f"Give one for each of {', '.join(sorted(self.parts))}",
            )
        given = {name: as_output(one) for name, one in outputs.items()}
        for name, output in given.items():
            wire_output(self.task, self.parts[name].uuid, output)
        return given

    async def _asked(self, name: str) -> Any:
        return await self._hands.got(
            self._clients[name].can_continue_episode(self.parts[name].uuid)
        )

    async def _ended(self, name: str, output: WorkflowOutput) -> Any:
        return await self._hands.got(self.parts[name].end(output))

    async def _each(self, do: Callable[[str], Coroutine[Any, Any, Any]]) -> dict[str, Any]:
        """What `do` gives for each server, all at once; an error is what it gave."""

        async def guarded(name: str) -> Any:
            try:
                return await do(name)
            except Exception as error:  # noqa: BLE001  a client's; told by whoever asked
                return error

        names = list(self.parts)
        return dict(zip(names, await self._hands.each(names, guarded), strict=True))


class JointEpisode(_Joint[Episode]):
    """Episodes of several servers that are ours; `joint["planner"].base_url` is one's address."""

    def end(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, EndOutcome]:
        """End it on all servers, each with its own reward.

        All are asked first whether they still hold it: a server that does not, or does not answer,
        means that it is given back on all. Past that question only a failure between it and the
        end itself can leave the servers with unlike counts; the error then names them.

        Args:
            outputs: For each server's name its output, or just the reward.

        Raises:
            SwarmError: a reward is missing or cannot be sent; it was given back on all.
            EpisodeLost: a server has it no more; says on which it counts.
        """
        return run_through(self._end(outputs))

    def abort(self) -> None:
        """Give it back on all servers; does nothing when it is over."""
        run_through(self._abort())


class AsyncJointEpisode(_Joint[AsyncEpisode]):
    """The same, awaited."""

    async def end(self, outputs: Mapping[str, WorkflowOutput | float]) -> dict[str, EndOutcome]:
        """See `JointEpisode.end`."""
        return await self._end(outputs)

    async def abort(self) -> None:
        """See `JointEpisode.abort`."""
        await self._abort()


class _Servers(Generic[P]):
    """Several servers whose episodes go together."""

    _hands: CallDriver
    _part: Callable[..., P]

    def __init__(self, clients: AnyClients, *, patience: float = PATIENCE) -> None:
        if not clients:
            raise SwarmError("no server", type(self).__name__, "Give at least one client")
        self._clients: Any = dict(clients)
        self.patience = patience

    async def _claim(
        self,
        task: Task | str,
        idle: float,
        kind: str,
        timeout: float | None,
        lifetime: float | None,
    ) -> dict[str, P]:
        check_claim(idle, kind, None, timeout, lifetime)
        got = self._hands.got
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            for client in self._clients.values():  # while nothing is held
                await got(client.wait_until_rolling(timeout=_left(until)))
            held: dict[str, P] = {}
            try:
                for name, client in self._clients.items():
                    wait = _least(self.patience, _left(until)) if held else _left(until)
                    begun = client.begin_episode(idle, kind, timeout=wait, lifetime=lifetime)
                    uuid, api = await got(begun)
                    held[name] = type(self)._part(client, task, uuid, api)
                return held
            except GaveUp:
                await self._give_back(held)
                if not held or (until is not None and time.monotonic() >= until):
                    raise
            except BaseException:
                await self._give_back(held)
                raise
            await self._hands.sleep(random.uniform(*AGAIN))

    async def _give_back(self, held: Mapping[str, P]) -> None:
        uuids = {name: one.uuid for name, one in held.items()}
        await _give_back(self._hands, self._clients, uuids)


class JointSwarm(_Servers[Episode]):
    """Several servers whose episodes go together, as of a planner and an executor.

    Any number of threads may use it.

    Args:
        clients: Name to client. Claims go in this order.
        patience: Seconds to hold some while another server has none free.
    """

    _hands = SyncDriver()
    _part = Episode

    def __init__(self, clients: Mapping[str, JointPart], *, patience: float = PATIENCE) -> None:
        super().__init__(clients, patience=patience)

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
        """An episode of all servers for as long as the context lasts; left without an end, or by an
        exception, it is given back on all.

        Args: as of `SwarmClient.begin_episode`, for each server.

        Raises:
            GaveUp: they were not free together in `timeout` seconds; nothing is held.
        """
        work = self._claim(task, discard_episode_timeout, episode_type, timeout, lifetime)
        joint = JointEpisode(self._hands, self._clients, task, run_through(work))
        try:
            yield joint
        finally:
            joint.abort()


class AsyncJointSwarm(_Servers[AsyncEpisode]):
    """The same for asyncio: its clients are `AsyncSwarm`s of the loop it is used from."""

    _hands = AsyncDriver()
    _part = AsyncEpisode

    def __init__(
        self, clients: Mapping[str, AsyncJointPart], *, patience: float = PATIENCE
    ) -> None:
        super().__init__(clients, patience=patience)

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
        joint = AsyncJointEpisode(self._hands, self._clients, task, parts)
        try:
            yield joint
        finally:
            await joint.abort()


async def _give_back(hands: CallDriver, clients: AnyClients, held: Mapping[str, str]) -> None:
    """Give all back; one that fails does not keep the others."""
    failed: BaseException | None = None
    for name, uuid in held.items():
        try:
            await hands.got(clients[name].abort_episode(uuid))
        except SwarmError:  # the server takes it back by itself
            pass
        except BaseException as error:  # noqa: BLE001  raised below, when all had their turn
            failed = failed or error
    if failed is not None:
        raise failed


def _counts(found: object) -> bool:
    return isinstance(found, EndOutcome) and found.ended


def _why(found: object) -> str:
    if isinstance(found, EndOutcome):
        return f"{found.kind.value} {found.text}"
    return str(found) if isinstance(found, SwarmError) else f"{type(found).__name__}: {found}"


def _left(until: float | None) -> float | None:
    """Seconds left, a little at least: 0 would be wrong use."""
    return None if until is None else max(0.001, until - time.monotonic())


def _least(seconds: float, other: float | None) -> float:
    return seconds if other is None else min(seconds, other)
