"""Reading of a journal: each call opens its own connection and may come from any thread."""

import logging
import sqlite3
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from core.events import (
    AnyEvent,
    GroupClosed,
    GroupEvent,
    GroupOpened,
    ProbePrompt,
    ProbeSetLoaded,
    TrainingRunIdentified,
)
from core.journal.file import REMARKS, Base, base_of, kinds, last_seq
from core.journal.messages import LOST, MessageReader
from core.state import Group, State, apply

log = logging.getLogger(__name__)

STATE_VERSION = 4
"""Raise it when the reducer treats old events differently: older snapshots are then ignored."""
PAGE_CAP = 200
"""Maximum number of groups in a page."""
END = (1 << 63) - 1
"""Greater than the number of any event."""
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError)
"""Errors of JSON that is damaged or of another version."""
CHUNK = 64
"""Groups whose events are read at a time."""
ROWS = 500
"""Rows that are read at a time."""

_ROW = "select seq, at, cast(json as blob) from events"

_OF_NONE = "seq in (select seq from rows where opened_seq is null and kind in ({}))"
"""Condition for events of some kinds that concern no group."""


class HistoryPage(msgspec.Struct, frozen=True):
    """Consecutive groups in the order in which they were opened.

    A group's place is its rank by opening, 0 for the oldest: new groups do not change it. Places of
    pruned groups are empty.
    """

    first: int
    """Place of the first one."""
    total: int
    """Number of groups ever opened."""
    groups: list[Group]
    start: int = 0
    """Place of the oldest group in the journal, which is the number of pruned groups. Rated groups
    that were not pruned move to the first places after the pruned ones."""
    since: float = 0.0
    """Unix seconds of the newest pruned event; 0 if nothing was pruned."""


class ClosedGroup(msgspec.Struct, frozen=True):
    """One closed group."""

    group_id: str
    events: list[GroupEvent]
    """All its events in order, including those after its end, with whole messages."""
    lost_texts: bool = False
    """Whether a message of it is missing in the journal; its events have `LOST` in its place."""


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


class JournalReader(ABC):
    """Reader of one journal."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a new connection, usable in any thread."""

    # --- events -----------------------------------------------------------------------------------

    def last_seq(self) -> int:
        """Return the number of the newest event; 0 for none."""
        with self.reading() as db:
            return last_seq(db)

    def meta(self, key: str) -> str | None:
        """Return the value stored by `Journal.put_meta`; None without one."""
        with self.reading() as db:
            row = db.execute("select value from meta where key=?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def base(self) -> Base | None:
        """Return the beginning of a pruned journal; None if nothing was pruned."""
        with self.reading() as db:
            return base_of(db)

    def events(self, after: int = 0, limit: int = 1_000) -> list[AnyEvent]:
        """Return up to `limit` readable events with `seq` above `after`, in order.

        Of the pruned range only events of retained groups are left: build a state from `base` on.
        """
        with self.reading() as db:
            return events_after(db, after, limit)

    def group_events(self, group_id: str, until: int = END) -> list[AnyEvent]:
        """Return the readable events of one group up to `until`, with whole messages."""
        with self.reading() as db:
            return events_of(db, [group_id], until)

    # --- state ------------------------------------------------------------------------------------

    def load_state(self, until: int = END, advance: Callable[[int], None] | None = None) -> State:
        """Return the state after event `until`: a snapshot and the events after it.

        Args:
            until: Number of the last event to apply.
            advance: Called with the number of the newest applied event, now and then; it ends the
                reading by raising.
        """
        with self.reading() as db:
            state = _snapshot(db, until)
            self._replay(db, state, until, advance)
            state.seq = max(state.seq, min(until, last_seq(db)))
        return state

    def base_state(self) -> State | None:
        """Return the state at the last pruned event; None if nothing was pruned."""
        with self.reading() as db:
            return _base_state(db)

    @staticmethod
    def _replay(
        db: sqlite3.Connection, state: State, until: int, advance: Callable[[int], None] | None
    ) -> None:
        after = state.seq
        while events := events_after(db, after, ROWS, until, whole=False):
            for event in events:
                apply(state, event)
            after = events[-1].seq
            if advance is not None:
                advance(after)

    # --- groups -----------------------------------------------------------------------------------

    def page(self, first: int, limit: int, until: int = END) -> HistoryPage:
        """Return up to `limit` groups from place `first` on.

        Args:
            first: Place of the first group; places of pruned groups are skipped.
            limit: Maximum number of groups, up to `PAGE_CAP`.
            until: Number of the last event to apply: the page is as it was then.
        """
        with self.reading() as db:
            base = base_of(db) or Base(0, 0.0, 0)
            sql = "select count(*) from groups where opened_seq<=?"
            count = int(db.execute(sql, (until,)).fetchone()[0])
            end, first = max(0, first) + max(0, min(limit, PAGE_CAP)), max(0, first, base.groups)
            sql = "select group_id from groups where opened_seq<=? order by opened_seq"
            values = (until, max(0, end - first), first - base.groups)
            ids = [row[0] for row in db.execute(f"{sql} limit ? offset ?", values)]
            groups = _rebuilt(db, ids, until)
        return HistoryPage(first, base.groups + count, groups, base.groups, base.at)

    def group(self, group_id: str) -> Group | None:
        """Return one group by its whole id; None if it is not in the journal."""
        with self.reading() as db:
            groups = _rebuilt(db, [group_id], END)
        return groups[0] if groups else None

    def newest_groups(self) -> Iterator[list[AnyEvent]]:
        """Yield the events of each group, the one that was opened last first."""
        with self.reading() as db:
            sql = "select group_id from groups order by opened_seq desc"
            for (group_id,) in db.execute(sql).fetchall():
                yield events_of(db, [group_id])

    def ids_with_prefix(self, prefix: str) -> list[str]:
        """Return the ids of up to two groups that begin with `prefix`, an equal one alone."""
        sql = "select group_id from groups where group_id=?"
        with self.reading() as db:
            rows = db.execute(sql, (prefix,)).fetchall()
            sql = "select group_id from groups where substr(group_id, 1, ?)=? limit 2"
            rows = rows or db.execute(sql, (len(prefix), prefix)).fetchall()
        return [str(row[0]) for row in rows]

    def closed_groups(self, until: int = END) -> Iterator[ClosedGroup]:
        """Yield the closed groups in the order in which they were closed.

        Groups without a readable beginning are left out.

        Args:
            until: Number of the last event to read: later ones do not exist for the caller.
        """
        sql = "select group_id from groups where closed_seq<=? order by closed_seq"
        with self.reading() as db:
            ids = [row[0] for row in db.execute(sql, (until,))]
            messages = MessageReader(db)
            for first in range(0, len(ids), CHUNK):
                some = ids[first : first + CHUNK]
                groups: dict[str, list[GroupEvent]] = {group_id: [] for group_id in some}
                for event in events_of(db, some, until, messages):
                    if isinstance(event, GroupEvent):
                        groups[event.group_id].append(event)
                for group_id, events in groups.items():
                    if {GroupOpened, GroupClosed} <= set(map(type, events)):
                        lost = bool(messages.lost) and LOST in msgspec.json.encode(events).decode()
                        yield ClosedGroup(group_id, events, lost)

    def survey(
        self, until: int = END, advance: Callable[[int], None] | None = None
    ) -> JournalSurvey:
        """Return facts of the whole journal; looks at every row, decodes few events.

        Args:
            until: Number of the last event to read.
            advance: Called with the number of a row, now and then; it ends the reading by raising.
        """
        probes: dict[bytes, ProbePrompt] = {}
        runs: dict[tuple[str, int], tuple[str, str]] = {}
        damaged = after = 0

        def add_probes(prompts: Sequence[ProbePrompt]) -> None:
            for prompt in prompts:
                probes[msgspec.json.encode((prompt.before, prompt.prompt))] = prompt

        with self.reading() as db:
            base = _base_state(db) or State()
            for server in base.servers.values():
                runs |= {(server.name, run.number): (run.name, run.start) for run in server.runs}
            for progress in base.progress.values():
                if progress.probe_set is not None:
                    add_probes(progress.probe_set.prompts)
            sql = f"{_ROW} where {_OF_NONE} and seq<=? order by seq"
            named = sql.format(kinds(ProbeSetLoaded, TrainingRunIdentified))
            for event in _decoded(db.execute(named, (until,)), MessageReader(db)):
                if isinstance(event, ProbeSetLoaded):
                    add_probes(event.prompts)
                elif isinstance(event, TrainingRunIdentified):
                    runs[event.server, event.number] = event.name, event.start
            sql = (
                "select count(*), max(seq), sum(substr(json, 1, 1)<>'{' or substr(json, -1)<>'}')"
                " from (select seq, json from events where seq>? and seq<=? order by seq limit ?)"
            )
            while (row := db.execute(sql, (after, until, ROWS)).fetchone())[0]:
                after, damaged = row[1], damaged + row[2]
                if advance is not None:
                    advance(after)
            sql = "select count(*) from groups where opened_seq<=?"
            groups = int(db.execute(sql, (until,)).fetchone()[0])
        return JournalSurvey(
            until=until, groups=groups, probes=tuple(probes.values()), runs=runs, damaged=damaged
        )


def events_after(
    db: sqlite3.Connection, after: int, limit: int, until: int = END, *, whole: bool = True
) -> list[AnyEvent]:
    """Return up to `limit` readable events with `seq` above `after` up to `until`, in order.

    Args:
        db: The journal.
        after: Number of the event before the first one.
        limit: Maximum number of events.
        until: Number of the last one.
        whole: Whether requests have their messages.
    """
    rows = db.execute(f"{_ROW} where seq>? and seq<=? order by seq", (after, until))
    events: list[AnyEvent] = []
    for event in _decoded(rows, MessageReader(db), whole=whole):
        events.append(event)
        if len(events) >= limit:
            break
    return events


def events_of(
    db: sqlite3.Connection,
    group_ids: Sequence[str],
    until: int = END,
    messages: MessageReader | None = None,
    *,
    whole: bool = True,
) -> list[AnyEvent]:
    """Return the readable events of some groups up to `until`, in order."""
    marks = ",".join("?" * len(group_ids))
    rows = db.execute(
        f"{_ROW} where group_id in ({marks}) and seq<=? order by seq", (*group_ids, until)
    )
    return list(_decoded(rows, messages or MessageReader(db), whole=whole))


def events_of_kind(db: sqlite3.Connection, *classes: type[Any]) -> Iterable[AnyEvent]:
    """Return all events of some kinds, in order; of kinds that concern no group."""
    rows = db.execute(f"{_ROW} where {_OF_NONE.format(kinds(*classes))} order by seq").fetchall()
    return _decoded(rows, MessageReader(db))


def is_rated(db: sqlite3.Connection, group_id: str) -> bool:
    """Return whether a person rated, edited, marked or noted a group.

    A skip is no rating, and neither is a vote that was withdrawn.
    """
    state = State()
    for event in events_of(db, [group_id], whole=False):
        if isinstance(event, REMARKS):
            return True
        apply(state, event)
    votes = [
        vote
        for group in state.groups.values()
        for vote in (group.rating, group.settled, *group.votes)
    ]
    return any(vote is not None and not vote.is_skip for vote in votes)


def _decoded(
    rows: Iterable[tuple[int, float, bytes]], messages: MessageReader, *, whole: bool = True
) -> Iterator[AnyEvent]:
    """Yield the events of rows, without those that are damaged or unknown to this version."""
    for seq, at, row in rows:
        try:
            event = messages.event(row, whole=whole)
            force_setattr(event, "at", at)  # SQLite writes it in fewer digits
            yield event
        except UNDECODABLE as error:
            log.warning("event %s of the journal cannot be read: %s", seq, error)


def _rebuilt(db: sqlite3.Connection, group_ids: Sequence[str], until: int) -> list[Group]:
    """Return groups of the list as the events up to `until` leave them, in their order."""
    if not group_ids:
        return []
    state = State()
    for event in events_of(db, group_ids, until, whole=False):
        apply(state, event)
    return [state.groups[group_id] for group_id in group_ids if group_id in state.groups]


# --- snapshots ----------------------------------------------------------------------------------


def _snapshot(db: sqlite3.Connection, until: int) -> State:
    """Return the newest readable snapshot up to `until`, else the state of the base."""
    sql = "select seq, state from snapshots where version=? and seq<=? order by seq desc"
    for seq, data in db.execute(sql, (STATE_VERSION, until)):
        if (state := _state(seq, data)) is not None:
            return state
    return _base_state(db) or State()


def _base_state(db: sqlite3.Connection) -> State | None:
    """Return the state at the base; if it is unreadable, an empty one at its number.

    Its events are deleted, so a base made by an older reducer is used as it is.
    """
    base = base_of(db)
    if base is None:
        return None
    row = db.execute("select state from snapshots where seq=?", (base.seq,)).fetchone()
    state = None if row is None else _state(base.seq, row[0])
    return State(seq=base.seq) if state is None else state


def _state(seq: int, data: bytes) -> State | None:
    try:
        return msgspec.json.decode(zlib.decompress(data), type=State)
    except (*UNDECODABLE, zlib.error) as error:
        log.error("the state at event %d cannot be read: %s", seq, error)
        return None
