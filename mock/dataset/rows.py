"""One row of a dataset: conversion of a record with any column names.

A row is an AgentJet task (`task_id`, `main_query`, `metadata`, `init_messages`) or a flat record
(`query`, `answer`, `system`, `id`, ...). It needs a query, or `turns` with the user's successive
messages, or a `persona` that a language model plays. `mock.dataset.columns` lists the names of each
part.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from ajet_swarm.common.text import content_text
from mock.dataset.columns import ALIASES, Columns, either

ID_LIMIT = 120
TURN_LIMIT = 100
_OWN = frozenset(("id", "task_id", "query", "main_query"))
WEIGHT_LIMIT = 100.0
_SAFE = "!$&'()*+,-./:;=?@_~|[]{}"
"""Characters of a row's id that need no escaping in a header; `#` is the proxy's separator."""

Side = Literal["train", "held-out"]


class RowError(ValueError):
    """A row cannot be used; the text is the reason."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the user."""

    query: str
    reference: str | None = None
    """Reference answer."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A usable row."""

    row_id: str
    """Unique in the dataset and valid in a header."""
    line: int
    """From 1; the number of the row in formats without lines."""
    query: str
    """First message of the user; empty where the persona's model creates it."""
    messages: tuple[dict[str, Any], ...]
    """The conversation to send first, ending with the user's query, if any."""
    task_id: str = ""
    """The dataset's own id, unmodified; empty when it has none."""
    reference: str | None = None
    """Reference answer; never part of `messages`."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    then: tuple[Turn, ...] = ()
    """Later messages of the user, one after each answer."""
    persona: str = ""
    """Description of the user for the language model that plays it."""
    goal: str = ""
    """Goal of that user."""
    weight: float = 1.0
    """How often the row is sent in a pass; the fraction is a probability."""


class BadRow(msgspec.Struct, frozen=True, kw_only=True):
    """An unusable row."""

    line: int
    cause: str


def parse_record(line: int, record: Mapping[str, Any], columns: Columns | None = None) -> Row:
    """Convert a record to a row.

    Args:
        line: Number of its line.
        record: Column -> value.
        columns: Column names; the usual ones by default.

    Raises:
        RowError: the record cannot be used; the text is the reason.
    """
    columns = columns or Columns()
    history, last_answer = _history(*columns.find("messages", record))
    turns = _turns(*columns.find("turns", record))
    persona = _text(columns, "persona", record)
    if persona and turns:
        raise RowError("a `persona` and `turns` exclude each other")
    query = _query(columns, record, history, turns, persona)
    messages = list(history)
    name, system = columns.find("system", record)
    if system:
        if not isinstance(system, str):
            raise RowError(f"`{name}` is not text")
        messages.insert(0, {"role": "system", "content": system})
    if not query and last_answer:  # the last answer opens the persona's conversation
        messages.append({"role": "assistant", "content": last_answer})
        last_answer = ""
    if query and not (messages and messages[-1] == {"role": "user", "content": query}):
        messages.append({"role": "user", "content": query})
    dataset_id = _dataset_id(columns, record)
    reference = _reference(columns, record)
    if turns and turns[0].query == query:
        reference = turns[0].reference if turns[0].reference is not None else reference
        turns = turns[1:]
    return Row(
        row_id=quote(dataset_id, safe=_SAFE)[:ID_LIMIT] if dataset_id else f"row-{line}",
        line=line,
        query=query,
        messages=tuple(messages),
        task_id=dataset_id,
        reference=last_answer if reference is None and last_answer and not turns else reference,
        metadata=_metadata(columns, record),
        then=turns,
        persona=persona,
        goal=_text(columns, "goal", record) if persona else "",
        weight=_weight(*columns.find("weight", record)),
    )


def decode_json(data: bytes) -> dict[str, Any]:
    """Parse JSON text as a record.

    Raises:
        RowError: the data is not text, not JSON or not an object.
    """
    if b"\x00" in data:
        raise RowError(f"a NUL byte at byte {data.index(0) + 1}: this is not JSON text")
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
        record = msgspec.json.decode(text)
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 at byte {error.start + 1}") from error
    except msgspec.MsgspecError as error:
        raise RowError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise RowError("nested too deeply") from error
    if not isinstance(record, dict):
        raise RowError("not an object")
    return record


def parse(line: int, data: bytes, columns: Columns | None = None) -> Row:
    """Convert one line of JSON to a row.

    Raises:
        RowError: the record cannot be used; the text is the reason.
    """
    return parse_record(line, decode_json(data), columns)


def side_of(row: Row, held_out: float) -> Side:
    """Return the row's side of the split, which depends only on its text, not on file, order or id.

    Args:
        row: The row.
        held_out: Share of the rows that is held out, 0 to 1.
    """
    text = row.query or f"{row.persona} {row.goal}"
    return "held-out" if chance(" ".join(text.split())) < held_out else "train"


def chance(text: str) -> float:
    """Return a number in [0, 1) that is a deterministic hash of `text`."""
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


# --- parts --------------------------------------------------------------------------------------


def _history(name: str, value: Any) -> tuple[list[dict[str, Any]], str]:
    """Return the messages before the query, and the text of an answer that ends them."""
    if value is None:
        return [], ""
    value = _unpacked(value)
    if not isinstance(value, list):
        raise RowError(f"`{name}` is not a list")
    for message in value:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            raise RowError(f"`{name}` contains an item that is not a message")
    history = [dict(message) for message in value]
    if history and history[-1]["role"] == "assistant":
        return history[:-1], content_text(history[-1].get("content"))
    return history, ""


def _turns(name: str, value: Any) -> tuple[Turn, ...]:
    if value is None:
        return ()
    value = _unpacked(value)
    if not isinstance(value, list) or not value:
        raise RowError(f"`{name}` is not a list of the user's messages")
    if len(value) > TURN_LIMIT:
        raise RowError(f"`{name}` has {len(value)} turns, more than {TURN_LIMIT}")
    return tuple(_turn(name, number, one) for number, one in enumerate(value, 1))


def _turn(name: str, number: int, value: Any) -> Turn:
    if isinstance(value, str) and value.strip():
        return Turn(query=value)
    if isinstance(value, dict):
        query = next((value[one] for one in ALIASES["query"] if value.get(one)), None)
        if isinstance(query, str) and query.strip():
            return Turn(query=query, reference=_reference(Columns(), value))
    raise RowError(f"turn {number} of `{name}` is neither text nor {{query, answer}}")


def _text(columns: Columns, part: str, record: Mapping[str, Any]) -> str:
    """Return a part that is text; empty for any other value, which then counts as metadata."""
    value = columns.find(part, record)[1]
    return value.strip() if isinstance(value, str) else ""


def _unpacked(value: Any) -> Any:
    """Parse a list that a table cell contains as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return value
    return value


def _object_in(text: str) -> Any:
    """Parse an object that a column contains as JSON text; return other text as it is."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text


def _query(
    columns: Columns,
    record: Mapping[str, Any],
    history: list[dict[str, Any]],
    turns: tuple[Turn, ...],
    persona: str,
) -> str:
    for name in columns.names("query"):
        value = record.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise RowError(f"`{name}` is not text")
        if value.strip():
            return value
    if turns:
        return turns[0].query
    if history and history[-1]["role"] == "user":
        text = content_text(history[-1].get("content"))
        if text.strip():
            history[-1] = {"role": "user", "content": text}
            return text
    if persona:
        return _text(columns, "opening", record)
    raise RowError(f"no query: {either(columns.names('query')[:3])} is missing or empty")


def _dataset_id(columns: Columns, record: Mapping[str, Any]) -> str:
    for key in columns.names("id"):
        value = record.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def _reference(columns: Columns, record: Mapping[str, Any]) -> str | None:
    nested = record.get("metadata")
    for place in (record, nested if isinstance(nested, dict) else {}):
        for key in columns.names("reference"):
            value = place.get(key)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return str(value)
    return None


def _weight(name: str, value: Any) -> float:
    if value is None or value == "":
        return 1.0
    try:
        weight = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError):
        weight = -1.0
    if not 0.0 <= weight <= WEIGHT_LIMIT:
        raise RowError(f"`{name}` cannot be {value!r:.40}: a number from 0 to {WEIGHT_LIMIT:g}")
    return weight


def _metadata(columns: Columns, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row's own metadata, else all unused columns."""
    name, value = columns.find("metadata", record)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _object_in(value)
    if isinstance(value, dict):
        return value
    parts = ("query", "system", "messages", "turns", "weight", "opening")
    used = {columns.find(part, record)[0] for part in parts} | {name} | _OWN
    return {
        key: value
        for key, value in record.items()
        if key not in used and not isinstance(value, bytes)
    }
