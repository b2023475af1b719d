"""The console while 2,000 events per second arrive."""

import random
import time
from dataclasses import dataclass

from bench.console.run import REQUESTS, Form, Proxy, attached
from bench.console.terminal import TerminalProgram
from core.runtime.home import Home

RATE = 2_000
STREAMS = 100
KEY_LIMIT = 2.0
"""Seconds after which a key is given up and counts as this slow."""
LIST_TOP = 4
"""First row of the list on the screen, below bar, title and column titles."""


@dataclass(frozen=True, slots=True)
class Live:
    """Cost of 2,000 events per second."""

    cpu: float
    """Percent of a core."""
    rate: float
    """Events processed per second."""
    moved: list[float]
    """Seconds from a key to the display of the cursor's new row."""
    own: list[float]
    """`moved` without the time that the program waited for a core."""
    resident: float
    """Memory in MB at the end."""


def keys(program: TerminalProgram, count: int) -> tuple[list[float], list[float]]:
    """Move the cursor down, and back to the top after twenty rows; return `moved` and `own`."""
    moved: list[float] = []
    own: list[float] = []
    pick = random.Random(1)
    while len(moved) < count:
        program.type("\x1b[H")
        end = time.monotonic() + KEY_LIMIT
        while program.row != LIST_TOP and time.monotonic() < end:
            program.read(0.1)
        for row in range(LIST_TOP + 1, LIST_TOP + 1 + min(20, count - len(moved))):
            program.rest(pick.uniform(0.06, 0.2))
            seconds, stood = program.key("\x1b[B", row, KEY_LIMIT)
            moved.append(seconds)
            own.append(seconds - stood)
            if seconds >= KEY_LIMIT:
                break
    return moved, own


def measure_live(home: Home, proxy: Proxy, form: Form) -> Live:
    """Measure the Requests list with a group beside it."""
    with attached(home, proxy, REQUESTS) as program:
        proxy.order("live", rate=RATE, streams=STREAMS)
        program.rest(2.0)
        before, began = proxy.order("sent"), time.monotonic()
        cpu = program.share(form.live)
        rate = (proxy.order("sent") - before) / (time.monotonic() - began)
        moved, own = keys(program, form.keys)
        resident = program.resident()
        proxy.order("quiet")
    return Live(cpu, rate, moved, own, resident)
