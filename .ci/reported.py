"""Run pytest and write the outcome of each test as JSON: `reported.py FOLDER ARGUMENT…`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


class Outcomes:
    """Plugin that keeps the names of all tests by outcome."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        stats = terminalreporter.stats
        self.names = {key: [test.nodeid for test in stats.get(key, ())] for key in OUTCOMES}


def main(folder: str, *arguments: str) -> int:
    """Run pytest; return its exit status. The file stays empty if the process ends early."""
    file = Path(folder, f"{os.getpid()}.json")
    file.touch()
    outcomes = Outcomes()
    status = int(pytest.main(list(arguments), plugins=[outcomes]))
    file.write_text(json.dumps({"status": status, **outcomes.names}))
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
