"""Groups of the whole journal by page are what the reducer once had in state."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from core.bus import Bus
from core.events import GroupLost, GroupMarked, GroupNoted
from core.journal.history import read_group, read_page
from core.journal.writer import Journal
from core.state import GROUP_CAP
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
    page = read_page(journal, 10, 5)
    assert (page.first, page.total) == (10, 30)
    assert [group.group_id for group in page.groups] == [f"g{n:04}" for n in range(10, 15)]
    assert page.groups == [bus.state.groups[group.group_id] for group in page.groups]
    assert read_page(journal, 28, 50).groups[-1].query == "Q29"
    assert read_page(journal, 30, 5).groups == []
    journal.close()


async def test_events_after_a_group_ended_are_included(tmp_path: Path) -> None:
    journal, bus = await filled(tmp_path, GROUP_CAP + 20)
    assert "g0003" not in bus.state.groups
    bus.publish(GroupMarked(group_id="g0003", marked=True))
    bus.publish(GroupNoted(group_id="g0003", note="see this"))
    bus.publish(GroupLost(group_id="g0003", cause="an engine restart"))
    await journal.durable(bus.state.seq)
    groups = read_page(journal, 3, 1).groups[0]
    assert (groups.marked, groups.note, groups.phase) == (True, "see this", "DONE")
    assert groups.discarded
    assert read_group(journal, "g0003") == groups
    assert read_group(journal, "nobody") is None
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
    page = read_page(journal, 0, 10)
    assert [(one.group_id, one.phase) for one in page.groups] == [
        ("g0001", "CLAIMING"),
        ("g0002", "DONE"),
        ("g0003", "DONE"),
    ]
    assert page.groups[2] == bus.state.groups["g0003"]
    journal.close()


async def test_a_group_whose_events_are_gone_keeps_its_line(tmp_path: Path) -> None:
    journal, _ = await filled(tmp_path, 2)
    with journal.reading() as db:
        db.execute("delete from events")
        db.commit()
    page = read_page(journal, 0, 5)
    assert [(one.query, one.phase, one.candidates) for one in page.groups] == [
        ("Q0", "DONE", []),
        ("Q1", "DONE", []),
    ]
    journal.close()


async def test_a_page_costs_the_same_anywhere(tmp_path: Path) -> None:
    journal, _ = await filled(tmp_path, 2_000)
    cpu_seconds = []
    for first in (0, 1_900):
        began = time.process_time()
        page = await asyncio.to_thread(read_page, journal, first, 50)
        cpu_seconds.append(time.process_time() - began)
        assert len(page.groups) == 50
        assert len(msgspec.json.encode(page)) < 1 << 20
    print("a page of 50 groups:", ", ".join(f"{one * 1e3:.1f} ms" for one in cpu_seconds))
    assert max(cpu_seconds) < 1.0
    journal.close()
