"""A script written for an AgentJet swarm server, against the embedded one: plain HTTP alone.

The engine is a process of its own with the shipped policy. The script does what AgentJet's client
does on the wire (sync a whole job, start, poll, claim, call, end, wait for the next batch) with
urllib; nothing of ours is imported on its side.
"""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BATCHES, BATCH, REPEAT = 5, 2, 4

LAUNCH = """
import sys
from pathlib import Path
from core.runtime.home import Home
from engine.main import EngineOptions, run
sys.exit(run(EngineOptions(home=Home.open(Path(sys.argv[1])), port=0)))
"""

JOB = """
ajet:
  project_name: script
  experiment_name: five-batches
  enable_swarm_mode: true
  swarm_mode_sample_collection_method: rollout_until_finish_enough_tasks
  model: {path: Qwen/Qwen2.5-7B-Instruct}
  data: {train_batch_size: 2, max_prompt_length: 3000, max_response_length: 15000}
  rollout: {num_repeat: 4, temperature: 0.9, max_env_worker: 128, max_model_len: 18000,
            max_response_length_in_one_turn: 4096, tensor_model_parallel_size: 1}
  trainer_common: {n_gpus_per_node: 8, nnodes: 1, save_freq: 2, kl_loss_coef: 0.002,
                   optim: {lr: 1.0e-06}, algorithm: {adv_estimator: grpo}}
  lora: {lora_rank: 0, load_format: auto}
"""


class Script:
    """The client side: one server URL, one client uuid."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.me = str(uuid.uuid4())
        self.lock = threading.Lock()
        self.rewards: dict[str, list[float]] = {}

    def ask(self, path: str, body: Any = None, key: str = "", url: str = "") -> Any:
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{url or self.url}{path}", data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)

    def status(self) -> tuple[str, int | None]:
        response = self.ask("/get_engine_status")
        return response["engine_status"], response["global_step"]

    def wait_for(self, wanted: str, step: int = 0, seconds: float = 90) -> int:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status, now = self.status()
            if status == wanted and (now or 0) >= step:
                return now or 0
            time.sleep(0.02)
        raise AssertionError(f"{wanted} {step} did not come: {self.status()}")

    def begin_episode(self, task_id: str) -> Any:
        """As AgentJet's: asks until it is given one."""
        policy = {
            "ratio": 1.5,
            "expected_batch_size": BATCH,
            "expected_num_repeat": REPEAT,
            "current_task_id": task_id,
        }
        claim = {
            "client_uuid": self.me,
            "episode_type": "train",
            "discard_episode_timeout": 240,
            "throttle_policy": policy,
        }
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            response = self.ask("/claim_episode", claim)
            if response["success"]:
                return response
            assert response["fail_cause"]
            time.sleep(0.02)
        raise AssertionError("no episode")

    def chat(self, episode: Any, question: str) -> str:
        """Two turns; the second one as a stream."""
        messages = [{"role": "user", "content": question}]
        base, key = episode["openai_base_url"], episode["openai_api_key"]
        first = self.ask("/chat/completions", {"model": "m", "messages": messages}, key, base)
        result = first["choices"][0]["message"]["content"]
        messages += [
            {"role": "assistant", "content": result},
            {"role": "user", "content": "Thank you!"},
        ]
        body = json.dumps({"model": "m", "messages": messages, "stream": True}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"{base}/chat/completions", data=body, headers=headers)
        text = ""
        with urllib.request.urlopen(request, timeout=90) as answer:
            lines = [line.decode().strip() for line in answer]
        events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        for event in events[:-1]:
            text += json.loads(event)["choices"][0]["delta"].get("content") or ""
        return f"{result} {text}"

    def run_episode(self, task_id: str) -> None:
        episode = self.begin_episode(task_id)
        result = self.chat(episode, "What is 2 + 3?")
        reward = min(1.0, result.count("!") / 3)
        output = {
            "reward": reward,
            "is_success": None,
            "metadata": {"task_id": task_id},
            "log_metrics": {"length": float(len(result))},
        }
        end = {
            "client_uuid": self.me,
            "episode_uuid": episode["episode_uuid"],
            "task_id": task_id,
            "workflow_output": output,
        }
        assert self.ask("/end_episode", end) == {"success": True, "failure_reason": ""}
        with self.lock:
            self.rewards.setdefault(task_id, []).append(reward)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(tmp_path / "home")],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        result = tmp_path / "home" / "run" / "engine.json"
        deadline = time.monotonic() + 90
        while not result.exists() and time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.02)
        assert result.exists(), "the engine did not come up"
        yield str(json.loads(result.read_text())["url"])
        child.terminate()
        _, log = child.communicate(timeout=90)
        assert child.returncode == 0
        assert "Traceback" not in log, log


@pytest.mark.process
def test_five_batches(server: str) -> None:
    script = Script(server)
    assert script.ask("/health") == {"status": "ok"}
    assert script.status() == ("ENGINE.OFFLINE", None)
    assert script.ask("/sync_train_config", {"yaml_as_string": JOB}) == {"success": True}
    assert script.ask("/start_engine", {})["success"] is True
    for step in range(1, BATCHES + 1):
        assert script.wait_for("ENGINE.ROLLING", step) == step
        script.rewards = {}
        tasks = [f"step{step}-task{number}" for number in range(BATCH)]
        with ThreadPoolExecutor(max_workers=BATCH * REPEAT) as pool:
            jobs = [pool.submit(script.run_episode, task) for task in tasks for _ in range(REPEAT)]
            for job in jobs:
                job.result(timeout=90)
        assert {task: len(sent) for task, sent in script.rewards.items()} == dict.fromkeys(
            tasks, REPEAT
        )
    assert script.wait_for("ENGINE.ROLLING", BATCHES + 1) == BATCHES + 1

    updates = script.ask("/ajetc/updates")
    assert [update["step"] for update in updates] == [1, 2, 3, 4, 5]
    for update in updates:
        assert update["groups"] == BATCH
        assert update["calls"] == 2 * BATCH * REPEAT
        assert update["timelines"] == BATCH * REPEAT, "both turns of an episode in one"
    directory = Path(script.ask("/get_server_experiment_dir")["server_experiment_dir"])
    names = [path.name for path in directory.rglob("*five-batches-step-*")]
    assert any("000002" in name for name in names), "save_freq"
    assert any("000004" in name for name in names), "save_freq"

    replayed = script.ask("/replay_latest_llm_call", {})
    assert replayed["output"]["choices"][0]["message"]["role"] == "assistant"
    pool = script.ask("/get_current_batch_rollout_pool_information")
    assert (pool["completed_task_target"], pool["task_expected_num_repeat"]) == (BATCH, REPEAT)

    claim = {"client_uuid": script.me, "episode_type": "eval", "discard_episode_timeout": 60}
    episode = script.ask("/claim_episode", claim)
    ask = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0}
    answers = {
        script.ask("/chat/completions", ask, episode["openai_api_key"], episode["openai_base_url"])[
            "choices"
        ][0]["message"]["content"]
        for _ in range(2)
    }
    assert len(answers) == 1, "greedy in an eval episode"
    abort = {
        "client_uuid": script.me,
        "episode_uuid": episode["episode_uuid"],
        "task_id": "",
        "workflow_output": {"reward": None, "metadata": {}},
    }
    assert script.ask("/abort_episode", abort)["success"] is True

    assert script.ask("/stop_engine", {}) == {"success": True, "failure_reason": ""}
    assert script.status() == ("ENGINE.OFFLINE", 0)
    with pytest.raises(urllib.error.HTTPError) as refused:
        script.ask("/chat/completions", ask, episode["openai_api_key"], f"{server}/v1")
    assert refused.value.code == 404
    refused.value.close()
    assert script.ask("/start_engine", {})["success"] is True
    assert script.wait_for("ENGINE.ROLLING") == BATCHES + 1, "it goes on where it was"
