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
    """What is used of a server's client: a `SwarmClient` is one."""

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
    """The same, awaited: an `AsyncSwarm` is one."""

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
    """How what is asked of the clients is waited for."""

    async def got(self, asked: Any) -> Any:
        """What came of a client's call."""

    async def each(
        self, names: Sequence[str], do: Callable[[str], Coroutine[Any, Any, T]]
    ) -> list[T]:
        """What `do` gives for each, all at once."""

    async def sleep(self, seconds: float) -> None:
        """Do nothing for a while."""


class SyncDriver:
    """Waits on the spot."""

    async def got(self, asked: Any) -> Any:
        return asked

    async def each(
        self, names: Sequence[str], do: Callable[[str], Coroutine[Any, Any, T]]
    ) -> list[T]:
        with ThreadPoolExecutor(len(names), thread_name_prefix="joint") as threads:
            return list(threads.map(lambda name: run_through(do(name)), names))

    async def sleep(self, seconds: float) -> None:
        threading.Event().wait(seconds)


class AsyncDriver:
    """Waits as coroutines do."""

    async def got(self, asked: Awaitable[Any]) -> Any:
        return await asked

    async def each(
        self, names: Sequence[str], do: Callable[[str], Coroutine[Any, Any, T]]
    ) -> list[T]:
        return list(await asyncio.gather(*(do(name) for name in names)))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_through(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that is never suspended."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise SwarmError("a client of threads gave something to await", "JointSwarm")
