"""The world breaks in the middle of each example: no claim stays, no sample counts twice.

`test_scenarios.py` does the same with the client processes of `distributed` and `cocktail`,
`test_by_proxy.py` with the examples whose client is the fake vLLM.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from ajet_swarm import SwarmClient
from core.runtime.home import running
from examples.stage import Stage
from examples.swarming import job_of, left_claimed, until
from tests.support.stack import until as until_seen

ROOT = Path(__file__).resolve().parents[2]
SWEEP = 10.0
"""Seconds between two looks of a server for idle episodes."""
END = 150.0
"""Seconds an example may take to its end, on a busy machine."""

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """How an example is run in a small form on servers of the test's."""

    command: tuple[str, ...]
    batch: int
    repeats: int
    idle: float
    """Seconds without a call after which a server takes its episodes back."""
    steps: int = 3
    """Updates to its end; it is disturbed in the second one."""
    servers: tuple[str, ...] = ("server",)
    """The last one is the one that breaks."""
    by_flags: bool = False
    """Flags name its servers."""
    flag: bool = False
    """A flag sets its idle time."""
    cwd: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)


TWO_MODELS = Example(
    command=("-m", "examples.multi_model", "--updates", "{steps}"),
    servers=("planner", "executor"),
    by_flags=True,
    flag=True,
    batch=8,
    repeats=4,
    idle=20.0,
)

EXAMPLES = {
    "multi_model": TWO_MODELS,
    "teacher_student": replace(
        TWO_MODELS,
        command=("-m", "examples.multi_model.teacher_student", "--updates", "{steps}"),
        servers=("teacher", "student"),
    ),
    "math_tool": Example(
        command=(
            *("-m", "examples.math", "--tool", "--updates", "{steps}", "--held-out", "4"),
            *("--out", "{folder}"),
        ),
        flag=True,
        batch=8,
        repeats=4,
        idle=20.0,
    ),
    "blackbox": Example(
        command=("agent_roll.py",),
        cwd="examples/blackbox",
        environment={
            "UPDATES": "{steps}",
            "BATCH_SIZE": "4",
            "NUM_REPEAT": "2",
            "MAX_PARALLEL": "4",
            "EPISODE_TIMEOUT": "15",
        },
        batch=4,
        repeats=2,
        idle=15.0,
        steps=2,
    ),
    "swarm_script": Example(
        command=("-m", "examples.swarm_script.train", "--steps", "{steps}"),
        batch=4,
        repeats=4,
        idle=120.0,
        steps=8,
    ),
    "swarm_script_batches": Example(
        command=("-m", "examples.swarm_script.train_batches", "--steps", "{steps}"),
        batch=2,
        repeats=4,
        idle=240.0,
        steps=12,
    ),
}


class Samples:
    """Which episodes count for what, as the servers report it while the example runs."""

    def __init__(self, clients: Mapping[str, SwarmClient]) -> None:
        self._clients = clients
        self._over = threading.Event()
        self._tasks: defaultdict[tuple[str, str], set[tuple[int, str]]] = defaultdict(set)
        self.twice: list[str] = []
        self._thread = threading.Thread(target=self._read_samples, daemon=True)
        self._thread.start()

    def _read_samples(self) -> None:
        while not self._over.wait(0.1):
            for name, client in self._clients.items():
                pool = client.get_rollout_stat()
                for task, uuids in (pool.completed_tasks_details or {}).items():
                    if len(set(uuids)) < len(uuids):
                        self.twice.append(f"{name}: {task}")
                    for uuid in uuids:
                        self._tasks[name, uuid].add((pool.global_step or 0, task))

    def stop(self) -> None:
        """Stop reading the samples."""
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """No sample counted twice, and there were some."""
        self.stop()
        assert self._tasks
        assert not self.twice
        assert not [one for one, where in self._tasks.items() if len(where) > 1]


class RunningExample:
    """An example under way."""

    def __init__(
        self, stages: Mapping[str, Stage], example: Example, log: Path, steps: int
    ) -> None:
        self.example = example
        self._stages = stages
        self.urls = {name: stage.serve("engine") for name, stage in stages.items()}
        self.clients = {name: SwarmClient(url, name=name) for name, url in self.urls.items()}
        names = {"steps": steps, "folder": log.parent / "out"}
        command = [sys.executable, *(one.format(**names) for one in example.command)]
        if example.by_flags:
            command += [text for pair in self.urls.items() for text in (f"--{pair[0]}", pair[1])]
        if example.flag:
            command += ["--idle", str(example.idle)]
        stage = next(iter(stages.values()))
        self._log = log
        with log.open("wb") as out:
            self.child = subprocess.Popen(
                command,
                cwd=ROOT / example.cwd,
                env={
                    **stage.environment,
                    "AJET_SWARM_URL": next(iter(self.urls.values())),
                    **{k: text.format(steps=steps) for k, text in example.environment.items()},
                },
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.samples = Samples(self.clients)

    @property
    def weak(self) -> str:
        """The server that breaks."""
        return self.example.servers[-1]

    def in_the_middle(self, step: int = 2) -> None:
        """Wait until some of a step's batch is done and some is held."""

        def half() -> bool:
            assert self.child.poll() is None, self.log_tail()
            pool = self.clients[self.weak].get_rollout_stat()
            done = (pool.completed_episodes or 0) >= self.example.batch // 2
            return bool((pool.global_step or 0) >= step and done and pool.running_episode_details)

        # A step may take a third of a second, and its middle a few hundredths.
        until_seen("the middle of a batch", half, every=0.01)

    def kill(self) -> None:
        """End it with SIGKILL while it holds episodes."""
        held = 0
        while not held:
            self.in_the_middle()
            self.child.send_signal(signal.SIGSTOP)
            held = left_claimed(self.clients[self.weak])
            self.child.send_signal(signal.SIGKILL if held else signal.SIGCONT)
        self.child.wait()

    def restart(self) -> None:
        """The server is killed and restarts: OFFLINE, without a record; a client starts it."""
        home = self._stages[self.weak].home
        info = running(home, "engine")
        assert info is not None
        psutil.Process(info.pid).kill()
        until("it is dead", 20, lambda: running(home, "engine") is None)
        command = [sys.executable, "-m", "console", "run", "engine", "--port", str(info.port)]
        self._stages[self.weak].start("engine2", *command)
        client = self.clients[self.weak]
        until("it is back", 60, lambda: client.get_engine_status()[0] == "ENGINE.OFFLINE")
        job = job_of(self.example.batch, self.example.repeats, "again")
        client.auto_sync_train_config_and_start_engine(job, timeout=60)

    def freeze(self, seconds: float) -> None:
        """The server is frozen: it accepts connections and answers nothing."""
        info = running(self._stages[self.weak].home, "engine")
        assert info is not None
        os.kill(info.pid, signal.SIGSTOP)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                self.child.wait(seconds)
        finally:
            os.kill(info.pid, signal.SIGCONT)

    def finish(self) -> None:
        """Check that the example exits by itself with status 0 and leaves no claim."""
        assert self.child.wait(END) == 0, self.log_tail()
        self.nothing_claimed(2.0)

    def nothing_claimed(self, seconds: float) -> None:
        until("nothing claimed", seconds, lambda: not sum(map(left_claimed, self.clients.values())))
        self.samples.check()

    def log_tail(self) -> str:
        """The last 3,000 characters of the example's log."""
        return self._log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        self.samples.stop()
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        for client in self.clients.values():
            client.close()


@contextmanager
def running_example(name: str, folder: Path, steps: int = 0) -> Iterator[RunningExample]:
    """An example that runs on servers of the test's, to its end after so many updates.

    Args:
        name: Of the example.
        folder: For the homes of its servers and its log.
        steps: The updates; 0 for the example's own number.
    """
    example = EXAMPLES[name]
    before = signal.getsignal(signal.SIGTERM)
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, before)
        stages = {server: stack.enter_context(Stage(folder / server)) for server in example.servers}
        one = RunningExample(stages, example, folder / "log", steps or example.steps)
        stack.callback(one.close)
        yield one


def quick(*names: str) -> list[object]:
    """All examples; those not named in the long form alone."""
    return [
        pytest.param(name, marks=[] if name in names else pytest.mark.soak) for name in EXAMPLES
    ]


@pytest.mark.soak
@pytest.mark.parametrize("name", EXAMPLES)
def test_its_client_is_killed(name: str, tmp_path: Path) -> None:
    with running_example(name, tmp_path, 500) as one:
        one.kill()
        one.nothing_claimed(one.example.idle + SWEEP + 5.0)


@pytest.mark.parametrize("name", quick("blackbox"))
def test_its_server_is_restarted(name: str, tmp_path: Path) -> None:
    with running_example(name, tmp_path) as one:
        one.in_the_middle()
        one.restart()
        one.finish()


@pytest.mark.parametrize("name", quick())
def test_its_server_freezes_for_a_moment(name: str, tmp_path: Path) -> None:
    with running_example(name, tmp_path) as one:
        one.in_the_middle()
        one.freeze(2.0)
        one.finish()


@pytest.mark.soak
@pytest.mark.parametrize("name", EXAMPLES)
def test_its_server_freezes_for_long(name: str, tmp_path: Path) -> None:
    with running_example(name, tmp_path) as one:
        one.in_the_middle()
        one.freeze(20.0)
        one.finish()
