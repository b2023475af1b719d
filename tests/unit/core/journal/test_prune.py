"""A journal that is pruned: what is deleted, what remains, and an unchanged state.

Groups that count as rated are pruned last; skips and withdrawn votes do not count.
"""

import asyncio
import contextlib
import random
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import msgspec
import pytest

import core.journal.prune
from core.bus import Bus
from core.events import (
    DisagreementSettled,
    EngineChanged,
    Event,
    GroupClosed,
    GroupEdited,
    GroupMarked,
    GroupNoted,
    GroupOpened,
    GroupRated,
    ProxyStarted,
    RatingUndone,
    RunPinned,
    VoteCast,
    VoteWithdrawn,
)
from core.journal.damage import find_damage, open_journal
from core.journal.file import PAGE, base_of, connect, mark
from core.journal.prune import Pruner, Retention, Size, Spans
from core.journal.read_only import JournalFile
from core.journal.stats import check_rows, journal_stats, plan_pruning
from core.journal.writer import Journal
from tests.support.sample import group_events
from tests.support.stored import replayed

pytestmark = pytest.mark.slow

DAY = 86_400.0
NOW = time.time()


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        _lower_limits(monkeypatch)
        yield


def _lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.journal.prune, "KEEP_GROUPS", 10)
    monkeypatch.setattr(core.journal.prune, "KEEP_EVENTS", 50)
    monkeypatch.setattr(core.journal.prune, "SLACK", 2)


def noise(number: int, length: int = 3_000) -> str:
    return random.Random(number).randbytes(length // 2).hex()


UNREACHED = (
    "select count(*) from messages as of where not exists"
    " (select 1 from groups where last_message=of.id)"
    " and not exists (select 1 from messages where parent=of.id)"
)
"""Number of messages that neither a request nor another message leads to."""


class Filled:
    """A journal with one group a day, each with a text of its own and one that all share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path)
        self.bus = Bus(self.journal, "run")

    def add(self, number: int, *, rated: bool = False, until: str = "DONE") -> str:
        """One group, opened `100 - number` days ago."""
        at = NOW - (100 - number) * DAY
        group_id = ""
        for event in group_events(number, query=noise(number), at=at, until=until):
            if isinstance(event, GroupOpened):
                group_id = event.group_id
                shared = {"role": "system", "content": noise(-1)}
                event.body["messages"].insert(0, shared)
            if isinstance(event, GroupClosed) and rated:
                self.bus.publish(GroupRated(group_id=group_id, rating="tie", at=at))
            self.bus.publish(event)
        return group_id

    async def settled(self) -> None:
        await self.journal.durable(self.bus.state.seq)

    def prune(self, keep: Retention) -> core.journal.prune.PruneResult:
        pinned = self.bus.state.engine_runs.pinned_spans
        return Pruner(self.journal, keep, rest=0.0, pinned=pinned).prune(keep)

    def groups(self) -> list[str]:
        with self.journal.reading() as db:
            sql = "select group_id from groups order by opened_seq"
            return [str(row[0]) for row in db.execute(sql)]

    def used(self) -> int:
        with self.journal.reading() as db:
            return Size.of(db).used

    def check(self) -> None:
        """State, texts and pages are in order, now and after a restart."""
        journal, state = self.journal, self.bus.state
        assert replayed(journal) == journal.load_state() == state
        for group_id in self.groups():
            whole = journal.group_events(group_id)
            assert "missing in the journal" not in repr(whole)
            assert isinstance(whole[0], GroupOpened)
        with journal.reading() as db:
            assert db.execute(UNREACHED).fetchone() == (0,)
            assert check_rows(db).ok
        assert find_damage(self.path) == ""


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    made = Filled(tmp_path / "journal.db")
    yield made
    made.journal.close()


async def test_days_prune_what_is_older_and_no_rated_or_open_group(filled: Filled) -> None:
    for number in range(60):
        until = "AWAITING_RATING" if number == 7 else "DONE"
        filled.add(number, rated=number == 5, until=until)
        await filled.settled()
    before = {name: filled.journal.group_events(name) for name in filled.groups()}
    done = filled.prune(Retention(days=70.5))
    groups = filled.groups()
    assert groups[:3] == ["g0005", "g0007", "g0030"]
    assert (done.groups, done.rated) == (28, 0)
    assert done.bytes > 28 * 1_500
    assert {name: filled.journal.group_events(name) for name in groups} == {
        name: before[name] for name in groups
    }
    assert filled.journal.group_events("g0004") == []
    assert filled.journal.group("g0004") is None
    filled.check()

    assert filled.prune(Retention(days=70.5)).groups == 0  # nothing is left to do
    done = filled.prune(Retention(days=70.5, rated=True))
    assert (done.groups, done.rated) == (1, 1)
    assert filled.groups()[:2] == ["g0007", "g0030"]
    filled.check()


async def test_the_pruned_journal_goes_on_after_a_restart(filled: Filled) -> None:
    for number in range(60):
        filled.add(number)
        await filled.settled()
        if number == 20:
            filled.journal.append_snapshot(filled.bus.state)
    filled.prune(Retention(days=70.5))
    filled.add(61)
    await filled.settled()
    filled.check()
    filled.journal.close()
    again = open_journal(filled.path)
    with contextlib.closing(again.journal):
        assert again.state == filled.bus.state
        assert replayed(again.journal) == filled.bus.state
        Bus(again.journal, "run-2", again.state).publish(GroupMarked(group_id="g0061", marked=True))


async def test_bytes_prune_the_oldest_and_rated_ones_last(filled: Filled) -> None:
    for number in range(90):
        filled.add(number, rated=number % 3 == 0)
        await filled.settled()
    full = filled.used()
    with contextlib.closing(connect(filled.path, 5, "rw")) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    size = filled.path.stat().st_size
    assert filled.prune(Retention(bytes=full + 1)).groups == 0
    filled.prune(Retention(bytes=full * 4 // 5))
    groups = filled.groups()
    assert filled.used() <= full * 4 // 5
    assert [name for name in groups if int(name[1:]) % 3 == 0] == [
        f"g{number:04}" for number in range(0, 90, 3)
    ]
    assert "g0001" not in groups
    filled.check()

    done = filled.prune(Retention(bytes=1))  # all that may go
    assert done.rated
    assert filled.groups() == [f"g{number:04}" for number in range(80, 90)]
    filled.check()
    with contextlib.closing(connect(filled.path, 5, "rw")) as db:
        db.execute("pragma wal_checkpoint(truncate)")
        (messages,) = db.execute("select count(*) from messages").fetchone()
    assert messages == 11  # of 91: each group has its own, and one that all share
    assert filled.path.stat().st_size < size / 2


async def test_an_unexpected_error_does_not_end_the_pruning(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(60):
        filled.add(number)
        await filled.settled()
    monkeypatch.setattr(core.journal.prune, "EVERY", 0.001)
    faults: list[Exception] = [OSError(5, "Input/output error"), ValueError("a fault")]
    changes: list[Exception | None] = []
    pruned = threading.Event()

    def pinned() -> Spans:
        if faults:
            raise faults.pop(0)
        return ()

    def note(error: Exception | None) -> None:
        changes.append(error)
        if error is None:
            pruned.set()

    pruner = Pruner(filled.journal, Retention(bytes=1), rest=0.0, pinned=pinned)
    pruner.on_change = note
    pruner.start()
    try:
        assert await asyncio.to_thread(pruned.wait, 20)
    finally:
        pruner.close()
    assert [type(change) for change in changes] == [
        OSError,
        type(None),
    ]  # the second error is no change
    assert len(filled.groups()) < 30
    filled.check()
    assert caplog.text.count("the journal is not pruned now\nTraceback") == 2


async def test_a_file_pruned_for_its_size_has_room_for_the_next_events(filled: Filled) -> None:
    for number in range(90):
        filled.add(number)
        await filled.settled()
    limit = filled.used() * 4 // 5
    filled.prune(Retention(bytes=limit))
    with filled.journal.reading() as db:
        size = Size.of(db)
    assert size.used + size.free <= limit
    assert size.free > core.journal.prune.SLACK * PAGE
    filled.check()


async def test_groups_of_a_pinned_run_stay_until_it_is_unpinned(filled: Filled) -> None:
    states = {10: "ROLLING", 15: "OFFLINE", 20: "ROLLING"}
    for number in range(45):
        if number in states:
            at = NOW - (100 - number) * DAY
            step = 1 if states[number] == "ROLLING" else None
            filled.bus.publish(
                EngineChanged(server="embedded", state=states[number], step=step, at=at)
            )
        filled.add(number)
        await filled.settled()
    runs = filled.bus.state.engine_runs
    assert [run.groups for run in runs.runs] == [5, 25]
    first_seq = runs.runs[0].first_seq
    await filled.bus.publish_durable(RunPinned(first_seq=first_seq, pinned=True))
    before = {f"g{one:04}": filled.journal.group_events(f"g{one:04}") for one in range(10, 15)}
    keep = Retention(days=70.5)
    with filled.journal.reading() as db:
        assert plan_pruning(db, keep).by_age == 30
        assert plan_pruning(db, keep, runs.pinned_spans()).by_age == 25
    filled.prune(keep)
    assert filled.groups()[:6] == [*before, "g0030"]
    filled.check()
    filled.prune(Retention(bytes=1))
    assert filled.groups()[:5] == list(before)
    assert {name: filled.journal.group_events(name) for name in before} == before
    with filled.journal.reading() as db:
        stats = journal_stats(db, runs.pinned_spans())
    assert (stats.groups, stats.pinned) == (15, 5)
    filled.check()
    await filled.bus.publish_durable(RunPinned(first_seq=first_seq, pinned=False))
    filled.prune(Retention(bytes=1))
    assert filled.groups() == [f"g{number:04}" for number in range(35, 45)]
    filled.check()


async def test_the_run_in_progress_can_be_pinned(filled: Filled) -> None:
    at = NOW - 101 * DAY
    filled.bus.publish(EngineChanged(server="embedded", state="ROLLING", step=1, at=at))
    for number in range(25):
        filled.add(number)
        await filled.settled()
    (run,) = filled.bus.state.engine_runs.runs
    await filled.bus.publish_durable(RunPinned(first_seq=run.first_seq, pinned=True))
    assert filled.prune(Retention(days=1)).groups == 0
    assert len(filled.groups()) == 25


async def test_a_text_that_is_still_used_is_not_pruned(filled: Filled) -> None:
    for number in range(60):
        filled.add(number)
        await filled.settled()
    first = noise(0)
    opened = next(
        event for event in group_events(70, query=first) if isinstance(event, GroupOpened)
    )
    filled.bus.publish(opened)
    await filled.settled()
    filled.prune(Retention(days=70.5))
    result = filled.journal.group_events("g0070")[0]
    assert isinstance(result, GroupOpened)
    assert result.query == first
    again = next(
        event for event in group_events(71, query=noise(1)) if isinstance(event, GroupOpened)
    )
    await filled.bus.publish_durable(again)  # its text was deleted: it is stored once more
    result = filled.journal.group_events("g0071")[0]
    assert isinstance(result, GroupOpened)
    assert result.query == noise(1)
    filled.check()


@pytest.fixture(scope="module")
def sixty_days(_small: None, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a closed journal with 60 groups, each fourth rated."""
    made = Filled(tmp_path_factory.mktemp("sixty") / "journal.db")
    for number in range(60):
        made.add(number, rated=number % 4 == 0)
        asyncio.run(made.settled())
    made.journal.close()
    return made.path.read_bytes()


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(count, marks=() if count % 9 == 1 else pytest.mark.soak)
        for count in range(1, 40, 3)
    ],
)
async def test_an_interrupted_prune_is_continued(
    sixty_days: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(core.journal.prune, "GROUPS", 3)  # small tasks everywhere
    monkeypatch.setattr(core.journal.prune, "ROWS", 5)
    path = tmp_path / "journal.db"
    path.write_bytes(sixty_days)
    filled = Filled(path)
    real, left = filled.journal.run, [steps]

    def step(*args: object) -> float:
        left[0] -= 1
        if left[0] < 0:
            raise core.journal.prune.TaskFailed("cut off")
        return real(*args)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(filled.journal, "run", step)
    with contextlib.suppress(core.journal.prune.PruneError):
        filled.prune(Retention(days=70.5, rated=steps % 2 == 0))
    filled.check()
    monkeypatch.setattr(filled.journal, "run", real)
    filled.prune(Retention(days=70.5, rated=True))
    assert filled.groups() == [f"g{number:04}" for number in range(30, 60)]
    filled.check()
    with filled.journal.reading() as db:
        base = base_of(db)
        assert base is not None
        sql = "select count(*) from rows where seq<=?"
        (below,) = db.execute(sql, (base.seq,)).fetchone()
    assert below == 0
    filled.journal.close()


async def test_places_of_groups_stay_and_pruned_ones_are_empty(filled: Filled) -> None:
    for number in range(60):
        filled.add(number, rated=number == 5)
        await filled.settled()
    before = filled.journal.page(40, 10)
    filled.prune(Retention(days=70.5))
    after = filled.journal.page(40, 10)
    assert after.groups == before.groups
    assert (after.first, after.total, after.start) == (40, 60, 29)
    assert NOW - 72 * DAY < after.since < NOW - 69 * DAY
    assert filled.journal.page(0, 10).groups == []
    oldest = filled.journal.page(25, 6)
    assert oldest.first == 29
    assert [group.group_id for group in oldest.groups] == ["g0005", "g0030"]


async def test_a_pruned_journal_is_replayed_from_where_it_begins(filled: Filled) -> None:
    started = ProxyStarted(
        client_uuid="c", pid=1, url="u", version="v", servers={"a": "b"}, rewards="builtin"
    )
    filled.bus.publish(msgspec.structs.replace(started, at=NOW - 100 * DAY))
    for number in range(60):
        filled.add(number, rated=number == 5)
        await filled.settled()
    filled.prune(Retention(days=70.5))
    file = JournalFile(filled.path)
    base = file.base()
    assert base is not None
    last = file.last_seq()
    (run,) = file.runs()
    assert (run.run_id, run.first, run.last) == ("run", base.seq + 1, last)
    assert file.load_state() == filled.bus.state
    begun = file.load_state(base.seq)
    assert begun.seq == base.seq
    events = file.events(base.seq, 10_000)
    assert [event.seq for event in events] == list(range(base.seq + 1, last + 1))
    assert file.page(0, 50, last).start == 29
    assert file.group_events("g0005", last)


async def test_a_damaged_pruned_journal_counts_what_is_missing(filled: Filled) -> None:
    for number in range(60):
        filled.add(number, rated=number == 5)
        await filled.settled()
    filled.prune(Retention(days=70.5))
    base = filled.journal.base()
    assert base is not None
    filled.journal.close()
    with contextlib.closing(sqlite3.connect(filled.path)) as db, db:
        sql = "delete from rows where seq>? and seq<?"
        missing = db.execute(sql, (base.seq + 60, base.seq + 120)).rowcount
    mark(filled.path, "damaged")
    with filled.path.open("r+b") as file:  # a page of an index: no row is in it
        file.seek((root_of(filled.path, "rows_of_group") - 1) * PAGE)
        file.write(b"\xff" * PAGE)
    again = open_journal(filled.path)
    with contextlib.closing(again.journal) as journal:
        total = filled.bus.state.seq - base.seq
        assert f"{total - missing} of {total} events are kept" in again.notice
        events: list[Event] = list(journal.group_events("g0005"))
        assert isinstance(events[0], GroupOpened)
        assert events[0].query == noise(5)
        assert journal.base() == base
        with journal.reading() as db:
            assert journal_stats(db).rated == 1
        Pruner(journal, Retention()).prune(Retention(days=1))
        assert isinstance(journal.group_events("g0005")[0], GroupOpened)


def root_of(path: Path, name: str) -> int:
    """First page of a table or an index."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        sql = "select rootpage from sqlite_master where name=?"
        return int(db.execute(sql, (name,)).fetchone()[0])


# --- what counts as rated -------------------------------------------------------------------------

G = "g0001"
VOTE = GroupRated(group_id=G, rating="tie", rewards=(0.5,) * 4, rater="anna")
SKIP = GroupRated(group_id=G, rating="skip", rater="anna")
UNDONE = RatingUndone(group_id=G)
CAST = VoteCast(group_id=G, rating="best", order=(0,), rewards=(1.0, 0, 0, 0), rater="anna")
CAST_SKIP = VoteCast(group_id=G, rating="skip", rater="anna")
OTHER_SKIP = VoteCast(group_id=G, rating="skip", rater="ben")
WITHDRAWN = VoteWithdrawn(group_id=G, rater="anna")
SETTLED = DisagreementSettled(group_id=G, rating="tie", rewards=(0.5,) * 4, sent=True)
MARKED = GroupMarked(group_id=G, marked=True)
NOTED = GroupNoted(group_id=G, note="odd")
EDITED = GroupEdited(group_id=G, index=0, edited="better")

CASES: list[tuple[list[Event], bool]] = [
    ([], False),
    ([VOTE], True),
    ([SKIP], False),
    ([VOTE, SKIP], False),
    ([SKIP, VOTE], True),
    ([VOTE, UNDONE], False),
    ([SKIP, UNDONE, VOTE], True),
    ([SKIP, UNDONE, VOTE, UNDONE, SKIP], False),
    ([MARKED, SKIP], True),
    ([NOTED, VOTE, SKIP], True),
    ([SKIP, EDITED], True),
    ([CAST], True),
    ([CAST_SKIP, OTHER_SKIP, SKIP], False),
    ([CAST, OTHER_SKIP], True),
    ([OTHER_SKIP, CAST, WITHDRAWN], False),
    ([CAST, CAST_SKIP], False),
]


def fill(
    journal: Journal, votes: Sequence[Event], late: Sequence[Event] = (), *, apart: bool
) -> None:
    """Write an old group with these votes, and new ones.

    Args:
        journal: An empty one.
        votes: Events before the end of the group.
        late: Events after it.
        apart: Each vote has a commit of its own.
    """
    bus, at = Bus(journal, "run"), NOW - 90 * DAY
    *begun, sealed, ended = group_events(1, at=at)
    voted, added = ([msgspec.structs.replace(one, at=at) for one in some] for some in (votes, late))
    new = [event for number in range(2, 14) for event in group_events(number, at=NOW)]
    old = [begun, *([one] for one in voted), [sealed, ended], *([one] for one in added)]
    for commit in [*old, new] if apart else [list(chain(*old)), new]:
        for event in commit:
            bus.publish(event)
        asyncio.run(journal.durable(bus.state.seq))


def pruned(journal: Journal) -> bool:
    """Prune what is older than a month and not rated; return whether the old group is deleted."""
    done = Pruner(journal, Retention(), rest=0.0).prune(Retention(days=30))
    assert done.rated == 0
    assert done.groups == (journal.group_events(G) == [])
    return done.groups == 1


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("votes", "rated"), CASES)
def test_a_skip_and_a_withdrawn_vote_are_no_rating(
    tmp_path: Path, votes: list[Event], rated: bool, apart: bool
) -> None:
    with contextlib.closing(Journal(tmp_path / "j.db")) as journal:
        fill(journal, votes, apart=apart)
        assert pruned(journal) != rated


@pytest.mark.parametrize("late", [SETTLED, MARKED])
def test_what_a_person_adds_after_a_skip_counts(tmp_path: Path, late: Event) -> None:
    with contextlib.closing(Journal(tmp_path / "j.db")) as journal:
        fill(journal, [SKIP], [late], apart=True)
        with journal.reading() as db:
            assert journal_stats(db).rated == 1
        assert not pruned(journal)


async def test_groups_of_the_inbox_stay_up_to_their_limit(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        filled.add(number)
        await filled.settled()
    inbox = [f"g{number:04}" for number in range(4)]
    pruner = Pruner(filled.journal, Retention(days=70.5), rest=0.0, inbox=lambda: list(inbox))
    with filled.journal.reading() as db:
        planned = plan_pruning(db, Retention(days=70.5), (), inbox)
        sizes = [
            len(core.journal.prune.kept_inbox(db, inbox[first:])) for first in range(len(inbox))
        ]
    done = pruner.prune(Retention(days=70.5))
    assert done.groups == planned.by_age == 26
    assert filled.groups()[:5] == [*inbox, "g0030"]
    assert sizes == sorted(sizes, reverse=True)
    filled.check()
    monkeypatch.setattr(core.journal.prune, "INBOX_BYTES", 20_000)
    inbox.pop()  # another inbox: what stays is chosen again
    assert 0 < pruner.prune(Retention(days=70.5)).groups < 4
    assert filled.groups()[0] in ("g0001", "g0002")
    filled.check()
