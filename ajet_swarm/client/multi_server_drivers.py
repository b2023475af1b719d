"""Drivers of calls to the clients of several servers: for threads, and for asyncio.

The logic of an episode on several servers is written once, as coroutines over a `CallDriver`. The
driver for threads blocks, so a coroutine over it runs to its end without being suspended.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from ajet_swarm.api.outcomes import EndOutcome
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput

T = TypeVar("T")


class JointPart(Protocol):
    """The methods that are used of one server's blocking client, such as `SwarmClient`."""

    def begin_episode(
        self,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> tuple[str, OpenaiBaseUrlAndApiKey]: ...

    def end_episode(
        self, task: Task | str, episode_uuid: str, workflow_output: WorkflowOutput
    ) -> EndOutcome: ...

    def abort_episode(self, episode_uuid: str) -> bool: ...

    def can_continue_episode(self, episode_uuid: str) -> bool: ...

    def wait_until_rolling(self, *, timeout: float | None = None) -> int: ...


class AsyncJointPart(Protocol):
    """The same methods of an asyncio client, such as `AsyncSwarm`."""

    async def begin_episode(
        self,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> tuple[str, OpenaiBaseUrlAndApiKey]: ...

    async def end_episode(
        self, task: Task | str, episode_uuid: str, workflow_output: WorkflowOutput
    ) -> EndOutcome: ...

    async def abort_episode(self, episode_uuid: str) -> bool: ...

    async def can_continue_episode(self, episode_uuid: str) -> bool: ...

    async def wait_until_rolling(self, *, timeout: float | None = None) -> int: ...


AnyClients = Mapping[str, JointPart] | Mapping[str, AsyncJointPart]


class CallDriver(Protocol):
    """Way to wait for the calls to clients: blocking, or with asyncio."""

    async def wait(self, call: Any) -> Any:
        """Return the result of a client's call."""

    async def each(
        self, names: Sequence[str], do: Callable[[str], Coroutine[Any, Any, T]]
    ) -> list[T]:
        """Return the result of `do` for each name, in parallel."""

    async def sleep(self, seconds: float) -> None:
        """Sleep."""


class SyncDriver:
    """Driver for threads: a call is complete when the method returns."""

    async def wait(self, call: Any) -> Any:
        return call

    async def each(
        self, names: Sequence[str], do: Callable[[str], Coroutine[Any, Any, T]]
    ) -> list[T]:
        with ThreadPoolExecutor(len(names), thread_name_prefix="joint") as threads:
            return list(threads.map(lambda name: run_through(do(name)), names))

    async def sleep(self, seconds: float) -> None:
        threading.Event().wait(seconds)


class AsyncDriver:
    """Driver for asyncio."""

    async def wait(self, call: Awaitable[Any]) -> Any:
        return await call

    async def each(
        self, names: Sequence[str], do: Callable[[str], Coroutine[Any, Any, T]]
    ) -> list[T]:
        return list(await asyncio.gather(*(do(name) for name in names)))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_through(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that is never suspended, and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise SwarmError("a blocking client returned an awaitable", "JointSwarm")
