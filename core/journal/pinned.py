"""Groups of pinned engine runs, which are never pruned: a condition on the table of groups."""

from collections.abc import Sequence

import msgspec

Spans = Sequence[tuple[int, int]]
"""First and last numbers of the events of pinned runs, in order and without overlap."""
NOT_PINNED = (
    "not exists (select 1 from json_each(?) as span"
    " where opened_seq<=json_extract(span.value, '$[1]')"
    " and coalesce(closed_seq, opened_seq)>=json_extract(span.value, '$[0]'))"
)
"""Condition on a row of `groups`: it was open in none of the spans; its value is `spans_json`."""


def spans_json(spans: Spans) -> str:
    """Return the spans as the value of `NOT_PINNED`."""
    return msgspec.json.encode(spans).decode()


def no_pins() -> Spans:
    """Return the spans of a journal without a pinned run."""
    return ()
