"""Groups that count as rated are pruned last; skips and withdrawn votes do not count."""

import asyncio
import contextlib
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
    Event,
    GroupEdited,
    GroupMarked,
    GroupNoted,
    GroupRated,
    RatingUndone,
    VoteCast,
    VoteWithdrawn,
)
from core.journal.prune import Pruner, Retention
from core.journal.stats import journal_stats
from core.journal.writer import Journal
from tests.support.sample import group_events

DAY = 86_400.0
NOW = time.time()
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.journal.prune, "KEEP_GROUPS", 2)
    monkeypatch.setattr(core.journal.prune, "KEEP_EVENTS", 5)


def fill(
    journal: Journal, votes: Sequence[Event], late: Sequence[Event] = (), *, apart: bool
) -> None:
    """Write an old group with these votes, and three new ones.

    Args:
        journal: An empty one.
        votes: Events before the end of the group.
        late: Events after it.
        apart: Each vote has a commit of its own.
    """
    bus, at = Bus(journal, "run"), NOW - 90 * DAY
    *begun, sealed, ended = group_events(1, at=at)
    voted, added = ([msgspec.structs.replace(one, at=at) for one in some] for some in (votes, late))
    new = [event for number in (2, 3, 4) for event in group_events(number, at=NOW)]
    old = [begun, *([one] for one in voted), [sealed, ended], *([one] for one in added)]
    for commit in [*old, new] if apart else [list(chain(*old)), new]:
        for event in commit:
            bus.publish(event)
        asyncio.run(journal.durable(bus.state.seq))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Journal]:
    with contextlib.closing(Journal(path)) as journal:
        yield journal


def pruned(journal: Journal) -> bool:
    """Prune what is older than a month and not rated; return whether the old group is deleted."""
    done = Pruner(journal, Retention(), rest=0.0).prune(Retention(days=30))
    assert done.rated == 0
    assert done.groups == (journal.group_events(G) == [])
    return done.groups == 1


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("votes", "rated"), CASES)
def test_a_skip_and_a_withdrawn_vote_are_no_rating(
    path: Path, votes: list[Event], rated: bool, apart: bool
) -> None:
    with opened(path) as journal:
        fill(journal, votes, apart=apart)
        assert pruned(journal) != rated


@pytest.mark.parametrize("late", [SETTLED, MARKED])
def test_what_a_person_adds_after_a_skip_counts(path: Path, late: Event) -> None:
    with opened(path) as journal:
        fill(journal, [SKIP], [late], apart=True)
        with journal.reading() as db:
            assert journal_stats(db).rated == 1
        assert not pruned(journal)
