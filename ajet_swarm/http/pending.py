"""Requests on their way without a task each: sent now, read when the answer is there."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ajet_swarm.http.interface import Response, ResponseFuture

T = TypeVar("T")


class PendingCall(Generic[T]):
    """One request that is on its way.

    Args:
        future: Its answer.
        read: Makes of that future, once it is done, what the call gives, or raises.
    """

    __slots__ = ("_read", "future")

    def __init__(
        self,
        future: "asyncio.Future[Response]",
        read: "Callable[[asyncio.Future[Response]], T]",
    ) -> None:
        self.future = future
        self._read = read

    def result(self) -> T:
        """What came of it; only when it is over."""
        return self._read(self.future)

    def cancel(self) -> None:
        """Nobody wants the answer: its connection is closed."""
        self.future.cancel()


def listen_to(
    calls: "Sequence[PendingCall[Any]]", over: "Callable[[int, asyncio.Future[Response]], None]"
) -> None:
    """Call `over` with the index of each call that is over, as soon as can be.

    Args:
        calls: Begun in this turn of the loop; at least one.
        over: Does not raise.
    """
    for index, call in enumerate(calls):
        future = call.future
        if isinstance(future, ResponseFuture) and not future.done():
            future.listener = partial(over, index)
        else:
            future.add_done_callback(partial(over, index))
    if isinstance(future, ResponseFuture):
        future.send_now()


async def wait_all(calls: "Sequence[PendingCall[Any]]", heard: Callable[[int], None]) -> None:
    """Wait until all calls are over; cancelled, it cancels them.

    Args:
        calls: At least one.
        heard: Called with the index of each as soon as it is over, also when somebody has cancelled
            it. What it raises is raised here once all are over.
    """
    done: asyncio.Future[None] = calls[0].future.get_loop().create_future()
    left = len(calls)
    fault: Exception | None = None

    def over(index: int, future: "asyncio.Future[Response]") -> None:
        nonlocal left, fault
        left -= 1
        try:
            if not done.cancelled():
                heard(index)
        except Exception as error:  # noqa: BLE001  whatever it is, those who wait hear of it
            fault = error
        finally:
            if not left and not done.done():
                done.set_result(None)

    listen_to(calls, over)
    try:
        await done
    except asyncio.CancelledError:
        for call in calls:
            call.cancel()
        raise
    if fault is not None:
        raise fault
