"""Writes the journal of schema 2 that the tests read: `journal_d3182bb.db`, and its events as JSON.

Run it with the code of commit d3182bb, from a folder outside the checkout:

    git archive d3182bb | tar x -C OLD
    PYTHONPATH=OLD python tests/data/make_journal_d3182bb.py tests/data
"""

import asyncio
import contextlib
import itertools
import sqlite3
import sys
from pathlib import Path

import msgspec

from core.bus import Bus
from core.events import (
    EngineChanged,
    GroupClosed,
    GroupMarked,
    GroupOpened,
    GroupRated,
    ProxyStarted,
)
from core.journal.writer import Journal
from tests.support.sample import HOSTILE, NOW, group_events

NAME = "journal_d3182bb"


def conversation(turns: int) -> list[dict[str, object]]:
    """The messages of a request in its last turn, long ones among them."""
    records: list[dict[str, object]] = [{"role": "system", "content": "You help. " * 20}]
    for turn in range(turns):
        records.append({"role": "user", "content": f"Question {turn} {HOSTILE} " + "why? " * 30})
        records.append({"role": "assistant", "content": f"Answer {turn}. " * 15})
    return records[:-1]


async def write(path: Path) -> None:
    """Two runs of the program: finished, rated, marked and open groups, a snapshot between."""
    times = itertools.count(int(NOW))
    for number in range(2):
        journal = Journal(path)
        bus = Bus(journal, f"run-{number}", clock=lambda: float(next(times)))
        bus.publish(
            ProxyStarted(
                client_uuid="client",
                pid=1,
                url="http://127.0.0.1:8000",
                version="0",
                servers={"embedded": "http://127.0.0.1:10086"},
                rewards="builtin",
            )
        )
        bus.publish(EngineChanged(server="embedded", state="ROLLING", step=number + 1))
        for place in range(3):
            group = 10 * number + place
            messages = conversation(place + 1)
            for event in group_events(group, query=str(messages[-1]["content"])):
                if isinstance(event, GroupOpened):
                    event = msgspec.structs.replace(event, body={"messages": messages})
                if isinstance(event, GroupClosed) and place == 1:
                    vote = GroupRated(group_id=event.group_id, rating="best", order=(0, 1, 2, 3))
                    bus.publish(vote)
                bus.publish(event)
            await journal.durable(bus.state.seq)
        if number == 0:
            journal.append_snapshot(bus.state)
            bus.publish(GroupMarked(group_id="g0000", marked=True))
        await journal.durable(bus.state.seq)
        if number == 1:
            for event in group_events(99, until="AWAITING_RATING"):
                bus.publish(event)
            await journal.durable(bus.state.seq)
        journal.close()


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1])
    path = folder / f"{NAME}.db"
    path.unlink(missing_ok=True)
    asyncio.run(write(path))
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")
        db.execute("pragma journal_mode=delete")
        db.execute("vacuum")
        db.execute("pragma journal_mode=wal")
    journal = Journal(path)
    events = journal.events(0, 100_000)
    lines = [msgspec.json.encode(one) for one in events]
    journal.close()
    (folder / f"{NAME}.jsonl").write_bytes(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    main()
