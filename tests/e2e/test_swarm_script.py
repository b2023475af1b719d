"""Scripts of the swarm tutorials' shape, against the embedded engine."""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.protocol.errors import GaveUp
from ajet_swarm.protocol.models import OpenaiBaseUrlAndApiKey, SwarmThrottlePolicy, Task
from ajet_swarm.runs.episodes import rollout, run_episodes
from ajet_swarm.runs.executors import Retry
from ajet_swarm.runs.record import RunRecord
from tests.support.scripted.threaded_swarm import threaded_swarm
from tests.support.stack import Stack

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


def _run(module: str, steps: int, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, "--steps", str(steps)],
        cwd=ROOT,
        env={**os.environ, "AJET_SWARM_URL": url, "REMOTE_MODEL_PATH": "tiny"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_the_tutorials_scripts_train(tmp_path: Path) -> None:
    with Stack(tmp_path / "home") as stack:
        url = stack.engine().url
        run = _run("examples.swarm_script.train", 2, url)
        means = run.splitlines()[-1].removeprefix("mean reward of each batch: ").split()
        assert len(means) >= 2
        assert "tasks " in run
        with SwarmClient(url) as client:
            assert client.get_global_step() >= 3
            assert not [one for one in client.get_episode_buffer() if one.claimed]
            client.stop_engine()
        run = _run("examples.swarm_script.train_batches", 2, url)
        assert len(run.splitlines()[-1].split()) == 7
        with SwarmClient(url) as client:
            assert not [one for one in client.get_episode_buffer() if one.claimed]


def _ask(task: Task, api: OpenaiBaseUrlAndApiKey) -> float:
    body = {"model": "m", "messages": [{"role": "user", "content": task.main_query}]}
    request = urllib.request.Request(
        f"{api.base_url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {api.api_key}"},
    )
    with urllib.request.urlopen(request, timeout=90) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"]
    return float(min(1.0, text.count("!") / 3))


def test_many_threads_train_within_their_share(tmp_path: Path) -> None:
    """Threads, a restart of the engine in the middle, a record, a throttled client."""
    with Stack(tmp_path / "home") as stack:
        url = stack.engine().url
        job = AgentJetJob(model="tiny", batch_size=2, num_repeat=4, lr=5e-4)
        tasks = [
            Task(task_id=f"t{n}", main_query=f"What is {n} + 1?") for n in range(6) for _ in "1234"
        ]
        with SwarmClient(url) as client, RunRecord(tmp_path / "run.jsonl") as record:
            client.auto_sync_train_config_and_start_engine(job)
            restarted = threading.Event()

            def agent(task: Task, api: OpenaiBaseUrlAndApiKey) -> float:
                reward = _ask(task, api)
                if task.task_id == "t3" and not restarted.is_set():
                    restarted.set()
                    client.auto_sync_train_config_and_start_engine(job, force_restart=True)
                return reward

            run = rollout(client, agent, discard_episode_timeout=60)
            done = run_episodes(tasks, run, max_workers=16, record=record)
            assert all(row.ok for row in done), [row.error for row in done if row.error]
            assert restarted.is_set()
            assert record.count == len(tasks)
            # Most may have been done before the restart: two tasks more are a batch in any case.
            more = [
                Task(task_id=f"u{n}", main_query="What is 1 + 1?") for n in "01" for _ in "1234"
            ]
            assert all(episode.ok for episode in run_episodes(more, run, max_workers=8))
            assert client.wait_until_rolling(timeout=90) >= 2
            with SwarmClient(url) as other:
                _keep_a_share(other)
            assert not [one for one in client.get_episode_buffer() if one.claimed]


def test_the_server_is_killed_in_the_middle(tmp_path: Path) -> None:
    with Stack(tmp_path / "home") as stack:
        url = stack.engine().url
        job = AgentJetJob(model="tiny", batch_size=2, num_repeat=4)
        tasks = [
            Task(task_id=f"t{n}", main_query=f"What is {n} + 1?") for n in range(6) for _ in "1234"
        ]
        with SwarmClient(url) as client:
            client.auto_sync_train_config_and_start_engine(job)
            reached = threading.Event()

            def agent(task: Task, api: OpenaiBaseUrlAndApiKey) -> float:
                if task.task_id == "t3":
                    reached.set()
                return _ask(task, api)

            def kill() -> None:
                assert reached.wait(60)
                stack.kill("engine")
                stack.engine("--port", url.rpartition(":")[2])
                client.auto_sync_train_config_and_start_engine(job, timeout=100)

            killer = threading.Thread(target=kill)
            killer.start()
            retry = Retry(tries=40, first=0.2, most=2)
            run = rollout(client, agent, discard_episode_timeout=60)
            done = run_episodes(tasks, run, max_workers=8, retry=retry)
            killer.join(110)
            assert not killer.is_alive()
            assert all(row.ok for row in done), [row.error for row in done if row.error]
            assert client.wait_until_rolling(timeout=90) >= 1
            assert not [one for one in client.get_episode_buffer() if one.claimed]


def _keep_a_share(client: SwarmClient) -> None:
    def policy(task: str) -> SwarmThrottlePolicy:
        return SwarmThrottlePolicy(
            ratio=0.5, expected_batch_size=2, expected_num_repeat=4, current_task_id=task
        )

    uuid, _ = client.begin_episode(throttle_policy=policy("mine"), timeout=60)
    running = client.get_rollout_stat().running_episode_details or {}
    assert running[uuid].optional_task_id == "mine"
    with pytest.raises(GaveUp, match="throttled"):
        client.begin_episode(throttle_policy=policy("another"), timeout=3)
    again, _ = client.begin_episode(throttle_policy=policy("mine"), timeout=60)
    assert client.abort_episode(uuid)
    assert client.abort_episode(again)


TEMPLATE = """
import json, os, urllib.request
import ajet_swarm.http.transport
from ajet_swarm.compat import (
    AgentJetJob, PeriodicDrainThreadPoolExecutor, SwarmClient, Task, WorkflowOutput,
)

ajet_swarm.http.transport.KEEP_ALIVE = 0.0  # each request looks the name up
N, BATCH, TASKS = 4, 2, 4

def execute_agent(task, api):
    body = {"model": "m", "messages": [{"role": "user", "content": task.main_query}]}
    request = urllib.request.Request(
        f"{api.base_url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {api.api_key}"},
    )
    with urllib.request.urlopen(request, timeout=90) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"]
    return WorkflowOutput(reward=float(len(text)))

def main():
    swarm_worker = SwarmClient(os.environ["AJET_SWARM_URL"])
    swarm_worker.auto_sync_train_config_and_start_engine(
        AgentJetJob(algorithm="grpo", n_gpu=1, model="m", batch_size=BATCH, num_repeat=N)
    )

    def rollout(task):
        episode_uuid, api_baseurl_key = swarm_worker.begin_episode(discard_episode_timeout=240)
        workflow_output = execute_agent(task, api_baseurl_key)
        swarm_worker.end_episode(task, episode_uuid, workflow_output)
        return workflow_output.reward

    executor = PeriodicDrainThreadPoolExecutor(workers=N * BATCH, auto_retry=True)
    for number in range(TASKS):
        for _ in range(N):
            task = Task(task_id=f"t{number}", main_query="What is 1 + 1?")
            executor.submit_with_periodic_drain(fn=rollout, task=task)

if __name__ == "__main__":
    main()
"""
"""AgentJet's template: `main` returns after its last submit, and the threads run on."""


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_agentjets_template_ends_by_itself(host: str) -> None:
    with threaded_swarm(state="OFFLINE", batch=2, repeat=4) as swarm:
        swarm.server.delay = 0.3
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", TEMPLATE],
            cwd=ROOT,
            env={**os.environ, "AJET_SWARM_URL": f"http://{host}:{swarm.server.port}"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert len(swarm.server.reward_log) == 16
        assert not swarm.server.claimed()
