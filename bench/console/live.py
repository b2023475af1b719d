"""Our console and the naive variant while 2,000 events per second arrive."""

import random
import time
from dataclasses import dataclass

from bench.console.run import REQUESTS, Form, Proxy, attached, quantile
from bench.console.terminal import TerminalProgram
from core.runtime.home import Home

RATE = 2_000
STREAMS = 100
NAIVE_LIMIT = 5.0
"""Seconds after which a key of the naive variant is given up and counts as this slow."""
LIST_TOP = 4
"""First row of the list on the screen, below bar, title and column titles."""


@dataclass(frozen=True, slots=True)
class Live:
    """Cost of 2,000 events per second."""

    cpu: float
    """Percent of a core."""
    rate: float
    """Events processed per second."""
    first: list[float]
    """Seconds from a key to the first byte."""
    moved: list[float]
    """Seconds from a key to the display of the cursor's new row."""
    own: list[float]
    """`moved` without the time that the program waited for a core."""
    resident: float
    """Memory in MB at the end."""

    @property
    def per_event(self) -> float:
        """Return the milliseconds of CPU per processed event."""
        return self.cpu * 10 / max(self.rate, 1e-9)

    @property
    def p95(self) -> float:
        """Return the milliseconds from a key to its row."""
        return 1000 * quantile(self.moved, 0.95)

    @property
    def own_p95(self) -> float:
        """Return `p95` without the time that the program waited for a core."""
        return 1000 * quantile(self.own, 0.95)


Taken = tuple[list[float], list[float], list[float]]


def keys(program: TerminalProgram, count: int, limit: float, top: int) -> Taken:
    """Move the cursor down, and back to the top after twenty rows."""
    first: list[float] = []
    moved: list[float] = []
    own: list[float] = []
    pick = random.Random(1)
    while len(moved) < count:
        program.type("\x1b[H")
        end = time.monotonic() + limit
        while program.row != top and time.monotonic() < end:
            program.read(0.1)
        for row in range(top + 1, min(top + 21, top + 1 + count - len(moved))):
            program.rest(pick.uniform(0.06, 0.2))
            one, two, stood = program.key("\x1b[B", row, limit)
            first.append(one)
            moved.append(two)
            own.append(two - stood)
            if two >= limit:
                break
    return first, moved, own


def ours_live(home: Home, proxy: Proxy, form: Form) -> Live:
    """Measure the Requests list with a group beside it."""
    with attached(home, proxy, REQUESTS) as program:
        proxy.order("live", rate=RATE, streams=STREAMS)
        program.rest(2.0)
        before, began = proxy.order("sent"), time.monotonic()
        cpu = program.share(form.live)
        rate = (proxy.order("sent") - before) / (time.monotonic() - began)
        first, moved, own = keys(program, form.keys, 2.0, LIST_TOP)
        resident = program.resident()
        proxy.order("quiet")
    return Live(cpu, rate, first, moved, own, resident)


def naive_live(home: Home, proxy: Proxy, form: Form) -> Live:
    """Measure the naive variant on the same feed."""
    counter_file = home.root / "handled"
    counter_file.write_text("0")
    with TerminalProgram(
        ["-m", "bench.console.naive", proxy.url, proxy.token, str(counter_file)], home
    ) as program:
        program.expect("sprd")
        program.rest(1.0)
        proxy.order("live", rate=RATE, streams=STREAMS)
        program.rest(1.0)
        before, began = int(counter_file.read_text()), time.monotonic()
        cpu = program.share(form.naive)
        rate = (int(counter_file.read_text()) - before) / (time.monotonic() - began)
        first, moved, own = keys(program, form.naive_keys, NAIVE_LIMIT, 3)
        resident = program.resident()
        proxy.order("quiet")
    return Live(cpu, rate, first, moved, own, resident)
