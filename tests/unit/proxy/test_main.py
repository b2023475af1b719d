"""The proxy's main: its runtime, its rewards, journals that are old or damaged."""

import asyncio
import contextlib
import dataclasses
import errno
import random
import secrets
import sqlite3
from pathlib import Path

import msgspec
import pytest

import core.journal.storage
import core.journal.writer
from ajet_swarm.runtime import Chance, Clock, Runtime
from core.events import AlertCleared, GroupNoted
from core.journal.file import PAGE, SCHEMA, mark_of
from core.journal.prune import Pruner, Retention
from core.journal.writer import Journal
from core.runtime.home import Home, Role
from core.settings import Settings
from proxy import main
from proxy.api.handler import RequestHandler
from proxy.control.journal_alerts import follow_journal
from proxy.endpoint import create_app
from proxy.http.server import http_config
from proxy.main import (
    MISSING_REWARDS,
    ProxyOptions,
    _note_missing_rewards,
    _open_context,
    _rewards_changed,
)
from proxy.rewards.source import Abstention, SourceHealth
from tests.support.alerts import cause_of, todo_of
from tests.support.proxy.front import BODIES
from tests.support.proxy.world import World, world
from tests.support.scripted.openai import ScriptedOpenAI
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import client, served
from tests.support.stored import replayed


@pytest.mark.parametrize("observes", [False, True])
async def test_all_parts_have_one_runtime(observes: bool, tmp_path: Path) -> None:
    runtime = Runtime(Clock(wall=lambda: 7.0), Chance(random.Random(1)))
    async with ScriptedOpenAI() if observes else ScriptedSwarm() as server:
        address = {"upstream": {"url": server.url}} if observes else {"swarm_url": server.url}
        settings = msgspec.convert({**address, "proxy": {"watch_only": not observes}}, Settings)
        options = ProxyOptions(Home.open(tmp_path), settings, runtime=runtime)
        async with _open_context(options, "http://127.0.0.1:0") as (context, _):
            (handle,) = context.servers.values()
            assert context.bus.run_id == Chance(random.Random(1)).token(6)
            assert context.clock() == context.bus.clock() == handle.watcher.clock() == 7.0
            assert vars(handle.client)["_runtime"] is runtime
            assert vars(handle.claimer)["_chance"] is runtime.chance


@pytest.mark.parametrize(
    ("starts_by", "message"), [(30.0, "The engine is starting."), (10.0, "The engine is OFFLINE")]
)
async def test_an_own_engine_that_is_off_starts_if_that_was_announced(
    starts_by: float, message: str, tmp_path: Path
) -> None:
    home = Home.open(tmp_path)
    runtime = Runtime(Clock(wall=lambda: 20.0))
    async with ScriptedSwarm(state="OFFLINE") as engine:
        settings = msgspec.convert({"swarm_url": "embedded"}, Settings)
        options = ProxyOptions(home, settings, runtime=runtime, engine_starts_by=starts_by)
        with Role(home, "engine") as role:
            role.publish(url=engine.url)
            async with _open_context(options, "http://127.0.0.1:0") as (context, _):
                (handle,) = context.servers.values()
                await handle.watcher.poll()
                assert handle.overloaded("", 1).message.startswith(message)


async def test_the_ids_of_an_answer_are_drawn_by_the_runtime(tmp_path: Path) -> None:
    class Fixed(Chance):
        def token(self, size: int) -> str:
            return "ab" * size

    async with world(tmp_path) as w:
        context = dataclasses.replace(w.context, runtime=Runtime(chance=Fixed()))
        app = create_app(context, w.groups, handler=RequestHandler(context, w.groups))
        async with (
            served(app, http_config(context.settings.proxy, app)) as url,
            client(url) as http,
        ):
            path = "/v1/chat/completions"
            chat = (await http.post(path, json=BODIES[path])).json()
            path = "/v1/responses"
            response = (await http.post(path, json=BODIES[path])).json()
    drawn = "ab" * 8
    assert chat["id"] == f"chatcmpl-{drawn}"
    assert (response["id"], response["output"][0]["id"]) == (f"resp_{drawn}", f"msg_{drawn}")


async def test_built_in_rewards_that_replace_a_missing_file_raise_an_alert(
    w: World, tmp_path: Path
) -> None:
    file = tmp_path / "rewards.yaml"
    w.source.name = "builtin"
    _note_missing_rewards(w.context, str(file))
    assert str(file) in cause_of(w.state.alerts[MISSING_REWARDS])
    w.source.name = str(file)  # it was restored
    _rewards_changed(w.context, SourceHealth(True, None, "v2"))
    assert MISSING_REWARDS not in w.state.alerts


@pytest.mark.parametrize(
    ("version", "meanwhile"), [("", "groups get no automatic reward"), ("v1", "the last good")]
)
async def test_the_log_has_what_follows_and_what_to_do(
    version: str, meanwhile: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy that runs without a console reports a broken file nowhere else."""
    fault = Abstention("model", "parts: it is no list", file="/h/rewards.yaml", line=2)
    async with world(tmp_path) as w:
        _rewards_changed(w.context, SourceHealth(False, fault, version))
    (logged,) = [one.getMessage() for one in caplog.records if "rewards" in one.getMessage()]
    assert logged.startswith("the rewards did not load: /h/rewards.yaml:2: parts: it is no list; ")
    assert meanwhile in logged
    assert logged.endswith("Correct the file and save it")


@pytest.mark.parametrize("before", ["", "builtin", "{home}", "{home}/hooks"])
async def test_no_alert_if_nothing_is_missing(w: World, tmp_path: Path, before: str) -> None:
    w.source.name = str(tmp_path / "other.yaml") if "hooks" in before else "builtin"
    _note_missing_rewards(w.context, before.format(home=tmp_path))
    assert MISSING_REWARDS not in w.state.alerts


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


async def test_training_resumes_by_itself(
    w: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal.storage, "BUSY", 0.02)
    monkeypatch.setattr(core.journal.writer, "POLL", 0.02)
    monkeypatch.setattr(core.journal.writer, "RETRY", (0.02, 0.05))
    follow_journal(w.context)
    await w.context.journal.durable(w.state.seq)
    with contextlib.closing(sqlite3.connect(tmp_path / "j.db")) as other:
        other.execute("begin immediate")
        for _ in range(2):
            ticket = await w.ask()
            assert (await w.reply(ticket)).answer is not None
            await w.closed()
        assert not w.swarm.ends
        assert not w.swarm.claimed()
        await w.until(lambda: "journal" in w.state.alerts)
    await w.until(lambda: "journal" not in w.state.alerts)
    (over,) = w.kinds(AlertCleared)
    assert over.note.startswith("it is written again, after")
    untrained = w.group(ticket).phase
    group, _ = await w.complete(text="another question")
    assert len(w.swarm.ends) == 4
    assert (group.phase, w.group(ticket).phase) == ("DONE", untrained)
    await w.context.journal.durable(w.state.seq)
    assert replayed(w.context.journal) == w.state


@pytest.mark.slow
async def test_a_journal_that_is_deleted_while_training_goes_on(w: World, tmp_path: Path) -> None:
    follow_journal(w.context)
    await w.complete()
    await w.context.journal.durable(w.state.seq)
    for path in tmp_path.glob("j.db*"):
        path.unlink()
    await w.complete(text="another question")
    alert = await w.until(lambda: w.state.alerts.get("journal_file"))
    assert "the journal was deleted" in cause_of(alert)
    assert len(w.swarm.ends) == 8
    await w.context.journal.durable(w.state.seq)
    assert replayed(w.context.journal) == w.state


async def test_a_damaged_page_is_found_in_the_background(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        for number in range(30):
            w.context.bus.publish(GroupNoted(group_id=f"g{number}", note=secrets.token_hex(1_000)))
        await w.context.journal.durable(w.state.seq)
    with contextlib.closing(sqlite3.connect(tmp_path / "j.db")) as db:
        (row,) = db.execute("select data from rows order by length(data) desc").fetchone()
    async with world(tmp_path, recover=False) as w:
        with (tmp_path / "j.db").open("r+b") as file:
            file.seek((tmp_path / "j.db").read_bytes().index(row[-500:]) // PAGE * PAGE)
            file.write(b"\xff" * PAGE)
        follow_journal(w.context)
        alert = await w.until(lambda: w.state.alerts.get("journal_damage"))
        assert "Restart the proxy" in todo_of(alert)
        assert mark_of(tmp_path / "j.db").exists()


@pytest.mark.world(recover=False)
async def test_a_failed_pruning_is_an_alert_until_it_succeeds(w: World) -> None:
    pruner = w.context.pruner = Pruner(w.context.journal, Retention())
    follow_journal(w.context)
    await asyncio.to_thread(pruner.on_change, OSError(5, "disk \x1b gone"))
    alert = await w.until(lambda: w.state.alerts.get("journal_prune"))
    assert "OSError: [Errno 5] disk" in cause_of(alert)
    assert "\x1b" not in alert.params["error"]
    await asyncio.to_thread(pruner.on_change, None)
    await w.until(lambda: "journal_prune" not in w.state.alerts)


@pytest.mark.world(recover=False)
async def test_a_start_without_a_journal_that_can_be_written(w: World) -> None:
    w.context.journal.error = "database or disk is full"
    follow_journal(w.context)
    await main._announce(w.context, "http://127.0.0.1:1", "the journal was damaged")
    alert = await w.until(lambda: w.state.alerts.get("journal"))
    assert "disk is full" in cause_of(alert)
    assert cause_of(w.state.alerts["journal_file"]) == "the journal was damaged"
    w.context.journal.error = ""


async def test_a_run_file_is_written_later_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "PUBLISH_RETRY", 0.01)
    tries: list[int] = []

    def publish() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")

    assert not main._publish_run_file(publish)
    async with asyncio.timeout(20):
        await main._retry_publish(publish)
    assert len(tries) == 4
