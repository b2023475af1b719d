"""Cache of the rows of finished groups, which do not change with time."""

from collections.abc import Mapping

from console.text.lines import Line
from console.views.group import GroupRow, row_line
from core.state import Group

CAP = 500


class RowCache:
    """Caches the rows of finished groups; rows of open groups are built each time.

    Attributes:
        tones: Colour of each server by name; empty for a single server.
    """

    def __init__(self) -> None:
        self.tones: Mapping[str, str] = {}
        self._rows: dict[str, tuple[Group, int, Line]] = {}

    def take(self, dirty: frozenset[str], tones: Mapping[str, str]) -> bool:
        """Drop the rows of changed groups; return whether the colours have changed."""
        changed = tones != self.tones
        if changed:
            self.tones = dict(tones)
        if changed or "*" in dirty or len(self._rows) > CAP:
            self._rows.clear()
        for group_id in [one for one in self._rows if f"group:{one}" in dirty]:
            del self._rows[group_id]
        return changed

    def line(self, group: Group, width: int, now: float) -> Line:
        """Return the row of a group in `width` cells."""
        cached = self._rows.get(group.group_id)
        if cached is not None and cached[0] is group and cached[1] == width:
            return cached[2]
        row = GroupRow(group, now, self.tones.get(group.server, "$muted"))
        line = row_line(row, width, bool(self.tones))
        if not group.open:
            self._rows[group.group_id] = (group, width, line)
        return line
