"""Many runs of the request path, each from one seed, and the faults that they must find.

A run depends on the order of sets, so each test starts a process with `PYTHONHASHSEED=0`. A failing
seed prints the command that replays it.
"""

import datetime
import subprocess
import sys

import pytest

from tests.simulation.__main__ import faults

pytestmark = pytest.mark.timeout(400)  # 125 seeds take 20 s alone

FOUND_BY = {
    "end-before-durable": 0,
    "turn-kept-after-cancel": 108,
    "part-kept-in-rolling-post": 862,
    "no-abort-after-cancel": 4,
    "end-repeated-after-lost-answer": 21,
    "vote-acknowledged-before-commit": 0,
    "straggler-never-aborted": 3241,
    "recovery-ends-twice": 42,
    "answer-without-text": 0,
}
"""A seed that finds each planted fault."""


def _simulation(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


FIXED = 250
"""The seeds from 0 that always run."""


@pytest.mark.parametrize("first", [0, FIXED // 2])
def test_fixed_seeds_hold_all_rules(first: int) -> None:
    done = _simulation("seeds", str(first), str(FIXED // 2), "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seed", [24613, 26569, 104789])
def test_a_seed_that_once_failed_holds_all_rules(seed: int) -> None:
    done = _simulation("seeds", str(seed), "1", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_new_seeds_of_today_hold_all_rules() -> None:
    first = 1_000_000 + 50 * datetime.datetime.now(datetime.UTC).toordinal()
    done = _simulation("seeds", str(first), "50", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_runs_the_same_way_again() -> None:
    once, again = (_simulation("seeds", "0", "20", "--jobs", "1").stdout for _ in range(2))
    assert "digest" in once
    assert once.partition("digest")[2] == again.partition("digest")[2]


def test_each_planted_fault_has_a_seed() -> None:
    assert FOUND_BY.keys() == faults().keys()


@pytest.mark.parametrize("fault", FOUND_BY)
def test_a_planted_fault_is_found(fault: str) -> None:
    one_seed = ("seeds", str(FOUND_BY[fault]), "1", "--jobs", "1")
    done = _simulation(*one_seed, "--fault", fault)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "replay:" in done.stdout
    if FOUND_BY[fault] >= FIXED:  # else it runs without the fault above
        without = _simulation(*one_seed)
        assert without.returncode == 0, without.stdout + without.stderr


@pytest.mark.soak
def test_twenty_thousand_seeds_hold_all_rules() -> None:
    done = _simulation("seeds", "0", "20000")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("fault", FOUND_BY)
def test_a_planted_fault_is_found_within_fresh_seeds(fault: str) -> None:
    done = _simulation("seeds", "100000", "2000", "--fault", fault)
    assert done.returncode == 1, done.stdout + done.stderr
