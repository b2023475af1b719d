"""Seconds, memory and byte-stability of the export of a million candidates, for each format.

The journal has 250,000 groups with four candidates (`--quick`: 10,000). Questions are of 200
characters, answers of 400, slices of this repository's guides and sources; every tenth group is
rated by a person, every fiftieth is corrected, every second has a reference. Each export is a
process of its own; its peak memory is that of the whole process, with what it imports.
"""

import argparse
import hashlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.bars import Verdicts
from bench.journal_size import Texts, life
from console.export.format import BUILT_IN
from core.events import Event, GroupEdited, GroupOpened, GroupRated, GroupSealed
from core.journal import file
from core.journal.batch import commit
from core.journal.storage import begin_file, prepare, prepare_writer
from core.journal.texts import TextWriter

GROUPS = 250_000
QUICK = 10_000
N = 4
BATCH = 2_000
"""Events of a commit."""
BEGAN = 1_790_000_000.0
SECRET = " My key is sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv, write to ada.lovelace@example.com."
MEGABYTES = 300.0
"""Bar of the peak memory of a process."""
PER_SECOND = 1_500.0
"""Bar of the candidates per second."""
_CHILD = """
import json, resource, sys, time
from pathlib import Path
from console.export.run import ExportOptions, export
from console.export.split import parse_split
from core.journal.read_only import JournalFile
name, journal, out = sys.argv[1:]
began = time.monotonic()
with JournalFile(Path(journal)) as file:
    report = export(file, ExportOptions(name, Path(out), split=parse_split("0.9/0.1")))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": time.monotonic() - began, "peak": peak / 1024,
    "rows": sum(report.files.values()), "redacted": sum(report.redacted.values())}))
"""


def events(groups: int) -> Iterator[Event]:
    """Yield the events of the groups."""
    texts = Texts(1)
    for number in range(groups):
        question = texts.of(200) + (SECRET if number % 100 == 0 else "")
        answers = [texts.of(400) for _ in range(N)]
        commits = life(texts, [{"role": "user", "content": question}], answers)
        opened = commits[0][0]
        assert isinstance(opened, GroupOpened)
        for plain in (one for some in commits for one in some):
            event = plain
            if isinstance(event, GroupOpened) and number % 2 == 0:
                event = msgspec.structs.replace(event, reference=str(number), row_id=f"r{number}")
            elif isinstance(event, GroupSealed) and number % 10 == 0:
                yield GroupRated(
                    server=event.server,
                    group_id=event.group_id,
                    rating="best",
                    order=(1,),
                    rewards=(0.0, 1.0, 0.0, 0.0),
                    rater="ada",
                    blind=True,
                )
                rewards = tuple(
                    msgspec.structs.replace(one, reward=float(one.index == 1), advantage=0.5)
                    for one in event.rewards
                )
                event = msgspec.structs.replace(event, source="human", rewards=rewards)
            yield event
        if number % 50 == 0:
            name = opened.group_id
            yield GroupEdited(server="embedded", group_id=name, index=0, edited=texts.of(300))


def write(path: Path, groups: int) -> None:
    """Write the journal with the journal's own code for batches."""
    file.create(path)
    db = sqlite3.connect(path)
    begin_file(db)
    prepare(db, 0)
    prepare_writer(db)
    db.execute("pragma synchronous=off")
    texts, opened = TextWriter(db), set[str]()
    jobs: list[Event] = []
    for number, event in enumerate(events(groups), 1):
        at = BEGAN + number / 100
        jobs.append(msgspec.structs.replace(event, seq=number, at=at, run_id="run"))
        if len(jobs) >= BATCH:
            commit(db, jobs, opened, texts)
            jobs = []
    commit(db, jobs, opened, texts)
    db.close()


def export(name: str, journal: Path, out: Path) -> dict[str, Any]:
    """Export in a process of its own; return its figures."""
    command = [sys.executable, "-c", _CHILD, name, str(journal), str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures = json.loads(done.stdout)
    assert isinstance(figures, dict)
    return figures


def digest(folder: Path) -> str:
    """Return the hash of names and contents of a folder; then delete its files."""
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        whole.update(path.name.encode())
        with path.open("rb") as content:
            whole.update(hashlib.file_digest(content, "sha256").digest())
        path.unlink()
    return whole.hexdigest()


def main() -> None:
    """Measure each format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 groups")
    parser.add_argument("--formats", nargs="*", default=list(BUILT_IN))
    args = parser.parse_args()
    groups = QUICK if args.quick else GROUPS
    verdicts = Verdicts()
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal.db"
        began = time.monotonic()
        write(journal, groups)
        verdicts.info("export.journal_written", time.monotonic() - began, "s")
        verdicts.info("export.journal_size", journal.stat().st_size / 1e6, "MB")
        for name in args.formats:
            figures = export(name, journal, Path(folder) / name)
            first = digest(Path(folder) / name)
            verdicts.info(f"export.{name}.seconds", figures["seconds"], "s")
            verdicts.info(f"export.{name}.rows", figures["rows"], "rows")
            verdicts.info(f"export.{name}.redacted", figures["redacted"], "secrets")
            speed = groups * N / figures["seconds"]
            verdicts.at_least(f"export.{name}.speed", speed, PER_SECOND, "candidates/s")
            verdicts.at_most(f"export.{name}.peak_memory", figures["peak"], MEGABYTES, "MB")
            if args.quick or name in ("preference", "verl"):
                export(name, journal, Path(folder) / name)
                same = first == digest(Path(folder) / name)
                verdicts.at_least(f"export.{name}.same_bytes", float(same), 1.0, "of 1")
    verdicts.close()


if __name__ == "__main__":
    main()
