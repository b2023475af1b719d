"""One pass over a journal gives every closed group with all its events."""

import contextlib
import sqlite3
from pathlib import Path

import msgspec
import pytest

from core.events import (
    GroupEdited,
    GroupOpened,
    ProbePrompt,
    ProbeSetLoaded,
    TrainingRunIdentified,
)
from core.journal import closed_groups as module
from core.journal.closed_groups import closed_groups, survey
from core.journal.history import read_group
from core.journal.read_only import JournalFile
from core.reducer import reduce
from core.state import State
from tests.support.ranked import damage_first_row, ranked_group, write_journal


def test_groups_that_overlap_come_in_the_order_of_their_ends(tmp_path: Path) -> None:
    slow, quick = ranked_group("slow"), ranked_group("quick")
    path = write_journal(tmp_path / "j.db", [*slow[:3], *quick, *slow[3:]], batch=2)
    with JournalFile(path) as journal:
        groups = list(closed_groups(journal))
        assert [group.group_id for group in groups] == ["quick", "slow"]
        for group in groups:
            state = State()
            for event in group.events:
                reduce(state, event)
            assert state.groups[group.group_id] == read_group(journal, group.group_id)


def test_events_after_the_end_belong_to_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 1)
    edits = [GroupEdited(group_id=f"g{n}", index=0, edited=f"text {n}") for n in range(3)]
    groups = [event for n in range(3) for event in ranked_group(f"g{n}")]
    path = write_journal(tmp_path / "j.db", [*groups, *edits], batch=4)
    with JournalFile(path) as journal:
        last = [group.events[-1] for group in closed_groups(journal)]
        assert [event.edited for event in last if isinstance(event, GroupEdited)] == [
            "text 0",
            "text 1",
            "text 2",
        ]
        until = edits_begin = journal.last_seq() - 3
        assert all(
            event.seq <= edits_begin
            for group in closed_groups(journal, until)
            for event in group.events
        )


def test_long_texts_are_whole(tmp_path: Path) -> None:
    question, answer = "long question " * 500, "long answer " * 500
    path = write_journal(tmp_path / "j.db", ranked_group("g", question, [answer, "b"]))
    with JournalFile(path) as journal:
        (group,) = closed_groups(journal)
    opened = group.events[0]
    assert isinstance(opened, GroupOpened)
    assert opened.query == question
    assert answer in msgspec.json.encode(group.events).decode()


def test_groups_that_are_open_or_closed_later_do_not_come(tmp_path: Path) -> None:
    events = [*ranked_group("g0"), *ranked_group("g1")[:-1], *ranked_group("g2")]
    path = write_journal(tmp_path / "j.db", events, batch=3)
    with JournalFile(path) as journal:
        assert [group.group_id for group in closed_groups(journal)] == ["g0", "g2"]
        until = journal.last_seq() - 1
        assert [group.group_id for group in closed_groups(journal, until)] == ["g0"]
        assert survey(journal).groups == 3


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
    path = write_journal(tmp_path / "j.db", events, batch=3)
    with JournalFile(path) as journal:
        facts = survey(journal)
    assert [one.id for one in facts.probes] == ["a", "b"]
    assert facts.runs == {("embedded", 2): ("math.2", "base")}


@pytest.mark.parametrize("query", ["a short question", "a question stored apart " * 9])
def test_a_survey_counts_damaged_rows(tmp_path: Path, query: str) -> None:
    groups = [*ranked_group("g0", query), *ranked_group("g1", query)]
    path = write_journal(tmp_path / "j.db", groups, batch=3)
    with JournalFile(path) as journal:
        assert survey(journal).damaged == 0
    damage_first_row(path)
    with JournalFile(path) as journal:
        assert survey(journal).damaged == 1


def test_a_group_whose_texts_are_lost_is_marked(tmp_path: Path) -> None:
    long = "a question of more than a hundred bytes, which the journal stores apart " * 3
    path = write_journal(tmp_path / "j.db", [*ranked_group("g0", long), *ranked_group("g1")])
    with JournalFile(path) as journal:
        assert [one.lost_texts for one in closed_groups(journal)] == [False, False]
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert db.execute("delete from texts").rowcount
    with JournalFile(path) as journal:
        assert [one.lost_texts for one in closed_groups(journal)] == [True, False]
