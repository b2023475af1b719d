"""Runs the tests that reach each planted fault, and counts those that notice it.

    python -m tests.faults.planted reach [--commit C] [--tests FOLDER]
    python -m tests.faults.planted run [NAME...] [--commit C] [--at-most 300]

`reach` runs the suite once with a probe in the function around each fault, and stores which tests
reach it. A test that shares a process or an answer of an earlier test, by a fixture of wider scope,
is not found. `run` plants each fault alone, runs the tests that reach it, and adds a line to
`results/COMMIT.jsonl`; it skips faults that have a line there. Both work in a git worktree in a
temporary folder.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.planted.faults import FOLDER, Fault, load
from tests.faults.planted.inserted import PLUGIN, PLUGIN_FILE, PROBE, PROBE_CALL, PROBE_FILE

ROOT = FOLDER.parents[2]
RESULTS = FOLDER / "results"
MOST_SECONDS = 7200.0
"""Limit of one run of pytest, against hanging."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """Outcome of one run of pytest."""

    ran: int
    failed: frozenset[str]
    seconds: float
    hung: bool


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

    def run_tests(self, paths: Sequence[str], selected: Sequence[str] | None = None) -> TestRun:
        """Run the tests below `paths`, or only the `selected` ones of them."""
        logs = {name: self._folder / name for name in ("selected", "ran", "failed")}
        for path in logs.values():
            path.unlink(missing_ok=True)
        if selected is not None:
            logs["selected"].write_text("\n".join(selected))
        plugin = PLUGIN.format(**{name: str(path) for name, path in logs.items()})
        (self.tree / PLUGIN_FILE).write_text(plugin)
        began, hung = time.monotonic(), False
        options = ["-q", "-m", "not soak", "--tb=no", "--continue-on-collection-errors"]
        command = [sys.executable, "-m", "pytest", "-p", "planted_plugin", *options, *paths]
        environment = {**os.environ, "PYTHONPATH": str(self.tree)}
        with (self._folder / "output").open("wb") as output:
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
        if not hung and process.returncode not in (0, 1, 5) and not _lines(logs["failed"]):
            raise SystemExit((self._folder / "output").read_text()[-4000:])
        ran, failed = _lines(logs["ran"]), frozenset(_lines(logs["failed"]))
        return TestRun(len(ran), failed, time.monotonic() - began, hung)


def reach(faults: Sequence[Fault], commit: str, tests: str) -> None:
    """Store which tests reach each fault, and which fail without any fault or probe."""
    with _worktree(commit) as (worktree, folder):
        log = folder / "reached"
        worktree.probe(faults, log)
        probed = worktree.run_tests([tests])
        worktree.reset()
        failing: frozenset[str] = frozenset()
        if probed.failed:  # some fail because of the probes, such as those that count calls
            failing = worktree.run_tests(_files(probed.failed), sorted(probed.failed)).failed
        reached: dict[str, list[str]] = {fault.name: [] for fault in faults}
        for line in sorted(set(_lines(log))):
            name, test = line.split("\t", 1)
            reached[name].append(test)
    found = {"commit": commit, "tests": tests, "failing": sorted(failing), "reached": reached}
    RESULTS.mkdir(exist_ok=True)
    _reach_file(commit).write_text(json.dumps(found, indent=1) + "\n")
    for name, names in reached.items():
        print(f"{len(names):6} {name}")
    print(f"{probed.ran} tests in {probed.seconds:.0f} s, {len(failing)} fail without a fault")


def run(faults: Sequence[Fault], commit: str, at_most: int) -> None:
    """Plant each fault alone, run the tests that reach it, and store how many notice it."""
    if not (path := _reach_file(commit)).exists():
        raise SystemExit(f"{path.name} is missing: run `reach` for this commit first")
    found = json.loads(path.read_text())
    failing, results = set(found["failing"]), RESULTS / f"{commit}.jsonl"
    done = {json.loads(line)["name"] for line in _lines(results)}
    with _worktree(commit) as (worktree, _):
        for fault in faults:
            if fault.name in done:
                continue
            reached = [test for test in found["reached"].get(fault.name, ()) if test not in failing]
            sample = _spread(reached, at_most)
            tried = TestRun(0, frozenset(), 0.0, False)
            if sample:
                worktree.plant(fault)
                tried = worktree.run_tests(_files(sample), sample)
                worktree.reset()
            noticed = sorted(tried.failed - failing)
            result = {
                "name": fault.name,
                "commit": commit,
                "reached": len(reached),
                "run": tried.ran,
                "sampled": len(sample) < len(reached),
                "noticed": len(noticed),
                "hung": tried.hung,
                "seconds": round(tried.seconds, 1),
                "tests": noticed,
            }
            with results.open("a") as file:
                file.write(json.dumps(result) + "\n")
            part = " (a sample)" if result["sampled"] else ""
            print(f"{fault.name}: {len(noticed)} of {tried.ran}{part} notice it", flush=True)


def _spread(tests: Sequence[str], at_most: int) -> list[str]:
    """Return at most `at_most` tests, evenly spread over all."""
    if len(tests) <= at_most:
        return list(tests)
    return [tests[index * len(tests) // at_most] for index in range(at_most)]


def _files(tests: Iterator[str] | Sequence[str] | frozenset[str]) -> list[str]:
    return sorted({test.partition("::")[0] for test in tests})


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _reach_file(commit: str) -> Path:
    return RESULTS / f"{commit}.reach.json"


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
    parser.add_argument("what", choices=("reach", "run"))
    parser.add_argument("names", nargs="*", help="faults; all if none is named")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--tests", default="tests", help="folder or file of tests, for `reach`")
    parser.add_argument("--at-most", type=int, default=300, help="tests for each fault")
    options = parser.parse_args()
    faults = [fault for fault in load() if not options.names or fault.name in options.names]
    if unknown := set(options.names) - {fault.name for fault in faults}:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    commit = _git("-C", str(ROOT), "rev-parse", "--short=12", options.commit)
    if options.what == "reach":
        reach(faults, commit, options.tests)
    else:
        run(faults, commit, options.at_most)


if __name__ == "__main__":
    main()
