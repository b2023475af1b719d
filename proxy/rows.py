"""Rows of a dataset that the mock user has announced, waiting for their requests.

The application in between knows nothing of rows: a request is matched by the header `X-Ajet-Row`,
else by its last user text among the rows that are outstanding. The reference answer never enters a
prompt.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

HEADER = "x-ajet-row"
CAP = 10_000


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One announced row."""

    row_id: str
    query: str
    task_id: str = ""
    reference: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    mock_id: str = ""


def _key(text: str) -> str:
    return " ".join(text.split())


class Rows:
    """The outstanding rows; oldest are forgotten beyond the cap."""

    def __init__(self) -> None:
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self._by_text: dict[str, dict[str, Row]] = {}
        """Rows of one text, oldest first."""

    def __len__(self) -> int:
        return len(self._rows)

    def register(self, row: Row) -> None:
        """Announce a row; announcing it again replaces it."""
        self.release(row.row_id)
        self._rows[row.row_id] = row
        self._by_text.setdefault(_key(row.query), {})[row.row_id] = row
        while len(self._rows) > CAP:
            self.release(next(iter(self._rows)))

    def release(self, row_id: str) -> None:
        """The row was answered or given up."""
        row = self._rows.pop(row_id, None)
        if row is None:
            return
        same = self._by_text[_key(row.query)]
        del same[row_id]
        if not same:
            del self._by_text[_key(row.query)]

    def match(self, headers: Mapping[str, str], query: str) -> Row | None:
        """The row a request belongs to, or None: by header, else by text, the oldest first.

        Args:
            headers: Lower-case names.
            query: Text of the last user message.
        """
        if not self._rows:
            return None
        if named := headers.get(HEADER):
            return self._rows.get(named)
        same = self._by_text.get(_key(query))
        return next(iter(same.values())) if same else None
