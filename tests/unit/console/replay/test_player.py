"""A journal in the place of a proxy: found, read, played, and never written."""

import asyncio
import hashlib
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli import main
from console.cli.replay import _span, _span_of, journal_and_run
from console.replay.player import Replay, ReplayError, Tempo
from console.session.app_state import Session
from core.events import Event, ProxyStarted, RatingModeChanged
from core.journal.file import SCHEMA, JournalError
from core.journal.read_only import JournalFile
from core.journal.writer import Journal
from core.runtime.home import Home
from core.settings import Settings
from tests.support.commands.cli import Cli
from tests.support.ranked import write_journal
from tests.support.runs import run_events
from tests.support.sample import NOW, group_events, stamp


def _started(run: str) -> Event:
    return ProxyStarted(
        client_uuid="u",
        pid=1,
        url="http://x:1",
        version="1",
        servers={"gpu": "http://g:1"},
        rewards="builtin",
    )


def write(path: Path, *runs: list[Event], at: float = NOW) -> list[Event]:
    """A journal with one run for each list, ten seconds between events."""
    journal = Journal(path)
    events: list[Event] = []
    for number, run in enumerate(runs):
        for event in [_started(f"run{number}"), *run]:
            seq = len(events) + 1
            events.append(replace(event, seq=seq, at=at + seq, run_id=f"run{number}"))
            journal.append(events[-1])
    journal.close()
    return events


def _settled(path: Path) -> None:
    """As after a proxy that ended in order: nothing beside the file."""
    db = sqlite3.connect(path)
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)


def _bytes(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
    }


@pytest.fixture
def stored_journal(tmp_path: Path) -> Path:
    path = tmp_path / "kept" / "journal.db"
    path.parent.mkdir()
    write(path, [*group_events(1), *group_events(2)], group_events(3, until="AWAITING_RATING"))
    _settled(path)
    return path


async def test_the_end_shows_the_journals_state_and_nothing_is_written(
    stored_journal: Path,
) -> None:
    before = _bytes(stored_journal.parent)
    stored_journal.parent.chmod(0o500)
    try:
        file = JournalFile(stored_journal)
        replay = Replay(file, 0, file.last_seq())
        state = await replay.snapshot()
        assert list(state.groups) == ["g0001", "g0002", "g0003"]
        assert state.groups["g0003"].phase == "AWAITING_RATING"
        assert (await replay.history(0, 10)).total == 3
        assert await replay.group_events("g0002")
        assert replay.at_end
        assert replay.tempo.now() == pytest.approx(NOW + file.last_seq())
        with pytest.raises(AjetError, match="this is a replay"):
            await replay.command("group.abort", {"group_id": "g0003"})
    finally:
        stored_journal.parent.chmod(0o700)
    assert _bytes(stored_journal.parent) == before


async def test_a_journal_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path)
    for seq, event in enumerate(group_events(1), 1):
        journal.append(stamp(event, seq))
    await journal.durable(seq)
    content = path.read_bytes()
    file = JournalFile(path)
    assert list(file.load_state().groups) == ["g0001"]
    assert path.read_bytes() == content
    # what a kill leaves behind, where nothing can be made beside it
    folder = tmp_path / "left"
    folder.mkdir()
    for end in ("", "-wal"):
        shutil.copyfile(f"{path}{end}", folder / f"journal.db{end}")
    journal.close()
    before = _bytes(folder)
    file = JournalFile(folder / "journal.db")
    assert list(file.load_state().groups) == ["g0001"]
    after = _bytes(folder)
    assert {name: after[name] for name in before} == before


async def test_events_are_played_in_order_at_their_times_to_the_same_end(
    stored_journal: Path,
) -> None:
    file = JournalFile(stored_journal)
    last = file.last_seq()
    replay = Replay(file, 0, last, speed=1000.0)
    session = Session(link=replay, read_only=True, clock=replay.tempo.now)
    task = asyncio.get_running_loop().create_task(replay.run(session))
    try:
        async with asyncio.timeout(60):
            while session.state.seq < last:
                await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    whole = file.load_state()
    assert list(session.state.groups) == list(whole.groups)
    assert (session.state.totals, replay.forms[-1]) == (whole.totals, "REPLAY end")
    assert any("will train" in line.text for line in session.logs("proxy"))


async def test_events_after_the_span_are_not_played(stored_journal: Path) -> None:
    played: list[int] = []
    file = JournalFile(stored_journal)
    replay = Replay(file, 0, 3, speed=1000.0)
    await replay.snapshot()

    async def play() -> None:
        async for event in replay.events(0):
            played.append(event.seq)

    task = asyncio.get_running_loop().create_task(play())
    try:
        while replay.tempo.running and len(played) < 4:
            await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert played == [1, 2, 3]


def test_runs_are_found_by_the_beginning_of_their_id(stored_journal: Path) -> None:
    file = JournalFile(stored_journal)
    assert [run.run_id for run in file.runs()] == ["run0", "run1"]
    assert file.run("last").last == file.last_seq()
    assert file.run("run0").last == file.run("run1").first - 1
    with pytest.raises(UsageError, match="2 runs begin"):
        file.run("run")
    with pytest.raises(UsageError, match="no run begins"):
        file.run("x")


def test_the_clock_pauses_runs_and_changes_its_speed() -> None:
    ours = [0.0]
    tempo = Tempo(100.0, 10.0, lambda: ours[0])
    ours[0] = 1.0
    assert tempo.now() == 100.0
    tempo.set(running=True)
    ours[0] = 2.0
    assert tempo.now() == 110.0
    tempo.set(speed=2.0)
    ours[0] = 3.0
    assert tempo.now() == 112.0
    tempo.set(running=False)
    ours[0] = 9.0
    assert tempo.now() == 112.0


def _damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = os.urandom(len(data) - 4096 * 2)
    path.write_bytes(bytes(data))


@pytest.mark.slow
def test_a_damaged_newer_or_foreign_file_is_a_clear_error(
    cli: Cli, stored_journal: Path, tmp_path: Path
) -> None:
    newer = tmp_path / "newer.db"
    shutil.copyfile(stored_journal, newer)
    db = sqlite3.connect(newer)
    db.execute(f"pragma user_version={SCHEMA + 1}")
    db.close()
    _settled(newer)
    with pytest.raises(JournalError, match="Use the newer program"):
        JournalFile(newer)
    broken = tmp_path / "broken.db"
    shutil.copyfile(stored_journal, broken)
    _damaged(broken)
    with pytest.raises(JournalError, match="cut short or damaged"):
        JournalFile(broken).load_state()
    other = tmp_path / "other.db"
    db = sqlite3.connect(other)
    db.execute("create table t(x)")
    db.commit()
    db.close()
    with pytest.raises(UsageError, match="no journal of ours"):
        JournalFile(other)
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"query": "q"}\n')
    assert f"ajet-console run mock {questions}" in cli.refused("journal", "replay", str(questions))
    for argv in (
        ["nowhere.db"],
        [str(tmp_path)],
        [str(stored_journal), "--speed", "0"],
        [str(stored_journal)],
        ["--screen", "x"],
    ):
        assert cli.refused("journal", "replay", *argv).count("\n") == 1


def test_the_argument_names_a_journal_a_home_or_a_run(stored_journal: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert journal_and_run(None, None, home) == (home.journal, "")
    assert journal_and_run(str(stored_journal.parent), "last", home) == (stored_journal, "last")
    assert journal_and_run(str(stored_journal), None, home) == (stored_journal, "")
    home.root.mkdir()
    shutil.copyfile(stored_journal, home.journal)
    assert journal_and_run("run1", None, home) == (home.journal, "run1")
    assert journal_and_run("run1.db", None, home)[0].name == "run1.db"


def test_the_runs_are_listed_without_a_terminal(cli: Cli, stored_journal: Path) -> None:
    assert cli.out("journal", "replay", str(stored_journal), "--list").startswith("run0 ")
    assert not Home(stored_journal.parent).run.exists()


@pytest.mark.parametrize(
    ("argv", "theme"), [([], "ansi"), (["--theme", "light"], "light")], ids=str
)
def test_the_theme_comes_from_the_flag_else_from_the_settings(
    argv: list[str], theme: str, stored_journal: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def run_replay(*args: Any) -> int:
        shown.extend(arg.console.theme for arg in args if isinstance(arg, Settings))
        return 0

    home.config.write_text("console: {theme: ansi}\n")
    monkeypatch.setattr("console.replay.app.run_replay", run_replay)
    for name in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{name}.isatty", lambda: True)
    assert (main(["journal", "replay", str(stored_journal), *argv]), shown) == (0, [theme])


async def test_reading_a_long_journal_reports_progress_and_ends_with_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.journal.reader.ROWS", 5)
    path = tmp_path / "journal.db"
    await asyncio.to_thread(write_journal, path, [RatingModeChanged(mode="off")] * 20)
    file = JournalFile(path)
    replay = Replay(file, 0, 20)
    session = Session(link=replay, read_only=True)
    replay._reading.session = session
    await replay.snapshot()
    await asyncio.sleep(0)
    assert session.steps["link"].detail == "20 of 20 events"
    replay._reading.stop()
    with pytest.raises(ReplayError, match="has ended"):
        await replay.snapshot()


async def test_an_engine_run_is_shown_as_of_its_end(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    runs = [*run_events(1), *run_events(2, ends=False)]
    await asyncio.to_thread(write_journal, path, runs)
    file = JournalFile(path)
    first, second = file.load_state().engine_runs.runs
    assert _span_of(file, 1, 0) == (first.first_seq - 1, first.last_seq - 1)
    assert _span_of(file, 2, 0) == (second.first_seq - 1, file.last_seq())
    with pytest.raises(UsageError, match="no engine run 3"):
        _span_of(file, 3, 0)
    with pytest.raises(UsageError, match="were pruned"):
        _span_of(file, 1, first.last_seq)
    replay = Replay(file, *_span_of(file, 1, 0), label="PAST RUN 1")
    state = await replay.snapshot()
    assert (state.engine_runs.runs[0].running, state.servers["embedded"].state) == (True, "ROLLING")
    assert replay.forms[-1] == "PAST RUN 1 end"


def test_a_span_is_cut_to_the_journal() -> None:
    assert (_span("5-9", 0, 100), _span("5-900", 6, 100)) == ((4, 9), (6, 100))
    for text in ("5", "9-5", "x-y", "200-300", "1-6"):
        with pytest.raises(UsageError):
            _span(text, 6, 100)
