"""Orders to engines on the command line: through a proxy with two servers, and without one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from console import cli_engine_direct
from console.cli import main
from core.home import Home, Role
from proxy import job_orders
from proxy.control import Control
from proxy.orders import Orders
from proxy.seat import ServerSeat
from proxy.watch import ServerWatch
from swarm.claims import ClaimDesk
from swarm.client import AsyncSwarmClient
from swarm.job import BATCH, LEARNING_RATE, default_job, dump_job, get, load_job, put
from swarm.watcher import Watcher
from tests.support.scripted_swarm import ScriptedSwarm
from tests.support.seat import World, world
from tests.support.served import served


@dataclass
class Two:
    """A proxy of the home, with the servers `s` and `t`."""

    made: World
    s: ScriptedSwarm
    t: ScriptedSwarm

    async def run(self, *argv: str) -> int:
        return await asyncio.to_thread(main, list(argv))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_orders, "QUIET", 0.1)
    monkeypatch.setattr(cli_engine_direct, "QUIET", 0.1)


@asynccontextmanager
async def two(home: Home, state: str = "ROLLING") -> AsyncIterator[Two]:
    async with (
        ScriptedSwarm(state=state) as s,
        ScriptedSwarm(state=state) as t,
        world(home.root, s, watched=True) as made,
    ):
        made.swarm.sync_seconds = None
        client = AsyncSwarmClient(t.url, made.line, "me", name="t")
        watcher = Watcher(client)
        seat = ServerSeat("t", t.url, client, watcher, ClaimDesk(client, watcher, known=set))
        made.seat.servers["t"] = seat
        made.seat.tasks.spawn(ServerWatch(made.seat, seat).run(), "t")
        await watcher.wait_for(lambda seen: seen.reachable, 60)
        await made.until(lambda: {"s", "t"} <= set(made.state.servers))
        orders = Orders(made.seat, made.groups)
        control = Control(made.seat, orders, home.token(), frozenset())
        async with served(control.app()) as url:
            with Role(home, "proxy") as role:
                role.publish(url=url)
                yield Two(made, s, t)
                control.close()


async def test_all_are_stopped_with_one_line_each(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home) as both:
        assert await both.run("engine-stop", "--all", "--yes") == 0
        assert capsys.readouterr().out.splitlines() == [
            "s            done    s is stopped",
            "t            done    t is stopped",
        ]
        assert (both.s.state, both.t.state) == ("OFFLINE", "OFFLINE")


async def test_one_that_fails_is_named_and_the_exit_code_says_so(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home) as both:
        assert await both.run("engine-stop", "--server", "t", "--yes") == 0
        assert await both.run("engine-start", "--all", "--json") == 1
        out = capsys.readouterr().out
        told = json.loads(out[out.index("[") :])
        assert [(one["server"], one["ok"]) for one in told] == [("s", False), ("t", True)]
        assert "ROLLING, not OFFLINE" in told[0]["message"]
        assert await both.run("engine-stop", "--server", "u", "--yes") == 1
        assert await both.run("engine-stop", "--server", "s", "--all") == 2


async def test_without_a_yes_the_loss_of_each_is_named(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home) as both:
        body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
        both.t.claim(body)
        assert await both.run("engine-apply", "--all") == 2
        told = capsys.readouterr().err
        assert "of 2 servers" in told
        assert "1 episode of 1 other client" in told
        assert both.t.stops == both.s.stops == 0


async def test_a_changed_job_is_saved_compared_and_applied(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home) as both:
        assert await both.run("engine-job", "--set", "lr=1e-4", "--server", "t") == 0
        assert (home.root / "jobs" / "t.yaml").exists()
        assert "the next start takes it" in capsys.readouterr().out
        assert await both.run("engine-job", "--set", "batch=0", "--server", "t") == 2
        assert "Tasks a step: cannot be 0" in capsys.readouterr().err

        assert await both.run("engine-apply", "--server", "t", "--yes") == 0
        told = capsys.readouterr()
        assert "t is starting with its saved job" in told.out
        for step in ("stop the engine", "wait for a stable OFFLINE", "send the job", "boot"):
            assert step in told.err
        assert get(load_job(str(both.t.config)), LEARNING_RATE) == 1e-4
        assert both.s.stops == 0

        assert await both.run("engine-job", "--diff", "--set", "lr=2e-4", "--server", "t") == 0
        assert "Learning rate: 0.0001 -> 0.0002" in capsys.readouterr().out
        assert await both.run("engine-job", "--server", "t") == 0
        out = capsys.readouterr().out
        assert get(load_job(out), LEARNING_RATE) == 1e-4


async def test_a_file_is_checked_with_its_line(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("ajet:\n  rollout:\n    num_repeat: few\n")
    async with two(home) as both:
        assert await both.run("engine-apply", "--file", str(file), "--yes") == 2
        assert f"{file}:3" in capsys.readouterr().err
        assert both.s.stops == 0
        job = default_job()
        put(job, BATCH, 3)
        put(job, "ajet.rollout.num_repeats", 2)
        file.write_text(dump_job(job))
        assert await both.run("engine-job", "--file", str(file), "--check") == 0
        assert "unknown key `ajet.rollout.num_repeats`" in capsys.readouterr().out
        assert not (home.root / "jobs").exists()


async def test_an_episode_of_another_client_is_aborted(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home) as both:
        body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
        uuid = both.s.claim(body)["episode_uuid"]
        assert await both.run("engine-abort-episode", uuid[:12]) == 2
        assert "loses it" in capsys.readouterr().err
        assert await both.run("engine-abort-episode", uuid[:12], "--yes") == 0
        assert "of client other aborted" in capsys.readouterr().out


async def test_without_a_proxy_the_servers_are_ordered_themselves(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ScriptedSwarm() as s, ScriptedSwarm(state="OFFLINE") as t:
        urls = ["--swarm-url", f"s={s.url}", "--swarm-url", f"t={t.url}"]

        async def run(*argv: str) -> int:
            return await asyncio.to_thread(main, [argv[0], *urls, *argv[1:]])

        assert await run("engine-job", "--all", "--set", "batch=3") == 0
        assert await run("engine-apply", "--all", "--yes") == 0
        out = capsys.readouterr().out
        assert "s: stop the engine" in out
        assert "t: stop the engine" not in out
        assert (s.stops, t.stops) == (1, 0)
        for one in (s, t):
            assert get(load_job(str(one.config)), BATCH) == 3
        s.start_error = "no GPU is free"
        assert await run("engine-apply", "--server", "s", "--yes") == 1
        told = capsys.readouterr().err
        assert "`start the engine` failed" in told
        assert "the engine is BOOTING" in told
