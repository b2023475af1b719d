"""Requests that are sent now, without a task, and decoded when the response arrives."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ajet_swarm.http.interface import Response, ResponseFuture

T = TypeVar("T")


class PendingCall(Generic[T]):
    """A request that has been sent.

    Args:
        future: The response.
        read: Decodes the done future into the result of the call, or raises its error.
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
        """Return the result of the finished call, or raise its error."""
        return self._read(self.future)

    def cancel(self) -> None:
        """Discard the response and close its connection."""
        self.future.cancel()


def listen_to(
    calls: "Sequence[PendingCall[Any]]", on_done: "Callable[[int, asyncio.Future[Response]], None]"
) -> None:
    """Call `on_done` with the index of each call, as soon as it is done.

    Args:
        calls: At least one; sent in this iteration of the event loop.
        on_done: Must not raise.
    """
    for index, call in enumerate(calls):
        future = call.future
        if isinstance(future, ResponseFuture) and not future.done():
            future.listener = partial(on_done, index)
        else:
            future.add_done_callback(partial(on_done, index))
    if isinstance(future, ResponseFuture):
        future.send_now()


async def wait_all(calls: "Sequence[PendingCall[Any]]", on_answer: Callable[[int], None]) -> None:
    """Wait until all calls are done; a cancellation cancels them.

    Args:
        calls: At least one.
        on_answer: Called with the index of each call as soon as it is done or cancelled. Its error
            is raised here once all are done.
    """
    done: asyncio.Future[None] = calls[0].future.get_loop().create_future()
    left = len(calls)
    fault: Exception | None = None

    def on_done(index: int, future: "asyncio.Future[Response]") -> None:
        nonlocal left, fault
        left -= 1
        try:
            if not done.cancelled():
                on_answer(index)
        except Exception as error:  # noqa: BLE001  raised to the caller below
            fault = error
        finally:
            if not left and not done.done():
                done.set_result(None)

    listen_to(calls, on_done)
    try:
        await done
    except asyncio.CancelledError:
        for call in calls:
            call.cancel()
        raise
    if fault is not None:
        raise fault
