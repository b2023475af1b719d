"""Reading a journal, and the messages that it stores once."""

import contextlib
import random
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

import core.journal.messages
from core.bus import Bus
from core.events import (
    AnsweredCandidate,
    CandidatesAnswered,
    Event,
    GroupClosed,
    GroupEdited,
    GroupLost,
    GroupMarked,
    GroupNoted,
    GroupOpened,
    ProbePrompt,
    ProbeSetLoaded,
    TrainingRunIdentified,
    encode,
)
from core.journal import reader
from core.journal.file import packed, unpacked
from core.journal.messages import LONG, LOST
from core.journal.read_only import JournalFile
from core.journal.writer import Journal
from core.state import GROUP_CAP, State, reduce
from tests.support.ranked import damage_first_row, ranked_group, write_journal
from tests.support.sample import HOSTILE, group_events

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


TRICKS = ["@[0,1]", '"},{"', "x\x9c", "\\", '\\"', "\n", "}]", '"query":"', "\x00", "\u2028", ""]


def noise(dice: random.Random, length: int) -> str:
    return dice.randbytes(length // 2).hex()


def opened(number: int, messages: list[dict[str, Any]], **more: Any) -> GroupOpened:
    return GroupOpened(
        group_id=f"g{number}",
        request_id="r",
        task_id="t",
        n=1,
        query=str(messages[-1]["content"]),
        body={"model": "m", "messages": messages, **more},
    )


def conversation(dice: random.Random, turns: int, length: int) -> list[list[dict[str, Any]]]:
    """The messages of each request of an agent: a turn adds an answer and a tool's result."""
    messages = [{"role": "system", "content": noise(dice, length)}]
    result = []
    for _ in range(turns):
        messages = [*messages, {"role": "tool", "content": noise(dice, length)}]
        result.append(messages)
        messages = [*messages, {"role": "assistant", "content": noise(dice, length)}]
    return result


def sizes(path: Path) -> tuple[int, int]:
    """Bytes of events and of messages."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        events = db.execute("select sum(length(cast(data as blob))) from rows").fetchone()[0]
        messages = db.execute("select sum(length(zlib)) from messages").fetchone()[0]
    return int(events), int(messages)


def stored(path: Path) -> int:
    """Number of messages."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return int(db.execute("select count(*) from messages").fetchone()[0])


async def written(path: Path, events: list[Event]) -> list[Event]:
    """Publish the events, a commit for each, and read them back."""
    journal = Journal(path)
    bus = Bus(journal, "run", clock=lambda: 1.0)
    for event in events:
        await bus.publish_durable(event)
    result = journal.events(0, 100_000)
    journal.close()
    return list(result)


async def test_a_conversation_costs_its_length_once(tmp_path: Path) -> None:
    dice = random.Random(7)
    turns = conversation(dice, 30, 2_000)
    tools = [{"type": "function", "function": {"name": noise(dice, 40), "about": "a " * 4_000}}]
    events: list[Event] = [opened(place, turn, tools=tools) for place, turn in enumerate(turns)]
    result = await written(tmp_path / "j.db", events)
    assert result == events  # numbered in place
    length = len(msgspec.json.encode([turns[-1], tools]))
    assert sum(len(encode(event)) for event in events) > 15 * length
    events_size, messages_size = sizes(tmp_path / "j.db")
    assert messages_size < 0.7 * length
    assert events_size < 700 * len(events)
    assert stored(tmp_path / "j.db") == 61  # and the tools


async def test_a_message_is_found_again_after_a_restart(tmp_path: Path) -> None:
    dice = random.Random(1)
    text = noise(dice, 4_000)
    path = tmp_path / "j.db"
    for number in range(3):
        await written(path, [opened(number, [{"role": "user", "content": text}])])
    assert stored(path) == 1


@pytest.mark.parametrize("seed", range(20))
async def test_messages_of_any_content_are_restored(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)

    def text() -> str:
        parts = [dice.choice([*TRICKS, HOSTILE, noise(dice, 60), "a" * LONG]) for _ in range(20)]
        return "".join(parts) * dice.choice([1, 40])

    texts = [text() for _ in range(6)]

    def messages() -> list[dict[str, Any]]:
        return [
            {
                "role": "user",
                "content": dice.choice([dice.choice(texts), [{"type": "text", "text": text()}]]),
                dice.choice(texts)[:300]: dice.choice([None, 1, True, texts]),
            }
            for _ in range(dice.randrange(1, 12))
        ]

    events: list[Event] = []
    for number in range(8):
        events.append(opened(number, messages(), tools=[{"d": dice.choice(texts)}], stop=texts))
        answers = tuple(
            AnsweredCandidate(
                index=index,
                message=messages()[0],
                finish_reason="stop",
                seconds=0.5,
            )
            for index in range(4)
        )
        events.append(CandidatesAnswered(group_id=f"g{number}", candidates=answers))
        events.append(GroupClosed(group_id=f"g{number}", phase="DONE"))
    result = await written(tmp_path / "j.db", events)
    assert [encode(stored) for stored in result] == [encode(event) for event in events]


async def test_equal_messages_after_others_are_others(tmp_path: Path) -> None:
    """A message is known by what is before it, so each request leads to its own ones."""
    one, two = ({"role": "user", "content": text} for text in ("yes", "no"))
    asked = [[one], [two], [one, one], [two, one], [one, one], [one, two]]
    events: list[Event] = [opened(number, messages) for number, messages in enumerate(asked)]
    path = tmp_path / "j.db"
    assert await written(path, events) == events
    assert stored(path) == 5


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": "text"}, {"prompt": "a"}])
async def test_a_request_without_messages_is_stored_as_it_is(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    event = GroupOpened(group_id="g", request_id="r", task_id="t", n=1, query="q", body=body)
    assert await written(tmp_path / "j.db", [event]) == [event]
    assert stored(tmp_path / "j.db") == 0


async def test_a_message_that_leaves_the_memory_in_its_own_commit_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal.messages, "CACHE", 3)
    texts = ["an old question", *(f"question {number}" for number in range(6))]
    asked = [*texts[:5], texts[0], *texts[5:], texts[1]]
    with contextlib.closing(Journal(tmp_path / "j.db")) as journal:
        bus = Bus(journal, "run")
        for place, text in enumerate(asked):
            bus.publish(opened(place, [{"role": "user", "content": text}]))
        await journal.committed(bus.state.seq)
        queries = [event.query for event in journal.events() if isinstance(event, GroupOpened)]
    assert queries == asked
    assert stored(tmp_path / "j.db") == 7


@pytest.mark.parametrize("lost", ["id=1", "id=2", "id=3", "1"])
def test_a_lost_message_leaves_the_rest_of_its_event(tmp_path: Path, lost: str) -> None:
    path, text = tmp_path / "j.db", "why? " * 100
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]
    with contextlib.closing(Journal(path)) as journal:
        Bus(journal, "run").publish(opened(1, messages, tools=[{"a": "b" * 500}]))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"delete from messages where {lost}")
    with contextlib.closing(Journal(path)) as journal:
        (event,) = journal.events()
    assert isinstance(event, GroupOpened)
    assert event.group_id == "g1"
    here = {"id=1": messages, "id=2": messages[1:]}.get(lost, [])
    found = event.body["messages"]
    assert found[0] == {"role": "system", "content": LOST}
    assert found[1:] == here
    assert event.query == (text if here else LOST)


def test_a_damaged_message_is_an_error() -> None:
    data = msgspec.json.encode({"content": noise(random.Random(1), 2_000)})
    row = packed(data)
    assert unpacked(row, len(data)) == data
    assert len(row) < 0.7 * len(data)
    for damaged in (row[:-9], row[:50] + b"\xff" * (len(row) - 50)):
        with pytest.raises(ValueError, match="damaged"):
            unpacked(damaged, len(data))
    assert packed(b"{}") == b"{}"
