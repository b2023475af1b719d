"""Choice of the tests that are run on a planted fault: near and quick ones first."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

FURTHER = 3
"""Batches that follow the first one while no test notices the fault."""
MOST_SECONDS = 300.0
"""Limit of the usual time of one batch."""


def batches(
    file: str, tests: Sequence[str], seconds: Mapping[str, float], size: int
) -> Iterator[list[str]]:
    """Yield the tests of a fault in `file`, in the order in which they are worth a run.

    Args:
        file: Path of the source file.
        tests: The tests that reach the fault.
        seconds: Usual time of each test.
        size: Number of tests of the first batch; each further one is twice as large.
    """
    ordered = _ordered(file, tests, seconds)
    for number in range(1 + FURTHER):
        batch: list[str] = []
        left = MOST_SECONDS
        while ordered and len(batch) < size << number:
            left -= seconds.get(ordered[0], 0.0)
            if batch and left < 0.0:
                break
            batch.append(ordered.pop(0))
        if not batch:
            return
        yield batch


def _ordered(file: str, tests: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """Sort tests by nearness; equally near ones file by file in turn, each from its quickest."""
    by_file: defaultdict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: (seconds.get(test, 0.0), test)):
        by_file[test.partition("::")[0]].append(test)
    turns = [
        (_distance(file, path), turn, seconds.get(test, 0.0), test)
        for path, of_file in by_file.items()
        for turn, test in enumerate(of_file)
    ]
    return [test for *_, test in sorted(turns)]


def _distance(file: str, test_file: str) -> int:
    """Return 0 for the tests of a source file, 1 for those of its package, 2 for all others."""
    source, test = PurePath(file), PurePath(test_file)
    name = source.parent.name if source.stem == "__init__" else source.stem
    if test.stem.removeprefix("test_").startswith(name):
        return 0
    near = [f"tests/unit/{source.parts[0]}"] + ["tests/pilot"] * (source.parts[0] == "console")
    return 1 if test_file.startswith(tuple(near)) else 2
