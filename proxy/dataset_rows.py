"""Dataset rows that the mock user has announced and whose requests are still expected.

The application in between has no notion of rows. So a request is matched to a row by the header
`X-Ajet-Row`, else by its session (`/sessions/ID/v1`) if a row has announced it, else by its last
user text among the outstanding rows. The reference answer never enters a prompt.

A row ends when it is released. Rows of a mock user that gives no sign of life are dropped, so that
an unrelated request with the same text does not match them.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ajet_swarm.runtime import SYSTEM

HEADER = "x-ajet-row"
SESSION = "x-ajet-session"
MAX_ROWS = 10_000
SILENCE_LIMIT = 120.0
"""Seconds without a sign of life until a mock user's rows are dropped; it gives one per second."""
UNUSED_LIMIT = 900.0
"""Seconds without a request until a row without a mock user, such as a dry row, is dropped."""
MAX_WORDS_CHARS = 1 << 20
"""Texts up to this many characters match whatever their white space; longer ones must be equal."""
MAX_REFERENCE_CHARS = 64 << 10
"""Maximum characters of a reference answer that is stored in the journal."""
MAX_METADATA_BYTES = 16 << 10
"""Maximum bytes, as JSON, of metadata that are stored in the journal."""
_JSON = msgspec.json.Encoder(enc_hook=str)
_SWEEP_EVERY = 1.0
MAX_ENDED = 1_000


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One announced row."""

    row_id: str
    query: str
    task_id: str = ""
    reference: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    mock_id: str = ""
    session: str = ""
    """All requests of this session belong to the row until it ends; empty for one request only."""
    train: bool = True
    """False for a dry row, which only tests the connection: its group is not trained on."""


def journal_fields(row: Row) -> dict[str, Any]:
    """Return the fields of `GroupOpened` that describe a row."""
    reference, metadata, too_large = row.reference, row.metadata, []
    if reference is not None and len(reference) > MAX_REFERENCE_CHARS:
        reference = None
        too_large.append("reference")
    if metadata and len(_JSON.encode(metadata)) > MAX_METADATA_BYTES:
        too_large.append("metadata")
    return {
        "row_id": row.row_id,
        "dataset_task_id": row.task_id,
        "reference": reference,
        "metadata": None if "metadata" in too_large else metadata,
        "unkept": tuple(too_large),
    }


def _key(text: str) -> bytes:
    """Return the index key of a text: a hash of its words."""
    words = text.split() if len(text) <= MAX_WORDS_CHARS else [text.strip()]
    return hashlib.sha256(" ".join(words).encode("utf-8", "surrogatepass")).digest()


@dataclass(slots=True)
class _Entry:
    """An outstanding row."""

    row: Row
    key: bytes
    """Key of its text."""
    used_at: float
    """When it was announced, or last matched a request."""
    taken: bool = False
    """A request has its text; further ones match it by their session only."""


class Rows:
    """The outstanding rows; beyond `MAX_ROWS` the oldest are dropped.

    Args:
        clock: Monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = SYSTEM.clock.monotonic) -> None:
        self._clock = clock
        self._swept = clock()
        self._alive_at: dict[str, float] = {}
        """Mock user -> time of its last sign of life."""
        self._ended: dict[str, None] = {}
        """Ids of recently released rows, oldest first."""
        self._rows: dict[str, _Entry] = {}
        """By id, oldest first."""
        self._sessions: dict[str, tuple[str, str]] = {}
        """Session -> (id of its first row, id of its current row)."""

    def __len__(self) -> int:
        return len(self._rows)

    def outstanding(self, answered: Collection[str]) -> int:
        """Return the number of announced rows of mock users, without those in `answered`."""
        self._sweep()
        rows = (entry.row for entry in self._rows.values())
        return sum(bool(row.mock_id) and row.row_id not in answered for row in rows)

    def register(self, row: Row) -> None:
        """Add an announced row; it replaces a row with the same id or of the same session."""
        self._sweep()
        self._ended.pop(row.row_id, None)
        self.alive(row.mock_id)
        first_id, current_id = self._sessions.get(row.session, (row.row_id, ""))
        for replaced in (current_id, row.row_id):
            self._rows.pop(replaced, None)
        if row.session:
            self._sessions[row.session] = (first_id, row.row_id)
        self._rows[row.row_id] = _Entry(row, _key(row.query), self._clock())
        while len(self._rows) > MAX_ROWS:
            self.release(next(iter(self._rows)))

    def again(self, row: Row) -> None:
        """Add a row again whose request was not answered, unless it was released meanwhile."""
        if row.row_id not in self._ended:
            self.register(row)

    def alive(self, mock_id: str) -> None:
        """Record a mock user's sign of life, which keeps its rows."""
        if mock_id:
            self._alive_at[mock_id] = self._clock()

    def end_run(self, mock_id: str) -> None:
        """Drop the rows of one start of a mock user."""
        self._end(lambda entry: entry.row.mock_id == mock_id)
        self._alive_at.pop(mock_id, None)

    def end_earlier(self, mock_id: str) -> None:
        """Drop the rows of earlier starts of the run in `mock_id`, which is `<run>-<start>`."""
        run = mock_id.rpartition("-")[0]
        for known in list(self._alive_at):
            if run and known != mock_id and known.rpartition("-")[0] == run:
                self.end_run(known)

    def take(self, row_id: str) -> None:
        """Assign the row to a request: the next request with this text belongs to another row."""
        entry = self._rows.get(row_id)
        if entry is not None and entry.row.session:
            entry.taken = True
        else:
            self._rows.pop(row_id, None)

    def release(self, row_id: str) -> None:
        """Drop a row and its sessions: it was answered or given up."""
        ended = {row_id}
        for session, ids in list(self._sessions.items()):
            if row_id in ids:
                ended.add(self._sessions.pop(session)[1])
        for ended_id in ended:
            self._rows.pop(ended_id, None)
            self._ended[ended_id] = None
        while len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def _end(self, ended: Callable[[_Entry], bool]) -> None:
        for row_id in [row_id for row_id, entry in self._rows.items() if ended(entry)]:
            self.release(row_id)

    def _sweep(self) -> None:
        """Drop the rows of silent mock users, and unused rows without a mock user."""
        now = self._clock()
        if now - self._swept < _SWEEP_EVERY:
            return
        self._swept = now
        for mock_id, last_seen in list(self._alive_at.items()):
            if now - last_seen > SILENCE_LIMIT:
                self.end_run(mock_id)
        self._end(lambda entry: not entry.row.mock_id and now - entry.used_at > UNUSED_LIMIT)

    def match(self, headers: Mapping[str, str], query: str) -> Row | None:
        """Return the row of a request, by header, by session or else by text; None without one.

        Among rows with the same text, the oldest of the newest run matches, as requests arrive in
        the order of their rows.

        Args:
            headers: The request's headers; names in lower case.
            query: Text of the last user message.
        """
        if not self._rows:
            return None
        self._sweep()
        if (entry := self._rows.get(self._matched(headers, query))) is None:
            return None
        entry.used_at = self._clock()
        return entry.row

    def _matched(self, headers: Mapping[str, str], query: str) -> str:
        """Return the id of the matching row; it may have been dropped. Empty without one."""
        if row_id := headers.get(HEADER):
            return row_id
        if session_rows := self._sessions.get(headers.get(SESSION, "")):
            return session_rows[1]
        key = _key(query)
        rows = [entry.row for entry in self._rows.values() if entry.key == key and not entry.taken]
        run = rows[-1].mock_id if rows else ""
        return next((row.row_id for row in rows if row.mock_id == run), "")


def own_words(row: Row, query: str) -> bool:
    """Return whether a request has the row's text."""
    return _key(row.query) == _key(query)
