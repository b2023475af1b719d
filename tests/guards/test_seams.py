"""Time and chance come from `ajet_swarm.runtime`: a simulation replaces them there."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("ajet_swarm", "core", "proxy")
SEAM = "ajet_swarm/runtime.py"

OUTSIDE = {
    "ajet_swarm/data/readers.py": "order by the script's own `random.seed`",
    "ajet_swarm/debug/__init__.py": "thread of a script",
    "ajet_swarm/debug/trace.py": "threads of a relay",
    "ajet_swarm/runs/episodes.py": "threads of a script",
    "ajet_swarm/runs/record.py": "threads of a script",
    "ajet_swarm/runs/executors.py": "threads of a script",
    "core/journal/prune.py": "thread of the journal",
    "core/journal/writer.py": "thread of the journal",
    "core/runtime/access.py": "file of a process: its tokens",
    "core/runtime/home.py": "files of a process: its key, id and start",
    "core/whole_file.py": "name of a temporary file",
    "proxy/control/job_store.py": "file of a home: the key of its masks",
    "proxy/rewards/hooks/host.py": "runs in the process of the hooks",
    "proxy/trackers/service.py": "thread of a sink",
}
"""Modules that read the system itself, and why: no simulation runs them."""

_READS = {
    "datetime.date": {"today"},
    "datetime.datetime": {"now", "today", "utcnow"},
    "os": {"getrandom", "urandom"},
    "time": {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"},
    "uuid": {"uuid1", "uuid4"},
}


def test_time_and_chance_come_from_the_runtime() -> None:
    found = {name: reads for name, reads in all_reads().items() if name not in OUTSIDE}
    assert not found, "\n".join(line for reads in found.values() for line in reads)


def test_no_listed_module_is_free_of_reads() -> None:
    assert not OUTSIDE.keys() - all_reads().keys()


def test_the_guard_sees_each_kind_of_read() -> None:
    source = """
import random
import time
from datetime import datetime
from random import Random as Generator, shuffle
from secrets import token_hex as token
import uuid as ids
from time import monotonic

def f(clock=time.time, rng: random.Random | None = None):
    shuffle([])
    token(4), ids.uuid4(), datetime.now()
    Generator(), Generator(7), random.Random(), random.Random(seed), random.SystemRandom()
    time.sleep(1), time.thread_time(), clock()
    return monotonic
"""
    assert [(line, name) for line, name in reads_of(source)] == [
        (10, "time.time"),
        (11, "random.shuffle"),
        (12, "secrets.token_hex"),
        (12, "uuid.uuid4"),
        (12, "datetime.datetime.now"),
        (13, "random.Random"),
        (13, "random.Random"),
        (13, "random.SystemRandom"),
        (15, "time.monotonic"),
    ]


def all_reads() -> dict[str, list[str]]:
    """Return `file:line: name` of each read, by the file."""
    result = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            reads = [f"{file}:{line}: {name}" for line, name in reads_of(path.read_text())]
            if reads and file != SEAM:
                result[file] = reads
    return result


def reads_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each use of the system's time or chance, in order."""
    tree = ast.parse(source)
    names = dict(_imported(tree))
    makes = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and _is_read(
            name := _full_name(node, names), makes.get(id(node))
        ):
            found.append((node.lineno, node.col_offset, name))
    yield from ((line, name) for line, _, name in sorted(found))


def _is_read(name: str, call: ast.Call | None) -> bool:
    module, _, last = name.rpartition(".")
    if name == "random.Random":  # a type, or a generator with an explicit seed
        return call is not None and not (call.args or call.keywords)
    return module in ("random", "secrets") or last in _READS.get(module, ())


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each local name of an import, and the name it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name,) * 2
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _full_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return the imported name that an expression means; empty for any other."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (owner := _full_name(node.value, names)):
        return f"{owner}.{node.attr}"
    return ""
