"""Each long text of the journal is stored once, and every event is read unchanged."""

import contextlib
import random
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

import core.journal.texts
from core.bus import Bus
from core.events import (
    AnsweredCandidate,
    CandidatesAnswered,
    Event,
    GroupClosed,
    GroupOpened,
    encode,
)
from core.journal.closed_groups import closed_groups
from core.journal.read_only import JournalFile
from core.journal.texts import (
    LEAST,
    LOST,
    TextReader,
    TextWriter,
    packed,
    readable_part,
    unpacked,
    without_texts,
)
from core.journal.writer import Journal
from tests.support.ranked import ranked_group, write_journal
from tests.support.sample import HOSTILE

pytestmark = pytest.mark.slow

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


def size(path: Path) -> int:
    """Bytes of rows."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return int(
            db.execute(
                "select (select coalesce(sum(length(data)), 0) from events)"
                " + (select coalesce(sum(length(data)), 0) from texts)"
            ).fetchone()[0]
        )


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
    events: list[Event] = [opened(place, one, tools=tools) for place, one in enumerate(turns)]
    result = await written(tmp_path / "j.db", events)
    assert result == events  # numbered in place
    length = len(msgspec.json.encode([turns[-1], tools]))
    before = sum(len(encode(one)) for one in events)
    assert before > 15 * length
    assert size(tmp_path / "j.db") < 1.2 * length
    with contextlib.closing(sqlite3.connect(tmp_path / "j.db")) as db:
        assert db.execute("select count(*) from texts").fetchone() == (61,)


async def test_a_text_is_found_again_after_a_restart(tmp_path: Path) -> None:
    dice = random.Random(1)
    text = noise(dice, 4_000)
    path = tmp_path / "j.db"
    for number in range(3):
        await written(path, [opened(number, [{"role": "user", "content": text}])])
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("select count(*) from texts").fetchone() == (1,)
    assert size(path) < 4_000


@pytest.mark.parametrize("seed", range(20))
async def test_texts_of_any_content_are_restored(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)

    def text() -> str:
        parts = [dice.choice([*TRICKS, HOSTILE, noise(dice, 60), "a" * LEAST]) for _ in range(20)]
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
                episode_uuid="e",
                message=messages()[0],
                finish_reason="stop",
                seconds=0.5,
            )
            for index in range(4)
        )
        events.append(CandidatesAnswered(group_id=f"g{number}", candidates=answers))
        events.append(GroupClosed(group_id=f"g{number}", phase="DONE"))
    result = await written(tmp_path / "j.db", events)
    assert [encode(one) for one in result] == [encode(one) for one in events]


def test_a_lost_text_leaves_the_rest_of_its_event(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run")
    bus.publish(opened(1, [{"role": "user", "content": "why? " * 100}], tools=[{"a": "b" * 500}]))
    journal.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "j.db")) as db:
        db.execute("delete from texts")
        db.commit()
    journal = Journal(tmp_path / "j.db")
    (event,) = journal.events()
    journal.close()
    assert isinstance(event, GroupOpened)
    assert event.group_id == "g1"
    assert msgspec.json.encode(event.query) == LOST
    assert event.body["tools"] == msgspec.json.decode(LOST)


def test_a_stored_line_without_its_texts_is_json() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("create table texts(id integer primary key, data blob)")
        db.execute("create table text_index(hash blob primary key, id integer, used integer)")
        writer = TextWriter(db)
        event = opened(1, [{"role": "user", "content": "x" * 900}])
        whole = encode(event)
        writer.look_up([(event, whole)])
        line = writer.shortened(whole, event)
        assert len(line) < 300
        assert msgspec.json.decode(without_texts(line))["kind"] == "group_opened"
        assert list(TextReader(db).whole([b"{}", b"@no references", b""])) == [
            b"{}",
            b"@no references",
            b"",
        ]


def test_a_compressed_row_and_what_is_left_of_a_damaged_one() -> None:
    dice = random.Random(1)
    data = "\n".join(f'{{"kind":"group_noted","note":"{noise(dice, 90)}"}}' for _ in range(200))
    row = packed(data.encode())
    assert unpacked(row) == readable_part(row) == data.encode()
    assert len(row) < 0.7 * len(data)
    damaged = row[: len(row) // 2] + b"\xff" * (len(row) - len(row) // 2)
    with pytest.raises(ValueError, match="damaged"):
        unpacked(damaged)
    part = readable_part(damaged).decode(errors="replace")
    assert part.split("\n")[:80] == data.split("\n")[:80]
    assert packed(b"{}") == b"{}"


def test_a_text_that_leaves_the_memory_in_its_own_commit_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal.texts, "CACHE_TEXTS", 3)
    old, new = "an old question " * 20, [f"question {number} " * 20 for number in range(6)]
    asked = [old, *new[:4], new[0], *new[4:]]
    events = [
        event for place, text in enumerate(asked) for event in ranked_group(f"g{place}", text)
    ]
    path = write_journal(tmp_path / "j.db", events, batch=len(ranked_group("g")) * 4)
    with JournalFile(path) as journal, journal.reading() as db:
        assert db.execute("select count(*) from texts").fetchone() == (7,)
        assert len(list(closed_groups(journal))) == len(asked)
