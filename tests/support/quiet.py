"""When an app under test has nothing left to do."""

import asyncio
from typing import Any

SOON = 0.02
"""Seconds until a timer that is waited for: a screen draws 1/60 s after a request to draw."""
TIMERS = 10
"""Number of such timers in a row: a periodic one is not waited for."""
ROUNDS = 20_000


async def quiet(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """Until callbacks, threads and the timers that are due soon have all had their turn.

    In the place of Textual's own, with its arguments, which asks whether the process has used the
    CPU in the last 20 ms: on a busy machine it has not, however much it has to do.
    """
    loop: Any = asyncio.get_running_loop()
    for _ in range(TIMERS):
        await _none_ready(loop)
        due = min((timer._when for timer in loop._scheduled if not timer._cancelled), default=None)
        if due is None or (wait := due - loop.time()) > SOON:
            return
        await asyncio.sleep(max(wait, 0.0))


async def _none_ready(loop: Any) -> None:
    calm = 0
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
        if loop._ready:
            calm = 0
        elif _threads_at_work(loop):
            calm = 0
            await asyncio.sleep(0.001)
        elif (
            calm := calm + 1
        ) == 3:  # input from a socket or thread is processed one iteration later
            return


def _threads_at_work(loop: Any) -> bool:
    pool = loop._default_executor
    if pool is None:
        return False
    return not pool._work_queue.empty() or pool._idle_semaphore._value < len(pool._threads)
