"""Replay of a journal: every screen works, keys move through time, nothing is written."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from console.replay.app import ReplayApp
from console.replay.player import Replay
from core.journal.read_only import JournalFile
from core.journal.writer import Journal
from tests.support.console import screen_text
from tests.support.sample import HOSTILE, group_events, sample_events, stamp


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    made = Journal(path)
    events = [*sample_events(), *group_events(900, query=HOSTILE)]
    for seq, event in enumerate(events, 1):
        made.append(stamp(event, seq))
    made.close()
    return path


async def _until(pilot: Pilot[Any], holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await pilot.pause(0.02)


@pytest.mark.parametrize("size", [(80, 24), pytest.param((160, 48), marks=pytest.mark.soak)])
async def test_a_replay_shows_the_end_of_a_journal_on_all_screens(
    journal: Path, size: tuple[int, int]
) -> None:
    before = hashlib.sha256(journal.read_bytes()).digest()
    file = JournalFile(journal)
    app = ReplayApp(Replay(file, 0, file.last_seq()))
    async with app.run_test(size=size) as pilot:
        await _until(pilot, lambda: app.session.seen)
        for place in app.places:
            app.action_go(place.name)
            await pilot.pause()
            app.flush()
            await pilot.pause()
            text = screen_text(app)
            assert "REPLAY end" in text.splitlines()[0], place.name
            assert "\x1b[2J" not in text
        app.action_go("log")
        await pilot.pause()
        app.flush()
        await pilot.pause()
        assert "g0900" in screen_text(app)
        app.action_go("requests")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        app.flush()
    assert not app.view_faults
    assert hashlib.sha256(journal.read_bytes()).digest() == before


async def test_replay_keys_move_through_time(journal: Path) -> None:
    file = JournalFile(journal)
    app = ReplayApp(Replay(file, 0, file.last_seq(), speed=0.001))
    async with app.run_test(size=(120, 30)) as pilot:
        await _until(pilot, lambda: app.session.seen)
        await pilot.press("comma")
        app.flush()
        await pilot.pause()
        assert "REPLAY paused" in screen_text(app)
        at = app.session.state.seq
        await pilot.press("full_stop")
        await _until(pilot, lambda: app.session.state.seq > at)
        await pilot.press("greater_than_sign")
        assert app.replay.tempo.speed == 0.25
        await pilot.press("less_than_sign")
        assert app.replay.tempo.speed == 0.25  # there is no slower one
        await pilot.press("ctrl+e")
        await _until(pilot, lambda: app.session.state.seq == file.last_seq())
        app.flush()
        await pilot.pause()
        assert "REPLAY end" in screen_text(app)
