"""What `init` writes runs unchanged; `run episode` shows an episode, and a fault at once."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from ajet_swarm import AgentJetJob, SwarmClient
from core.runtime.home import Home, running
from examples.stage import Stage

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    before = signal.getsignal(signal.SIGTERM)
    with Stage(tmp_path / "stage") as one:
        yield one
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def new_engine(stage: Stage) -> str:
    """An unused engine."""
    return stage.serve("engine")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The engine of all tests that need neither a job nor a first step of their own."""
    before = signal.getsignal(signal.SIGTERM)
    with Stage(tmp_path_factory.mktemp("stage")) as one:
        yield one.serve("engine")
    signal.signal(signal.SIGTERM, before)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder of a kind as `init` writes it, written once."""
    root = tmp_path_factory.mktemp("templates")

    def written(kind: str) -> Path:
        folder = root / kind
        if not folder.exists():
            command = [sys.executable, "-m", "console", "init", kind, str(folder), "--yes"]
            outside = environment(AJET_CONSOLE_HOME=str(root / "home"))
            subprocess.run(command, env=outside, check=True, timeout=60, capture_output=True)
        return folder

    return written


@pytest.fixture
def written(tmp_path: Path, templates: Callable[[str], Path]) -> Callable[[str], Path]:
    """Gives a test its own copy of a folder that `init` wrote."""

    def copied(kind: str) -> Path:
        return Path(shutil.copytree(templates(kind), tmp_path / kind))

    return copied


def script(folder: Path, name: str, **more: str) -> str:
    """The output of a script of the folder that ends with status 0."""
    done = subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def claimed(url: str) -> int:
    with SwarmClient(url) as client:
        return sum(one.claimed for one in client.get_episode_buffer())


def steps(url: str) -> list[int]:
    body = httpx.get(f"{url}/ajetc/updates", timeout=60, trust_env=False).json()
    return [one["step"] for one in body]


def test_a_blackbox_folder_trains(engine: str, written: Callable[[str], Path]) -> None:
    folder = written("blackbox")
    small = {"UPDATES": "2", "BATCH_SIZE": "2", "NUM_REPEAT": "2", "AJET_SWARM_URL": engine}
    before = len(steps(engine))
    out = script(folder, "agent_roll.py", **small)
    assert len(re.findall(r"^step \d+: mean reward \d\.\d\d of 4 episodes$", out, re.M)) >= 2
    assert len(steps(engine)) >= before + 2
    assert not claimed(engine)


@pytest.mark.soak
def test_a_passive_folder_trains(engine: str, written: Callable[[str], Path]) -> None:
    folder = written("passive")
    before = steps(engine)
    small = {"UPDATES": "1", "BATCH_SIZE": "2", "NUM_REPEAT": "2", "AJET_SWARM_URL": engine}
    home = {"AJET_CONSOLE_HOME": str(folder / ".ajet"), "PORT": str(_free_port())}
    out = script(folder, "agent_roll.py", **small, **home)
    assert f"engine rolls at step {1 + max(before, default=0)}" in out
    assert len(steps(engine)) > len(before)
    assert not claimed(engine)


@pytest.mark.parametrize("kind", ["blackbox", "passive"])
def test_a_folder_ends_when_training_is_complete(
    kind: str, new_engine: str, written: Callable[[str], Path]
) -> None:
    folder = written(kind)
    with SwarmClient(new_engine) as client:
        client.auto_sync_train_config_and_start_engine(
            AgentJetJob(batch_size=2, num_repeat=2, total_training_steps=2)
        )
    home = {"AJET_CONSOLE_HOME": str(folder / ".ajet"), "PORT": str(_free_port())}
    out = script(folder, "agent_roll.py", AJET_SWARM_URL=new_engine, NUM_REPEAT="2", **home)
    assert out.splitlines()[-1].endswith("training complete: step 2 of 2")
    assert kind == "blackbox" or "engine rolls at step 1" in out
    assert steps(new_engine) == [1, 2]
    assert not claimed(new_engine)


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def test_an_agent_that_fails_or_hangs_leaves_no_claim(
    engine: str, written: Callable[[str], Path]
) -> None:
    folder = written("blackbox")
    (folder / "agent.py").write_text("import sys\nsys.exit('no luck')\n")
    small = {"BATCH_SIZE": "2", "NUM_REPEAT": "2", "AJET_SWARM_URL": engine}
    done = subprocess.run(
        [sys.executable, "agent_roll.py"],
        cwd=folder,
        env=environment(**small),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 1
    assert "the agent ended with 1:\nno luck" in done.stdout
    assert not claimed(engine)
    pid = "pathlib.Path(__file__).with_name('pid')"
    hangs = f"import os, pathlib, time\n{pid}.write_text(str(os.getpid()))\n"
    (folder / "agent.py").write_text(f"{hangs}time.sleep(600)\n")
    command = [sys.executable, "-m", "console", "run", "episode", str(folder), "--timeout", "6"]
    done = subprocess.run(
        command,
        env=environment(AJET_SWARM_URL=engine),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "ended after 6 s" in done.stderr
    assert not claimed(engine)
    started = folder / "pid"  # missing if there was no time for a start
    assert not started.exists() or not psutil.pid_exists(int(started.read_text()))
    rolling = psutil.Popen(
        [sys.executable, "agent_roll.py"],
        cwd=folder,
        env=environment(**small),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 60
        while not (agents := rolling.children()):
            assert time.monotonic() < end
            time.sleep(0.05)
        rolling.terminate()
        assert rolling.wait(90) == 130
        _, left = psutil.wait_procs(agents, timeout=90)
        assert not left, "an agent outlived the script that ran it"
        assert not claimed(engine)
    finally:
        if rolling.is_running():
            rolling.kill()


def test_debug_episode_shows_the_episode_and_an_error_after_a_change(
    engine: str, written: Callable[[str], Path]
) -> None:
    before = steps(engine)
    folder = written("blackbox")
    with subprocess.Popen(
        [sys.executable, "-m", "console", "run", "episode", str(folder), "--watch"],
        env=environment(AJET_SWARM_URL=engine),
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        assert watching.stdout is not None
        try:
            first = _until_waiting(watching)
            assert re.search(
                r"^call 1  /v1/chat/completions  HTTP 200 .* \d+ \+ \d+ tokens", first, re.M
            )
            assert re.search(r"^  tokens    .+\|<end>$", first, re.M)
            assert re.search(r"^reward [01]  success (True|False)$", first, re.M)
            source = folder / "run_episode_once.py"
            fault = "    return 1 / 0\n    return float(bool(numbers)"
            changed = source.with_suffix(".tmp")  # replaced at once: half a file is another fault
            changed.write_text(source.read_text().replace("    return float(bool(numbers)", fault))
            changed.replace(source)
            second = _until_waiting(watching)
            assert "ZeroDivisionError: division by zero" in second
            assert f'File "{source}"' in second
            assert "ajet_swarm/" not in second.partition("Traceback")[2]
        finally:  # also when it failed: no other code ends it
            watching.send_signal(signal.SIGINT)
            watching.wait(90)
    assert steps(engine) == before  # nothing of it was trained on
    assert not claimed(engine)


def _until_waiting(watching: "subprocess.Popen[str]") -> str:
    assert watching.stdout is not None
    lines: list[str] = []
    for line in watching.stdout:
        if line.startswith("-- waiting"):
            break
        lines.append(line)
    return "".join(lines)


def test_without_a_server_the_embedded_engine_is_started_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "bb"
    nobody = "http://127.0.0.1:9"
    init = ["init", "blackbox", str(folder), "--yes", "--server", nobody]
    subprocess.run(
        [sys.executable, "-m", "console", *init], env=environment(), check=True, timeout=60
    )
    home = Home.open(tmp_path / "home")
    more = {"AJET_CONSOLE_HOME": str(home.root), "AJET_CONSOLE__ENGINE__PORT": "0"}
    try:
        for started in (True, False):
            done = subprocess.run(
                [sys.executable, "-m", "console", "run", "episode", str(folder), "--json"],
                env=environment(**more),
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert ("started the embedded engine" in done.stderr) is started
            trace = json.loads(done.stdout)
            assert trace["calls"][0]["status"] == 200
            assert trace["tokens"][0]
            assert trace["output"]["reward"] in (0.0, 1.0)
        info = running(home, "engine")
        assert info is not None
        assert not claimed(info.url)
    finally:
        if (info := running(home, "engine")) is not None:
            process = psutil.Process(info.pid)
            process.terminate()
            process.wait(90)


@pytest.mark.parametrize(
    ("file", "old", "new", "result"),
    [
        (
            "dataset.jsonl",
            "\n",
            '\n{"main_query": 7}\n',
            r"agent_roll: \S*dataset\.jsonl.*2.*`main_query` is a int, not a str",
        ),
        (
            "run_episode_once.py",
            "    return float(bool(numbers)",
            "    return float('nan')\n    return float(bool(numbers)",
            r"a reward must be one finite number, not nan[\s\S]*three batches without one reward",
        ),
    ],
    ids=["broken row", "reward that is NaN"],
)
def test_bad_input_is_reported_and_leaves_no_claim(
    engine: str, written: Callable[[str], Path], file: str, old: str, new: str, result: str
) -> None:
    folder = written("blackbox")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    done = subprocess.run(
        [sys.executable, "agent_roll.py"],
        cwd=folder,
        env=environment(BATCH_SIZE="2", NUM_REPEAT="2", AJET_SWARM_URL=engine),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(result, done.stdout + done.stderr), done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not claimed(engine)
