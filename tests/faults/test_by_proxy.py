"""The world breaks for examples whose client is the fake vLLM: tutorials, a passive folder."""

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from ajet_swarm import SwarmClient
from core.events import Event, GroupSealed
from core.journal.writer import Journal
from core.runtime.home import Home, RunInfo, running
from examples.stage import Stage
from examples.swarming import job_of, left_claimed, until
from tests.support.proxy.singles import EpisodeEnded, singles

ROOT = Path(__file__).resolve().parents[2]
END = 150.0
"""Seconds an example may take to its end, on a busy machine."""
IDLE, SWEEP = 6.0, 10.0
"""Seconds without a call after which a server takes an episode back, and between two looks."""

pytestmark = [pytest.mark.process, pytest.mark.soak, pytest.mark.timeout(400)]


class Example:
    """An example under way, with a fake vLLM and an engine.

    Args:
        folder: For its log.
        command: The command line.
        home: Of its fake vLLM.
        engine_home: Of its engine.
        environment: Its environment variables.
    """

    def __init__(
        self,
        folder: Path,
        command: list[str],
        home: Path,
        engine_home: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.home, self.engine_home = Home.open(home), Home.open(engine_home)
        self.log = folder / "said"
        with self.log.open("wb") as out:
            self.child = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                stdout=out,
                stderr=out,
            )

    def process(self, role: str) -> RunInfo:
        """One of its processes."""
        info = running(self.engine_home if role == "engine" else self.home, role)
        assert info is not None, self.log.read_text()
        return info

    def trains(self) -> None:
        """Wait until it is between two updates and holds episodes."""

        def held() -> bool:
            assert self.child.poll() is None, self.log.read_text()
            if (info := running(self.engine_home, "engine")) is None:
                return False
            with SwarmClient(info.url) as client:
                return client.get_global_step() >= 2 and left_claimed(client) > 0

        until("it trains", 90, held)

    def finish(self) -> None:
        """To its own end; each reward was sent once."""
        assert self.child.wait(END) == 0, self.log.read_text()
        journal = Journal(self.home.journal)
        events: list[Event] = []
        while page := journal.events(events[-1].seq if events else 0, 5_000):
            events += page
        journal.close()
        # Episodes that only probe the policy are not trained on: such an episode appears again.
        trained = {event.group_id for event in events if isinstance(event, GroupSealed)}
        ended = Counter(
            event.episode_uuid
            for event in singles(events)
            if isinstance(event, EpisodeEnded)
            and event.outcome == "ended"
            and event.group_id in trained
        )
        assert ended
        assert max(ended.values()) == 1


def tutorial(name: str, folder: Path) -> Example:
    """One with an engine of its own."""
    command = ["-m", f"examples.{name}", "--updates", "3", "--held-out", "4"]
    command += ["--keep", str(folder), "--out", str(folder / "out")]
    return Example(folder, command, folder / "home", folder / "home", {})


def passive(stage: Stage, folder: Path) -> Example:
    """A folder as `init` writes it, at an engine of the test's."""
    url, app = stage.serve("engine"), folder / "app"
    stage.console("init", "passive", str(app), "--yes", "--server", url, "--batch", "2")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = {
        "AJET_CONSOLE_HOME": str(app / ".ajet"),
        "PORT": str(port),
        "UPDATES": "12",
    }  # some seconds
    own["AJET_CONSOLE__RATING__DISCARD_TIMEOUT"] = str(IDLE)
    return Example(folder, [str(app / "agent_roll.py")], app / ".ajet", stage.home.root, own)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    before = signal.getsignal(signal.SIGTERM)
    with Stage(tmp_path / "stage") as one:
        yield one
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(params=["math", "persona", "passive"])
def example(request: pytest.FixtureRequest, stage: Stage, tmp_path: Path) -> Iterator[Example]:
    own = request.param == "passive"
    one = passive(stage, tmp_path) if own else tutorial(request.param, tmp_path)
    yield one
    one.child.send_signal(signal.SIGTERM)
    one.child.wait(60)


def test_its_server_freezes(example: Example) -> None:
    example.trains()
    engine = example.process("engine").pid
    os.kill(engine, signal.SIGSTOP)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            example.child.wait(20.0)
    finally:
        os.kill(engine, signal.SIGCONT)
    example.finish()


def test_its_server_is_restarted(example: Example, stage: Stage) -> None:
    example.trains()
    engine = example.process("engine")
    psutil.Process(engine.pid).kill()
    until("it is dead", 20, lambda: running(example.engine_home, "engine") is None)
    command = [sys.executable, "-m", "console", "run", "engine", "--port", str(engine.port)]
    stage.environment["AJET_CONSOLE_HOME"] = str(example.engine_home.root)
    stage.start("engine2", *command)
    with SwarmClient(engine.url) as client:
        until("it is back", 60, lambda: client.get_engine_status()[0] == "ENGINE.OFFLINE")
        client.auto_sync_train_config_and_start_engine(job_of(8, 4, "again"), timeout=60)
        example.finish()
        assert not left_claimed(client)


def test_its_fake_vllm_is_killed(example: Example) -> None:
    """It is the swarm's client: without it the example reports why and returns its claims."""
    example.trains()
    engine = running(example.engine_home, "engine")
    assert engine is not None
    psutil.Process(example.process("proxy").pid).kill()
    beside = example.engine_home.root != example.home.root
    if beside:
        with SwarmClient(engine.url) as client:
            until("nothing is claimed", IDLE + SWEEP + 20, lambda: not left_claimed(client))
    assert example.child.wait(END) == 1
    text = example.log.read_text()
    assert "Traceback" not in text
    assert text.splitlines()[-1]
    assert beside or running(example.home, "engine") is None
