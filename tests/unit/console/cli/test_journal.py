"""`journal stats`, `prune` and `check`, beside a running proxy and without one."""

import asyncio
import contextlib
import io
import os
import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import core.journal.prune
from core.bus import Bus
from core.events import Event, GroupRated
from core.journal.file import SCHEMA, SIBLINGS
from core.journal.prune import Pruner, Retention
from core.journal.writer import Journal
from core.runtime.home import Home
from core.settings import load
from tests.support.checks import missing
from tests.support.commands.cli import AsyncCli, Cli
from tests.support.sample import group_events
from tests.support.stored import replayed
from tests.unit.console.cli.test_effective import proxy_of

pytestmark = pytest.mark.slow

DAY = 86_400.0


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.journal.prune, "KEEP_GROUPS", 10)
    monkeypatch.setattr(core.journal.prune, "KEEP_EVENTS", 50)


def group_a_day(count: int) -> Iterator[list[Event]]:
    """One group a day until now, every tenth rated."""
    dice = random.Random(1)
    for number in range(count):
        at = time.time() - (count - number) * DAY
        *events, closed = group_events(number, query=dice.randbytes(1_000).hex(), at=at)
        if number % 10 == 0:
            events.append(GroupRated(group_id=f"g{number:04}", rating="tie", at=at))
        yield [*events, closed]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home.open(tmp_path / "home")
    journal = Journal(made.journal)
    bus = Bus(journal, "run")
    for events in group_a_day(40):
        for event in events:
            bus.publish(event)
        asyncio.run(journal.committed(bus.state.seq))
    journal.close()
    return made


def listed(home: Home) -> list[str]:
    with contextlib.closing(sqlite3.connect(home.journal)) as db:
        return [row[0] for row in db.execute("select group_id from groups order by opened_seq")]


@pytest.fixture
def journal(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, "journal")


def test_stats_show_the_size_of_the_write_ahead_log(journal: Cli, home: Home) -> None:
    with contextlib.closing(sqlite3.connect(home.journal)) as db:  # keeps the log in place
        db.execute("create table more(data)")
        db.execute("insert into more values (zeroblob(300000))")
        db.commit()
        wal = home.journal.with_name(f"{home.journal.name}-wal").stat().st_size
        assert journal.json("stats")["wal"] == wal > 300_000
        assert " kB of write-ahead log (-wal)" in journal.out("stats")


def test_stats_show_the_contents_of_the_journal(journal: Cli, home: Home) -> None:
    text = journal.out("stats")
    assert not missing(
        text,
        "40 groups: 4 rated, 0 open",
        "journal.keep_days: no limit, journal.keep_bytes: 10.00 GB",
    )
    assert "history starts" not in text
    body = journal.json("stats")
    assert (body["groups"], body["rated"], body["schema"]) == (40, 4, SCHEMA)
    assert body["limits"] == {"keep_days": 0.0, "keep_bytes": 10_000_000_000}
    assert 0 < body["used"] <= body["on_disk"]


def test_prune_lists_the_groups_and_asks(
    journal: Cli, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is nothing to delete" in journal.out("prune")
    before = listed(home)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    out, err = journal.run("prune", "--days", "20.5", code=2)  # no terminal to ask at
    assert "18 groups are older than 20.5 days" in out
    assert "Add --yes to do it" in err
    assert listed(home) == before
    journal("prune", "--days", "-1", "--yes", code=2)
    assert "deleted 18 groups (0 rated)" in journal.out("prune", "--days", "20.5", "--yes")
    assert listed(home)[:3] == ["g0000", "g0010", "g0020"]
    assert "the history starts at" in journal.out("stats")
    journal("prune", "--days", "20.5", "--rated", "--yes")
    assert listed(home)[0] == "g0020"
    journal("check")


def test_prune_by_size(journal: Cli, home: Home) -> None:
    before = journal.json("stats")["used"]
    out = journal.out("prune", "--bytes", before // 2, "--yes")
    assert "the oldest first, rated ones last" in out
    assert journal.json("stats")["used"] < before * 0.8


def test_check_finds_damage(journal: Cli, home: Home) -> None:
    assert "ok," in journal.out("check")
    with contextlib.closing(sqlite3.connect(home.journal)) as db:
        db.execute("delete from messages where id=3")
        db.execute("update rows set data='x' where seq=(select max(seq) from rows)")
        db.commit()
    out = journal.out("check", code=1)
    assert "1 are not, 1 messages are missing" in out
    size = home.journal.stat().st_size
    with home.journal.open("r+b") as file:
        file.seek(size - 8192)
        file.write(b"\xff" * 8192)
    assert "Restart the proxy" in journal.out("check", code=1)


def test_a_missing_journal_is_reported_with_its_path(journal: Cli, tmp_path: Path) -> None:
    home = Home.open(tmp_path / "empty")
    assert str(home.journal) in journal.refused("stats", "--home", home.root)


async def test_prune_goes_through_a_running_proxy(async_cli: AsyncCli, tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    async with proxy_of(home, load(None)) as made:
        journal = made.context.journal
        for end in ("", *SIBLINGS):  # the journal of tests has another name
            os.symlink(f"{journal.path}{end}", f"{home.journal}{end}")
        bus = made.context.bus
        for events in group_a_day(30):
            for event in events:
                bus.publish(event)
            await journal.durable(bus.state.seq)
        prune = ("journal", "prune", "--home", str(home.root), "--bytes", str(150_000), "--yes")
        assert "prunes no journal" in await async_cli.failed(*prune)
        made.context.pruner = Pruner(journal, Retention(), rest=0.0)
        assert "deleted" in await async_cli.out(*prune)
        assert made.context.journal.group_events("g0001") == []
        assert made.context.journal.group_events("g0029")
        shown = await async_cli.out("journal", "stats", "--home", home.root)
        assert "the history starts at" in shown
        await async_cli("journal", "check", "--home", home.root)
        assert journal.load_state() == bus.state == replayed(journal)
        made.context.pruner.close()
