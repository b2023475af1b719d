"""The command that writes recorded runs and their views, see the package."""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from core.journal.read_only import JournalFile
from core.jsonio import encode_full
from tests.support.recorded.views import (
    FOLDER,
    differences,
    differing_fields,
    read_lines,
    recorded_events,
    recorded_runs,
    views,
    write_lines,
)


def add(name: str, home: Path) -> None:
    """Record the journal of a home, whose processes have ended."""
    lines: list[bytes] = []
    journal = JournalFile(home / "journal.db")
    after = 0
    while events := journal.events(after, 5_000):
        lines += map(encode_full, events)
        after = events[-1].seq
    root = str(home.absolute().parent).encode()
    write_lines(name, "events", (line.replace(root, b"/srv/ajet") for line in lines))


def renew() -> None:
    """Rewrite the stored views; print which fields differ."""
    for name in recorded_runs():
        new = list(views(recorded_events(name)))
        old = read_lines(name, "views") if (FOLDER / f"{name}.views.jsonl.xz").exists() else new
        write_lines(name, "views", map(msgspec.json.encode, new))
        sys.stdout.write(f"{name}: {len(new)} views\n")
        fields = {
            field
            for record, _, before, now in differences(old, new)
            for field in differing_fields(before, now, record.split(":")[0])
        }
        sys.stdout.writelines(f"  {field}\n" for field in sorted(fields))


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    if arguments[:1] == ["add"]:
        add(arguments[1], Path(arguments[2]))
    renew()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
