"""One episode on several servers: claimed on all or on none, ended or given back on all.

`AsyncJointSwarm` is for asyncio. `JointSwarm`, for threads, runs one on the event loop that its
clients share.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.episode import AsyncEpisode, Episode, as_output, check_claim, wire_output
from ajet_swarm.client.synchronous import LoopThread, SwarmClient, _holding
from ajet_swarm.protocol.errors import EpisodeLost, GaveUp, SwarmError
from ajet_swarm.protocol.models import Task, WorkflowOutput
from ajet_swarm.protocol.schemas import EndKind, EndOutcome
from ajet_swarm.runtime import SYSTEM, Runtime

PATIENCE = 0.5
"""Seconds to wait for a free episode of one server while holding episodes of others, whose batches
cannot end meanwhile."""
AGAIN = (0.05, 0.4)
"""Seconds before the next attempt, drawn at random so that two clients do not block each other
for ever."""

Outputs = Mapping[str, WorkflowOutput | float]
"""Server name to output, or just to reward."""


class AsyncJointEpisode:
    """`JointEpisode` for asyncio."""

    def __init__(self, clients: Mapping[str, AsyncSwarm], task: Task | str) -> None:
        self._clients = clients
        self._contexts = AsyncExitStack()
        """Those of the parts: each gives its episode back, unless that was ended."""
        self.task = task
        self.parts: dict[str, AsyncEpisode] = {}
        self.finished = False
        """The episode was ended or given back."""

    def __getitem__(self, name: str) -> AsyncEpisode:
        return self.parts[name]

    def __str__(self) -> str:
        return "episode " + ", ".join(f"{name} {part.uuid}" for name, part in self.parts.items())

    async def end(self, outputs: Outputs) -> dict[str, EndOutcome]:
        """See `JointEpisode.end`."""
        try:
            checked = self._checked(outputs)
            held = await self._each(
                lambda name, part: self._clients[name].can_continue_episode(part.uuid)
            )
            lost = sorted(name for name, answer in held.items() if answer is not True)
            if lost:
                raise EpisodeLost(
                    EndKind.NOT_CLAIMED.value,
                    f"{', '.join(lost)} no longer holds it; it was given back on all servers",
                    str(self),
                )
        except BaseException:
            await self.abort()
            raise
        self.finished = True
        try:
            ends = await self._each(lambda name, part: part.end(checked[name]))
        finally:
            await self._contexts.aclose()
        outcomes = {name: end for name, end in ends.items() if getattr(end, "ended", False)}
        if len(outcomes) < len(ends):
            failed = [f"{name}: {_why(end)}" for name, end in ends.items() if name not in outcomes]
            raise EpisodeLost(
                EndKind.ERROR.value,
                f"{'; '.join(failed)} (it counts on {', '.join(sorted(outcomes)) or 'none'})",
                str(self),
            )
        return outcomes

    async def abort(self) -> None:
        """See `JointEpisode.abort`."""
        if not self.finished:
            self.finished = True
            await self._contexts.aclose()

    def _checked(self, outputs: Outputs) -> dict[str, WorkflowOutput]:
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

    async def _each(self, call: Callable[[str, AsyncEpisode], Awaitable[Any]]) -> dict[str, Any]:
        """Return the result of `call` for each server, in parallel; an error is a result."""
        calls = (call(name, part) for name, part in self.parts.items())
        results = await asyncio.gather(*calls, return_exceptions=True)
        return dict(zip(self.parts, results, strict=True))


class AsyncJointSwarm:
    """`JointSwarm` for asyncio; its clients are `AsyncSwarm`s of the same event loop.

    Raises:
        SwarmError: there is no client.
    """

    def __init__(
        self,
        clients: Mapping[str, AsyncSwarm],
        *,
        patience: float = PATIENCE,
        runtime: Runtime = SYSTEM,
    ) -> None:
        if not clients:
            raise SwarmError("no server", "JointSwarm", "Give at least one client")
        self.clients = dict(clients)
        """The servers' clients, by name."""
        self.patience = patience
        self._clock = runtime.clock.monotonic
        self._chance = runtime.chance

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
        """Context of an episode on all servers.

        The episode is given back on all servers if the context is left without an end. The
        arguments are those of `begin_episode`, for each server.

        Raises:
            GaveUp: not all servers had a free episode within `timeout` seconds; none is held.
        """
        check_claim(discard_episode_timeout, episode_type, None, timeout, lifetime)
        until = None if timeout is None else self._clock() + timeout
        joint = None
        while joint is None:
            joint = await self._attempt(
                task, discard_episode_timeout, episode_type, until, lifetime
            )
            if joint is None:
                await asyncio.sleep(self._chance.uniform(*AGAIN))
        try:
            yield joint
        finally:
            await joint.abort()

    async def _attempt(
        self,
        task: Task | str,
        idle: float,
        kind: str,
        until: float | None,
        lifetime: float | None,
    ) -> AsyncJointEpisode | None:
        """Claim the episode on all servers; return None, with none held, if one had none free."""

        def left() -> float | None:  # never 0, which no client accepts
            return None if until is None else max(0.001, until - self._clock())

        for client in self.clients.values():  # wait before anything is held
            await client.wait_until_rolling(timeout=left())
        joint = AsyncJointEpisode(self.clients, task)
        try:
            for name, client in self.clients.items():
                wait = left()
                if joint.parts:
                    wait = self.patience if wait is None else min(self.patience, wait)
                part = client.episode(task, idle, kind, timeout=wait, lifetime=lifetime)
                joint.parts[name] = await joint._contexts.enter_async_context(part)
        except GaveUp:
            await joint.abort()
            if not joint.parts or (until is not None and self._clock() >= until):
                raise
            return None
        except BaseException:
            await joint.abort()
            raise
        return joint


class JointEpisode:
    """Episodes of several servers, held together.

    `joint["planner"].base_url` is the address of the episode of one server.
    """

    def __init__(self, joint: AsyncJointEpisode, thread: LoopThread) -> None:
        self._joint = joint
        self._run = thread.run
        self.task = joint.task
        self.parts = {name: part.blocking(thread.run) for name, part in joint.parts.items()}

    def __getitem__(self, name: str) -> Episode:
        return self.parts[name]

    def __str__(self) -> str:
        return str(self._joint)

    @property
    def finished(self) -> bool:
        """The episode was ended or given back."""
        return self._joint.finished

    def end(self, outputs: Outputs) -> dict[str, EndOutcome]:
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
        for name, part in self.parts.items():
            self._joint.parts[name].task = part.task
        return self._run(self._joint.end(outputs))

    def abort(self) -> None:
        """Give the episode back on all servers; do nothing once it has finished."""
        if not self.finished:
            self._run(self._joint.abort())


class JointSwarm:
    """Client of several servers whose episodes belong together, such as planner and executor.

    Any number of threads may use it.

    Args:
        clients: Name to client; episodes are claimed in this order.
        patience: Seconds to hold episodes of some servers while another one has none free.
        runtime: Source of times and pauses.

    Raises:
        SwarmError: there is no client.
    """

    def __init__(
        self,
        clients: Mapping[str, SwarmClient],
        *,
        patience: float = PATIENCE,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.clients = dict(clients)
        """The servers' clients, by name."""
        awaited = {name: client._swarm for name, client in clients.items()}
        self._swarm = AsyncJointSwarm(awaited, patience=patience, runtime=runtime)
        self._thread = next(iter(clients.values()))._thread

    episode = _holding(AsyncJointSwarm.episode, JointEpisode)


def _why(end: object) -> str:
    if isinstance(end, EndOutcome):
        return f"{end.kind.value} {end.text}"
    return str(end) if isinstance(end, SwarmError) else f"{type(end).__name__}: {end}"
