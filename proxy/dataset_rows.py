"""Dataset rows that the mock user has announced and whose requests are still expected.

The application in between has no notion of rows. So a request is matched to a row by the header
`X-Ajet-Row`, else by its session (`/sessions/ID/v1`) if a row has announced it, else by its last
user text among the outstanding rows. The reference answer never enters a prompt.

A row ends when it is released. Rows of a mock user that gives no sign of life are dropped, so that
an unrelated request with the same text does not match them.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
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
EDGE_WORDS = 8_192
"""Words at each end of a text that are part of its index key."""
MAX_COMPARED_CHARS = 1 << 20
"""Texts up to this many characters are compared word by word when their keys match; longer ones
must be identical."""
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


def journal_fields(row: Row | None) -> dict[str, Any]:
    """Return the fields of `GroupOpened` that describe a row; empty without a row."""
    if row is None:
        return {}
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


def _key(text: str) -> str:
    """Return the index key of a text: its words joined by spaces, of a very long text both ends.

    It is cut by words, so that texts which differ only in white space have the same key.
    """
    words = text.split(None, EDGE_WORDS)
    if len(words) > EDGE_WORDS:
        words[EDGE_WORDS:] = ["", *text.rsplit(None, EDGE_WORDS)[1:]]
    return " ".join(words)


class _TextMatcher:
    """Comparison of a text with rows of the same key, as long texts may differ in the middle."""

    __slots__ = ("_results", "_text", "_words")

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._words: list[str] | None = None
        self._results: dict[str, bool] = {}
        """Result by a row's text, which many rows may share."""

    def __call__(self, row: Row) -> bool:
        """Return whether the row has the same text, apart from white space."""
        same = self._results.get(row.query)
        if same is None:
            same = self._results[row.query] = self._has_same_words(row.query.strip())
        return same

    def _has_same_words(self, row_text: str) -> bool:
        if row_text == self._text:
            return True
        if max(len(row_text), len(self._text)) > MAX_COMPARED_CHARS:
            return False
        if self._words is None:
            self._words = self._text.split()
        return row_text.split() == self._words


class Rows:
    """The outstanding rows; beyond `MAX_ROWS` the oldest are dropped.

    Args:
        clock: Monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = SYSTEM.clock.monotonic) -> None:
        self._clock = clock
        self._swept = clock()
        self._used_at: dict[str, float] = {}
        """Row id -> when the row was announced, or last matched a request."""
        self._alive_at: dict[str, float] = {}
        """Mock user -> time of its last sign of life."""
        self._ended: OrderedDict[str, None] = OrderedDict()
        """Ids of recently released rows."""
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self._by_text: dict[str, dict[str, Row]] = {}
        """Text key -> rows, oldest first."""
        self._sessions: dict[str, tuple[str, str]] = {}
        """Session -> (id of its first row, id of its current row)."""
        self._session_by_first_row: dict[str, str] = {}
        """Id of a session's first row -> that session."""

    def __len__(self) -> int:
        return len(self._rows)

    def outstanding(self, answered: Collection[str]) -> int:
        """Return the number of announced rows of mock users, without those in `answered`."""
        self._sweep()
        rows = (row for row in self._rows.values() if row.mock_id)
        return sum(row.row_id not in answered for row in rows)

    def register(self, row: Row) -> None:
        """Add an announced row; it replaces a row with the same id or of the same session."""
        self._sweep()
        self._ended.pop(row.row_id, None)
        self.alive(row.mock_id)
        first_id = row.row_id
        if row.session and row.session in self._sessions:
            first_id, current_id = self._sessions[row.session]
            self._drop(current_id)
        self._drop(row.row_id)
        if row.session:
            self._sessions[row.session] = (first_id, row.row_id)
            self._session_by_first_row[first_id] = row.session
        self._rows[row.row_id] = row
        self._used_at[row.row_id] = self._clock()
        self._by_text.setdefault(_key(row.query), {})[row.row_id] = row
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
        self._end(lambda row: row.mock_id == mock_id)
        self._alive_at.pop(mock_id, None)

    def end_earlier(self, mock_id: str) -> None:
        """Drop the rows of earlier starts of the run in `mock_id`, which is `<run>-<start>`."""
        run = mock_id.rpartition("-")[0]
        for known in list(self._alive_at):
            if run and known != mock_id and known.rpartition("-")[0] == run:
                self.end_run(known)

    def take(self, row_id: str) -> None:
        """Assign the row to a request: the next request with this text belongs to another row."""
        row = self._rows.get(row_id)
        if row is not None and row.session:
            self._forget_text(row)
        else:
            self._drop(row_id)

    def release(self, row_id: str) -> None:
        """Drop a row and its session: it was answered or given up."""
        session = self._session_by_first_row.get(row_id) or self._session_of(row_id)
        if session:
            first_id, current_id = self._sessions.pop(session)
            if (
                self._session_by_first_row.get(first_id) == session
            ):  # else the row has started another session since
                del self._session_by_first_row[first_id]
            self._remember_end(current_id)
            self._drop(current_id)
        self._remember_end(row_id)
        self._drop(row_id)

    def _remember_end(self, row_id: str) -> None:
        self._ended[row_id] = None
        while len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def _end(self, ended: Callable[[Row], bool]) -> None:
        for row in [row_ for row_ in self._rows.values() if ended(row_)]:
            self.release(row.row_id)

    def _sweep(self) -> None:
        """Drop the rows of silent mock users, and unused rows without a mock user."""
        now = self._clock()
        if now - self._swept < _SWEEP_EVERY:
            return
        self._swept = now
        for mock_id, last_seen in list(self._alive_at.items()):
            if now - last_seen > SILENCE_LIMIT:
                self.end_run(mock_id)
        self._end(lambda row: not row.mock_id and now - self._used_at[row.row_id] > UNUSED_LIMIT)

    def _session_of(self, row_id: str) -> str:
        row = self._rows.get(row_id)
        return row.session if row is not None else ""

    def _drop(self, row_id: str) -> None:
        row = self._rows.pop(row_id, None)
        self._used_at.pop(row_id, None)
        if row is not None:
            self._forget_text(row)

    def _forget_text(self, row: Row) -> None:
        rows = self._by_text.get(_key(row.query), {})
        rows.pop(row.row_id, None)
        if not rows:
            self._by_text.pop(_key(row.query), None)

    def match(self, headers: Mapping[str, str], query: str) -> Row | None:
        """Return the row of a request, by header, by session or else by text; None without one.

        Among rows with the same text, the oldest of the newest run matches, as requests arrive in
        the order of their rows.

        Args:
            headers: The request's headers; names in lower case.
            query: Text of the last user message.
        """
        self._sweep()
        row = self._matched(headers, query)
        if row is not None:
            self._used_at[row.row_id] = self._clock()
        return row

    def _matched(self, headers: Mapping[str, str], query: str) -> Row | None:
        if not self._rows:
            return None
        if row_id := headers.get(HEADER):
            return self._rows.get(row_id)
        if session_rows := self._sessions.get(headers.get(SESSION, "")):
            return self._rows.get(session_rows[1])
        rows = self._by_text.get(_key(query))
        if not rows:
            return None
        has_text = _TextMatcher(query)
        newest = next((row for row in reversed(rows.values()) if has_text(row)), None)
        if newest is None:
            return None
        run = newest.mock_id
        return next(row for row in rows.values() if row.mock_id == run and has_text(row))


def own_words(row: Row, query: str) -> bool:
    """Return whether a request has the row's text."""
    return _key(row.query) == _key(query)
