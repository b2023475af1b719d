"""The docstrings from which the reference of the library is made are complete."""

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache

import pytest

import ajet_swarm
from ajet_swarm import compat
from docs import reference, settings
from docs.reference import ROOT, Writer
from docs.sources import Entry, Function, Library

SECONDS = re.compile(r"timeout|seconds|patience|lifetime|idle")


@cache
def writer() -> Writer:
    """Return the writer of the pages; reading all sources takes a second."""
    return Writer(Library(ROOT / "ajet_swarm"))


@cache
def shown() -> Collection[Entry]:
    """Return every class, function and method of the pages, those of a protocol aside."""
    return {
        id(one.node): one
        for entries in writer().chosen.values()
        for entry in entries
        for one in (entry, *entry.members)
        if isinstance(one.node, ast.ClassDef | Function)
        and not any("Protocol" in ast.unparse(x) for x in getattr(entry.node, "bases", ()))
    }.values()


def test_what_scripts_import_is_on_a_page() -> None:
    names = {entry.name for entries in writer().chosen.values() for entry in entries}
    renamed = {
        "SwarmServerOfflineError": "EngineOff",
        "EpisodeStatus": "EpisodeRecord",
        "CurrentBatchRolloutPoolInformation": "PoolInfo",
    }
    assert {renamed.get(name, name) for name in {*ajet_swarm.__all__, *compat.__all__}} <= names


def test_each_public_name_has_a_docstring() -> None:
    silent = [f"{one.module}.{one.name}" for one in shown() if not one.doc]
    assert not silent, "\n".join(silent)


def test_what_raises_says_so() -> None:
    silent = []
    for one in shown():
        made = one.node
        if isinstance(made, ast.ClassDef):
            made = next((x for x in made.body if getattr(x, "name", "") == "__init__"), made)
        errors = {name for name in raised(made) if name.endswith(("Error", "Refusal", "GaveUp"))}
        if errors and not re.search(r"[Rr]aise", writer().whole(one.doc)):
            silent.append(f"{one.module}.{one.name}: {', '.join(sorted(errors))}")
    assert not silent, "give them a `Raises:` section:\n" + "\n".join(silent)


def test_an_argument_list_names_every_argument() -> None:
    lacking = []
    for one in shown():
        _, sections = reference.split(one.doc)
        result = " ".join(sections.get("Args", {}))
        if not result or not isinstance(one.node, Function):
            continue
        args = one.node.args
        names = [x.arg for x in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
        missing = [
            n for n in names if n not in ("self", "cls") and not re.search(rf"\b{n}\b", result)
        ]
        lacking += [f"{one.module}.{one.name}: {name}" for name in missing]
    assert not lacking, "\n".join(lacking)


def test_times_have_a_unit() -> None:
    bare = []
    for one in shown():
        _, sections = reference.split(one.doc)
        for name, value in sections.get("Args", {}).items():
            if SECONDS.search(name) and not re.search(r"[Ss]econd|idle timeouts|As of", value):
                bare.append(f"{one.module}.{one.name}: {name}")
    assert not bare, "\n".join(bare)


def raised(node: ast.AST) -> Iterator[str]:
    """Names of the exceptions raised there, not in a nested function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            yield ast.unparse(child.exc.func)
        yield from raised(child)


@pytest.mark.parametrize(
    ("doc", "text", "sections"),
    [
        ("Just this.", "Just this.", {}),
        (
            "Do.\n\nArgs:\n    a, b: Two\n        of them.\n\nRaises:\n    E: bad.",
            "Do.",
            {"Args": {"a, b": " Two\n    of them."}, "Raises": {"E": " bad."}},
        ),
        ("Do.\n\nReturns: None\n    at the end.", "Do.", {"Returns": {"": "None\nat the end."}}),
        ("Do.\n\nArgs: as of `x`.", "Do.", {"Args": {"": " as of `x`."}}),
    ],
)
def test_a_docstring_is_read(doc: str, text: str, sections: dict[str, dict[str, str]]) -> None:
    assert reference.split(doc) == (text, sections)


def test_the_page_of_settings_is_that_of_the_code() -> None:
    assert settings.PAGE.read_text() == settings.make(), "run `make reference`"
    rows = [line for line in settings.make().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []
