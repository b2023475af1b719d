"""Results of a worker thread for coroutines: callbacks on the event loop of the caller."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


def call_on_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any
) -> None:
    """Call a function on an event loop, from any thread; a closed loop drops the call."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        log.debug("the event loop of a request is closed; its answer is dropped")


def resolve(future: "asyncio.Future[Any]", value: Any) -> None:
    """Set the result unless the caller has left; only on the future's loop."""
    if not future.done():
        future.set_result(value)


def reject(future: "asyncio.Future[Any]", error: Exception) -> None:
    """Set the error unless the caller has left; only on the future's loop."""
    if not future.done():
        future.set_exception(error)
