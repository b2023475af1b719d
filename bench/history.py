"""The history of 200 engine runs, in a real terminal: open it, open a run, compare two.

    .venv/bin/python -m bench.history [RUNS]

A journal of that many runs is shown by `ajet-console replay`. Measured from the key to the last
line of the screen: History, the comparison of two runs, and the screens as of the end of the newest
and of the oldest run (a second program on the same terminal, which reads the journal up to there).
Then, in one process: the CPU time of the reducer with the summaries of the runs as a multiple of
that without them (median of alternating rounds), and the size of the state of as many runs as are
stored at most.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from unittest import mock

import msgspec

import core.reducer.group
from bench.bars import Verdicts
from core.events import Event
from core.journal.writer import Journal
from core.reducer import reduce
from core.state import ENGINE_RUN_CAP, State
from tests.support.pty.terminal import Terminal
from tests.support.runs import DAY, run_events
from tests.support.sample import NOW

RUNS = 200
ROUNDS = 15


def events_of(runs: int, steps: int, groups: int) -> list[Event]:
    """Return the events of consecutive runs of one server, numbered."""
    several = (
        run_events(
            number,
            steps=steps,
            groups=groups,
            at=NOW + number * DAY / 10,
            rate=(5e-4, 1e-3)[number % 2],
            weight=(0.3, 0.5)[number % 2],
            verdict=number % 3 == 0,
        )
        for number in range(1, runs + 1)
    )
    return [
        msgspec.structs.replace(event, seq=seq, run_id="run")
        for seq, event in enumerate(chain.from_iterable(several), 1)
    ]


def write(path: Path, events: Sequence[Event]) -> None:
    """Write a journal."""
    journal = Journal(path)
    for event in events:
        journal.append(event)
    journal.close()


def seconds(terminal: Terminal, keys: str, words: str, limit: float = 60.0) -> float:
    """Return the seconds from the keys to the words."""
    began = time.monotonic()
    terminal.type(keys)
    terminal.expect(words, limit=limit)
    return time.monotonic() - began


def screens(path: Path, runs: int, verdicts: Verdicts) -> None:
    """Measure the screens."""
    environment = {**os.environ, "AJET_CONSOLE_HOME": str(path.parent / "home")}
    command = ["replay", str(path)]
    with Terminal(command, environment, width=160, height=48) as terminal:
        terminal.expect("REPLAY end")
        verdicts.at_most("history_open", seconds(terminal, "0", "at step"), 1.0, "s")
        terminal.type(" j")
        compared = seconds(terminal, "c", "updates since the start")
        verdicts.at_most("compare", compared, 1.0, "s")
        seconds(terminal, "\x1b", f"Run {runs - 1}")
        for name, key, number in (("newest", "g", runs), ("oldest", "G", 1)):
            terminal.type(key)
            past = seconds(terminal, "\r", f"PAST RUN {number} end")
            verdicts.info(f"{name}_run_as_of_its_end", past, "s")
            seconds(terminal, "\x11", f"Run {number} ")
        terminal.type("\x11")
        terminal.wait()


def cpu(events: Sequence[Event]) -> float:
    """Return the CPU seconds of the reducer."""
    state = State()
    began = time.process_time()
    for event in events:
        reduce(state, event)
    return time.process_time() - began


def without_summaries(run: Callable[[], float]) -> float:
    """Run it without the function that the summaries add to each group."""

    def nothing(*_: object) -> None:
        return

    with mock.patch.object(core.reducer.group, "note_group", nothing):
        return run()


def main() -> None:
    """Measure and compare with the bars."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    verdicts = Verdicts()
    events = events_of(runs, 10, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        write(path, events)
        print(f"{runs} runs, {len(events):,} events, {path.stat().st_size / 1e6:.1f} MB")
        screens(path, runs, verdicts)
    few = events[:20_000]
    pairs = [(cpu(few), without_summaries(lambda: cpu(few))) for _ in range(ROUNDS)]
    ratio = statistics.median(one / other for one, other in pairs)
    verdicts.at_most("reducer_with_summaries", ratio, 1.1, "x")
    state = State()
    for event in events_of(ENGINE_RUN_CAP, 70, 1):
        reduce(state, event)
    size = len(msgspec.json.encode(state.engine_runs))
    verdicts.at_most("state_of_1000_runs", size / 1e6, 3.0, "MB")
    verdicts.close()


if __name__ == "__main__":
    main()
