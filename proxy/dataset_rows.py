"""Rows of a dataset that the mock user has announced, waiting for their requests.

The application in between knows nothing of rows: a request is matched by the header `X-Ajet-Row`,
else by its session (`/sessions/ID/v1`) where a row has announced it, else by its last user text
among the rows that are outstanding. The reference answer never enters a prompt.

A row ends when it is released. One whose mock user gives no sign of life is forgotten: a stranger
with the same words is not to be taken for it.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

HEADER = "x-ajet-row"
SESSION = "x-ajet-session"
MAX_ROWS = 10_000
SILENCE_LIMIT = 120.0
"""Seconds without a sign of a mock user, which gives one a second, until its rows are forgotten."""
UNUSED_LIMIT = 900.0
"""Seconds without a request that a row of no run, as a dry row, is kept."""
EDGE_WORDS = 8_192
"""Words at both ends of a text that tell it from others."""
MOST_COMPARED = 1 << 20
"""Characters of texts that are compared word by word when their ends are alike; longer ones as they
are."""
LONGEST_REFERENCE = 64 << 10
"""Characters of a reference that the journal keeps with its group."""
LARGEST_METADATA = 16 << 10
"""Bytes, as JSON, of the metadata that it keeps."""
_JSON = msgspec.json.Encoder(enc_hook=str)
_SWEEP = 1.0
_ENDED_KEPT = 1_000


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One announced row."""

    row_id: str
    query: str
    task_id: str = ""
    reference: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    mock_id: str = ""
    session: str = ""
    """All requests of this session are the row's, until it is given up; empty: the first one is."""
    train: bool = True
    """False: it only tries whether the way is open; its group is not trained on."""


def journal_fields(row: Row | None) -> dict[str, Any]:
    """What the journal keeps of a row: fields of `GroupOpened`."""
    if row is None:
        return {}
    reference, metadata, unkept = row.reference, row.metadata, []
    if reference is not None and len(reference) > LONGEST_REFERENCE:
        reference = None
        unkept.append("reference")
    if metadata and len(_JSON.encode(metadata)) > LARGEST_METADATA:
        unkept.append("metadata")
    return {
        "row_id": row.row_id,
        "dataset_task_id": row.task_id,
        "reference": reference,
        "metadata": None if "metadata" in unkept else metadata,
        "unkept": tuple(unkept),
    }


def _key(text: str) -> str:
    """A text without its white space's form; of a very long one both ends, a whole one takes long.

    What is left out goes by words, so that two forms of one text stay equal.
    """
    words = text.split(None, EDGE_WORDS)
    if len(words) > EDGE_WORDS:
        words[EDGE_WORDS:] = ["", *text.rsplit(None, EDGE_WORDS)[1:]]
    return " ".join(words)


class _Alike:
    """Tells which rows of a text's key have the text itself: long ones may differ in between."""

    __slots__ = ("_known", "_text", "_words")

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._words: list[str] | None = None
        self._known: dict[str, bool] = {}
        """By a row's text: many rows may have one."""

    def __call__(self, row: Row) -> bool:
        """Whether the row has it, whatever its white space."""
        found = self._known.get(row.query)
        if found is None:
            found = self._known[row.query] = self._compared(row.query.strip())
        return found

    def _compared(self, own: str) -> bool:
        if own == self._text:
            return True
        if max(len(own), len(self._text)) > MOST_COMPARED:
            return False
        if self._words is None:
            self._words = self._text.split()
        return own.split() == self._words


class Rows:
    """The outstanding rows; oldest are forgotten beyond the cap.

    Args:
        clock: Seconds, from anywhere.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._swept = clock()
        self._seen: dict[str, float] = {}
        """Row -> when it was announced, or a request last had it."""
        self._alive: dict[str, float] = {}
        """Mock user -> when it last gave a sign of life."""
        self._ended: OrderedDict[str, None] = OrderedDict()
        """Rows that were released of late."""
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self._by_text: dict[str, dict[str, Row]] = {}
        """Rows of one text, oldest first."""
        self._sessions: dict[str, tuple[str, str]] = {}
        """Session -> id of its first row and of its present one."""
        self._heads: dict[str, str] = {}
        """Id of a session's first row -> session."""

    def __len__(self) -> int:
        return len(self._rows)

    def register(self, row: Row) -> None:
        """Announce a row; announcing it again replaces it, as the next turn of a session does."""
        self._sweep()
        self._ended.pop(row.row_id, None)
        self.alive(row.mock_id)
        first = row.row_id
        if row.session and row.session in self._sessions:
            first, present = self._sessions[row.session]
            self._drop(present)
        self._drop(row.row_id)
        if row.session:
            self._sessions[row.session] = (first, row.row_id)
            self._heads[first] = row.session
        self._rows[row.row_id] = row
        self._seen[row.row_id] = self._clock()
        self._by_text.setdefault(_key(row.query), {})[row.row_id] = row
        while len(self._rows) > MAX_ROWS:
            self.release(next(iter(self._rows)))

    def again(self, row: Row) -> None:
        """Announce a row whose request was not answered, unless it was released meanwhile."""
        if row.row_id not in self._ended:
            self.register(row)

    def alive(self, mock_id: str) -> None:
        """A mock user gave a sign of life: its rows are kept."""
        if mock_id:
            self._alive[mock_id] = self._clock()

    def end_run(self, mock_id: str) -> None:
        """A start of the mock user is over: so are its rows."""
        self._end(lambda row: row.mock_id == mock_id)
        self._alive.pop(mock_id, None)

    def end_earlier(self, mock_id: str) -> None:
        """A run goes on under this name, `<run>-<start>`: its earlier starts are over."""
        run = mock_id.rpartition("-")[0]
        for known in list(self._alive):
            if run and known != mock_id and known.rpartition("-")[0] == run:
                self.end_run(known)

    def take(self, row_id: str) -> None:
        """A request has the row: outside of its session the next same text is another."""
        row = self._rows.get(row_id)
        if row is not None and row.session:
            self._forget_text(row)
        else:
            self._drop(row_id)

    def release(self, row_id: str) -> None:
        """The row, or the conversation it began, was answered or given up."""
        session = self._heads.get(row_id) or self._session_of(row_id)
        if session:
            first, present = self._sessions.pop(session)
            if self._heads.get(first) == session:  # else the row began another one since
                del self._heads[first]
            self._note_end(present)
            self._drop(present)
        self._note_end(row_id)
        self._drop(row_id)

    def _note_end(self, row_id: str) -> None:
        self._ended[row_id] = None
        while len(self._ended) > _ENDED_KEPT:
            self._ended.popitem(last=False)

    def _end(self, over: Callable[[Row], bool]) -> None:
        for row in [one for one in self._rows.values() if over(one)]:
            self.release(row.row_id)

    def _sweep(self) -> None:
        """Forget rows that nobody stands for any more."""
        now = self._clock()
        if now - self._swept < _SWEEP:
            return
        self._swept = now
        for mock_id, seen in list(self._alive.items()):
            if now - seen > SILENCE_LIMIT:
                self.end_run(mock_id)
        self._end(lambda row: not row.mock_id and now - self._seen[row.row_id] > UNUSED_LIMIT)

    def _session_of(self, row_id: str) -> str:
        row = self._rows.get(row_id)
        return row.session if row is not None else ""

    def _drop(self, row_id: str) -> None:
        row = self._rows.pop(row_id, None)
        self._seen.pop(row_id, None)
        if row is not None:
            self._forget_text(row)

    def _forget_text(self, row: Row) -> None:
        same = self._by_text.get(_key(row.query), {})
        same.pop(row.row_id, None)
        if not same:
            self._by_text.pop(_key(row.query), None)

    def match(self, headers: Mapping[str, str], query: str) -> Row | None:
        """The row a request belongs to, or None: by header, by session, else by text.

        Of several with one text it is a row of the newest run; of those the oldest, as requests
        come in the order of their rows.

        Args:
            headers: Lower-case names.
            query: Text of the last user message.
        """
        self._sweep()
        row = self._matched(headers, query)
        if row is not None:
            self._seen[row.row_id] = self._clock()
        return row

    def _matched(self, headers: Mapping[str, str], query: str) -> Row | None:
        if not self._rows:
            return None
        if named := headers.get(HEADER):
            return self._rows.get(named)
        if own := self._sessions.get(headers.get(SESSION, "")):
            return self._rows.get(own[1])
        rows = self._by_text.get(_key(query))
        if not rows:
            return None
        alike = _Alike(query)
        newest = next((row for row in reversed(rows.values()) if alike(row)), None)
        if newest is None:
            return None
        run = newest.mock_id
        return next(row for row in rows.values() if row.mock_id == run and alike(row))


def own_words(row: Row, query: str) -> bool:
    """Whether a request says what the row says."""
    return _key(row.query) == _key(query)
