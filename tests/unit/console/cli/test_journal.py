"""`journal stats`, `prune` and `check`, beside a running proxy and without one."""

import asyncio
import contextlib
import io
import json
import os
import random
import sqlite3
import sys
import time
from pathlib import Path

import pytest

import core.journal.prune
import core.journal.stats
from console.cli import main
from core.bus import Bus
from core.events import GroupRated
from core.journal.file import SCHEMA, SIBLINGS
from core.journal.prune import Pruner, Retention
from core.journal.writer import Journal
from core.runtime.home import Home
from core.settings import load
from tests.support.sample import group_events
from tests.unit.console.cli.test_effective import proxy_of, run

pytestmark = pytest.mark.slow

DAY = 86_400.0


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (core.journal.prune, core.journal.stats):
        monkeypatch.setattr(module, "KEEP_GROUPS", 10)
    monkeypatch.setattr(core.journal.prune, "KEEP_EVENTS", 50)


def fill(journal: Journal, count: int = 40) -> Bus:
    """One group a day until now, every tenth rated."""
    bus, dice = Bus(journal, "run"), random.Random(1)
    for number in range(count):
        at = time.time() - (count - number) * DAY
        for event in group_events(number, query=dice.randbytes(1_000).hex(), at=at):
            if number % 10 == 0 and event.kind == "group_closed":
                vote = GroupRated(group_id=f"g{number:04}", rating="tie", at=at)
                bus.publish(vote)
            bus.publish(event)
        asyncio.run(journal.committed(bus.state.seq))
    return bus


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home.open(tmp_path / "home")
    journal = Journal(made.journal)
    fill(journal)
    journal.close()
    return made


def listed(home: Home) -> list[str]:
    with contextlib.closing(sqlite3.connect(home.journal)) as db:
        return [row[0] for row in db.execute("select group_id from groups order by opened_seq")]


def run_journal(home: Home, *args: str) -> int:
    return main(["journal", *args, "--home", str(home.root)])


def test_stats_show_the_size_of_the_write_ahead_log(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(sqlite3.connect(home.journal)) as db:  # keeps the log in place
        db.execute("create table more(data)")
        db.execute("insert into more values (zeroblob(300000))")
        db.commit()
        wal = home.journal.with_name(f"{home.journal.name}-wal").stat().st_size
        assert run_journal(home, "stats", "--json") == 0
        assert json.loads(capsys.readouterr().out)["wal"] == wal > 300_000
        assert run_journal(home, "stats") == 0
    assert " kB of write-ahead log (-wal)" in capsys.readouterr().out


def test_stats_show_the_contents_of_the_journal(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_journal(home, "stats") == 0
    text = capsys.readouterr().out
    assert "40 groups: 4 rated, 0 open" in text
    assert "journal.keep_days: no limit, journal.keep_bytes: 10.00 GB" in text
    assert "history starts" not in text
    assert run_journal(home, "stats", "--json") == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["groups"], body["rated"], body["schema"]) == (40, 4, SCHEMA)
    assert body["limits"] == {"keep_days": 0.0, "keep_bytes": 10_000_000_000}
    assert 0 < body["used"] <= body["on_disk"]


def test_prune_lists_the_groups_and_asks(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_journal(home, "prune") == 0
    assert "there is nothing to delete" in capsys.readouterr().out
    before = listed(home)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run_journal(home, "prune", "--days", "20.5") == 2  # no terminal to ask at
    out, err = capsys.readouterr()
    assert "18 groups are older than 20.5 days" in out
    assert "Add --yes to do it" in err
    assert listed(home) == before
    assert run_journal(home, "prune", "--days", "-1", "--yes") == 2
    assert run_journal(home, "prune", "--days", "20.5", "--yes") == 0
    assert "deleted 18 groups (0 rated)" in capsys.readouterr().out
    assert listed(home)[:3] == ["g0000", "g0010", "g0020"]
    assert run_journal(home, "stats") == 0
    assert "the history starts at" in capsys.readouterr().out
    assert run_journal(home, "prune", "--days", "20.5", "--rated", "--yes") == 0
    assert listed(home)[0] == "g0020"
    assert run_journal(home, "check") == 0


def test_prune_by_size_and_rewrite_the_file(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    before = home.journal.stat().st_size
    assert run_journal(home, "prune", "--bytes", str(before // 2), "--rewrite", "--yes") == 0
    out = capsys.readouterr().out
    assert "the oldest first, rated ones last" in out
    assert run_journal(home, "stats") == 0
    assert "free pages are used" not in capsys.readouterr().out
    assert home.journal.stat().st_size < before * 0.8


def test_check_finds_damage(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_journal(home, "check") == 0
    assert "ok," in capsys.readouterr().out
    with contextlib.closing(sqlite3.connect(home.journal)) as db:
        db.execute("delete from messages where id=3")
        db.execute("update rows set data='x' where seq=(select max(seq) from rows)")
        db.commit()
    assert run_journal(home, "check") == 1
    out = capsys.readouterr().out
    assert "1 are not, 1 messages are missing" in out
    size = home.journal.stat().st_size
    with home.journal.open("r+b") as file:
        file.seek(size - 8192)
        file.write(b"\xff" * 8192)
    assert run_journal(home, "check") == 1
    assert "Restart the proxy" in capsys.readouterr().out


def test_a_missing_journal_is_reported_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home.open(tmp_path / "empty")
    assert run_journal(home, "stats") == 2
    assert str(home.journal) in capsys.readouterr().err


async def test_prune_goes_through_a_running_proxy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home.open(tmp_path / "home")
    async with proxy_of(home, load(None)) as made:
        journal = made.context.journal
        for end in ("", *SIBLINGS):  # the journal of tests has another name
            os.symlink(f"{journal.path}{end}", f"{home.journal}{end}")
        bus = made.context.bus
        dice = random.Random(1)
        for number in range(30):
            at = time.time() - (30 - number) * DAY
            for event in group_events(number, query=dice.randbytes(1_000).hex(), at=at):
                bus.publish(event)
            await journal.durable(bus.state.seq)
        prune = ("journal", "prune", "--home", str(home.root), "--bytes", str(150_000), "--yes")
        assert await run(*prune, "--rewrite") == 2
        assert "a proxy runs in this home" in capsys.readouterr().err
        assert await run(*prune) == 1
        assert "prunes no journal" in capsys.readouterr().err
        made.context.pruner = Pruner(journal, Retention(), rest=0.0)
        assert await run(*prune) == 0
        assert "deleted" in capsys.readouterr().out
        assert made.context.journal.group_events("g0001") == []
        assert made.context.journal.group_events("g0029")
        assert await run("journal", "stats", "--home", str(home.root)) == 0
        assert "the history starts at" in capsys.readouterr().out
        assert await run("journal", "check", "--home", str(home.root)) == 0
        assert journal.load_state() == bus.state == journal.replayed_state()
        made.context.pruner.close()
