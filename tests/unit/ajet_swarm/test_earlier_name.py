"""Scripts that import the library by its earlier name, `swarm`, still run."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(code: str, *flags: str) -> str:
    command = [sys.executable, *flags, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_imports_of_an_earlier_script_give_the_names_of_ajet_swarm() -> None:
    assert run(
        "from swarm import SwarmClient, Task\n"
        "from swarm.compat import WorkflowOutput\n"
        "from swarm.debug import main\n"
        "from swarm.readers import JsonlTaskReader\n"
        "from swarm.run import rollout\n"
        "import ajet_swarm.data.readers, ajet_swarm.runs.episodes, swarm.run\n"
        "assert rollout is ajet_swarm.runs.episodes.rollout is swarm.run.rollout\n"
        "assert JsonlTaskReader is ajet_swarm.data.readers.JsonlTaskReader\n"
        "assert SwarmClient is ajet_swarm.SwarmClient\n"
        "print('fine')\n"
    ).startswith("fine")


def test_the_import_warns() -> None:
    result = run("import swarm", "-W", "default")
    assert "DeprecationWarning: `swarm` is now `ajet_swarm`: change the import" in result


def test_each_earlier_module_has_a_module_now() -> None:
    with pytest.warns(DeprecationWarning, match="is now `ajet_swarm`"):
        swarm = importlib.reload(importlib.import_module("swarm"))
    for name in swarm._MODULES:
        assert importlib.import_module(f"swarm.{name}").__name__.startswith("ajet_swarm.")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("swarm.nothing")


@pytest.mark.parametrize(
    ("module", "earlier", "now"),
    [
        ("api.outcomes", "Refused", "ClaimRefused"),
        ("api.watcher", "Seen", "ServerStatus"),
        ("claims.claimer", "ClaimDesk", "GroupClaimer"),
        ("debug.trace", "Call", "RecordedCall"),
        ("debug.trace", "Relay", "RecordingRelay"),
        ("protocol.errors", "Refusal", "ServerRefusal"),
        ("protocol.schemas", "WorkflowOutput", "WireOutput"),
        ("runs.record", "Lost", "UnstoredValue"),
    ],
)
def test_an_earlier_class_name_warns_and_gives_the_class(
    module: str, earlier: str, now: str
) -> None:
    home = importlib.import_module(f"ajet_swarm.{module}")
    with pytest.warns(DeprecationWarning, match=f"{earlier} is now {now}"):
        assert getattr(home, earlier) is getattr(home, now)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        home.nothing  # noqa: B018  the access is the test
