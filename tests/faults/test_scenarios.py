"""The world breaks in the middle of the scenarios: no claim stays, no sample counts twice.

`make test` has the killed client in `tests/e2e/test_scenarios.py`, where the example kills it, and
the restarted server in `test_examples.py` and `test_kills.py`.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from ajet_swarm import SwarmClient
from core.runtime.home import running
from examples.clients import read_diary
from examples.stage import Stage
from examples.swarming import job_of, left_claimed, until, updates

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SWEEP = 10.0
"""Seconds between two looks of a server for idle episodes."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    before = signal.getsignal(signal.SIGTERM)
    with Stage(tmp_path / "stage") as one:
        yield one
    signal.signal(signal.SIGTERM, before)


class Scenario:
    """Client processes of an example at an engine of the test's own."""

    def __init__(self, stage: Stage, name: str, batch: int, names: Sequence[str]) -> None:
        self.stage, self.batch = stage, batch
        self.url = stage.serve("engine")
        self.client = SwarmClient(self.url)
        self.diary = stage.folder / "diary.jsonl"
        self.mix = stage.folder / "mix.json"
        self.mix.write_text('{"maths": 0.5, "code": 0.25, "terminal": 0.25}')
        self.idle = 6.0
        self.children: list[subprocess.Popen[bytes]] = []
        self._module = f"examples.{name}.client"
        self._names = names

    def roll(self) -> None:
        """The engine rolls, from what it saved."""
        self.client.auto_sync_train_config_and_start_engine(job_of(self.batch, 4, "x"), timeout=60)

    def start(self, last: int) -> None:
        """A client process for each name, which ends after step `last`."""
        for name in self._names:
            command = [sys.executable, "-m", self._module, "--swarm-url", self.url]
            command += ["--diary", str(self.diary), "--batch", str(self.batch)]
            command += ["--until", str(last), "--idle", str(self.idle)]
            if "cocktail" in self._module:
                command += ["--kind", name, "--mix", str(self.mix)]
            else:
                command += ["--name", name]
            self.children.append(self.stage.start(name, *command))

    @property
    def step(self) -> int:
        return self.client.get_global_step()

    @property
    def rolling(self) -> bool:
        return bool(self.client.get_engine_status()[0] == "ENGINE.ROLLING")

    @property
    def ended(self) -> list[dict[str, Any]]:
        return [one for one in read_diary(self.diary) if one["what"] == "ended"]

    def in_the_middle(self, step: int) -> int:
        """Wait until some of a batch is done and some is held, that of a step or a later one."""
        pool_step = 0

        def half() -> bool:
            nonlocal pool_step
            pool = self.client.get_rollout_stat()
            done = (pool.completed_episodes or 0) >= self.batch
            pool_step = pool.global_step or 0
            return bool(pool_step >= step and done and pool.running_episode_details)

        until("the middle of a batch", 60, half)
        return pool_step

    def check(self, last: int) -> None:
        """The clients end by themselves, nothing stays claimed, nothing was ended twice."""
        until(f"step {last}", 120, lambda: self.step > last)
        for child in self.children:
            child.wait(60)
        until("nothing is claimed", self.idle + SWEEP + 20, lambda: not left_claimed(self.client))
        assert max(Counter(one["episode"] for one in self.ended).values()) == 1


SCENARIOS = {"distributed": (6, ("ann", "bob")), "cocktail": (4, ("maths", "code", "terminal"))}


def scenarios(*quick: str) -> pytest.MarkDecorator:
    """All scenarios; those that are not named in the long form alone."""
    params = [
        pytest.param(name, marks=[] if name in quick else pytest.mark.soak) for name in SCENARIOS
    ]
    return pytest.mark.parametrize("scenario", params, indirect=True)


@pytest.fixture
def scenario(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Scenario]:
    one = Scenario(stage, request.param, *SCENARIOS[request.param])
    one.roll()
    yield one
    one.client.close()


@scenarios()
def test_a_killed_client(scenario: Scenario) -> None:
    scenario.start(last=2)
    scenario.in_the_middle(1)
    victim = scenario.children.pop(0)
    victim.kill()
    victim.wait()
    scenario.check(2)
    for update in updates(scenario.url):
        result = sum(line["step"] == update["step"] for line in scenario.ended)
        assert result <= update["calls"] <= result + 8  # those whose end was on its way at the kill


@scenarios()
def test_a_restarted_server(scenario: Scenario) -> None:
    """Its batch is gone, as with a real one; its step and weights are not."""
    scenario.start(last=3)
    step = scenario.in_the_middle(2)
    home = scenario.stage.home
    info = running(home, "engine")
    assert info is not None
    psutil.Process(info.pid).kill()
    until("it is dead", 20, lambda: running(home, "engine") is None)
    command = [sys.executable, "-m", "console", "run", "engine", "--port", str(info.port)]
    scenario.stage.start("engine2", *command)
    until("it is back", 60, lambda: _answers(scenario.url))
    scenario.roll()
    assert scenario.step in (step, step + 1)  # it may have come to an end just before the kill
    scenario.check(3)


@scenarios("cocktail")
@pytest.mark.parametrize(
    "seconds", [3.0, pytest.param(20.0, marks=pytest.mark.soak)], ids=["3s", "20s"]
)
def test_a_frozen_server(scenario: Scenario, seconds: float) -> None:
    scenario.start(last=2)
    scenario.in_the_middle(1)
    info = running(scenario.stage.home, "engine")
    assert info is not None
    os.kill(info.pid, signal.SIGSTOP)
    try:
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{scenario.url}/health", timeout=seconds, trust_env=False)
    finally:
        os.kill(info.pid, signal.SIGCONT)
    scenario.check(2)
    # During an update, its batch is neither in the pool nor among the updates.
    until("no update is in progress", 60, lambda: scenario.rolling)
    trained = {update["step"]: update["calls"] for update in updates(scenario.url)}
    open_ = scenario.client.get_rollout_stat().completed_episodes or 0
    counter = Counter(one["step"] for one in scenario.ended)
    # An end that was not answered may count as well.
    assert counter.total() <= sum(trained.values()) + open_, (counter, trained, open_)


@pytest.mark.soak
def test_two_models_when_their_script_is_killed(stage: Stage, tmp_path: Path) -> None:
    """All it leaves is taken back on both servers."""
    other = Stage(tmp_path / "other")
    with other:
        urls = {"planner": stage.serve("engine"), "executor": other.serve("engine")}
        flags = [text for name, url in urls.items() for text in (f"--{name}", url)]
        flags += ["--idle", "20"]
        script = stage.start("script", sys.executable, "-m", "examples.multi_model", *flags)
        with SwarmClient(urls["planner"]) as one, SwarmClient(urls["executor"]) as two:
            until("both work", 60, lambda: min(left_claimed(one), left_claimed(two)) > 0)
            script.kill()
            script.wait()
            until("nothing is claimed", 45, lambda: not left_claimed(one) + left_claimed(two))


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
