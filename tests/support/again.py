"""Run `make test` again and again beside busy loops, to find the tests that fail now and then.

    python -m tests.support.again 10 --results FILE [--busy 2]

It clones the committed tree into a temporary folder, so that work in the checkout goes on, and
appends a line of JSON to FILE for each run: commit, start, seconds, exit status, how many tests
passed, and which failed. Runs of this commit in FILE count: after an interruption the rest is done.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUSY_LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
"""It ends with the process that started it."""


def main(argv: Sequence[str]) -> int:
    """Do the runs; return 1 if a run of this commit failed."""
    parser = argparse.ArgumentParser(prog="again", description="Repeat `make test`.")
    parser.add_argument("runs", type=int, help="number of runs of this commit")
    parser.add_argument("--results", type=Path, required=True, help="file of JSON lines")
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside the tests")
    options = parser.parse_args(argv)
    results = options.results.absolute()
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    done = [run for run in stored(results) if run["commit"] == commit]
    if len(done) < options.runs:
        with tempfile.TemporaryDirectory(prefix="again-") as folder, busy_loops(options.busy):
            clone = Path(folder, "clone")
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
            subprocess.run(["git", "-C", str(clone), "checkout", "--quiet", commit], check=True)
            subprocess.run(["make", ".venv/.ready"], cwd=clone, check=True)
            while len(done) < options.runs:
                run = {"commit": commit, "busy": options.busy, **run_tests(clone)}
                with results.open("a") as file:
                    file.write(json.dumps(run) + "\n")
                done.append(run)
                failed = ", ".join(run["failed"]) or "none"
                sys.stdout.write(f"run {len(done)}: {run['seconds']:.0f} s, failed: {failed}\n")
                sys.stdout.flush()
    return int(any(run["status"] for run in done))


def stored(results: Path) -> list[dict[str, Any]]:
    """Return the runs in a file of results."""
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text().splitlines()]


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep `count` processors busy."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_tests(clone: Path) -> dict[str, Any]:
    """Run `make test` once in a clone."""
    with tempfile.TemporaryDirectory(prefix="again-reports-") as reports:
        began, clock = time.time(), time.monotonic()
        pytest = f"PYTEST=.venv/bin/python .ci/reported.py {reports}"
        command = ["make", "test", pytest, "GIVE_WAY="]  # a busy loop would leave them no time
        status = subprocess.run(command, cwd=clone, check=False).returncode
        seconds = time.monotonic() - clock
        outcomes = [json.loads(file.read_text() or "{}") for file in Path(reports).glob("*.json")]
    failed: set[str] = set()
    for outcome in outcomes:
        failed.update(outcome.get("failed", ()), outcome.get("error", ()))
    return {
        "began": round(began),
        "seconds": round(seconds, 1),
        "status": status,
        "passed": sum(len(outcome.get("passed", ())) for outcome in outcomes),
        "failed": sorted(failed),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
