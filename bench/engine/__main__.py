"""Speed of the embedded engine, compared with plain numpy and torch versions of the same policy.

    .venv/bin/python -m bench.engine [--torch PYTHON]

All are measured in this one run, in turns, each in a process of its own with the threads it likes.
`--torch` names a Python that has torch and numpy; without torch its lines read SKIP. Ratios have
bars, absolute times are printed.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from ajet_swarm.common.tasks import Tasks
from bench.bars import Verdicts
from core.runtime.home import Home, running

ROOT = Path(__file__).parents[2]
ROUNDS = 7
BATCHES = 4
_BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_ENGINE = """
import sys
from pathlib import Path
from core.runtime.home import Home
from engine.main import EngineOptions, run
sys.exit(run(EngineOptions(home=Home.open(Path(sys.argv[1])), port=0, log_level="warning")))
"""


class Variant:
    """A version of the policy in its own process, which executes orders."""

    def __init__(self, python: str, module: str, argument: str, threads: str = "") -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _BLAS}
        environment |= dict.fromkeys(_BLAS if threads else (), threads)
        self._process = subprocess.Popen(
            [python, "-m", f"bench.engine.{module}", argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self.slow = module == "naive_numpy"
        """Whether its answers take seconds; it is then timed only twice."""
        self.name = ""
        self.times: dict[str, list[float]] = {}
        self.name = self._read()["name"]

    def do(self, what: str) -> Any:
        """Execute an order once; record its time and return its value."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        reply = self._read()
        self.times.setdefault(what, []).append(reply["seconds"])
        return reply["value"]

    def best(self, what: str) -> float:
        """Return the seconds of its fastest run, which other processes disturbed least."""
        return min(self.times[what])

    def typical(self, what: str) -> float:
        """Return the median seconds."""
        return statistics.median(self.times[what])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"bench: {self.name or self._process.args!r} ended early")
        return dict(json.loads(line))


def alike(one: list[float], other: list[float]) -> float:
    """Return the cosine of two weight changes; about 1 when both did the same update."""
    size = math.sqrt(sum(a * a for a in one)) * math.sqrt(sum(b * b for b in other))
    return sum(a * b for a, b in zip(one, other, strict=True)) / size


def has_torch(python: str) -> bool:
    """Return whether this Python can run the torch version."""
    process = subprocess.run(
        [python, "-c", "import torch, numpy"], capture_output=True, check=False
    )
    return process.returncode == 0


@contextlib.contextmanager
def engine(home: Home, log: Path) -> Iterator[tuple[str, int]]:
    """Yield URL and pid of an engine in its own process."""
    command = [sys.executable, "-c", _ENGINE, str(home.root)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stderr=file)
    try:
        info = running(home, "engine")
        while info is None or not info.url:
            if process.poll() is not None:
                raise SystemExit(f"bench: the engine ended: {log.read_text()[-500:]}")
            time.sleep(0.05)
            info = running(home, "engine")
        yield info.url, process.pid
    finally:
        process.terminate()
        process.wait(30)


async def memory(url: str, pid: int) -> float:
    """Return the peak resident MB of an engine's processes over some batches of 8 x 4 over HTTP."""
    most = 0.0

    async def watch() -> None:
        nonlocal most
        root = psutil.Process(pid)
        while True:
            all_of_it = [root, *root.children(recursive=True)]
            most = max(most, sum(one.memory_info().rss for one in all_of_it) / 1e6)
            await asyncio.sleep(0.01)

    async with Tasks("bench") as tasks, httpx.AsyncClient(base_url=url, timeout=60) as http:
        tasks.spawn(watch(), "memory")
        await drive(http)
    return most


async def drive(http: httpx.AsyncClient) -> None:
    """Run some batches as a client of the swarm protocol."""
    tree = {"ajet": {"data": {"train_batch_size": 8}, "rollout": {"num_repeat": 4}}}
    await post(http, "/sync_train_config", {"yaml_as_string": yaml.safe_dump(tree)})
    await post(http, "/start_engine", {})
    for number in range(BATCHES):
        async with asyncio.TaskGroup() as group:
            for i in range(32):
                group.create_task(episode(http, f"{number}-{i // 4}", float(i % 4)))
        for _ in range(1200):
            if (await http.get("/get_engine_status")).json()["global_step"] >= number + 2:
                break
            await asyncio.sleep(0.05)
        else:
            raise SystemExit("bench: the engine made no update in a minute")


async def post(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """Return the server's answer; any status other than 200 ends the bench."""
    answer = await http.post(path, json=body, **more)
    answer.raise_for_status()
    return dict(answer.json())


async def episode(http: httpx.AsyncClient, task: str, reward: float) -> None:
    """Claim an episode, make one call, end it."""
    who = {"client_uuid": "bench"}
    claim = {**who, "episode_type": "train", "discard_episode_timeout": 240.0}
    for _ in range(1200):
        held = await post(http, "/claim_episode", claim)
        if held["success"]:
            break
        await asyncio.sleep(0.05)
    else:
        raise SystemExit("bench: no episode in a minute")
    key = {"Authorization": f"Bearer {held['openai_api_key']}"}
    request = {"messages": [{"role": "user", "content": f"Tell me about {task}."}]}
    await post(http, "/v1/chat/completions", request, headers=key)
    output = {"reward": reward, "metadata": {"task_id": task}}
    ended = {"episode_uuid": held["episode_uuid"], "task_id": task, "workflow_output": output}
    await post(http, "/end_episode", {**who, **ended})


def measure(ours: Variant, others: list[Variant]) -> None:
    """Run all variants in turns, so that each round has the same load."""
    everyone = [ours, *others]
    changes = []
    for variant in everyone:
        variant.do("update")
        changes.append(variant.do("changed"))
        variant.times.clear()
    for variant, change in zip(others, changes[1:], strict=True):
        print(
            f"{variant.name}: change of the weights alike, cosine {alike(changes[0], change):.4f}"
        )
        if alike(changes[0], change) < 0.99:
            raise SystemExit(f"bench: {variant.name} does another update than the engine")
    for number in range(ROUNDS):
        for variant in everyone:
            variant.do("update")
        for variant in everyone:
            if not variant.slow or number < 2:
                variant.do("answers")
        ours.do("alone")
        ours.do("together")


def show(variants: list[Variant]) -> None:
    """Print the table of absolute times."""
    print(f"\n{'':34}{'best':>12}{'median':>12}")
    for what, name in (
        ("update", "update of 8 x 4 answers"),
        ("answers", "four answers of 60 tokens"),
        ("alone", "64 mixed answers, one by one"),
        ("together", "64 mixed answers, 32 slots"),
    ):
        for variant in variants:
            if what in variant.times:
                best, typical = variant.best(what) * 1000, variant.typical(what) * 1000
                print(f"{name:34}{best:9.1f} ms{typical:9.1f} ms  {variant.name}")
    print()


def main() -> None:
    """Measure, print and compare with the bars."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch", default=sys.executable, help="a Python that has torch and numpy")
    python = parser.parse_args().torch
    verdicts = Verdicts()
    ours = Variant(sys.executable, "ours", "serve", threads="1")
    work = Path(ours.do("work_file"))
    naive = Variant(sys.executable, "naive_numpy", str(work))
    # With threads of its own torch suffers most when the machine is busy: its better form counts.
    torch = [
        Variant(python, "torch_variant", str(work), threads)
        for threads in ("", "1")
        if has_torch(python)
    ]
    others = [naive, *torch]
    measure(ours, others)
    late = ours.do("lateness")
    show([ours, *others])
    for variant in (ours, *others):
        variant.close()
    work.unlink()
    for what, name in (("update", "update"), ("answers", "four_answers")):
        verdicts.at_most(f"{name}_vs_naive", ours.best(what) / naive.best(what), 1.0, "x")
        if not torch:
            verdicts.skip(f"{name}_vs_torch", "no torch", "<= 1 x")
            continue
        best = min(variant.best(what) for variant in torch)
        verdicts.at_most(f"{name}_vs_torch", ours.best(what) / best, 1.0, "x")
    verdicts.at_least("continuous_batching", ours.best("alone") / ours.best("together"), 3.5, "x")
    verdicts.at_most("loop_lateness_p99_training", late, 20.0, "ms")
    with tempfile.TemporaryDirectory() as folder:
        home = Home.open(Path(folder) / "home")
        with engine(home, Path(folder) / "log") as (url, pid):
            most = asyncio.run(memory(url, pid))
    verdicts.at_most("engine_rss", most, 260.0, "MB")
    verdicts.close()


if __name__ == "__main__":
    main()
