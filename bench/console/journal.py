"""A journal of many requests: written, opened by a proxy, shown in a console."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.console.terminal import TerminalProgram
from bench.console.traffic import life, query, start
from core.bus import Bus
from core.journal.writer import Journal
from tests.support.stack import Stack

NOWHERE = "swarm=http://127.0.0.1:9"
"""Address of a swarm server that does not exist: only the journal is used."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Seconds, except for the size."""

    made: float
    megabytes: float
    state: float
    """From the file to the state, in one process."""
    proxy: float
    """From the proxy's start until it listens."""
    proxy_empty: float
    """From the proxy's start until it listens, with an empty journal."""
    rows: float
    """From the console's start to the newest rows of its Requests list."""
    rows_after: float
    """From its first screen to the newest rows, including the key that opens the list."""
    rows_own: float
    """`rows_after` without the time that the console waited for a core."""
    oldest: float
    """From the key to the oldest rows, which are only in the journal."""


def make(path: Path, groups: int) -> float:
    """Write a journal as a proxy does; return the seconds it took."""
    began = time.monotonic()
    journal = Journal(path)
    bus = Bus(journal, "bench-run")
    first = time.time() - groups * 3
    for event in start():
        bus.publish(event)
    for number in range(groups):
        for event in life(number):
            bus.publish(msgspec.structs.replace(event, at=first + number * 3))
        while len(journal._jobs) > 20_000:
            time.sleep(0.005)
    journal.close()
    return time.monotonic() - began


def load(path: Path) -> float:
    """Open the file and compute the state; return the seconds it took."""
    began = time.monotonic()
    journal = Journal(path)
    try:
        assert journal.load_state().totals.groups
        return time.monotonic() - began
    finally:
        journal.close()


def opened(folder: Path, groups: int) -> Opened:
    """Measure all figures."""
    with Stack(folder / "empty", forks=False) as stack:
        began = time.monotonic()
        stack.proxy("--swarm-url", NOWHERE)
        empty = time.monotonic() - began
    with Stack(folder / "full", forks=False) as stack:
        write_seconds = make(stack.home.journal, groups)
        state = min(load(stack.home.journal) for _ in range(3))
        size = stack.home.journal.stat().st_size / 1e6
        began = time.monotonic()
        info = stack.proxy("--swarm-url", NOWHERE)
        proxy = time.monotonic() - began
        args = ["-m", "console", "--attach", info.url]
        with TerminalProgram(
            [*args, "--token-file", str(stack.home.token_file)], stack.home
        ) as program:
            painted, stood = program.expect("Quit"), program.stood()
            program.type("2")
            there = program.expect(query(groups - 1)[:8])
            rows, after = there - program.began, there - painted
            own = after - (program.stood() - stood)
            program.rest(0.3)
            asked = program.type("G")
            oldest = program.expect(query(0)[:8]) - asked
    return Opened(write_seconds, size, state, proxy, empty, rows, after, own, oldest)


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), int(sys.argv[2])))
