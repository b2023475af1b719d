"""The sink for TensorBoard has one writer open for each server, whatever the number of runs."""

import os
import threading
import time
from pathlib import Path

import pytest

from proxy.trackers.sink import StepFigures
from proxy.trackers.tensorboard import TensorBoardSink
from tests.support.event_files import scalars

pytestmark = pytest.mark.slow


def figures(server: str, run: str, step: int) -> StepFigures:
    return StepFigures(server, run, step, 50.0, {"loss": step / 2})


def written(folder: Path) -> list[tuple[int, float]]:
    return [(one.step, one.value) for one in scalars(folder)]


def settled(threads: int) -> tuple[int, int]:
    """The number of threads and open files, once the threads of closed writers have ended."""
    end = time.monotonic() + 20
    while threading.active_count() > threads and time.monotonic() < end:
        for one in threading.enumerate():
            if one.name == "QueueFeederThread":
                one.join(0.01)
    return threading.active_count(), len(os.listdir("/dev/fd"))


def test_runs_one_after_the_other_leave_one_writer_open(tmp_path: Path) -> None:
    before = threading.active_count()
    files = len(os.listdir("/dev/fd"))
    sink = TensorBoardSink(tmp_path)
    sink.log(figures("s", "run-0", 0))
    one = threading.active_count() - before, len(os.listdir("/dev/fd")) - files
    assert one[0] > 0
    for number in range(1, 12):
        sink.log(figures("s", f"run-{number}", number))
    assert settled(before + one[0]) == (before + one[0], files + one[1])
    sink.log(figures("other", "run-0", 5))  # a server of its own does not close the first
    assert settled(before + 2 * one[0])[0] == before + 2 * one[0]
    sink.close()
    assert settled(before) == (before, files)
    for number in range(12):
        assert written(tmp_path / "s" / f"run-{number}") == [(number, number / 2)]
    assert written(tmp_path / "other" / "run-0") == [(5, 2.5)]


def test_a_run_that_comes_back_keeps_what_was_written(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path)
    for step, run in enumerate(("a", "b", "a", "", "a")):  # within one second
        sink.log(figures("s", run, step))
    sink.close()
    assert sorted(written(tmp_path / "s" / "a")) == [(0, 0.0), (2, 1.0), (4, 2.0)]
    assert written(tmp_path / "s") == [(3, 1.5)]
