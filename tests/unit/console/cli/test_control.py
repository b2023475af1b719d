"""Orders to engines on the command line: through a proxy with two servers, and without one."""

import json
import logging
import re
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ajet_swarm.api import watcher
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.job.schema import BATCH, GPUS, LEARNING_RATE, MODEL, REQUIRED
from ajet_swarm.job.server import MODEL_VARIABLE, for_server
from ajet_swarm.job.tree import dump_job, get, load_job, put
from core.jobs import server_job
from core.runtime.home import Home, Role
from proxy.context import ServerHandle
from proxy.control.api import ControlApi
from proxy.control.dispatch import CommandDispatcher
from proxy.servers.watch import ServerWatch
from tests.support.checks import missing
from tests.support.commands.cli import AsyncCli, Cli
from tests.support.proxy.world import World, world
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import below, served
from tests.support.stored import stored_bytes

pytestmark = pytest.mark.slow


@dataclass
class Two:
    """A proxy of the home, with the servers `s` and `t`."""

    made: World
    s: ScriptedSwarm
    t: ScriptedSwarm


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "QUIET", 0.1)
    monkeypatch.setenv(MODEL_VARIABLE, "remote/model")


@pytest.fixture
async def both(home: Home) -> AsyncIterator[Two]:
    async with _two(home, "ROLLING") as made:
        yield made


@pytest.fixture
async def offline(home: Home) -> AsyncIterator[Two]:
    async with _two(home, "OFFLINE") as made:
        yield made


@asynccontextmanager
async def _two(home: Home, state: str) -> AsyncIterator[Two]:
    async with (
        ScriptedSwarm(state=state) as s,
        ScriptedSwarm(state=state) as t,
        world(home.root, s, watched=True) as made,
    ):
        made.swarm.sync_seconds = None
        client = SwarmWire(t.url, made.line, "me", name="t")
        watcher = Watcher(client)
        server = ServerHandle("t", t.url, client, watcher, EpisodeClaimer(client, watcher))
        made.context.servers["t"] = server
        made.context.tasks.spawn(ServerWatch(made.context, server).run(), "t")
        await watcher.wait_for(lambda status: status.reachable, 60)
        await made.until(lambda: {"s", "t"} <= set(made.state.servers))
        orders = CommandDispatcher(made.context, made.groups)
        control = ControlApi(made.context, orders, home.token(), frozenset())
        async with served(below("/control", control.app())) as url:
            with Role(home, "proxy") as role:
                role.publish(url=url)
                yield Two(made, s, t)
                control.close()


async def test_all_are_stopped_with_one_line_each(async_cli: AsyncCli, both: Two) -> None:
    shown = await async_cli.out("engine", "stop", "--all", "--yes")
    assert shown.splitlines() == [
        "s            done    s is stopped",
        "t            done    t is stopped",
    ]
    assert (both.s.state, both.t.state) == ("OFFLINE", "OFFLINE")


async def test_a_failed_server_is_reported_with_exit_code_1(async_cli: AsyncCli, both: Two) -> None:
    await async_cli("engine", "stop", "--server", "t", "--yes")
    out = await async_cli.out(
        "engine", "start", "--all", "--json", "--yes", "--preset", "default", code=1
    )
    body = json.loads(out[out.index("{") :])["results"]
    assert [(one["server"], one["ok"]) for one in body] == [("s", False), ("t", True)]
    assert "ROLLING, not OFFLINE" in body[0]["message"]
    await async_cli("engine", "stop", "--server", "u", "--yes", code=1)
    await async_cli("engine", "stop", "--server", "s", "--all", code=2)


async def test_the_confirmation_names_the_loss_of_each_server(
    async_cli: AsyncCli, both: Two
) -> None:
    body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
    both.t.claim(body)
    shown = await async_cli.refused("engine", "apply", "--all")
    assert not missing(shown, "of 2 servers", "1 episode of 1 other client")
    assert both.t.stops == both.s.stops == 0


async def test_a_changed_job_is_saved_compared_and_applied(
    async_cli: AsyncCli, both: Two, home: Home
) -> None:
    shown = await async_cli.out("engine", "job", "--set", "lr=1e-4", "--server", "t")
    assert "the next start takes it" in shown
    assert (home.root / "jobs" / "t.yaml").exists()
    shown = await async_cli.refused("engine", "job", "--set", "batch=0", "--server", "t")
    assert "Tasks a step: cannot be `0`" in shown

    captured = await async_cli.run("engine", "apply", "--server", "t", "--yes")
    assert "t is starting with its saved job" in captured.out
    assert not missing(
        captured.err, "stop the engine", "wait for a stable OFFLINE", "send the job", "boot"
    )
    assert (get(load_job(str(both.t.config)), LEARNING_RATE), both.s.stops) == (1e-4, 0)

    shown = await async_cli.out("engine", "job", "--diff", "--set", "lr=2e-4", "--server", "t")
    assert "Learning rate: 0.0001 -> 0.0002" in shown
    out = await async_cli.out("engine", "job", "--server", "t")
    assert get(load_job(out), LEARNING_RATE) == 1e-4


async def test_a_file_is_checked_with_its_line(
    async_cli: AsyncCli, both: Two, home: Home, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("ajet:\n  rollout:\n    num_repeat: few\n")
    assert f"{file}:3" in await async_cli.refused("engine", "apply", "--file", file, "--yes")
    assert both.s.stops == 0
    job = server_job("m")
    put(job, BATCH, 4)
    put(job, "ajet.rollout.num_repeats", 2)
    file.write_text(dump_job(job))
    shown = await async_cli.out("engine", "job", "--file", file, "--check")
    assert "unknown key `ajet.rollout.num_repeats`" in shown
    assert not (home.root / "jobs").exists()


async def test_an_episode_of_another_client_is_aborted(async_cli: AsyncCli, both: Two) -> None:
    body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
    uuid = both.s.claim(body)["episode_uuid"]
    assert "also for the client" in await async_cli.refused("engine", "abort-episode", uuid[:12])
    shown = await async_cli.out("engine", "abort-episode", uuid[:12], "--yes")
    assert "of client other aborted" in shown


async def test_without_a_proxy_commands_go_to_the_servers_directly(
    async_cli: AsyncCli, home: Home
) -> None:
    async with ScriptedSwarm() as s, ScriptedSwarm(state="OFFLINE") as t:
        urls = ["--swarm-url", f"s={s.url}", "--swarm-url", f"t={t.url}"]
        await async_cli("engine", "job", *urls, "--all", "--set", "batch=6")
        steps = await async_cli.err("engine", "apply", *urls, "--all", "--yes")
        assert "s: stop the engine" in steps
        assert "t: stop the engine" not in steps
        assert (s.stops, t.stops) == (1, 0)
        for one in (s, t):
            assert get(load_job(str(one.config)), BATCH) == 6
        s.start_error = "no GPU is free"
        shown = await async_cli.failed("engine", "apply", *urls, "--server", "s", "--yes")
        assert not missing(shown, "`start the engine` failed", "the engine is BOOTING")


async def test_the_first_start_of_an_agentjet_server_shows_the_job_and_asks(
    async_cli: AsyncCli, offline: Two
) -> None:
    shown = await async_cli.refused("engine", "start", "--server", "t")
    assert "# to t" in shown
    assert not missing(
        shown, "defaults:", "searchpath:", "interchange_server:", "path: remote/model"
    )
    assert "needs confirmation" in shown
    assert offline.t.config is None
    await async_cli("engine", "start", "--server", "t", "--yes")
    sent = load_job(str(offline.t.config))
    assert {path: get(sent, path) for path in REQUIRED} == dict(REQUIRED)
    await offline.t.until(lambda: offline.t.state == "ROLLING")
    await offline.made.until(lambda: offline.made.state.servers["t"].work.over)
    await async_cli("engine", "stop", "--server", "t", "--yes")
    await async_cli("engine", "start", "--server", "t")  # not the first one


async def test_the_model_comes_from_the_environment_when_the_proxy_has_none(
    async_cli: AsyncCli, offline: Two, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(MODEL_VARIABLE)
    shown = await async_cli.refused("engine", "start", "--server", "t")  # before any question
    assert "no model is named" in shown
    error_output = await async_cli.failed("engine", "start", "--server", "t", "--yes")
    assert not missing(error_output, "no model is named", "--set model=PATH", MODEL_VARIABLE)
    await async_cli("engine", "start", "--server", "t", "--yes", "--set", "model=a/b")
    assert get(load_job(str(offline.t.config)), MODEL) == "a/b"
    saved = (home.root / "jobs" / "t.yaml").read_text()
    assert get(load_job(saved), MODEL) == "a/b"


async def test_a_direct_start_asks_and_gives_advice_when_it_fails(
    async_cli: AsyncCli, home: Home
) -> None:
    async with ScriptedSwarm(state="OFFLINE") as s:
        url = f"s={s.url}"
        start = ["engine", "start", "--swarm-url", url]
        assert "needs confirmation" in await async_cli.refused(*start)
        s.start_error = "no GPU is free"
        shown = await async_cli.failed(*start, "--yes")
        assert not missing(
            shown,
            "no GPU is free; the engine is BOOTING",
            "engine stop`, correct the job, start it again",
        )
        s.start_error = ""
        await async_cli("engine", "stop", "--swarm-url", url, "--yes")
        await async_cli(*start, "--yes")
        await s.until(lambda: s.state == "ROLLING")


@pytest.mark.parametrize("verb", ["start", "apply"])
async def test_a_refused_direct_start_shows_no_secret_of_the_job(
    async_cli: AsyncCli, home: Home, tmp_path: Path, verb: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("ajet: {model: {path: m}, teacher_model: {api_key: hunter2hunter2}}\n")
    async with ScriptedSwarm(state="OFFLINE") as s:
        s.start_error = "refused: api_key=hunter2hunter2"
        value = ["--swarm-url", f"s={s.url}", "--file", str(file), "--yes"]
        result = "".join(await async_cli.run("engine", verb, *value, code=1))
        assert "api_key=***; the engine is BOOTING" in result
        assert "hunter2" not in result


SECRETS = {
    "api_key": "Qx7-first-key",
    "hf_token": 904170417904,
    "db-password": "Quoted: #'\"x\nQlast line\n",
    "Authorization": "Bearer Qv.9-token",
    "secrets": ["Qone-secret", {"Qdeep-name": "Qtwo-secret"}],
}


LEAKS = ("Qx7-fir", "90417041", "Quoted", "Qlast l", "Qv.9-to", "Qone-se", "Qdeep-n", "Qtwo-se")
"""Beginnings of the secrets, too long to occur by chance in a compressed row or a time."""


def secret_job(**more: object) -> str:
    job = server_job("m")
    put(job, "ajet.teacher_model", {**SECRETS, "model": "big", **more})
    return "# the operator's comment\n" + dump_job(job)


async def test_no_secret_of_a_job_leaves_the_proxy_and_none_is_lost(
    async_cli: AsyncCli,
    both: Two,
    home: Home,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "job.yaml"
    file.write_text(secret_job())
    saved = home.root / "jobs" / "t.yaml"
    applied = await async_cli.run("engine", "apply", "--file", file, "--server", "t", "--yes")
    assert load_job(str(both.t.config)) == load_job(for_server(file.read_text()).text)
    assert saved.read_text() == file.read_text()
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600

    # the printed job is edited and sent back: the values are still there
    shown = await async_cli.out("engine", "job", "--server", "t")
    assert not missing(shown, "# the operator's comment", "api_key: '*** ")
    file.write_text(shown.replace("model: big", "model: huge"))
    await async_cli("engine", "job", "--file", file, "--server", "t")
    assert load_job(saved.read_text()) == load_job(secret_job(model="huge"))
    await async_cli("engine", "job", "--set", "lr=1e-4", "--server", "t")
    assert get(load_job(saved.read_text()), "ajet.teacher_model.hf_token") == 904170417904
    output = await async_cli.out("engine", "job", "--diff", "--server", "t")
    assert "teacher_model.model: big -> huge" in output
    assert "api_key" not in output

    # another value shows as another value
    file.write_text(secret_job(api_key="Qx8-second-key", key=1.5))
    await async_cli("engine", "job", "--diff", "--file", file, "--server", "t")
    await async_cli("engine", "job", "--file", file, "--server", "t")
    output = await async_cli.out("engine", "job", "--diff", "--server", "t")
    assert output.count("teacher_model.api_key: *** -> *** (changed)") == 2
    assert output.count("teacher_model.key: \u2013 -> ***") == 2

    # a mask that means nothing is refused
    file.write_text(re.sub(r"\*\*\* \w{8}", "***", shown))
    printed = await async_cli.failed("engine", "job", "--file", file, "--server", "s")
    assert "is masked, and there is no saved value" in printed

    for argv in (["--running"], ["--running", "--json"], ["--diff", "--json"], ["--json"]):
        await async_cli("engine", "job", *argv, "--server", "t")
    await async_cli("engine", "start", "--server", "s", "--file", saved, "--yes", code=1)
    await both.made.context.journal.committed(both.made.context.bus.state.seq)
    stored = stored_bytes(*home.root.glob("j.db*"))
    assert b"api_key" in stored
    out = capsys.readouterr()
    output = "\n".join((*applied, output, shown, *out, caplog.text, stored.decode("latin-1")))
    assert not [leak for leak in (*LEAKS, "Qx8-sec") if leak in output]


async def test_a_secret_list_that_did_not_change_is_no_difference(
    async_cli: AsyncCli, both: Two, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    flow = "opd: {teacher_api_keys: [a1a1, b2b2]}"
    file.write_text(f"ajet:\n  model: {{path: m}}\n  {flow}\n")
    await async_cli.run("engine", "apply", "--file", file, "--server", "t", "--yes")
    assert "api_keys" not in await async_cli.out("engine", "job", "--diff", "--server", "t")
    file.write_text(file.read_text().replace("b2b2", "c3c3"))
    await async_cli("engine", "job", "--file", file, "--server", "t")
    shown = await async_cli.out("engine", "job", "--diff", "--server", "t")
    assert "teacher_api_keys: *** -> *** (changed)" in shown


async def test_without_a_proxy_no_secret_is_printed_and_none_is_lost(
    async_cli: AsyncCli, home: Home, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(secret_job())
    async with ScriptedSwarm(state="OFFLINE") as s:
        url = ("--swarm-url", f"s={s.url}")
        await async_cli.run("engine", "job", *url, "--file", file)
        await async_cli("engine", "job", *url)
        shown = await async_cli.out("engine", "job", *url, "--json")
        assert "api_key: '***'" in shown
        assert not [leak for leak in LEAKS if leak in shown]
        file.write_text(shown[: shown.index("{")].replace("model: big", "model: huge"))
        output = await async_cli.refused("engine", "start", *url, "--file", file)
        assert "api_key: '***'" in output
        assert not [leak for leak in LEAKS if leak in output]
        await async_cli("engine", "start", *url, "--file", file, "--yes")
        assert load_job(str(s.config)) == load_job(for_server(secret_job(model="huge")).text)


async def test_a_check_reports_the_keys_added_for_an_agentjet_server(
    async_cli: AsyncCli, both: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("ajet: {model: {path: a/b}}\n")
    check = ("engine", "job", "--file", str(file), "--check")
    shown = await async_cli.out(*check, "--server", "t")
    trains = "it trains a/b on 8 GPUs (assumed: the job names no number)"
    added = f"{len(REQUIRED)} keys that an AgentJet server needs are added"
    assert f"it can be sent; {trains}; {added}" in shown
    file.write_text(for_server("ajet: {model: {path: a/b}}").text)
    shown = await async_cli.out(*check, "--server", "t")
    assert shown.strip().endswith(f"it can be sent; {trains}")
    monkeypatch.delenv(MODEL_VARIABLE)
    file.write_text("ajet: {}\n")
    assert f"{file}: no model is named" in await async_cli.refused(*check, "--server", "t")


def test_without_a_server_the_default_job_is_the_embedded_engines(cli: Cli, home: Home) -> None:
    assert get(load_job(cli.out("engine", "job")), MODEL) == "tiny"
    job = load_job(cli.out("engine", "job", "--swarm-url", "http://127.0.0.1:9"))
    assert get(job, MODEL) == "remote/model"
    assert get(job, LEARNING_RATE) is None


async def test_a_model_in_the_environment_does_not_save_a_job(
    async_cli: AsyncCli, offline: Two, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    await async_cli("engine", "job", "--server", "t", "--set", "gpus=4")
    saved = home.root / "jobs" / "t.yaml"
    before = saved.read_text()
    monkeypatch.setenv(MODEL_VARIABLE, "another/model")
    await async_cli("engine", "start", "--server", "t", "--preset", "hand", "--yes")
    sent = load_job(str(offline.t.config))
    assert (get(sent, BATCH), get(sent, GPUS)) == (1, 4)
    assert saved.read_text() == before


@pytest.mark.parametrize("way", ["proxy", "direct"])
@pytest.mark.parametrize("verb", ["start", "apply"])
async def test_a_start_that_dies_in_the_trainer_fails_and_names_the_likely_causes(
    async_cli: AsyncCli, offline: Two, tmp_path: Path, way: str, verb: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("ajet: {model: {path: a/b}, trainer_common: {logger: wandb}}\n")
    to = ("--swarm-url", f"t={offline.t.url}") if way == "direct" else ("--server", "t")
    order = ("engine", verb, *to, "--yes", "--file", str(file))
    shown = await async_cli.failed(*order)
    assert not missing(shown, "boot", "went back to OFFLINE", "no model `a/b` there")
    assert not missing(shown, "the logger wandb without WANDB_API_KEY", "swarm_server.log")
    assert "fewer GPUs there than the 8 GPUs (assumed: the job names no number)" in shown
    assert "is starting" in await async_cli.out(*order, "--no-wait")
    offline.t.gpus = 4
    await offline.t.until(lambda: offline.t.state == "OFFLINE")
    await offline.made.until(
        lambda: (work := offline.made.state.servers["t"].work) is None or work.over
    )
    file.write_text("ajet: {model: {path: a/b}, trainer_common: {n_gpus_per_node: 4}}\n")
    assert "ROLLING, step 1" in await async_cli.out(*order)
    assert offline.t.state == "ROLLING"


async def test_after_a_restart_a_start_sends_the_job_that_was_sent_last(
    async_cli: AsyncCli, home: Home
) -> None:
    async with _two(home, "OFFLINE") as both:  # the journal is complete when it has ended
        shown = await async_cli.failed(
            "engine", "start", "--server", "t", "--yes", "--preset", "last"
        )
        assert "no job was sent from here" in shown
        await async_cli("engine", "start", "--server", "t", "--yes", "--preset", "hand")
        both.t.set_state("OFFLINE", 0)
        both.t.config = None
        assert get(load_job(await async_cli.out("engine", "job", "--server", "t")), BATCH) == 2
        shown = await async_cli.out("engine", "start", "--server", "t")
        assert "with the job last sent from here" in shown
        assert get(load_job(str(both.t.config)), BATCH) == 2
    (home.root / "j.db").rename(home.journal)
    for preset in ((), ("--preset", "last")):
        async with ScriptedSwarm(state="OFFLINE") as t:
            direct = ["engine", "start", "--yes", "--swarm-url", f"t={t.url}", *preset]
            await async_cli(*direct)
            assert get(load_job(str(t.config)), BATCH) == 2
