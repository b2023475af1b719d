"""Idle threads of executors on episodes with stragglers.

    .venv/bin/python -m bench.executors

Each pool runs the same episodes, whose lengths are drawn once: one in sixteen takes eight times as
long. Nothing is computed, so what is measured is waiting. `floor` is what the threads need with no
wait at all.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence

from ajet_swarm.runs.episodes import run_episodes
from ajet_swarm.runs.executors import PeriodicDrainThreadPoolExecutor, SlidingThreadPoolExecutor
from bench.bars import Verdicts

THREADS, BATCH, BATCHES = 32, 64, 12
SHORT, LONG, ONE_IN = 0.05, 0.4, 16
"""Seconds of an episode and of a straggler, and how many episodes contain one."""


def lengths(seed: int = 1) -> list[float]:
    """Return the seconds of each episode."""
    rng = random.Random(seed)
    return [
        LONG if rng.randrange(ONE_IN) == 0 else SHORT * rng.uniform(0.7, 1.3)
        for _ in range(BATCH * BATCHES)
    ]


class Busy:
    """Total working time of all threads."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def episode(self, seconds: float) -> float:
        began = time.perf_counter()
        time.sleep(seconds)
        with self._lock:
            self.seconds += time.perf_counter() - began
        return seconds


def drained(waits: Sequence[float], work: Callable[[float], float]) -> int:
    """Run the episodes as AgentJet's scripts do."""
    count = 0
    with PeriodicDrainThreadPoolExecutor(workers=BATCH, max_parallel=THREADS) as executor:
        for seconds in waits:
            count += len(executor.submit_with_periodic_drain(work, seconds)[1])
        return count + len(executor.drain())


def sliding(waits: Sequence[float], work: Callable[[float], float]) -> int:
    """Make the same calls without a drain."""
    count = 0
    with SlidingThreadPoolExecutor(workers=BATCH, max_parallel=THREADS) as executor:
        for seconds in waits:
            count += len(executor.submit_with_periodic_drain(work, seconds)[1])
        return count + len(executor.drain())


def listed(waits: Sequence[float], work: Callable[[float], float]) -> int:
    """Submit all episodes at once."""
    return sum(one.ok for one in run_episodes(waits, work, max_workers=THREADS))


def measure(
    run: Callable[[Sequence[float], Callable[[float], float]], int], waits: Sequence[float]
) -> tuple[float, float]:
    """Return the seconds it took and the idle share of the threads' time."""
    busy = Busy()
    began = time.perf_counter()
    assert run(waits, busy.episode) == len(waits)
    elapsed = time.perf_counter() - began
    return elapsed, 1 - busy.seconds / (elapsed * THREADS)


def main() -> None:
    """Measure each pool once on the same episodes."""
    waits = lengths()
    floor = sum(waits) / THREADS
    print(f"{len(waits)} episodes in batches of {BATCH}, {THREADS} threads; floor {floor:.2f} s")
    figures: dict[str, tuple[float, float]] = {}
    for name, run in (("drain", drained), ("sliding", sliding), ("list", listed)):
        figures[name] = measure(run, waits)
        elapsed, idle = figures[name]
        print(
            f"{name:8} {elapsed:6.2f} s  {elapsed / floor:5.2f} x floor  threads idle {idle:5.1%}"
        )
    verdicts = Verdicts()
    drain, slide = figures["drain"], figures["sliding"]
    verdicts.at_least("drain_over_sliding", drain[0] / slide[0], 1.4, "times")
    verdicts.at_most("sliding_idle_of_drain_idle", slide[1] / drain[1], 0.5, "share")
    verdicts.at_most("list_over_floor", figures["list"][0] / floor, 1.35, "times")
    verdicts.close()


if __name__ == "__main__":
    main()
