"""Cached rows of the list: nothing in them changes with time."""

from collections.abc import Mapping, Sequence

from console.text.lines import Line
from console.views.group import Column, row_line
from core.state import Group

CAP = 500


class RowCache:
    """The rows of finished groups; those of open ones are built each time.

    Attributes:
        tones: Colour of each server by name; empty when there is one alone.
    """

    def __init__(self) -> None:
        self.tones: Mapping[str, str] = {}
        self._made: dict[str, tuple[Group, Sequence[Column], Line]] = {}

    def take(self, dirty: frozenset[str], tones: Mapping[str, str]) -> bool:
        """Drop the rows of changed groups; return whether the colours have changed."""
        other = tones != self.tones
        if other:
            self.tones = dict(tones)
        if other or "*" in dirty or len(self._made) > CAP:
            self._made.clear()
        for group_id in [one for one in self._made if f"group:{one}" in dirty]:
            del self._made[group_id]
        return other

    def line(self, group: Group, columns: Sequence[Column], now: float) -> Line:
        """Return the row of a group."""
        cached = self._made.get(group.group_id)
        if cached is not None and cached[0] is group and cached[1] is columns:
            return cached[2]
        line = row_line(group, columns, now, self.tones.get(group.server, "$muted"))
        if not group.open:
            self._made[group.group_id] = (group, columns, line)
        return line
