"""Groups of the whole journal: by page as the reducer once had them in state, and all closed ones
in one pass; facts of the whole journal."""

import contextlib
import sqlite3
from pathlib import Path

import msgspec
import pytest

from core.bus import Bus
from core.events import (
    GroupEdited,
    GroupLost,
    GroupMarked,
    GroupNoted,
    GroupOpened,
    ProbePrompt,
    ProbeSetLoaded,
    TrainingRunIdentified,
)
from core.journal import reader
from core.journal.read_only import JournalFile
from core.journal.writer import Journal
from core.state import GROUP_CAP, State, reduce
from tests.support.ranked import damage_first_row, ranked_group, write_journal
from tests.support.sample import group_events

pytestmark = pytest.mark.slow


async def filled(path: Path, count: int) -> tuple[Journal, Bus]:
    """A journal of `count` finished groups, g0000 the oldest."""
    journal = Journal(path / "j.db")
    bus = Bus(journal, "run1")
    for number in range(count):
        for event in group_events(number, query=f"Q{number}"):
            bus.publish(event)
        if number % 100 == 99:
            await journal.durable(bus.state.seq)
    await journal.durable(bus.state.seq)
    return journal, bus


async def test_a_page_gives_groups_as_they_were_in_state(tmp_path: Path) -> None:
    journal, bus = await filled(tmp_path, 30)
    page = journal.page(10, 5)
    assert (page.first, page.total) == (10, 30)
    assert [group.group_id for group in page.groups] == [f"g{n:04}" for n in range(10, 15)]
    assert page.groups == [bus.state.groups[group.group_id] for group in page.groups]
    assert journal.page(28, 50).groups[-1].query == "Q29"
    assert journal.page(30, 5).groups == []
    journal.close()


async def test_events_after_a_group_ended_are_included(tmp_path: Path) -> None:
    journal, bus = await filled(tmp_path, GROUP_CAP + 20)
    assert "g0003" not in bus.state.groups
    bus.publish(GroupMarked(group_id="g0003", marked=True))
    bus.publish(GroupNoted(group_id="g0003", note="see this"))
    bus.publish(GroupLost(group_id="g0003", cause="an engine restart"))
    await journal.durable(bus.state.seq)
    groups = journal.page(3, 1).groups[0]
    assert (groups.marked, groups.note, groups.phase) == (True, "see this", "DONE")
    assert groups.discarded
    assert journal.group("g0003") == groups
    assert journal.group("nobody") is None
    journal.close()


async def test_groups_that_overlap_and_one_that_never_ends(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run1")
    stuck = group_events(1, until="CLAIMING")
    others = [group_events(number) for number in (2, 3)]
    for event in stuck:
        bus.publish(event)
    for pair in zip(*others, strict=True):
        for event in pair:
            bus.publish(event)
    await journal.durable(bus.state.seq)
    page = journal.page(0, 10)
    assert [(group.group_id, group.phase) for group in page.groups] == [
        ("g0001", "CLAIMING"),
        ("g0002", "DONE"),
        ("g0003", "DONE"),
    ]
    assert page.groups[2] == bus.state.groups["g0003"]
    journal.close()


# --- closed groups ------------------------------------------------------------------------------


def test_groups_that_overlap_come_in_the_order_of_their_ends(tmp_path: Path) -> None:
    slow, quick = ranked_group("slow"), ranked_group("quick")
    path = write_journal(tmp_path / "j.db", [*slow[:3], *quick, *slow[3:]])
    journal = JournalFile(path)
    groups = list(journal.closed_groups())
    assert [group.group_id for group in groups] == ["quick", "slow"]
    for group in groups:
        state = State()
        for event in group.events:
            reduce(state, event)
        assert state.groups[group.group_id] == journal.group(group.group_id)


def test_events_after_the_end_belong_to_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CHUNK", 1)
    edits = [GroupEdited(group_id=f"g{n}", index=0, edited=f"text {n}") for n in range(3)]
    groups = [event for n in range(3) for event in ranked_group(f"g{n}")]
    path = write_journal(tmp_path / "j.db", [*groups, *edits])
    journal = JournalFile(path)
    last = [group.events[-1] for group in journal.closed_groups()]
    assert [event.edited for event in last if isinstance(event, GroupEdited)] == [
        "text 0",
        "text 1",
        "text 2",
    ]
    until = edits_begin = journal.last_seq() - 3
    assert all(
        event.seq <= edits_begin for group in journal.closed_groups(until) for event in group.events
    )


def test_long_texts_are_whole(tmp_path: Path) -> None:
    question, answer = "long question " * 500, "long answer " * 500
    path = write_journal(tmp_path / "j.db", ranked_group("g", question, [answer, "b"]))
    journal = JournalFile(path)
    (group,) = journal.closed_groups()
    opened = group.events[0]
    assert isinstance(opened, GroupOpened)
    assert opened.query == question
    assert answer in msgspec.json.encode(group.events).decode()


def test_groups_that_are_open_or_closed_later_do_not_come(tmp_path: Path) -> None:
    events = [*ranked_group("g0"), *ranked_group("g1")[:-1], *ranked_group("g2")]
    path = write_journal(tmp_path / "j.db", events)
    journal = JournalFile(path)
    assert [group.group_id for group in journal.closed_groups()] == ["g0", "g2"]
    until = journal.last_seq() - 1
    assert [group.group_id for group in journal.closed_groups(until)] == ["g0"]
    assert journal.survey().groups == 3


def test_a_survey_finds_every_probe_prompt_and_training_run(tmp_path: Path) -> None:
    hostile = ranked_group("g", 'a text with "probe_set_loaded" and "training_run_identified"')
    first = ProbePrompt(id="a", prompt="What is 1 + 1?")
    second = ProbePrompt(id="b", prompt="What is 2 + 2?")
    events = [
        ProbeSetLoaded(server="embedded", prompts=(first,)),
        *hostile,
        ProbeSetLoaded(server="embedded", prompts=(first, second)),
        TrainingRunIdentified(server="embedded", number=2, name="math.2", start="base"),
    ]
    path = write_journal(tmp_path / "j.db", events)
    journal = JournalFile(path)
    facts = journal.survey()
    assert [prompt.id for prompt in facts.probes] == ["a", "b"]
    assert facts.runs == {("embedded", 2): ("math.2", "base")}


@pytest.mark.parametrize("query", ["a short question", "a question stored apart " * 9])
def test_a_survey_counts_damaged_rows(tmp_path: Path, query: str) -> None:
    groups = [*ranked_group("g0", query), *ranked_group("g1", query)]
    path = write_journal(tmp_path / "j.db", groups)
    journal = JournalFile(path)
    assert journal.survey().damaged == 0
    damage_first_row(path)
    journal = JournalFile(path)
    assert journal.survey().damaged == 1


def test_a_group_whose_texts_are_lost_is_marked(tmp_path: Path) -> None:
    long = "a question of more than a hundred bytes, which the journal stores apart " * 3
    path = write_journal(tmp_path / "j.db", [*ranked_group("g0", long), *ranked_group("g1")])
    journal = JournalFile(path)
    assert [group.lost_texts for group in journal.closed_groups()] == [False, False]
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert db.execute("delete from messages where id=1").rowcount
    journal = JournalFile(path)
    assert [group.lost_texts for group in journal.closed_groups()] == [True, False]
