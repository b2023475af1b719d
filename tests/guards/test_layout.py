"""Rules of the house that a tool can look at."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("console", "proxy", "mock", "engine", "core", "ajet_swarm")
FILES = [
    path
    for name in (*PACKAGES, "tests", "bench", "examples")
    for path in sorted((ROOT / name).rglob("*.py"))
]


@pytest.mark.parametrize("name", PACKAGES)
def test_each_name_is_ours(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).is_relative_to(ROOT)


def test_no_file_is_longer_than_600_lines() -> None:
    """A file is one subject; a longer one rarely is."""
    long = {str(path.relative_to(ROOT)): lines for path in FILES if (lines := _lines(path)) > 600}
    assert not long


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_class_has_more_than_25_methods() -> None:
    large = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in FILES
        if "tests" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        if sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body) > 25
    ]
    assert not large


def test_no_class_name_occurs_twice_in_a_package() -> None:
    places: dict[tuple[str, str], list[str]] = {}
    for path in FILES:
        where = path.relative_to(ROOT)
        if where.parts[0] not in PACKAGES:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault((where.parts[0], node.name), []).append(str(where))
    twice = {name: files for (_, name), files in places.items() if len(files) > 1}
    assert not twice


def test_no_file_name_repeats_its_folder() -> None:
    repeated = [
        str(path.relative_to(ROOT))
        for path in FILES
        if path.relative_to(ROOT).parts[0] in PACKAGES
        if path.parent.name.rstrip("s") in [word.rstrip("s") for word in path.stem.split("_")]
    ]
    assert not repeated


def test_no_folder_has_more_than_25_modules() -> None:
    folders: dict[str, int] = {}
    for path in FILES:
        if path.relative_to(ROOT).parts[0] in PACKAGES and path.name != "__init__.py":
            name = str(path.parent.relative_to(ROOT))
            folders[name] = folders.get(name, 0) + 1
    assert not {name: count for name, count in folders.items() if count > 25}


LADDERS = {
    "console.app:ConsoleApp",
    "console.replay.app:ReplayApp",
    "console.screens.engine:EngineScreen",
    "console.screens.server_detail:EpisodeList",
    "console.screens.log:LogScreen",
    "console.screens.mock:MockScreen",
    "console.screens.mock:_Side",
    "console.screens.rewards.whatif:ChangedGroupList",
    "console.screens.rewards.whatif:WeightList",
    "console.screens.rewards.whatif:RewardsWhatIfScreen",
    "console.screens.servers:ServerTable",
    "console.screens.probes:ProbesScreen",
    "console.screens.probes:ProbeList",
    "console.widgets.dataset_preview:DatasetPreview",
    "console.widgets.dataset_results:ResultList",
    "console.widgets.group_list:GroupList",
    "console.widgets.recent_groups:RecentGroups",
    "console.widgets.item_list:ItemList",
    "core.journal.writer:Journal",
    "ajet_swarm.client.asynchronous:AsyncSwarm",
    "ajet_swarm.client.engine_control:EngineOrders",
}
"""Classes that are to be split by composition; the list only gets shorter."""


def test_no_class_has_more_than_30_methods_with_its_bases() -> None:
    """A class split by inheritance into the next file is still one class to its reader."""
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
        for path in FILES
        if path.relative_to(ROOT).parts[0] in PACKAGES
    }
    large = {
        f"{module}:{node.name}"
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and _methods(trees, module, node.name) > 30
    }
    assert large == LADDERS


def _methods(trees: dict[str, ast.Module], module: str, name: str) -> int:
    """Methods of a class and of its bases that are ours."""
    for node in trees[module].body if module in trees else ():
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _methods(trees, node.module or "", alias.name)
        if isinstance(node, ast.ClassDef) and node.name == name:
            own = sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body)
            bases = [one.value if isinstance(one, ast.Subscript) else one for one in node.bases]
            names = [one.id for one in bases if isinstance(one, ast.Name)]
            return own + sum(_methods(trees, module, base) for base in names)
    return 0


def _imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("code", "kept_out"),
    [
        ("import core.bus, core.settings, core.commands", {"textual", "fastapi", "httpx", "numpy"}),
        (
            "import ajet_swarm.api.watcher, ajet_swarm.claims.claimer",
            {"textual", "fastapi", "numpy"},
        ),
        ("import proxy.endpoint, proxy.main", {"textual", "numpy", "openai"}),
        ("import engine.app", {"textual", "openai", "aiohttp"}),
        ("import mock.user_requests", {"textual", "fastapi", "aiohttp", "numpy"}),
        ("import console.cli", {"textual", "fastapi", "aiohttp", "numpy", "openai", "httpx"}),
        ("import console.app", {"fastapi", "aiohttp", "numpy", "openai"}),
    ],
)
def test_nothing_heavy_comes_along(code: str, kept_out: set[str]) -> None:
    assert not _imported_by(code) & kept_out
