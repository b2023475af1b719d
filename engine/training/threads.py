"""Threads and memory of numpy: one BLAS thread, reuse of large blocks, parallelism by Python
threads.

A multi-threaded BLAS busy-waits at its barrier and changes the order of sums; one BLAS thread and
two Python threads over shards are faster beside other processes and give the same bits on every
run.
"""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from engine import memory

T = TypeVar("T")

LANES = 2
"""Number of threads that sum shards, on every machine, so that results do not depend on it."""

_BLAS = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def prepare() -> bool:
    """Configure the process for the policy; call it before numpy is imported.

    Returns:
        False when numpy was imported already, so that its BLAS keeps its threads.
    """
    early = "numpy" not in sys.modules
    if early:
        for name in _BLAS:
            os.environ[name] = "1"
    memory.keep()
    return early


class Workers:
    """Threads that run one function per worker; results come back in worker order."""

    def __init__(self, count: int = LANES) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="worker")

    def run(self, work: Callable[[int], T]) -> list[T]:
        """Call `work(worker)` for all workers in parallel."""
        return list(self._pool.map(work, range(self.count)))

    def deal(self, costs: Sequence[float]) -> list[list[int]]:
        """Assign items to workers, the costliest first to the least loaded one; deterministic."""
        workers: list[list[int]] = [[] for _ in range(self.count)]
        loads = [0.0] * self.count
        for item in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
            worker = loads.index(min(loads))
            workers[worker].append(item)
            loads[worker] += costs[item]
        return workers

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=True)
