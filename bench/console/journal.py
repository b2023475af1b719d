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

SCROLLED = 60
"""Pages of the list that are shown from the oldest request on: more than the console stores."""
NOWHERE = "swarm=http://127.0.0.1:9"
"""Address of a swarm server that does not exist: only the journal is used."""


@dataclass(slots=True)
class Opened:
    """Seconds, except for sizes."""

    made: float = 0.0
    megabytes: float = 0.0
    state: float = 0.0
    """From the file to the state, in one process."""
    proxy: float = 0.0
    """From the proxy's start until it listens."""
    proxy_empty: float = 0.0
    """From the proxy's start until it listens, with an empty journal."""
    data: float = 0.0
    """From the console's start to the newest request on its first screen."""
    data_own: float = 0.0
    """`data` without the time that the console waited for a core."""
    resident: float = 0.0
    """Memory of the console in MB after it has shown pages of the whole journal."""
    rows: float = 0.0
    """From the console's start to the newest rows of its Requests list."""
    rows_after: float = 0.0
    """From its first screen to the newest rows, including the key that opens the list."""
    rows_own: float = 0.0
    """`rows_after` without the time that the console waited for a core."""
    oldest: float = 0.0
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
        journal.load_state()
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
        figures = Opened(write_seconds, size, state, proxy, empty)
        return _shown(stack, info.url, groups, figures)


def _shown(stack: Stack, url: str, groups: int, opened: Opened) -> Opened:
    """Measure a console that attaches to the proxy."""
    args = ["--attach", url, "--token-file", str(stack.home.token_file)]
    newest = query(groups - 1)[:8]
    with TerminalProgram(["-m", "console", *args], stack.home) as program:
        opened.data = program.expect(newest) - program.began
        opened.data_own = opened.data - program.stood()
    with TerminalProgram(["-m", "console", *args], stack.home) as program:
        painted, stood = program.expect("Quit"), program.stood()
        program.type("2")
        there = program.expect(newest)
        opened.rows, opened.rows_after = there - program.began, there - painted
        opened.rows_own = opened.rows_after - (program.stood() - stood)
        program.rest(1.0)
        asked = program.type("G")
        opened.oldest = program.expect(query(0)[:8]) - asked
        for _ in range(SCROLLED):
            program.type("\x1b[5~")
            program.rest(0.1)
        opened.resident = program.resident()
    return opened


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), int(sys.argv[2])))
