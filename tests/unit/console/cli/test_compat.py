"""`init compat`: the package `ajet` for scripts that import AgentJet's names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ajet_swarm.compat_paths import MODULES
from console.cli import main
from tests.support.commands.cli import Cli
from tests.support.scripted.threaded_swarm import threaded_swarm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]


TUTORIAL = """
import os

from ajet.schema.task import Task, WorkflowOutput, WorkflowTask
from ajet.copilot.job import AgentJetJob
from ajet.task_reader import RouterTaskReader
from ajet.utils.retry import retry_with_backoff
from ajet.utils.thread_executors import PeriodicDrainThreadPoolExecutor
from ajet.tuner_lib.as_oai_baseurl_apikey import OpenaiBaseUrlAndApiKey
from ajet.tuner_lib.experimental.interchange_utils import SwarmThrottlePolicy
from ajet.default_config.ajet_default import AjetTaskReader, HuggingfaceDatRepo
from ajet.tuner_lib.experimental.as_swarm_client import SwarmClient, SwarmThrottlePolicy
from ajet.tuner_lib.weight_tuner.experimental.as_swarm_client import SwarmClient as OldClient

GRPO_N = 4
assert OldClient is SwarmClient
dataset = RouterTaskReader(reader_type="random_dummy", reader_config=AjetTaskReader())
worker = SwarmClient(os.environ["AJET_SWARM_URL"])


def rollout(task: Task) -> None:
    uuid, api = worker.begin_episode(discard_episode_timeout=60)
    assert isinstance(api, OpenaiBaseUrlAndApiKey)
    worker.end_episode(task, uuid, WorkflowOutput(reward=0.5, metadata={}))


executor = PeriodicDrainThreadPoolExecutor(workers=GRPO_N, auto_retry=True)
for _, task in zip(range(2), dataset.generate_training_tasks()):
    for _ in range(GRPO_N):
        executor.submit_with_periodic_drain(fn=rollout, task=task)
executor.shutdown(wait=True)
worker.close()
print("trained")
"""


ONE_TO_MANY = """
import os

from ajet.schema.task import Task, WorkflowOutput
from ajet.copilot.job import AgentJetJob
from ajet.tuner_lib.experimental.swarm_client import SwarmClient
from ajet.tuner_lib.as_oai_baseurl_apikey import OpenaiBaseUrlAndApiKey
from ajet.tuner_lib.experimental.interchange_utils import (
    ClaimEpisodeRequest,
    ClaimEpisodeResponse,
)

client = SwarmClient(os.environ["AJET_SWARM_URL"])
request = ClaimEpisodeRequest(
    client_uuid=client.client_uuid,
    episode_type="train",
    discard_episode_timeout=300,
    throttle_policy=None,
)
answer = client._http_client.post(
    f"{client.server_url}/claim_episode", json=request.model_dump()
)
answer.raise_for_status()
claimed = ClaimEpisodeResponse.model_validate(answer.json())
api = OpenaiBaseUrlAndApiKey(
    base_url=claimed.openai_base_url,
    api_key=claimed.openai_api_key,
    episode_uuid=claimed.episode_uuid,
)
task = Task(task_id="t", main_query="q", metadata={"user_preference": "x"})
client.end_episode(task, api.episode_uuid, WorkflowOutput(reward=-0.5, metadata={}))
client.close()
print("ended")
"""


def script(folder: Path, text: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the package of `folder` where no other `ajet` is."""
    path = folder / "script.py"
    path.write_text(text)
    return subprocess.run(
        [sys.executable, str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", **env},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "result", "rewards"),
    [(TUTORIAL, "trained", [0.5] * 8), (ONE_TO_MANY, "ended", [-0.5])],
    ids=["tutorial", "one to many"],
)
def test_an_agentjet_script_runs_unchanged(
    tmp_path: Path, text: str, result: str, rewards: list[float]
) -> None:
    assert main(["init", "compat", str(tmp_path)]) == 0
    with threaded_swarm(batch=4, repeat=4) as swarm:
        done = script(tmp_path, text, AJET_SWARM_URL=swarm.url)
        assert (done.returncode, done.stdout) == (0, f"{result}\n"), done.stderr
        assert list(swarm.server.rewards.values()) == rewards
        assert not swarm.server.claimed()


@pytest.mark.parametrize("folder", ["", " "])
def test_a_blank_folder_is_refused(
    cli: Cli, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no folder is named" in cli.refused("init", "compat", folder)
    assert not list(tmp_path.iterdir())


def test_every_module_exports_its_names(tmp_path: Path) -> None:
    assert main(["init", "compat", str(tmp_path)]) == 0
    lines = [f"from {module} import {name}" for module in MODULES for name in MODULES[module]]
    lines += ["import ajet.tuner_lib.experimental", "print(ajet.__file__)"]
    done = script(tmp_path, "\n".join(lines))
    assert done.stdout == f"{tmp_path / 'ajet' / '__init__.py'}\n", done.stderr


def test_hooks_can_import_the_package(tmp_path: Path) -> None:
    """With the package in its folder a hook has its names, too, and those it always had."""
    assert main(["init", "compat", str(tmp_path)]) == 0
    done = script(
        tmp_path,
        "from proxy.rewards.hooks.tutorials import install_shim\n"
        "assert not install_shim()\n"
        "from ajet.schema.task import Task\n"
        "from ajet.utils.compute_madness import has_repeat\n"
        "from ajet.tuner_lib.as_oai_baseurl_apikey import OpenaiBaseUrlAndApiKey\n"
        "print(Task(task_id='t').task_id, has_repeat(['a'] * 40))\n",
    )
    assert done.stdout == "t True\n", done.stderr


def test_the_command_prints_how_to_run_a_script(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "of me"
    run = f"PYTHONPATH='{folder}' {sys.executable} script.py"
    assert cli.out("init", "compat", folder).splitlines() == [
        f"wrote {folder / 'ajet'}: {len(MODULES)} modules with AgentJet's names",
        f"run a script with: {run}",
        f"scripts for AgentJet often need other packages, too: {sys.executable} -m pip install "
        "loguru beast-logger requests",
    ]
    body = cli.json("init", "compat", folder)  # once more: its own files are replaced
    assert (body["package"], body["run"]) == (str(folder / "ajet"), run)
    assert {name: tuple(names) for name, names in body["modules"].items()} == dict(MODULES)


@pytest.mark.parametrize("name", ["ajet/__init__.py", "ajet/notes.txt", "ajet"])
def test_a_foreign_package_is_not_replaced(cli: Cli, tmp_path: Path, name: str) -> None:
    if name != "ajet":
        cli("init", "compat", tmp_path)
    (tmp_path / name).write_text("mine\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    shown = cli.refused("init", "compat", tmp_path)
    assert f"{tmp_path / name}: was not written by `ajet-console init compat`" in shown
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_nothing_is_written_where_agentjet_is_installed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site" / "ajet"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("__version__ = '0.1.0'\n")
    monkeypatch.syspath_prepend(installed.parent)
    shown = cli.failed("init", "compat", tmp_path / "shim")
    assert f"{installed / '__init__.py'}: AgentJet is installed" in shown
    assert not (tmp_path / "shim").exists()


def test_its_own_package_does_not_count_as_agentjet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["init", "compat", str(tmp_path)]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["init", "compat", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("from ajet import AjetTuner, Workflow", "`ajet.AjetTuner` of AgentJet is not in"),
        ("from ajet.schema.task import Workflow", "A workflow runs inside AgentJet's trainer"),
        (
            "from ajet.utils.env_service_client.env_client_ng import EnvClient",
            "Call the environment service over HTTP",
        ),
        ("import ajet.utils.testing_utils", "Install AgentJet itself for this script"),
        ("from ajet.utils import testing_utils", "Install AgentJet itself for this script"),
    ],
)
def test_a_name_that_is_missing_is_named_with_what_to_do(
    tmp_path: Path, line: str, words: str
) -> None:
    assert main(["init", "compat", str(tmp_path)]) == 0
    done = script(tmp_path, f"from ajet import task_reader, utils\n{line}\n")
    assert done.returncode == 1
    assert words in done.stderr.splitlines()[-1]
