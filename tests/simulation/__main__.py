"""Runs seeds: `make simulate SEEDS=1000`, and the commands that a failing seed prints.

python -m tests.simulation seeds 0 1000 [--jobs 2] [--fault NAME]
python -m tests.simulation replay SEED [--reduce] [--fault NAME]
"""

import argparse
import os
import sys
import time
import tomllib
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.faults.planted.faults import Fault

HERE = Path(__file__).parent
CHUNK = 20
"""Seeds that a process runs before it reports."""


def faults() -> dict[str, Fault]:
    """Return the planted faults of the simulation by name."""
    tables = tomllib.loads((HERE / "planted.toml").read_text())["fault"]
    return {table["name"]: Fault(**table) for table in tables}


class _Loader(SourceFileLoader):
    fault: Fault

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        return compile(self.fault.planted(source), self.path, "exec")


class _Finder(MetaPathFinder):
    """Loads one module of the product with a fault in it."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._module = fault.file.removesuffix(".py").replace("/", ".")

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != self._module:
            return None
        spec: ModuleSpec | None = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        loader = _Loader(name, spec.origin)
        loader.fault = self._fault
        spec.loader = loader
        return spec


def plant(name: str) -> None:
    """Plant a fault in this process, before the module is imported."""
    if name:
        sys.meta_path.insert(0, _Finder(faults()[name]))


def _run(seeds: range) -> tuple[int, float, int, dict[int, list[str]]]:
    """Run seeds; return steps, virtual seconds, a digest of the logs and the violations by seed."""
    from tests.simulation.plan import plan
    from tests.simulation.world import simulate

    steps, seconds, digest, found = 0, 0.0, 0, {}
    for seed in seeds:
        try:
            outcome = simulate(plan(seed))
        except Exception as error:  # noqa: BLE001  it is the result of this seed
            found[seed] = [f"the run ended: {type(error).__name__}: {error}"]
            continue
        steps, seconds = steps + len(outcome.log), seconds + outcome.log[-1][0]
        digest = zlib.crc32(repr(outcome.log).encode(), digest)
        if outcome.violations:
            found[seed] = outcome.violations
    return steps, seconds, digest, found


def _chunks(first: int, count: int) -> Iterator[range]:
    for begin in range(first, first + count, CHUNK):
        yield range(begin, min(begin + CHUNK, first + count))


def run_seeds(first: int, count: int, jobs: int, fault: str) -> int:
    """Run seeds in processes, print failing ones and a summary; return the exit code."""
    began, steps, seconds, failed, digests = time.monotonic(), 0, 0.0, 0, []
    with ProcessPoolExecutor(jobs, initializer=plant, initargs=(fault,)) as pool:
        for more_steps, more_seconds, digest, found in pool.map(_run, _chunks(first, count)):
            steps, seconds, failed = steps + more_steps, seconds + more_seconds, failed + len(found)
            digests.append(digest)
            for seed, violations in found.items():
                print(f"seed {seed}:", *violations[:5], sep="\n  ")
                planted = f" --fault {fault}" if fault else ""
                print(f"  replay: python -m tests.simulation replay {seed}{planted}", flush=True)
    took = time.monotonic() - began
    print(
        f"{count} seeds from {first}, {failed} failed; {steps:,} steps, {seconds:,.0f} virtual "
        f"seconds in {took:.1f} s: {steps / took:,.0f} steps/s, "
        f"digest {zlib.crc32(repr(digests).encode()):08x}"
    )
    return 1 if failed else 0


def replay(seed: int, reduce: bool, fault: str) -> int:
    """Run one seed and print its plan, what users and server saw, and what is wrong."""
    plant(fault)
    from tests.simulation.plan import plan, reduced
    from tests.simulation.world import simulate

    chosen = plan(seed)
    if reduce:
        chosen = reduced(chosen, lambda smaller: bool(simulate(smaller).violations))
    outcome = simulate(chosen)
    for field in ("server", "settings", "mode", "console", "competitors", "source"):
        print(f"{field}: {getattr(chosen, field)}")
    print("happenings:", *chosen.happenings, sep="\n  ")
    print("users:", *outcome.asked, sep="\n  ")
    print("states:", *(f"{at:.2f} s {state}" for at, state in outcome.server.states), sep="\n  ")
    print("claims:", *outcome.server.claims, sep="\n  ")
    print("ends:", *outcome.server.ends, sep="\n  ")
    print("events:", *outcome.file.events(), sep="\n  ")
    print("violations:", *(outcome.violations or ["none"]), sep="\n  ")
    return 1 if outcome.violations else 0


def main() -> int:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    commands = parser.add_subparsers(dest="command", required=True)
    seeds = commands.add_parser("seeds", help="run many seeds")
    seeds.add_argument("first", type=int)
    seeds.add_argument("count", type=int)
    seeds.add_argument("--jobs", type=int, default=2)
    one = commands.add_parser("replay", help="run one seed and print all of it")
    one.add_argument("seed", type=int)
    one.add_argument("--reduce", action="store_true", help="drop what the failure does not need")
    for command in (seeds, one):
        command.add_argument("--fault", default="", choices=["", *faults()])
    chosen = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment
        )
    if chosen.command == "seeds":
        return run_seeds(chosen.first, chosen.count, chosen.jobs, chosen.fault)
    return replay(chosen.seed, chosen.reduce, chosen.fault)


if __name__ == "__main__":
    sys.exit(main())
