"""Plug-ins of other packages: the entry points of a group, each loaded on its own on first use.

A plug-in that raises while it is imported, or that has the wrong type, costs only itself: the fault
is logged once, with the plug-in's name, its distribution and the cause. A plug-in whose name is
that of a built-in one, or of an earlier plug-in, is refused: else an installation could change what
an existing file means.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line

log = logging.getLogger(__name__)

REWARD_PARTS = "ajet_console.reward_parts"
"""Kinds of reward parts: `proxy.rewards.part.PartKind`."""
EXPORTERS = "ajet_console.exporters"
"""Formats of `ajet-console export`."""
TRACKER_SINKS = "ajet_console.tracker_sinks"
"""Receivers of the figures of each step."""
MOCK_TARGETS = "ajet_console.mock_targets"
"""Applications that the mock user asks."""

REPAIR = "Repair or remove the package that provides it"
RENAME = "Ask its author to rename it, or remove the package that provides it"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PluginReport:
    """The state of one plug-in, for the operator."""

    group: str
    """Entry point group."""
    name: str
    package: str
    """Distribution and version; empty if the entry point belongs to none."""
    place: str
    """`module:attribute` of the plug-in."""
    fault: str = ""
    """Why it cannot be used; empty if it can."""
    todo: str = ""


class Plugins(Generic[T]):
    """The plug-ins of one entry point group; nothing is imported before `load`."""

    def __init__(
        self,
        group: str,
        expected: type[T],
        built_in: Collection[str] = (),
        *,
        find: Callable[[str], Iterable[EntryPoint]] | None = None,
    ) -> None:
        """Prepare; the entry points are read on first use.

        Args:
            group: Entry point group.
            expected: Type of each plug-in.
            built_in: Names that plug-ins cannot have.
            find: Returns the entry points of a group; those of the installed packages by default.
        """
        self.group = group
        self.expected = expected
        self.built_in = frozenset(built_in)
        self._find = find or (lambda name: entry_points(group=name))
        self._points: dict[str, EntryPoint] | None = None
        self._refused: list[PluginReport] = []
        self._loaded: dict[str, T] = {}
        self._faults: dict[str, PluginReport] = {}

    def names(self) -> tuple[str, ...]:
        """Return the names of the plug-ins that were not refused; they may not load."""
        return tuple(self._known())

    def load(self, name: str) -> T:
        """Return a plug-in; import it if need be.

        Raises:
            KeyError: there is no plug-in of that name.
            UsageError: it does not load, or it has the wrong type.
        """
        if name in self._loaded:
            return self._loaded[name]
        point = self._known()[name]
        fault = self._faults.get(name)
        if fault is None:
            try:
                plugin = point.load()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the fault is reported
                cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                fault = self._fault(point, f"`{name}` does not load: {cause}", REPAIR, error)
            else:
                if isinstance(plugin, self.expected):
                    self._loaded[name] = plugin
                    return plugin
                actual = plugin if isinstance(plugin, type) else type(plugin)
                expected = f"{self.expected.__module__}.{self.expected.__qualname__}"
                text = f"`{name}` is a {actual.__name__}"
                fault = self._fault(point, text, f"It must be a {expected}")
            self._faults[name] = fault
        raise UsageError(fault.fault, f"entry point {fault.place}", fault.todo)

    def load_all(self) -> Mapping[str, T]:
        """Return all plug-ins that load, by name; the faults of the others are logged."""
        for name in self.names():
            with contextlib.suppress(UsageError):
                self.load(name)
        return dict(self._loaded)

    def reports(self) -> list[PluginReport]:
        """Load each plug-in and return the state of each that was found, the refused ones last."""
        self.load_all()
        reports = [
            self._faults.get(name) or PluginReport(self.group, name, package_of(point), point.value)
            for name, point in self._known().items()
        ]
        return reports + self._refused

    def _known(self) -> dict[str, EntryPoint]:
        if self._points is None:
            points: dict[str, EntryPoint] = {}
            for point in self._find(self.group):
                if point.name in self.built_in:
                    self._refuse(point, "a built-in one")
                elif (first := points.get(point.name)) is not None:
                    self._refuse(point, f"a plug-in of {package_of(first) or first.value}")
                else:
                    points[point.name] = point
            self._points = points
        return self._points

    def _refuse(self, point: EntryPoint, other: str) -> None:
        text = f"`{point.name}` is not used: it has the name of {other}"
        self._refused.append(self._fault(point, text, RENAME))

    def _fault(
        self, point: EntryPoint, text: str, todo: str, error: BaseException | None = None
    ) -> PluginReport:
        package, text = package_of(point), one_line(text, 300)
        log.warning(
            "plug-in of %s (%s): %s", self.group, package or point.value, text, exc_info=error
        )
        return PluginReport(self.group, point.name, package, point.value, text, todo)


def package_of(point: EntryPoint) -> str:
    """Return name and version of the distribution of an entry point; empty if it has none."""
    distribution = point.dist
    if distribution is None:
        return ""
    return one_line(f"{distribution.name} {distribution.version}", 80)
