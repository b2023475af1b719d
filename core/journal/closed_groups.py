"""All closed groups of a journal in one pass over its rows, each with its whole events.

Pages of groups by opening would read a row once for each page whose groups were open meanwhile. The
pass reads a row once, and keeps the events of the groups that are open at its place.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from core.events import (
    AnyEvent,
    GroupClosed,
    GroupEvent,
    GroupOpened,
    ProbePrompt,
    ProbeSetLoaded,
    TrainingRunIdentified,
)
from core.journal.history import END, ReadableJournal, lines_of
from core.journal.reader import state_of
from core.journal.storage import base_of, decoded, open_ids
from core.journal.texts import LOST, TextReader, lines_in, without_texts

CHUNK = 64
"""Rows read at a time; no transaction is open between two reads."""
_CHUNK = "select seq, cast(data as blob) from events where seq>? order by seq limit ?"
_OF_GROUP = b'"group_id":"'
_SURVEYED = (b'"probe_set_loaded"', b'"training_run_identified"')


class ClosedGroup(msgspec.Struct, frozen=True):
    """One closed group."""

    group_id: str
    events: list[GroupEvent]
    """All its events in order, including those after its end, with whole texts."""
    lost_texts: bool = False
    """Whether a text of it is missing in the journal; its events have `LOST` in its place."""


class JournalSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a whole journal that its groups refer to."""

    until: int
    """Number of the newest event that counts."""
    groups: int
    """Number of groups in the journal, open ones included."""
    probes: tuple[ProbePrompt, ...]
    """Every held-out prompt of every probe set, each once."""
    runs: Mapping[tuple[str, int], tuple[str, str]]
    """Name and start of each training run (see `core.state.TrainingRun`), by server and number."""
    damaged: int = 0
    """Number of rows that cannot be read."""


def survey(
    journal: ReadableJournal, until: int = END, advance: Callable[[int], None] | None = None
) -> JournalSurvey:
    """Return facts of the whole journal; decompresses every row, decodes few events.

    Args:
        journal: The journal.
        until: Number of the last event to read.
        advance: Called with the number of each row; it ends the reading by raising.
    """
    damaged = 0
    probes: dict[str, ProbePrompt] = {}
    runs: dict[tuple[str, int], tuple[str, str]] = {}
    with journal.reading() as db:
        base = state_of(base_of(db))
        if base is not None:
            for server in base.servers.values():
                runs |= {(server.name, run.number): (run.name, run.start) for run in server.runs}
            for progress in base.progress.values():
                if progress.probe_set is not None:
                    _add_probes(probes, progress.probe_set.prompts)
        for seq, lines in _rows(db, until):
            if advance is not None:
                advance(seq)
            damaged += not _is_whole(lines)
            some = [line for line in lines if any(kind in line for kind in _SURVEYED)]
            for event in decoded(seq, some) if some else ():
                if isinstance(event, ProbeSetLoaded):
                    _add_probes(probes, event.prompts)
                elif isinstance(event, TrainingRunIdentified):
                    runs[event.server, event.number] = event.name, event.start
        sql = "select count(*) from groups where opened_seq<=?"
        groups = int(db.execute(sql, (until,)).fetchone()[0])
    return JournalSurvey(
        until=until, groups=groups, probes=tuple(probes.values()), runs=runs, damaged=damaged
    )


def _is_whole(lines: Sequence[bytes]) -> bool:
    """Return whether a row could be decompressed and each of its lines is an object."""
    return bool(lines) and all(
        line[:1] == b"{" and line[-1:] == b"}" for line in map(without_texts, lines)
    )


def _add_probes(probes: dict[str, ProbePrompt], prompts: Sequence[ProbePrompt]) -> None:
    for prompt in prompts:
        probes[msgspec.json.encode((prompt.before, prompt.prompt)).decode()] = prompt


def closed_groups(journal: ReadableJournal, until: int = END) -> Iterator[ClosedGroup]:
    """Yield the closed groups in the order in which they were closed.

    The memory needed is that of the groups that are open at the same time. Groups without a
    readable beginning or end are left out.

    Args:
        journal: The journal.
        until: Number of the last event to read: later ones do not exist for the caller.
    """
    with journal.reading() as db:
        never_closed = open_ids(db)
        texts = TextReader(db)
        opened: dict[str, list[GroupEvent]] = {}
        closed: list[ClosedGroup] = []
        for seq, lines in _rows(db, until):
            some = [line for line in lines if _OF_GROUP in line]
            for event in decoded(seq, some, texts):
                if event.seq > until or not isinstance(event, GroupEvent):
                    continue
                if isinstance(event, GroupOpened) and event.group_id not in never_closed:
                    opened[event.group_id] = []
                events = opened.get(event.group_id)
                if events is None:
                    continue
                events.append(event)
                if isinstance(event, GroupClosed):
                    closed.append(ClosedGroup(event.group_id, opened.pop(event.group_id)))
            if len(closed) >= CHUNK:
                yield from _complete(db, closed, texts, until)
                closed = []
        yield from _complete(db, closed, texts, until)


def _rows(db: sqlite3.Connection, until: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield number and lines of the rows that may have events up to `until`."""
    last = 0
    while last < until:
        rows = db.execute(_CHUNK, (last, CHUNK)).fetchall()
        for seq, data in rows:
            yield seq, lines_in(data)
            last = seq
            if last >= until:
                return
        if len(rows) < CHUNK:
            return


def _complete(
    db: sqlite3.Connection, groups: Sequence[ClosedGroup], texts: TextReader, until: int
) -> Iterator[ClosedGroup]:
    """Yield the groups with the events that followed their end, and with whether texts are lost."""
    for group in _with_late_events(db, groups, texts, until):
        lost = bool(texts.lost) and LOST in msgspec.json.encode(group.events)
        yield msgspec.structs.replace(group, lost_texts=True) if lost else group


def _with_late_events(
    db: sqlite3.Connection, groups: Sequence[ClosedGroup], texts: TextReader, until: int
) -> Sequence[ClosedGroup]:
    """Add the events that followed the end of the groups."""
    if not groups:
        return groups
    by_id = {group.group_id: group.events for group in groups}
    late: dict[int, AnyEvent] = {}
    names = list(by_id)
    for first in range(0, len(names), 500):
        some = names[first : first + 500]
        marks = ",".join("?" * len(some))
        rows = db.execute(
            "select seq, cast(data as blob) from events"
            f" where seq in (select seq from late where group_id in ({marks}))",
            some,
        )
        for seq, lines in lines_of(rows, {name.encode() for name in some}):
            late |= {event.seq: event for event in decoded(seq, lines, texts)}
    for seq in sorted(late):
        event = late[seq]
        if isinstance(event, GroupEvent) and seq <= until:
            events = by_id.get(event.group_id)
            if events is not None and seq > events[-1].seq:
                events.append(event)
    return groups
