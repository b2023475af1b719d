"""Rules of the house that a tool can look at."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("console", "proxy", "mock", "engine", "swarm", "core")
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


def test_no_file_is_longer_than_one_sitting() -> None:
    long = {str(path.relative_to(ROOT)): lines for path in FILES if (lines := _lines(path)) > 400}
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
        ("import swarm.client, swarm.watcher, swarm.claims", {"textual", "fastapi", "numpy"}),
        ("import proxy.endpoint, proxy.serve", {"textual", "numpy", "openai"}),
        ("import engine.server", {"textual", "openai", "aiohttp"}),
        ("import mock.user_requests", {"textual", "fastapi", "aiohttp", "numpy"}),
        ("import console.cli", {"textual", "fastapi", "aiohttp", "numpy", "openai", "httpx"}),
        ("import console.app", {"fastapi", "aiohttp", "numpy", "openai"}),
    ],
)
def test_nothing_heavy_comes_along(code: str, kept_out: set[str]) -> None:
    assert not _imported_by(code) & kept_out
