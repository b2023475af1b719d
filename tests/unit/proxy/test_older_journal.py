"""In the home of an older program the journal is set aside and the episodes are given back."""

import contextlib
import sqlite3
from pathlib import Path

import msgspec

from core.journal.file import SCHEMA
from core.journal.writer import Journal
from core.runtime.home import Home
from core.settings import Settings
from proxy.main import ProxyOptions, _open_context
from tests.support.alerts import cause_of
from tests.support.scripted.swarm import ScriptedSwarm


async def test_episodes_of_an_older_proxy_are_given_back(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    with contextlib.closing(Journal(home.journal)) as journal:
        journal.put_meta("client_uuid", "me")
    with contextlib.closing(sqlite3.connect(home.journal)) as db:
        db.execute(f"pragma user_version={SCHEMA - 1}")
    async with ScriptedSwarm(automatic=False) as swarm:
        for client in ("me", "me", "somebody else"):
            swarm.claim(
                {"client_uuid": client, "episode_type": "train", "discard_episode_timeout": 240}
            )
        options = ProxyOptions(home, msgspec.convert({"swarm_url": swarm.url}, Settings))
        async with _open_context(options, "http://127.0.0.1:0") as (context, _):
            assert context.client_uuid == "me"
            notice = cause_of(context.bus.state.alerts["journal_file"])
            assert f"of version {SCHEMA - 1}" in notice
            assert "ajet-console export jsonl OUT --journal" in notice
            await swarm.until(lambda: len(swarm.claimed()) == 1)
            assert swarm.claimed()[0].client == "somebody else"
    assert len(list(home.root.glob("journal.db.older-*"))) == 1
