"""A dataset of 1 GB: time to the first row, and memory.

`python -m bench.datasets` writes a JSONL file of that size to a temporary folder, opens it in a
process of its own as the mock user does, finds all of its rows, reads some of a shuffled pass, and
deletes it. `--mb N` takes another size.
"""

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.bars import Verdicts

MB = 1 << 20
BLOCK = 1_000
"""Number of rows per write."""
READ = 2_000
"""Number of rows of a shuffled pass to read."""
SPARE = 200
"""Minimum free memory in MB."""
LIMIT = 300.0
"""Maximum seconds of reading."""


def write(path: Path, size: int) -> int:
    """Write rows of about 500 bytes up to `size` bytes; return their number."""
    filler = "why do rivers flow into the sea and mountains stand still? " * 7
    rows = 0
    with path.open("w", encoding="ascii") as file:
        while file.tell() < size:
            lines = [
                json.dumps({"query": f"{number}: {filler}", "answer": str(number), "level": 3})
                for number in range(rows, rows + BLOCK)
            ]
            file.write("\n".join(lines) + "\n")
            rows += BLOCK
    return rows


def peak_mb() -> float:
    """Return the peak memory of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def read(path: Path) -> dict[str, float]:
    """Open, find all rows, read some shuffled ones in a new process; return seconds and memory."""
    from mock.dataset import Dataset
    from mock.dataset.rows import Row

    small = path.parent / "small.jsonl"
    small.write_text('{"query": "hello"}\n')
    with Dataset.open(small, scratch=path.parent) as dataset:  # what is imported is no growth
        dataset.row(0)
    before, began = peak_mb(), time.monotonic()
    with Dataset.open(path, scratch=path.parent) as dataset:
        assert isinstance(dataset.row(0), Row)
        first = time.monotonic() - began
        while dataset.scan():
            assert time.monotonic() - began < LIMIT
        whole = time.monotonic() - began
        for position in itertools.islice(dataset.order("1", 7), READ):
            assert isinstance(dataset.row(position), Row)
        rows = dataset.row_count
    return {"first": first, "whole": whole, "growth": peak_mb() - before, "rows": rows}


def main() -> None:
    """Measure, print, and exit with 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.datasets")
    parser.add_argument("--mb", type=int, default=1_024, metavar="N")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read is not None:
        print(json.dumps(read(args.read)))
        return
    verdicts = Verdicts()
    name = f"a dataset of {args.mb} MB"
    with tempfile.TemporaryDirectory() as place:
        free = shutil.disk_usage(place).free / MB
        if not sys.platform.startswith("linux") or free < args.mb + SPARE:
            verdicts.skip(name, f"needs Linux and {args.mb + SPARE} MB of disk", "")
            verdicts.close()
        file = Path(place) / "large.jsonl"
        rows = write(file, args.mb * MB)
        command = [sys.executable, "-m", "bench.datasets", "--read", str(file)]
        process = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=2 * LIMIT)
    figures = json.loads(process.stdout)
    assert figures["rows"] == rows, figures
    verdicts.at_most(f"{name}, first row", figures["first"], 1, "s")
    verdicts.at_most(f"{name}, growth of memory", figures["growth"], 100, "MB")
    verdicts.info(f"{name}, all {rows} rows found", figures["whole"], "s")
    verdicts.close()


if __name__ == "__main__":
    main()
