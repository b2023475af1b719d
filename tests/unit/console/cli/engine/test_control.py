"""Orders to engines on the command line: through a proxy with two servers, and without one."""

import asyncio
import json
import logging
import re
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ajet_swarm.api import stable_offline
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.job.schema import BATCH, GPUS, LEARNING_RATE, MODEL, REQUIRED
from ajet_swarm.job.server import MODEL_VARIABLE, for_server
from ajet_swarm.job.tree import dump_job, get, load_job, put
from console.cli import main
from core.jobs import server_job
from core.runtime.home import Home, Role
from proxy.context import ServerHandle
from proxy.control.api import ControlApi
from proxy.control.dispatch import CommandDispatcher
from proxy.servers.watch import ServerWatch
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

    async def run(self, *argv: str) -> int:
        return await asyncio.to_thread(main, list(argv))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stable_offline, "QUIET", 0.1)
    monkeypatch.setenv(MODEL_VARIABLE, "remote/model")


@asynccontextmanager
async def two(home: Home, state: str = "ROLLING") -> AsyncIterator[Two]:
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


async def test_a_failed_server_is_reported_with_exit_code_1(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home) as both:
        assert await both.run("engine-stop", "--server", "t", "--yes") == 0
        assert (
            await both.run("engine-start", "--all", "--json", "--yes", "--preset", "default") == 1
        )
        out = capsys.readouterr().out
        body = json.loads(out[out.index("{") :])["results"]
        assert [(one["server"], one["ok"]) for one in body] == [("s", False), ("t", True)]
        assert "ROLLING, not OFFLINE" in body[0]["message"]
        assert await both.run("engine-stop", "--server", "u", "--yes") == 1
        assert await both.run("engine-stop", "--server", "s", "--all") == 2


async def test_the_confirmation_names_the_loss_of_each_server(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home) as both:
        body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
        both.t.claim(body)
        assert await both.run("engine-apply", "--all") == 2
        error_output = capsys.readouterr().err
        assert "of 2 servers" in error_output
        assert "1 episode of 1 other client" in error_output
        assert both.t.stops == both.s.stops == 0


async def test_a_changed_job_is_saved_compared_and_applied(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home) as both:
        assert await both.run("engine-job", "--set", "lr=1e-4", "--server", "t") == 0
        assert (home.root / "jobs" / "t.yaml").exists()
        assert "the next start takes it" in capsys.readouterr().out
        assert await both.run("engine-job", "--set", "batch=0", "--server", "t") == 2
        assert "Tasks a step: cannot be `0`" in capsys.readouterr().err

        assert await both.run("engine-apply", "--server", "t", "--yes") == 0
        captured = capsys.readouterr()
        assert "t is starting with its saved job" in captured.out
        for step in ("stop the engine", "wait for a stable OFFLINE", "send the job", "boot"):
            assert step in captured.err
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
        job = server_job("m")
        put(job, BATCH, 4)
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
        assert "also for the client" in capsys.readouterr().err
        assert await both.run("engine-abort-episode", uuid[:12], "--yes") == 0
        assert "of client other aborted" in capsys.readouterr().out


async def test_without_a_proxy_commands_go_to_the_servers_directly(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ScriptedSwarm() as s, ScriptedSwarm(state="OFFLINE") as t:
        urls = ["--swarm-url", f"s={s.url}", "--swarm-url", f"t={t.url}"]

        async def run(*argv: str) -> int:
            return await asyncio.to_thread(main, [argv[0], *urls, *argv[1:]])

        assert await run("engine-job", "--all", "--set", "batch=6") == 0
        assert await run("engine-apply", "--all", "--yes") == 0
        steps = capsys.readouterr().err
        assert "s: stop the engine" in steps
        assert "t: stop the engine" not in steps
        assert (s.stops, t.stops) == (1, 0)
        for one in (s, t):
            assert get(load_job(str(one.config)), BATCH) == 6
        s.start_error = "no GPU is free"
        assert await run("engine-apply", "--server", "s", "--yes") == 1
        error_output = capsys.readouterr().err
        assert "`start the engine` failed" in error_output
        assert "the engine is BOOTING" in error_output


async def test_the_first_start_of_an_agentjet_server_shows_the_job_and_asks(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home, "OFFLINE") as both:
        assert await both.run("engine-start", "--server", "t") == 2
        shown = capsys.readouterr().err
        assert "# to t" in shown
        for path in ("defaults:", "searchpath:", "interchange_server:", "path: remote/model"):
            assert path in shown
        assert "needs confirmation" in shown
        assert both.t.config is None
        assert await both.run("engine-start", "--server", "t", "--yes") == 0
        sent = load_job(str(both.t.config))
        assert {path: get(sent, path) for path in REQUIRED} == dict(REQUIRED)
        await both.t.until(lambda: both.t.state == "ROLLING")
        await both.made.until(lambda: both.made.state.servers["t"].work.over)
        assert await both.run("engine-stop", "--server", "t", "--yes") == 0
        assert await both.run("engine-start", "--server", "t") == 0, "not the first one"


async def test_the_model_comes_from_the_environment_when_the_proxy_has_none(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(home, "OFFLINE") as both:
        monkeypatch.delenv(MODEL_VARIABLE)
        assert await both.run("engine-start", "--server", "t") == 2, "told before any question"
        assert "no model is named" in capsys.readouterr().err
        assert await both.run("engine-start", "--server", "t", "--yes") == 1
        error_output = capsys.readouterr().err
        assert "no model is named" in error_output
        assert "--set model=PATH" in error_output
        assert MODEL_VARIABLE in error_output
        assert await both.run("engine-start", "--server", "t", "--yes", "--set", "model=a/b") == 0
        assert get(load_job(str(both.t.config)), MODEL) == "a/b"
        saved = (home.root / "jobs" / "t.yaml").read_text()
        assert get(load_job(saved), MODEL) == "a/b"


async def test_a_direct_start_asks_and_gives_advice_when_it_fails(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with ScriptedSwarm(state="OFFLINE") as s:
        url = f"s={s.url}"
        start = ["engine-start", "--swarm-url", url]
        assert await asyncio.to_thread(main, start) == 2
        assert "needs confirmation" in capsys.readouterr().err
        s.start_error = "no GPU is free"
        assert await asyncio.to_thread(main, [*start, "--yes"]) == 1
        error_output = capsys.readouterr().err
        assert "no GPU is free; the engine is BOOTING" in error_output
        assert "engine-stop`, correct the job, start it again" in error_output
        s.start_error = ""
        assert await asyncio.to_thread(main, ["engine-stop", "--swarm-url", url, "--yes"]) == 0
        assert await asyncio.to_thread(main, [*start, "--yes"]) == 0
        await s.until(lambda: s.state == "ROLLING")


@pytest.mark.parametrize("verb", ["engine-start", "engine-apply"])
async def test_a_refused_direct_start_shows_no_secret_of_the_job(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("ajet: {model: {path: m}, teacher_model: {api_key: hunter2hunter2}}\n")
    async with ScriptedSwarm(state="OFFLINE") as s:
        s.start_error = "refused: api_key=hunter2hunter2"
        value = ["--swarm-url", f"s={s.url}", "--file", str(file), "--yes"]
        assert await asyncio.to_thread(main, [verb, *value]) == 1
        result = "".join(capsys.readouterr())
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
    home: Home,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "job.yaml"
    file.write_text(secret_job())
    saved = home.root / "jobs" / "t.yaml"
    async with two(home) as both:
        assert await both.run("engine-apply", "--file", str(file), "--server", "t", "--yes") == 0
        assert load_job(str(both.t.config)) == load_job(for_server(file.read_text()).text)
        assert saved.read_text() == file.read_text()
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600

        # the printed job is edited and sent back: the values are still there
        applied = capsys.readouterr()
        assert await both.run("engine-job", "--server", "t") == 0
        shown = capsys.readouterr().out
        assert "# the operator's comment" in shown
        assert "api_key: '*** " in shown
        file.write_text(shown.replace("model: big", "model: huge"))
        assert await both.run("engine-job", "--file", str(file), "--server", "t") == 0
        assert load_job(saved.read_text()) == load_job(secret_job(model="huge"))
        assert await both.run("engine-job", "--set", "lr=1e-4", "--server", "t") == 0
        assert get(load_job(saved.read_text()), "ajet.teacher_model.hf_token") == 904170417904
        assert await both.run("engine-job", "--diff", "--server", "t") == 0
        output = capsys.readouterr().out
        assert "teacher_model.model: big -> huge" in output
        assert "api_key" not in output

        # another value shows as another value
        file.write_text(secret_job(api_key="Qx8-second-key", key=1.5))
        assert await both.run("engine-job", "--diff", "--file", str(file), "--server", "t") == 0
        assert await both.run("engine-job", "--file", str(file), "--server", "t") == 0
        assert await both.run("engine-job", "--diff", "--server", "t") == 0
        output = capsys.readouterr().out
        assert output.count("teacher_model.api_key: *** -> *** (changed)") == 2
        assert output.count("teacher_model.key: \u2013 -> ***") == 2

        # a mask that means nothing is refused
        file.write_text(re.sub(r"\*\*\* \w{8}", "***", shown))
        assert await both.run("engine-job", "--file", str(file), "--server", "s") == 1
        assert "is masked, and there is no saved value" in capsys.readouterr().err

        for argv in (["--running"], ["--running", "--json"], ["--diff", "--json"], ["--json"]):
            assert await both.run("engine-job", *argv, "--server", "t") == 0
        assert await both.run("engine-start", "--server", "s", "--file", str(saved), "--yes") == 1
        await both.made.context.journal.committed(both.made.context.bus.state.seq)
        stored = stored_bytes(*home.root.glob("j.db*"))
        assert b"api_key" in stored
        out = capsys.readouterr()
        output = "\n".join((*applied, output, shown, *out, caplog.text, stored.decode("latin-1")))
    assert not [leak for leak in (*LEAKS, "Qx8-sec") if leak in output]


async def test_a_secret_list_that_did_not_change_is_no_difference(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    flow = "opd: {teacher_api_keys: [a1a1, b2b2]}"
    file.write_text(f"ajet:\n  model: {{path: m}}\n  {flow}\n")
    async with two(home) as both:
        assert await both.run("engine-apply", "--file", str(file), "--server", "t", "--yes") == 0
        capsys.readouterr()
        assert await both.run("engine-job", "--diff", "--server", "t") == 0
        assert "api_keys" not in capsys.readouterr().out
        file.write_text(file.read_text().replace("b2b2", "c3c3"))
        assert await both.run("engine-job", "--file", str(file), "--server", "t") == 0
        assert await both.run("engine-job", "--diff", "--server", "t") == 0
        assert "teacher_api_keys: *** -> *** (changed)" in capsys.readouterr().out


async def test_without_a_proxy_no_secret_is_printed_and_none_is_lost(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(secret_job())
    async with ScriptedSwarm(state="OFFLINE") as s:

        async def run(*argv: str) -> int:
            return await asyncio.to_thread(main, [argv[0], "--swarm-url", f"s={s.url}", *argv[1:]])

        assert await run("engine-job", "--file", str(file)) == 0
        capsys.readouterr()
        assert await run("engine-job") == 0
        assert await run("engine-job", "--json") == 0
        shown = capsys.readouterr().out
        assert "api_key: '***'" in shown
        assert not [leak for leak in LEAKS if leak in shown]
        file.write_text(shown[: shown.index("{")].replace("model: big", "model: huge"))
        assert await run("engine-start", "--file", str(file)) == 2
        output = capsys.readouterr().err
        assert "api_key: '***'" in output
        assert not [leak for leak in LEAKS if leak in output]
        assert await run("engine-start", "--file", str(file), "--yes") == 0
        assert load_job(str(s.config)) == load_job(for_server(secret_job(model="huge")).text)


async def test_a_check_reports_the_keys_added_for_an_agentjet_server(
    home: Home,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("ajet: {model: {path: a/b}}\n")
    check = ("engine-job", "--file", str(file), "--check")
    async with two(home) as both:
        assert await both.run(*check, "--server", "t") == 0
        trains = "it trains a/b on 8 GPUs (assumed: the job names no number)"
        added = f"{len(REQUIRED)} keys that an AgentJet server needs are added"
        result = f"it can be sent; {trains}; {added}"
        assert result in capsys.readouterr().out
        file.write_text(for_server("ajet: {model: {path: a/b}}").text)
        assert await both.run(*check, "--server", "t") == 0
        assert capsys.readouterr().out.strip().endswith(f"it can be sent; {trains}")
        monkeypatch.delenv(MODEL_VARIABLE)
        file.write_text("ajet: {}\n")
        assert await both.run(*check, "--server", "t") == 2
        assert f"{file}: no model is named" in capsys.readouterr().err


def test_without_a_server_the_default_job_is_the_embedded_engines(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine-job"]) == 0
    assert get(load_job(capsys.readouterr().out), MODEL) == "tiny"
    assert main(["engine-job", "--swarm-url", "http://127.0.0.1:9"]) == 0
    job = load_job(capsys.readouterr().out)
    assert get(job, MODEL) == "remote/model"
    assert get(job, LEARNING_RATE) is None


async def test_a_model_in_the_environment_does_not_save_a_job(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(home, "OFFLINE") as both:
        assert await both.run("engine-job", "--server", "t", "--set", "gpus=4") == 0
        saved = home.root / "jobs" / "t.yaml"
        before = saved.read_text()
        monkeypatch.setenv(MODEL_VARIABLE, "another/model")
        assert await both.run("engine-start", "--server", "t", "--preset", "hand", "--yes") == 0
        sent = load_job(str(both.t.config))
        assert (get(sent, BATCH), get(sent, GPUS)) == (1, 4)
        assert saved.read_text() == before


async def test_an_apply_shows_the_first_job_and_asks_once(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home) as both:
        assert await both.run("engine-apply", "--server", "t") == 2
        shown = capsys.readouterr().err
        assert "# to t" in shown
        assert shown.count("needs confirmation") == 1
        assert both.t.stops == 0


async def test_a_start_that_waits_after_a_stop_prints_its_steps_and_can_be_cancelled(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stable_offline, "QUIET", 600.0)
    async with two(home) as both:
        assert await both.run("engine-stop", "--server", "t", "--yes") == 0
        argv = ("engine-start", "--server", "t", "--preset", "hand", "--yes")
        starting = both.made.context.tasks.spawn(both.run(*argv), "start")
        printed: list[str] = []

        def waits() -> bool:
            printed.append(capsys.readouterr().err)
            return "t: wait for a stable OFFLINE\n" in "".join(printed)

        await both.made.until(waits)
        assert await both.run("engine-cancel", "--server", "t") == 0
        assert await starting == 1
        assert "cancelled at `wait for a stable OFFLINE`" in capsys.readouterr().err
        assert both.t.config is None


@pytest.mark.parametrize("way", ["proxy", "direct"])
@pytest.mark.parametrize("verb", ["engine-start", "engine-apply"])
async def test_a_start_that_dies_in_the_trainer_fails_and_names_the_likely_causes(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str, verb: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("ajet: {model: {path: a/b}, trainer_common: {logger: wandb}}\n")
    async with two(home, "OFFLINE") as both:
        to = ("--swarm-url", f"t={both.t.url}") if way == "direct" else ("--server", "t")
        order = (verb, *to, "--yes", "--file", str(file))
        assert await both.run(*order) == 1
        error = capsys.readouterr().err
        for words in (
            "boot",
            "went back to OFFLINE",
            "the logger wandb without WANDB_API_KEY",
            "fewer GPUs there than the 8 GPUs (assumed: the job names no number)",
            "no model `a/b` there",
            "swarm_server.log",
        ):
            assert words in error
        assert await both.run(*order, "--no-wait") == 0
        assert "is starting" in capsys.readouterr().out
        both.t.gpus = 4
        await both.t.until(lambda: both.t.state == "OFFLINE")
        await both.made.until(
            lambda: (work := both.made.state.servers["t"].work) is None or work.over
        )
        file.write_text("ajet: {model: {path: a/b}, trainer_common: {n_gpus_per_node: 4}}\n")
        assert await both.run(*order) == 0
        assert "ROLLING, step 1" in capsys.readouterr().out
        assert both.t.state == "ROLLING"


async def test_after_a_restart_a_start_sends_the_job_that_was_sent_last(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with two(home, "OFFLINE") as both:
        assert await both.run("engine-start", "--server", "t", "--yes", "--preset", "last") == 1
        assert "no job was sent from here" in capsys.readouterr().err
        assert await both.run("engine-start", "--server", "t", "--yes", "--preset", "hand") == 0
        both.t.set_state("OFFLINE", 0)
        both.t.config = None
        assert await both.run("engine-job", "--server", "t") == 0
        assert get(load_job(capsys.readouterr().out), BATCH) == 2
        assert await both.run("engine-start", "--server", "t") == 0
        assert "with the job last sent from here" in capsys.readouterr().out
        assert get(load_job(str(both.t.config)), BATCH) == 2
    (home.root / "j.db").rename(home.journal)
    for preset in ((), ("--preset", "last")):
        async with ScriptedSwarm(state="OFFLINE") as t:
            direct = ["engine-start", "--yes", "--swarm-url", f"t={t.url}", *preset]
            assert await asyncio.to_thread(main, direct) == 0
            assert get(load_job(str(t.config)), BATCH) == 2
