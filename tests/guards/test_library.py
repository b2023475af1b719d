"""The library's guide names what there is."""

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import ajet_swarm
from ajet_swarm import compat
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.compat_paths import MODULES

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "library" / "agentjet.md").read_text()
_METHODS = GUIDE.partition("## Methods of")[2].partition("\n## ")[0]
METHODS = re.findall(r"^\| `(\w+)` \|", _METHODS, re.MULTILINE)
OURS = {"TrainingFinished"}
"""Names of `init compat` that AgentJet does not have."""


def test_the_table_of_paths_has_every_name_and_the_guide_every_path() -> None:
    assert {name for names in MODULES.values() for name in names} == set(compat.__all__) - OURS
    for name in (*MODULES, *compat.__all__):
        assert f"`{name}`" in GUIDE


def test_the_guide_names_methods_that_exist() -> None:
    assert len(METHODS) > 10
    assert set(METHODS) <= _public(SwarmClient)


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    awaited_only = {
        "start",
        "add_listener",
    }  # threads' own starts by itself; its listeners are ours
    assert _public(SwarmClient) == _public(AsyncSwarm) - awaited_only
    for name in (*_public(SwarmClient) - {"close"}, "_wait_until_status_change_to"):
        waiting = inspect.signature(getattr(SwarmClient, name)).parameters
        awaited = inspect.signature(getattr(AsyncSwarm, name)).parameters
        assert _shape(waiting) == _shape(awaited), name


def _shape(parameters: Mapping[str, inspect.Parameter]) -> list[tuple[str, object, object]]:
    return [
        (parameter.name, parameter.kind, parameter.default) for parameter in parameters.values()
    ]


def _public(kind: type) -> set[str]:
    return {
        name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }


def test_every_lazy_name_is_there() -> None:
    for name in ajet_swarm.__all__:
        assert getattr(ajet_swarm, name).__name__ == name
        home = importlib.import_module(f"ajet_swarm.{ajet_swarm._HOMES[name]}")
        assert getattr(home, name) is getattr(ajet_swarm, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ajet_swarm.nothing  # noqa: B018  asked for on purpose


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import {}; import sys; print(*sys.modules)"

    def loaded(what: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", code.format(what)],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        return set(done.stdout.split())

    assert not {
        one for one in loaded("ajet_swarm") if one.startswith(("ajet_swarm.", "asyncio", "msgspec"))
    }
    heavy = {"fastapi", "numpy", "textual", "pydantic", "httpx", "pyarrow", "uvicorn", "aiohttp"}
    assert not {one.split(".")[0] for one in loaded("ajet_swarm.compat")} & heavy
