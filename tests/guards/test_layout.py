"""Rules of the project that a program can check."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("console", "proxy", "mock", "engine", "core", "ajet_swarm")
FILES = [
    path
    for name in (*PACKAGES, "tests", "bench", "examples")
    for path in sorted((ROOT / name).rglob("*.py"))
]
MOST_METHODS = 25


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


@dataclass(frozen=True)
class ClassSource:
    """A class of the tree."""

    name: str
    methods: int
    bases: tuple[str, ...]
    is_top: bool
    """It is at the top of its module."""


@dataclass(frozen=True)
class ModuleSource:
    """The classes and imported names of a module."""

    path: Path
    classes: tuple[ClassSource, ...]
    imports: dict[str, tuple[str, str]]
    """Local name -> the module and the name there."""


@cache
def _modules() -> dict[str, ModuleSource]:
    """Return the modules of the packages by their dotted names; each file is parsed once."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): _module(path)
        for path in FILES
        if path.relative_to(ROOT).parts[0] in PACKAGES
    }


@cache
def _module(path: Path) -> ModuleSource:
    tree = ast.parse(path.read_text())
    tops = {id(node) for node in tree.body}
    classes = tuple(
        ClassSource(
            node.name,
            sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body),
            tuple(
                one.id
                for one in (
                    base.value if isinstance(base, ast.Subscript) else base for base in node.bases
                )
                if isinstance(one, ast.Name)
            ),
            id(node) in tops,
        )
        for node in _statements(tree.body)
        if isinstance(node, ast.ClassDef)
    )
    imports = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return ModuleSource(path.relative_to(ROOT), classes, imports)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements of a body, at any depth; a class is no part of an expression."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, name, []))
        for case in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(case.body)


def test_no_class_has_more_than_25_methods() -> None:
    """A file with fewer functions has no such class; parsing takes longest."""
    large = [
        f"{module.path}: {kind.name}"
        for path in FILES
        if path.read_text().count("def ") > MOST_METHODS
        for module in (_module(path),)
        for kind in module.classes
        if kind.methods > MOST_METHODS
    ]
    assert not large


def test_the_guard_counts_the_methods_of_an_inner_class(tmp_path: Path) -> None:
    methods = "\n".join(f"            def m{number}(self): ..." for number in range(26))
    path = tmp_path / "one.py"
    path.write_text(f"def f():\n    try: pass\n    except Error:\n        class A:\n{methods}\n")
    tree = ast.parse(path.read_text())
    (result,) = [
        statement for statement in _statements(tree.body) if isinstance(statement, ast.ClassDef)
    ]
    assert len(result.body) == MOST_METHODS + 1


def test_no_class_name_occurs_twice_in_a_package() -> None:
    places: dict[tuple[str, str], list[str]] = {}
    for module in _modules().values():
        package = module.path.parts[0]
        if package in PACKAGES:
            for kind in module.classes:
                if kind.is_top:
                    places.setdefault((package, kind.name), []).append(str(module.path))
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
        name = str(path.parent.relative_to(ROOT))
        folders[name] = folders.get(name, 0) + 1
    assert not {name: count for name, count in folders.items() if count > 25}


LADDERS = {
    "console.app:ConsoleApp",
    "console.replay.app:ReplayApp",
    "console.screens.engine.screen:EngineScreen",
    "console.screens.mock.screen:MockScreen",
    "console.screens.rewards.whatif:RewardsWhatIfScreen",
    "console.screens.progress.tries:ProbesScreen",
    "console.screens.mock.preview:DatasetPreview",
    "console.screens.requests.widgets:GroupList",
    "console.screens.overview.screen:RecentGroups",
    "console.widgets.item_list:ItemList",
    "core.journal.writer:Journal",
}
"""Classes that are to be split by composition; the list only gets shorter."""


def test_no_class_has_more_than_30_methods_with_its_bases() -> None:
    """A class split by inheritance into the next file is still one class to its reader."""
    large = {
        f"{name}:{kind.name}"
        for name, module in _modules().items()
        if module.path.parts[0] in PACKAGES
        for kind in module.classes
        if kind.is_top and _methods(name, kind.name) > 30
    }
    assert large == LADDERS


def _methods(module: str, name: str) -> int:
    """Return the number of methods of a class and of its bases that are ours."""
    source = _modules().get(module)
    if source is None or module.partition(".")[0] not in PACKAGES:
        return 0
    for kind in source.classes:
        if kind.is_top and kind.name == name:
            return kind.methods + sum(_methods(module, base) for base in kind.bases)
    return _methods(*source.imports[name]) if name in source.imports else 0


REGISTRY = "from console.models.screen_registry import SCREENS"
LARGE = {"fastapi", "uvicorn", "aiohttp", "openai", "numpy", "httpx"}


def _imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    names = done.stdout.split()
    return {*names, *(name.split(".")[0] for name in names)}


@pytest.mark.parametrize(
    ("code", "excluded"),
    [
        ("import core.bus, core.settings, core.commands", {"textual", "fastapi", "httpx", "numpy"}),
        (
            "import ajet_swarm.api.watcher, ajet_swarm.episodes.claim",
            {"textual", "fastapi", "numpy"},
        ),
        (
            "import proxy.endpoint, proxy.main",
            {"textual", "numpy", "openai", "opentelemetry.sdk", "tensorboardX"},
        ),
        ("import engine.app", {"textual", "openai", "aiohttp"}),
        (
            "import mock.user_requests",
            {"textual", "fastapi", "aiohttp", "numpy", "proxy", "engine"},
        ),
        ("import console.cli", {*LARGE, "textual", "yaml", "asyncio"}),
        ("import console.cli.clients", {"textual", "fastapi", "aiohttp", "httpx"}),
        ("import console.screens.progress.model", {"textual"}),
        ("import console.backend.supervisor", {*LARGE, "textual", "proxy", "engine", "mock"}),
        (
            f"import console.app, console.backend.startup\n{REGISTRY}\nSCREENS[0].load()",
            {*LARGE, "proxy.control.client"},
        ),
        (
            f"{REGISTRY}\n[screen.load() for screen in SCREENS]",
            {*LARGE, "proxy", "engine"},
        ),
    ],
)
def test_nothing_heavy_comes_along(code: str, excluded: set[str]) -> None:
    assert not _imported_by(code) & excluded
