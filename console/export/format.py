"""The interface of an export format, and the formats there are: built in, and of other packages."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.export.chat import PROVENANCE
from console.export.maker import RowMaker
from console.export.records import ExportedGroup
from console.export.write import SUFFIXES
from core.plugins import EXPORTERS, REPAIR, Plugins

BUILT_IN = ("preference", "unpaired", "sft", "ranking", "verl", "jsonl", "dataset")
"""Names of the built-in formats; each is a module of `console.export.formats` with a `FORMAT`."""


@runtime_checkable
class ExportFormat(Protocol):
    """One format of export: turns a group into rows."""

    about: str
    """One sentence without a full stop: what a row is, and who reads it."""
    suffix: str
    """`.jsonl` or `.parquet`."""
    features: Mapping[str, Any]
    """Types of the columns, as the library `datasets` writes them; empty to leave them out.

    Column -> type name such as `string`; `[...]` for a list; a mapping for a struct; `json` for
    values of any shape. A Parquet file needs them. The column `provenance` need not be named.
    """

    def rows(self, record: ExportedGroup, maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield the rows of one group; none if it has nothing for this format.

        Rows hold plain JSON values. What is left out is counted by `maker.leave_out`.
        """


def columns_of(chosen: ExportFormat) -> Mapping[str, Any]:
    """Return the types of all columns of a format, with `provenance`; empty if it has none."""
    features = chosen.features
    return {**features, "provenance": features.get("provenance", PROVENANCE)} if features else {}


# The entry points are checked with `isinstance`, which a protocol that is checkable supports.
PLUGINS: Plugins[ExportFormat] = Plugins(EXPORTERS, ExportFormat, BUILT_IN)  # type: ignore[type-abstract]
"""Formats of other packages; their entry point names the format object."""


@cache
def built_in(name: str) -> ExportFormat:
    """Return a built-in format."""
    chosen = import_module(f"console.export.formats.{name}").FORMAT
    assert isinstance(chosen, ExportFormat)
    return chosen


def format_names() -> list[str]:
    """Return the names of all formats, built-in ones first."""
    return [*BUILT_IN, *sorted(PLUGINS.names())]


def find_format(name: str) -> ExportFormat:
    """Return the format of that name.

    Raises:
        UsageError: There is no such format, or the package that has it cannot be loaded.
    """
    if name in BUILT_IN:
        return built_in(name)
    if name in PLUGINS.names():
        return _checked(name, PLUGINS.load(name))
    raise UsageError(
        "there is no such format", one_line(name, 40), known_names(name, format_names())
    )


def _checked(name: str, chosen: ExportFormat) -> ExportFormat:
    """Return a format of another package if it can be used.

    Raises:
        UsageError: It is a class, it has no suffix of ours, or its Parquet file has no columns.
    """
    fault = ""
    if isinstance(chosen, type):
        fault = f"is the class {chosen.__name__}: the entry point must name an instance"
    elif chosen.suffix not in SUFFIXES:
        fault = f"has the suffix {one_line(str(chosen.suffix), 20)!r}: {' or '.join(SUFFIXES)}"
    elif chosen.suffix == ".parquet" and not chosen.features:
        fault = "writes Parquet without `features`: the file would have no columns"
    if fault:
        raise UsageError(f"the format `{one_line(name, 40)}` {fault}", todo=REPAIR)
    return chosen
