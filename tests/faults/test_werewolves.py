"""The world breaks while werewolves are played: running games are lost, and nothing else."""

import os
import re
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from ajet_swarm import SwarmClient
from core.runtime.home import running
from examples.stage import Stage
from examples.swarming import left_claimed, until, updates
from examples.werewolves.settings import load
from tests.support.scripted.static_model import StaticServer

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

IDLE = 6.0
"""Seconds after which a server may take an episode back; it looks every 10 s."""
SMALL = """
ajet:
  experiment_name: howl
  rollout: {num_repeat: 3, max_env_worker: 6, max_response_length_in_one_turn: 8}
  data: {train_batch_size: 2}
  trainer_common: {save_freq: 2}
werewolves:
  days: 2
  answer_tokens: 8
  prompt: {digest: 40, speech: 16, rules: false}
"""


class Village:
    """The example as a process, at an engine of the test's own."""

    def __init__(
        self, stage: Stage, updates: int = 3, idle: float = 60.0, static: str = ""
    ) -> None:
        self.stage, self.updates = stage, updates
        self.config = stage.folder / "small.yaml"
        self.config.write_text(SMALL)
        self.url = stage.serve("engine")
        self.client = SwarmClient(self.url)
        command = [sys.executable, "-m", "examples.werewolves", "--config", str(self.config)]
        command += ["--swarm-url", self.url, "--idle", str(idle)]
        command += ["--updates", str(updates), "--static-url", static]
        self.script = stage.start("script", *command)

    @property
    def engine(self) -> psutil.Process:
        info = running(self.stage.home, "engine")
        assert info is not None
        return psutil.Process(info.pid)

    def detail(self) -> str:
        return str(self.client.get_engine_status()[1].get("engine_status_detail") or "")

    def step(self, least: int) -> None:
        """Wait until a step is reached and games are played in it."""

        def there() -> bool:
            return self.client.get_global_step() >= least and left_claimed(self.client) > 0

        until(f"games of step {least}", 90, there)

    def finish(self) -> str:
        """Its output, after it trained to its last step; no episode stays claimed."""
        self.script.wait(150)
        text = (self.stage.home.logs / "script.log").read_text()
        assert self.script.returncode == 0, text
        assert "claims left 0" in text
        assert f"training complete: step {self.updates} of {self.updates}" in self.detail()
        return text


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    before = signal.getsignal(signal.SIGTERM)
    with Stage(tmp_path / "stage") as one:
        yield one
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def village(stage: Stage) -> Iterator[Village]:
    one = Village(stage)
    yield one
    one.client.close()


def test_the_static_models_server_dies_in_the_middle(stage: Stage) -> None:
    """Interrupted games are played again; finished ones are kept."""
    with StaticServer() as static:
        village = Village(stage, updates=2, static=static.url)
        village.step(2)
    with StaticServer(static.server_port):
        log = village.finish()
    assert "given up" not in log
    # Each of the batches was trained with all of its games: 3 for each side.
    assert len(re.findall(r"^step \d: .* of 3 games", log, re.M)) == 2
    assert [update["groups"] for update in updates(village.url)] == [2] * 2
    village.client.close()


@pytest.mark.soak
def test_the_disk_is_full_twice_and_then_the_server_dies(stage: Stage) -> None:
    """Training continues without a disk; a crash loses only the steps since the last save."""
    village = Village(stage, updates=5)
    village.step(2)
    engine = village.engine
    before = resource.prlimit(engine.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, (2_000_000, before[1]))
    saved = village.client.get_global_step()  # the last step that began with all saved
    village.step(saved + 2)
    assert "not saved" in village.detail()
    info = running(village.stage.home, "engine")
    assert info is not None
    engine.kill()
    until("it is dead", 20, lambda: running(village.stage.home, "engine") is None)
    command = [sys.executable, "-m", "console", "run", "engine", "--port", str(info.port)]
    village.stage.start("engine2", *command)
    until("it is back", 60, lambda: village.client.get_engine_status()[0] == "ENGINE.OFFLINE")
    job = load(village.config, village.updates).job
    village.client.auto_sync_train_config_and_start_engine(job, timeout=60)
    assert saved <= village.client.get_global_step() <= saved + 1
    village.finish()
    village.client.close()


@pytest.mark.parametrize(
    "seconds", [pytest.param(one, marks=pytest.mark.soak) for one in (3.0, 20.0)], ids=["3s", "20s"]
)
def test_the_server_is_frozen_in_the_middle(village: Village, seconds: float) -> None:
    village.step(2)
    pid = village.engine.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{village.url}/health", timeout=seconds, trust_env=False)
    finally:
        os.kill(pid, signal.SIGCONT)
    village.finish()
    assert [update["groups"] for update in updates(village.url)] == [2] * 3


@pytest.mark.soak
def test_the_client_is_killed(stage: Stage) -> None:
    village = Village(stage, idle=IDLE)
    with village.client:
        village.step(2)
        village.script.kill()
        village.script.wait()
        until("nothing is claimed", IDLE + 20, lambda: not left_claimed(village.client))
