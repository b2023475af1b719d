"""Repeat the tests that failed once, one at a time, and sum up: `repeat.py FOLDER TESTS TYPES`.

FOLDER has the files of `reported.py`; TESTS and TYPES are the exit statuses of the two checks.
The last lines name each failed test, FLAKY or FAILED, and count the outcomes of all tests.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

FLAKY_AT_MOST = 3
"""More are a race in the program, not a slow machine."""
_RAN = (0, 1)
"""Exit statuses of pytest when all tests ran: not after an error of collection, for example."""


class Run:
    """What became of all tests of some pytest processes."""

    def __init__(self, folder: Path) -> None:
        reports = [json.loads(file.read_text() or "{}") for file in folder.glob("*.json")]
        self.errors = sum(report.get("status") not in _RAN for report in reports)
        """Processes that did not run all of their tests."""

        def names(*outcomes: str) -> set[str]:
            return {name for key in outcomes for report in reports for name in report.get(key, ())}

        self.failed = names("failed", "error")
        self.passed = names("passed") - self.failed
        self.skipped = sum(len(report.get("skipped", ())) for report in reports)
        self.xfailed = names("xfailed")


def passed_alone(names: Iterable[str], folder: Path) -> set[str]:
    """Run the tests once more; return those that pass."""
    folder.mkdir()
    command = [sys.executable, ".ci/reported.py", str(folder), "-q", *sorted(names)]
    subprocess.run(command, check=False)
    run = Run(folder)
    return set() if run.errors else run.passed


def main(folder: str, tests: str, types: str) -> int:
    """Return 0 if everything passes, at most three tests of it in the second run only."""
    run = Run(Path(folder))
    errors = run.errors or int(tests != "0" and not run.failed)
    repeats = run.failed and not errors and types == "0"
    flaky = passed_alone(run.failed, Path(folder, "again")) & run.failed if repeats else set()
    failed = run.failed - flaky
    for name in sorted(failed):
        print("FAILED", name)
    for name in sorted(flaky):
        print("FLAKY", name)
    counts = {
        "failed": len(failed),
        "flaky": len(flaky),
        "passed": len(run.passed),
        "skipped": run.skipped,
        "xfailed": len(run.xfailed),
        "error": errors,
    }
    print("==", ", ".join(f"{count} {name}" for name, count in counts.items() if count), "==")
    passes = not failed and not errors and types == "0" and len(flaky) <= FLAKY_AT_MOST
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
