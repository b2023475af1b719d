"""Speed of the embedded engine, compared with a plain numpy version of the same policy.

    .venv/bin/python -m bench.engine

Both are measured in this one run, in turns, each in a process of its own with the threads it likes.
Ratios have bars, absolute times are printed.
"""

import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import httpx
import psutil

from ajet_swarm import AgentJetJob, OpenaiBaseUrlAndApiKey, SwarmClient, Task, run_episodes
from ajet_swarm.runs.episodes import rollout
from bench.bars import Verdicts
from tests.support.stack import Stack

ROOT = Path(__file__).parents[2]
ROUNDS = 7
BATCHES = 4
_BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class Variant:
    """A version of the policy in its own process, which executes orders."""

    def __init__(self, module: str, argument: str, threads: str = "") -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _BLAS}
        environment |= dict.fromkeys(_BLAS if threads else (), threads)
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.engine.{module}", argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
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


def alike(change: list[float], other: list[float]) -> float:
    """Return the cosine of two weight changes; about 1 when both did the same update."""
    size = math.sqrt(sum(a * a for a in change)) * math.sqrt(sum(b * b for b in other))
    return sum(a * b for a, b in zip(change, other, strict=True)) / size


def memory(folder: Path) -> float:
    """Return the peak resident MB of an engine's processes over some batches of 8 x 4 over HTTP."""
    with Stack(folder / "home", forks=False) as stack:
        info = stack.engine()
        root, over, sizes = psutil.Process(info.pid), threading.Event(), []

        def watch() -> None:
            while not over.wait(0.01):
                processes = (root, *root.children(recursive=True))
                sizes.append(sum(process.memory_info().rss for process in processes) / 1e6)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            drive(info.url)
        finally:
            over.set()
            watcher.join()
        stack.stop("engine")
    return max(sizes)


def drive(url: str) -> None:
    """Train on some batches of 8 x 4."""
    with SwarmClient(url) as client, httpx.Client(timeout=60) as http:
        client.auto_sync_train_config_and_start_engine(AgentJetJob(batch_size=8, num_repeat=4))

        def agent(task: Task, api: OpenaiBaseUrlAndApiKey) -> float:
            body = {"messages": [{"role": "user", "content": f"Tell me about {task.main_query}."}]}
            key = {"Authorization": f"Bearer {api.api_key}"}
            answer = http.post(f"{api.base_url}/chat/completions", json=body, headers=key)
            answer.raise_for_status()
            return random.random()

        run = rollout(client, agent, timeout=60)
        first = client.get_global_step()
        while (step := client.get_global_step()) < first + BATCHES:
            names = [f"{step}-{number // 4}" for number in range(32)]
            tasks = [Task(main_query=name, task_id=name) for name in names]
            run_episodes(tasks, run, max_workers=32)
            client.wait_until_rolling(timeout=60)


def measure(ours: Variant, naive: Variant) -> None:
    """Run both in turns, so that each round has the same load."""
    changes = []
    for variant in (ours, naive):
        variant.do("update")
        changes.append(variant.do("changed"))
        variant.times.clear()
    same = alike(*changes)
    print(f"{naive.name}: change of the weights alike, cosine {same:.4f}")
    if same < 0.99:
        raise SystemExit(f"bench: {naive.name} does another update than the engine")
    for number in range(ROUNDS):
        for variant in (ours, naive):
            variant.do("update")
        ours.do("answers")
        if number < 2:  # they take seconds
            naive.do("answers")
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
    verdicts = Verdicts()
    ours = Variant("ours", "serve", threads="1")
    work = Path(ours.do("work_file"))
    naive = Variant("naive_numpy", str(work))
    measure(ours, naive)
    late = ours.do("lateness")
    show([ours, naive])
    for variant in (ours, naive):
        variant.close()
    work.unlink()
    for what, name in (("update", "update"), ("answers", "four_answers")):
        verdicts.at_most(f"{name}_vs_naive", ours.best(what) / naive.best(what), 1.0, "x")
    verdicts.at_least("continuous_batching", ours.best("alone") / ours.best("together"), 3.5, "x")
    verdicts.at_most("loop_lateness_p99_training", late, 20.0, "ms")
    with tempfile.TemporaryDirectory() as folder:
        verdicts.at_most("engine_rss", memory(Path(folder)), 260.0, "MB")
    verdicts.close()


if __name__ == "__main__":
    main()
