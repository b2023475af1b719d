"""Runs the tests that reach each planted fault, and counts those that notice it.

    python -m tests.faults.planted reach [--commit C] [--tests FOLDER]
    python -m tests.faults.planted run [NAME...] [--commit C] [--at-most 25] [--enough 5]
    python -m tests.faults.planted table [--commit C]

`reach` runs the suite once with a probe in the function around each fault, and stores which tests
reach it and how long each took. A test that shares a process or an answer of an earlier test, by a
fixture of wider scope, is not found. `run` plants each fault alone, runs tests that reach it, those
of its module first, until enough notice it, and adds a line to `COMMIT.jsonl`; it skips faults that
have a line there. A test counts if it passes again without the fault. Both work in a git worktree
in a temporary folder, and leave their results in `--results`. `table` prints these as Markdown.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.planted.choice import batches
from tests.faults.planted.faults import FOLDER, Fault, load
from tests.faults.planted.inserted import (
    PLUGIN,
    PLUGIN_FILE,
    PLUGIN_FOLDER,
    PROBE,
    PROBE_CALL,
    PROBE_FILE,
)

ROOT = FOLDER.parents[2]
RESULTS = Path(tempfile.gettempdir()) / "planted-faults"
MOST_SECONDS = 7200.0
"""Limit of one run of pytest, against hanging."""
SHARDS = 2
"""Processes that run the suite for `reach`."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """Outcome of one run of pytest."""

    ran: frozenset[str]
    failed: frozenset[str]
    seconds: float
    hung: bool
    took: Mapping[str, float]
    """Seconds of each test."""


class Worktree:
    """A checkout of one commit in a temporary folder."""

    def __init__(self, folder: Path, tree: Path) -> None:
        self._folder, self.tree = folder, tree

    def reset(self) -> None:
        """Restore the files of the commit."""
        _git("-C", str(self.tree), "checkout", "-q", "--", ".")
        (self.tree / PROBE_FILE).unlink(missing_ok=True)

    def plant(self, fault: Fault) -> None:
        """Put one fault into the product."""
        path = self.tree / fault.file
        path.write_text(fault.planted(path.read_text()))

    def probe(self, faults: Sequence[Fault], log: Path) -> None:
        """Put a probe into the function around each fault."""
        (self.tree / PROBE_FILE).write_text(PROBE.format(log=str(log)))
        for fault in faults:
            path = self.tree / fault.file
            call = PROBE_CALL.format(name=fault.name)
            path.write_text(fault.probed(path.read_text(), call))

    def run_tests(
        self, paths: Sequence[str], selected: Sequence[str] | None = None, enough: int = 0
    ) -> TestRun:
        """Run the tests below `paths`, or only the `selected` ones of them.

        With `enough` the run ends after that number of failures.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            return self._run_tests(Path(name), paths, selected, enough)

    def _run_tests(
        self, folder: Path, paths: Sequence[str], selected: Sequence[str] | None, enough: int
    ) -> TestRun:
        if selected is not None:
            (folder / "selected").write_text("\n".join(selected))
        (self.tree / PLUGIN_FILE).write_text(PLUGIN)
        began, hung = time.monotonic(), False
        options = ["-q", "-m", "not soak", "--tb=no", "--continue-on-collection-errors"]
        options += [f"--maxfail={enough}"] if enough else []
        command = [sys.executable, "-m", "pytest", "-p", "planted_plugin", *options, *paths]
        environment = {**os.environ, "PYTHONPATH": str(self.tree), PLUGIN_FOLDER: str(folder)}
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.tree,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(MOST_SECONDS)
            except subprocess.TimeoutExpired:
                hung = True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if not hung and process.returncode not in (0, 1, 5) and not _lines(folder / "failed"):
            raise SystemExit((folder / "output").read_text()[-4000:])
        took: defaultdict[str, float] = defaultdict(float)
        for line in _lines(folder / "ran"):
            seconds, test = line.split("\t", 1)
            took[test] += float(seconds)
        failed = frozenset(_lines(folder / "failed"))
        return TestRun(frozenset(took), failed, time.monotonic() - began, hung, took)


def reach(faults: Sequence[Fault], commit: str, tests: str, results: Path) -> None:
    """Store which tests reach each fault, and which fail without any fault or probe."""
    with _worktree(commit) as (worktree, folder):
        log = folder / "reached"
        worktree.probe(faults, log)
        with ThreadPoolExecutor(SHARDS) as threads:
            shards = list(threads.map(worktree.run_tests, _shards(worktree.tree, tests)))
        worktree.reset()
        failing: frozenset[str] = frozenset()
        failed = frozenset[str]().union(*(shard.failed for shard in shards))
        if failed:  # some fail because of the probes, such as those that count calls
            failing = worktree.run_tests(_files(failed), sorted(failed)).failed
        reached: dict[str, list[str]] = {fault.name: [] for fault in faults}
        for line in sorted(set(_lines(log))):
            name, test = line.split("\t", 1)
            reached[name].append(test)
    took = {test: seconds for shard in shards for test, seconds in shard.took.items()}
    path = _reach_file(results, commit)
    found: dict[str, Any] = {"commit": commit, "failing": [], "reached": {}, "seconds": {}}
    if path.exists():  # of other faults, or of other tests
        found = json.loads(path.read_text())
    found["failing"] = sorted({*found["failing"], *failing})
    for name, tests_of in reached.items():
        found["reached"][name] = sorted({*found["reached"].get(name, ()), *tests_of})
    found["seconds"] |= {test: round(seconds, 3) for test, seconds in took.items()}
    results.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
    for name, names in reached.items():
        print(f"{len(names):6} {name}")
    seconds = max(shard.seconds for shard in shards)
    print(f"{len(took)} tests in {seconds:.0f} s, {len(failing)} fail without a fault")


def run(faults: Sequence[Fault], commit: str, results: Path, *, at_most: int, enough: int) -> None:
    """Plant each fault alone, run tests that reach it, and store how many notice it."""
    if not (path := _reach_file(results, commit)).exists():
        raise SystemExit(f"{path.name} is missing: run `reach` for this commit first")
    found = json.loads(path.read_text())
    failing, lines = set(found["failing"]), results / f"{commit}.jsonl"
    done = {json.loads(line)["name"] for line in _lines(lines)}
    with _worktree(commit) as (worktree, _):
        for fault in faults:
            if fault.name in done:
                continue
            reached = [test for test in found["reached"].get(fault.name, ()) if test not in failing]
            began, ran, noticed = time.monotonic(), 0, frozenset[str]()
            for tests in batches(fault.file, reached, found["seconds"], at_most):
                worktree.plant(fault)
                tried = worktree.run_tests(_files(tests), tests, enough)
                worktree.reset()
                ran += len(tried.ran)
                noticed = tried.failed - failing
                if noticed:  # not by those that fail without the fault as well
                    noticed -= worktree.run_tests(_files(noticed), sorted(noticed)).failed
                if noticed or tried.hung:
                    break
            result = {
                "name": fault.name,
                "commit": commit,
                "reached": len(reached),
                "run": ran,
                "noticed": len(noticed),
                "seconds": round(time.monotonic() - began, 1),
                "tests": sorted(noticed),
            }
            with lines.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(f"{fault.name}: {len(noticed)} of {ran} notice it", flush=True)


def table(faults: Sequence[Fault], commit: str, results: Path) -> None:
    """Print the results as a table in Markdown."""
    reached = json.loads(_reach_file(results, commit).read_text())["reached"]
    of = {result["name"]: result for result in map(json.loads, _lines(results / f"{commit}.jsonl"))}
    print("| fault | reached by | run | noticed by |\n|---|---|---|---|")
    for name in (fault.name for fault in faults if fault.name in of):
        print(f"| `{name}` | {len(reached[name])} | {of[name]['run']} | {of[name]['noticed']} |")


def _shards(tree: Path, tests: str) -> list[list[str]]:
    """Divide the test files among the processes, the largest first."""
    files = sorted((tree / tests).rglob("test_*.py"), key=lambda path: -path.stat().st_size)
    paths = [str(path.relative_to(tree)) for path in files] or [tests]
    return [sorted(shard) for at in range(SHARDS) if (shard := paths[at::SHARDS])]


def _files(tests: Iterable[str]) -> list[str]:
    return sorted({test.partition("::")[0] for test in tests})


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _reach_file(results: Path, commit: str) -> Path:
    return results / f"{commit}.reach.json"


@contextlib.contextmanager
def _worktree(commit: str) -> Iterator[tuple[Worktree, Path]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = folder / "tree"
        _git("-C", str(ROOT), "worktree", "add", "-q", "--detach", str(tree), commit)
        try:
            yield Worktree(folder, tree), folder
        finally:
            _git("-C", str(ROOT), "worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.planted")
    parser.add_argument("what", choices=("reach", "run", "table"))
    parser.add_argument("names", nargs="*", help="faults; all if none is named")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--tests", default="tests", help="folder or file of tests, for `reach`")
    parser.add_argument(
        "--at-most", type=int, default=25, help="tests for each fault, more if none notices it"
    )
    parser.add_argument(
        "--enough", type=int, default=5, help="tests that notice a fault; 0 runs all"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    faults = [fault for fault in load() if not options.names or fault.name in options.names]
    if unknown := set(options.names) - {fault.name for fault in faults}:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    commit = _git("-C", str(ROOT), "rev-parse", "--short=12", options.commit)
    if options.what == "reach":
        reach(faults, commit, options.tests, options.results)
    elif options.what == "run":
        run(faults, commit, options.results, at_most=options.at_most, enough=options.enough)
    else:
        table(faults, commit, options.results)


if __name__ == "__main__":
    main()
