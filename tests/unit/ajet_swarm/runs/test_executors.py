"""Thread pools."""

import importlib
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.runs.executors import (
    BoundedThreadPoolExecutor,
    PeriodicDrainThreadPoolExecutor,
    Retry,
    SlidingThreadPoolExecutor,
    TaskCountLimitedThreadPoolExecutor,
)

QUICK = Retry(tries=None, first=0.001, most=0.002)


def _there(test: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_drain_waits_for_all_and_gives_results_in_order() -> None:
    with PeriodicDrainThreadPoolExecutor(workers=4, max_parallel=2, auto_retry=False) as executor:
        drained = []
        for number in range(9):
            fn: Callable[[int], int] = _fails_at_two if number < 4 else _same
            _, results = executor.submit_with_periodic_drain(fn=fn, number=number)
            drained.append(results)
        assert drained[:4] == [[], [], [], []]
        assert drained[4] == [0, 1, 3], "the one that failed is missing"
        assert drained[8] == [4, 5, 6, 7]
        assert executor.drain() == [8]


def _same(number: int) -> int:
    return number


def _fails_at_two(number: int) -> int:
    if number == 2:
        raise ValueError("no")
    return number


def test_a_failed_job_is_tried_again() -> None:
    left = [3]

    def run() -> str:
        left[0] -= 1
        if left[0]:
            raise ValueError("again")
        return "done"

    with PeriodicDrainThreadPoolExecutor(workers=1, retry=QUICK) as executor:
        assert executor.submit(run).result(60) == "done"


def test_the_first_run_may_block() -> None:
    done: list[int] = []
    with PeriodicDrainThreadPoolExecutor(workers=2, block_first_run=True) as executor:
        executor.submit(done.append, 1)
        assert done == [1]


def test_a_job_without_end_ends_with_the_pool() -> None:
    executor = PeriodicDrainThreadPoolExecutor(workers=1, retry=Retry(tries=None, first=60))

    def run() -> None:
        raise ValueError("always")

    future = executor.submit(run)
    queued = executor.submit(run)
    executor.shutdown(wait=True, cancel_futures=True)
    assert isinstance(future.exception(), ValueError)
    assert queued.cancelled()


def test_sliding_does_not_wait_for_a_straggler() -> None:
    release, later = threading.Event(), threading.Event()

    def straggler() -> str:
        assert later.wait(60), "jobs of the next batch run meanwhile"
        release.set()
        return "late"

    with SlidingThreadPoolExecutor(workers=3, max_parallel=2) as executor:
        batches = [executor.submit_with_periodic_drain(straggler)[1]]
        for number in range(2):
            batches.append(executor.submit_with_periodic_drain(_same, number)[1])
        batches.append(executor.submit_with_periodic_drain(later.set)[1])
        assert release.wait(60)
        futures = []
        for number in range(8):
            future, result = executor.submit_with_periodic_drain(_same, number)
            futures.append(future)
            batches.append(result)
            future.result(60)
        result = [batch for batch in batches if batch]
        assert result[0] == ["late", 0, 1], "each batch whole, in order"
        assert result[1] == [None, 0, 1]
        rest = executor.drain()
        assert [value for batch in result for value in batch] + rest == [
            "late",
            0,
            1,
            None,
            *range(8),
        ]


@pytest.mark.parametrize(
    ("make", "submit"),
    [
        (
            lambda: SlidingThreadPoolExecutor(workers=2, max_parallel=1),
            "submit_with_periodic_drain",
        ),
        (lambda: BoundedThreadPoolExecutor(max_workers=2, max_queue_size=3), "submit"),
    ],
)
def test_the_waiting_jobs_are_limited(make: Callable[[], Any], submit: str) -> None:
    gate = threading.Event()
    submitted: list[int] = []
    with make() as executor:

        def feed() -> None:
            for number in range(5):
                getattr(executor, submit)(gate.wait, 60)
                submitted.append(number)

        feeder = threading.Thread(target=feed)
        feeder.start()
        _there(lambda: len(submitted) >= 3)
        feeder.join(0.3)
        assert submitted == [0, 1, 2], "of the sliding one, one runs and two wait"
        gate.set()
        feeder.join(60)
        assert len(submitted) == 5
        assert not feeder.is_alive()


def test_groups_keep_their_place_until_the_last_job_is_done() -> None:
    gate = threading.Event()
    begun: list[str] = []
    with TaskCountLimitedThreadPoolExecutor(max_parallel_groups=1, max_workers=4) as executor:

        def job(name: str) -> str:
            begun.append(name)
            assert gate.wait(60)
            return name

        first = executor.submit_group("a", job, [{"name": "a1"}, {"name": "a2"}])
        second: list[str] = []

        def feed() -> None:
            futures = executor.submit_group("b", job, [{"name": "b1"}])
            second.extend(future.result(60) for future in futures)

        feeder = threading.Thread(target=feed)
        feeder.start()
        _there(lambda: len(begun) >= 2)
        feeder.join(0.2)
        assert sorted(begun) == ["a1", "a2"]
        gate.set()
        feeder.join(60)
        assert [future.result(60) for future in first] == ["a1", "a2"]
        assert second == ["b1"]
        assert executor.submit_group("c", job, []) == []


def test_no_threads_is_an_error() -> None:
    with pytest.raises(SwarmError, match="At least one"):
        PeriodicDrainThreadPoolExecutor(workers=0)


@pytest.mark.slow
def test_an_interrupted_program_does_not_wait_for_jobs_tried_for_ever() -> None:
    code = """
from ajet_swarm.runs.executors import PeriodicDrainThreadPoolExecutor
import logging, threading
logging.disable()
failed = threading.Event()
def run():
    failed.set()
    raise ValueError
executor = PeriodicDrainThreadPoolExecutor(workers=2)
for _ in range(50):
    executor.submit(run)
failed.wait()
raise KeyboardInterrupt
"""
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=110, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr


def test_a_program_that_ends_well_waits_for_its_jobs() -> None:
    code = """
from ajet_swarm.runs.executors import PeriodicDrainThreadPoolExecutor
import time
executor = PeriodicDrainThreadPoolExecutor(workers=2)
for number in range(4):
    executor.submit(lambda: (time.sleep(0.1), print("done", flush=True)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=110, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("done") == 4


def test_groups_of_a_finished_batch_free_their_places() -> None:
    hold = threading.Event()
    with TaskCountLimitedThreadPoolExecutor(
        max_parallel_groups=1, max_workers=4, auto_retry=True
    ) as executor:
        old = executor.submit_group(task_id="a", fn=hold.wait, args_list=[{"timeout": 30}] * 2)
        executor.on_entering_weight_sync()
        new = executor.submit_group(task_id="b", fn=hold.wait, args_list=[{"timeout": 30}])
        begun = threading.Thread(target=executor.submit_group, args=("c", lambda: 1, [{}]))
        begun.start()
        assert len(executor._open) == 1, "one place, and the old group has none to give back"
        hold.set()
        begun.join(30)
        assert [future.result(30) for future in (*old, *new)] == [True] * 3
        assert not begun.is_alive()


def test_no_failure_is_logged_as_a_warning_after_a_shutdown() -> None:
    """The sentence that ends a script stays its last line."""
    reporting, written = threading.Event(), threading.Event()
    levels: list[int] = []

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            reporting.set()
            written.wait(60)
            levels.append(record.levelno)

    log, handler = logging.getLogger("ajet_swarm.runs.executors"), Slow(logging.WARNING)
    log.addHandler(handler)
    try:
        executor = PeriodicDrainThreadPoolExecutor(workers=2, retry=QUICK)
        job = executor.submit(_fails_at_two, 2)
        assert reporting.wait(60), job
        stop = threading.Thread(target=lambda: executor.shutdown(wait=False))
        stop.start()
        stop.join(0.2)
        assert stop.is_alive(), "the shutdown waits for the line that is being written"
        written.set()
        stop.join(60)
        logged = len(levels)
        executor.shutdown()
        assert len(levels) == logged
    finally:
        written.set()
        log.removeHandler(handler)


def test_a_missing_module_is_not_tried_again() -> None:
    tries: list[str] = []

    def work(name: str) -> None:
        tries.append(name)
        importlib.import_module(name)

    with PeriodicDrainThreadPoolExecutor(workers=1, auto_retry=True) as pool:
        job = pool.submit(work, "no_such_module")
        assert isinstance(job.exception(60), ImportError)
    assert tries == ["no_such_module"]
