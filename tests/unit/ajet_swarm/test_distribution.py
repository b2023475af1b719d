"""The distribution `ajet-swarm` holds the library alone, and runs beside other `core`s."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import httpx
import msgspec
import pytest

import ajet_swarm
from tests.support.scripted.threaded_swarm import threaded_swarm

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "distributions" / "ajet-swarm"

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SCRIPT = """\
import sys
from pathlib import Path

import core
import core.settings
from mock import Mock

from ajet_swarm import SwarmClient, Task, WorkflowOutput

here = Path(__file__).parent
assert Path(core.__file__).parent.parent == here, core.__file__
assert core.settings.OWNER == "application"
assert Mock().owner == "application"
with SwarmClient(sys.argv[1]) as client:
    uuid, api = client.begin_episode(timeout=30)
    assert api.api_key
    print(client.end_episode(Task(task_id="t"), uuid, WorkflowOutput(reward=0.5)).kind.value)
ours = {"console", "engine", "proxy", "swarm"}
assert not {name.partition(".")[0] for name in sys.modules} & ours
print(sys.modules["ajet_swarm"].__file__)
"""
WITHOUT_YAML = """\
import sys

sys.modules["yaml"] = None
from ajet_swarm import SwarmClient
from ajet_swarm.compat import AgentJetJob

with SwarmClient(sys.argv[1]) as client:
    uuid, _ = client.begin_episode(timeout=30)
    assert client.abort_episode(uuid)
    try:
        AgentJetJob()
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the installed setuptools."""
    folder = tmp_path_factory.mktemp("distribution")
    shutil.copytree(SOURCE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    build = "from setuptools.build_meta import build_wheel; import sys; build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", build, str(folder)]
    subprocess.run(command, cwd=folder / "source", check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the two libraries it needs, without this checkout."""
    target = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(wheel)], check=True)
    return target


def _run(code: str, folder: Path, installed: Path, *args: str) -> list[str]:
    """Run a script without site packages but those of `installed` and its dependencies."""
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    needed = [installed, *(Path(str(one.__file__)).parents[1] for one in (msgspec, httpx))]
    done = subprocess.run(
        [sys.executable, "-S", "-W", "error", str(script), *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, needed))},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_wheel_contains_only_the_library(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = (one for one in names if one.endswith(".dist-info/METADATA"))
        text = file.read(metadata).decode()
    info = f"ajet_swarm-{ajet_swarm.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"ajet_swarm", info}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "ajet_swarm").rglob("*.py")}
    held = {name for name in names if name.startswith("ajet_swarm/")}
    assert held == sources | {"ajet_swarm/py.typed"}
    needed = re.findall(r"^Requires-Dist: (\w+)[^;\n]*$", text, re.MULTILINE)  # without extras
    assert sorted(needed) == ["aiohttp", "httpx", "msgspec"]


def test_both_distributions_take_their_version_from_the_library() -> None:
    for folder in (ROOT, SOURCE):
        table = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        assert table["project"]["dynamic"] == ["version"]
        version = table["tool"]["setuptools"]["dynamic"]["version"]
        assert version == {"attr": "ajet_swarm.__version__"}


def test_it_runs_in_a_project_with_a_core_and_a_mock_of_its_own(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").touch()
    (tmp_path / "core" / "settings.py").write_text('OWNER = "application"\n', encoding="utf-8")
    (tmp_path / "mock.py").write_text('class Mock:\n    owner = "application"\n', encoding="utf-8")
    with threaded_swarm(slots=4) as swarm:
        kind, path = _run(SCRIPT, tmp_path, installed, swarm.url)
    assert kind == "ended"
    assert Path(path).is_relative_to(installed)


def test_episodes_need_no_yaml_and_a_job_says_what_to_install(
    installed: Path, tmp_path: Path
) -> None:
    with threaded_swarm(slots=4) as swarm:
        (line,) = _run(WITHOUT_YAML, tmp_path, installed, swarm.url)
    assert line.startswith("UsageError job: PyYAML is not installed. Install it: pip install")
