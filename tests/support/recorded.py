"""Runs that the program recorded: the events of a journal, and what the reducer makes of them.

    python -m tests.support.recorded                  # write the stored views anew
    python -m tests.support.recorded add NAME HOME    # record the journal of a home as NAME

`tests/data/recorded/NAME.events.jsonl.xz` has the events of a journal in the form of `ajet-console
watch --json`, without paths of the machine. They are what earlier versions wrote and are never
edited; `MAPPED` brings them into their present form. `NAME.views.jsonl.xz` has the state as JSON
after every 250th event, after the first one of each kind, and at the end; each line has the records
that differ from the line before. Read the fields that the first command prints before you commit
new views: there the state says something else than before.

    training   Embedded engine, proxy and mock user: rating in all modes and by several raters,
               undo, aborts, weight syncs, looks, pairs, a rewind, trials, hooks with faults, a
               judge, and kill -9 of proxy, engine and mock user.
    servers    Two servers that fail, freeze, stop and take episodes away; then one of them,
               watched only; then an upstream that is observed.
"""

import lzma
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from core.events import AnyEvent, Event
from core.journal.read_only import JournalFile
from core.jsonio import encode_full, every_field
from core.reducer import reduce
from core.state import State

FOLDER = Path(__file__).parents[1] / "data" / "recorded"
STRIDE = 250
"""Maximum number of events between two views."""

Fields = dict[str, Any]

MAPPED: Mapping[str, Callable[[Fields], Fields]] = {}
"""Recorded kind of event -> the same event in its present form, where that differs.

For a field with another name: `lambda line: line | {"new": line["old"]}`; for a kind with another
name: `lambda line: line | {"kind": "new"}`. The program never reads the recorded form.
"""


def json_view(state: State) -> Fields:
    """Return all that the state says as JSON, one record for each subject or id."""
    return {name: every_field(record) for name, record in _records(state).items()}


def _records(state: State) -> Fields:
    whole: Fields = {name: getattr(state, name) for name in state.__struct_fields__}
    records: Fields = {}
    for subject in ("groups", "servers", "progress", "alerts", "judges", "raters"):
        records |= {f"{subject}:{name}": record for name, record in whole.pop(subject).items()}
    runs = whole.pop("engine_runs")
    records |= {f"engine_runs:{run.number}": run for run in runs.runs}
    for subject in ("totals", "rewards", "what_if", "reward_watch", "mock", "tries", "dismissed"):
        records[subject] = whole.pop(subject)
    return records | {"engine_runs": msgspec.structs.replace(runs, runs=[]), "proxy": whole}


def recorded_runs() -> list[str]:
    """Return the names of the recorded runs."""
    return sorted(file.name.split(".")[0] for file in FOLDER.glob("*.events.jsonl.xz"))


def read_lines(name: str, what: str) -> list[Fields]:
    """Return the lines of a recorded run: its `events`, or its `views`."""
    data = lzma.decompress((FOLDER / f"{name}.{what}.jsonl.xz").read_bytes())
    return [msgspec.json.decode(line) for line in data.splitlines()]


def write_lines(name: str, what: str, lines: Iterable[bytes]) -> None:
    """Write the lines of a recorded run."""
    FOLDER.mkdir(exist_ok=True)
    data = lzma.compress(b"\n".join(lines) + b"\n")
    (FOLDER / f"{name}.{what}.jsonl.xz").write_bytes(data)


def recorded_events(name: str) -> list[AnyEvent]:
    """Return the events of a recorded run in their present form."""
    events = []
    for line in read_lines(name, "events"):
        present = MAPPED.get(line["kind"])
        events.append(msgspec.convert(present(line) if present else line, AnyEvent))
    return events


def views(events: Sequence[Event]) -> Iterator[Fields]:
    """Replay the events; yield what changed in the view at some of them, see the module."""
    state = State()
    seen: set[type[Event]] = set()
    before: dict[str, bytes] = {}
    for number, event in enumerate(events, 1):
        reduce(state, event)
        if number % STRIDE == 0 or number == len(events) or type(event) not in seen:
            seen.add(type(event))
            records = _records(state)
            now = {name: msgspec.json.encode(record) for name, record in records.items()}
            changed = {
                name: every_field(records[name]) for name in now if now[name] != before.get(name)
            }
            yield {"seq": event.seq, "changed": changed, "gone": sorted(before.keys() - now)}
            before = now


def differences(
    old: Iterable[Fields], new: Iterable[Fields]
) -> Iterator[tuple[str, int, Fields | None, Fields | None]]:
    """Yield name, event number, old and new form of each record that differs in two views."""
    before: Fields = {}
    now: Fields = {}
    for pair in zip(old, new, strict=True):
        names: set[str] = set()
        for whole, view in zip((before, now), pair, strict=True):
            whole.update(dict.fromkeys(view["gone"]) | view["changed"])
            names |= view["changed"].keys() | set(view["gone"])
        for name in sorted(names):
            if before.get(name) != now.get(name):
                yield name, pair[0]["seq"], before.get(name), now.get(name)


def differing_fields(old: Any, new: Any, place: str) -> Iterator[str]:
    """Yield the place of each difference, with `*` for a position."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from differing_fields(old.get(name), new.get(name), f"{place}.{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for pair in zip(old, new, strict=True):
            yield from differing_fields(*pair, f"{place}.*")
    elif old != new:
        yield place


def add(name: str, home: Path) -> None:
    """Record the journal of a home, whose processes have ended."""
    lines: list[bytes] = []
    with JournalFile(home / "journal.db") as journal:
        after = 0
        while events := journal.events(after, 5_000):
            lines += map(encode_full, events)
            after = events[-1].seq
    root = str(home.absolute().parent).encode()
    write_lines(name, "events", (line.replace(root, b"/srv/ajet") for line in lines))


def renew() -> None:
    """Write the stored views anew; print which fields differ."""
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
