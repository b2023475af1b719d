"""Events and views of the recorded runs: read, written, replayed and compared."""

import lzma
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from core.events import AnyEvent
from core.jsonio import every_field
from core.state import State, reduce

FOLDER = Path(__file__).parents[2] / "data" / "recorded"
STRIDE = 250
"""Maximum number of events between two views."""

Fields = dict[str, Any]


def _generating(line: Fields) -> Fields:
    """The start of generation is part of a claim; a group kept step and run of its last one."""
    step, run = _CLAIMED[line["group_id"]]
    del line["n"]
    return line | {"kind": "episodes_claimed", "episodes": [], "step": step, "run": run}


def _claimed(line: Fields) -> Fields:
    _CLAIMED[line["group_id"]] = line.get("step"), line.get("run", 0)
    return line


_CLAIMED: dict[str, tuple[int | None, int]] = {}
"""Step and run of the last claim of each group that was read."""


def _ended(line: Fields) -> Fields:
    names = ("index", "episode_uuid", "reward", "outcome", "text")
    episode = {name: line.pop(name) for name in names if name in line}
    return line | {"kind": "episodes_ended", "episodes": [episode]}


MAPPED: Mapping[str, Callable[[Fields], Fields]] = {
    "episodes_claimed": _claimed,
    "generation_started": _generating,
    "episode_ended": _ended,
}
"""Recorded kind of event -> the same event in its present form, where that differs.

For a field with another name: `lambda line: line | {"new": line["old"]}`. The program
never reads the recorded form.
"""

GONE = frozenset({"weight_sync_checked"})
"""Recorded kinds of events that the program has no more. Their place is kept, so that the views
follow the same events as before."""


def json_view(state: State) -> Fields:
    """Return all that the state says as JSON, one record for each subject or id."""
    return {name: _recorded(name, record) for name, record in _records(state).items()}


def _recorded(name: str, record: Any) -> Any:
    return _as_recorded(name.partition(":")[0], every_field(record))


def _as_recorded(place: str, value: Any) -> Any:
    """Return a record with its events as the records that had their fields when it was recorded."""
    if isinstance(value, list):
        return [_as_recorded(place, item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() >= {"seq", "run_id"} and place in _EVENTS:
        value = _EVENTS[place](value)
    return {name: _as_recorded(name, item) for name, item in value.items()}


def _fields(*names: str) -> Callable[[Fields], Fields]:
    return lambda event: {name: event[name] for name in names}


def _without(*names: str) -> Callable[[Fields], Fields]:
    gone = {"kind", "seq", "run_id", "server", *names}
    return lambda event: {name: item for name, item in event.items() if name not in gone}


def _operation(event: Fields) -> Fields:
    fields = _fields("steps", "phase", "began", "said")(event)
    ended = 0.0 if event["phase"] == "doing" else event["at"]
    return fields | {"title": event["work"], "ended": ended}


_EVENTS: Mapping[str, Callable[[Fields], Fields]] = {
    **dict.fromkeys(("pool", "slots", "what_if", "reward_watch", "probe_set"), _without("at")),
    "job": _fields("at", "yaml"),
    "rewound": _without(),
    "work": _operation,
    "judges": _without(),
    "looks": _without("seconds", "prompts"),
    "best_rewards": _fields("look_id", "step", "run", "prompts"),
    "pairs": _fields(
        "pair_id", "prompt_id", "before", "now", "left", "result", "automatic", "parts"
    ),
    "rows": _without("mock_id", "answer"),
}
"""Place of the state that holds an event -> the record of its fields that was there when it was
recorded."""


def _records(state: State) -> Fields:
    whole: Fields = {name: getattr(state, name) for name in state.__struct_fields__}
    del whole["inbox"]  # it is younger than the recorded runs
    records: Fields = {}
    since = whole.pop("alerts_since")
    for key, alert in whole.pop("alerts").items():
        times = {"at": since[key], "told_at": alert.at}
        records[f"alerts:{key}"] = _without()(every_field(alert)) | times
    for subject in ("groups", "servers", "progress", "judges", "raters"):
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


class Recorded(NamedTuple):
    """A recorded event: its kind then, and its present form; None for a kind in `GONE`."""

    kind: str
    event: AnyEvent | None


def recorded_events(name: str) -> list[Recorded]:
    """Return the events of a recorded run."""
    found = []
    for line in read_lines(name, "events"):
        kind = line["kind"]
        present = MAPPED[kind](line) if kind in MAPPED else line
        found.append(Recorded(kind, None if kind in GONE else msgspec.convert(present, AnyEvent)))
    return found


def views(events: Sequence[Recorded]) -> Iterator[Fields]:
    """Replay the events; yield what changed in the view at some of them, see the module."""
    state = State()
    seen: set[str] = set()
    before: dict[str, bytes] = {}
    for number, recorded in enumerate(events, 1):
        if recorded.event is not None:
            reduce(state, recorded.event)
        if number % STRIDE == 0 or number == len(events) or recorded.kind not in seen:
            seen.add(recorded.kind)
            records = _records(state)
            now = {name: msgspec.json.encode(record) for name, record in records.items()}
            changed = {
                name: _recorded(name, records[name])
                for name in now
                if now[name] != before.get(name)
            }
            yield {"seq": number, "changed": changed, "gone": sorted(before.keys() - now)}
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
