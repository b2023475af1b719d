"""One row of a dataset: conversion of a record with any column names.

A row is an AgentJet task (`task_id`, `main_query`, `metadata`, `init_messages`) or a flat record
(`query`, `answer`, `system`, `id`, ...), also in the layouts of Alpaca, Dolly, SQuAD, ShareGPT, TRL
and VERL. It needs a query, or `turns` with the user's successive
messages, or a `persona` that a language model plays. `mock.dataset.columns` lists the names of each
part.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from ajet_swarm.common.text import content_text
from ajet_swarm.data.records import RowError
from mock.dataset.columns import Columns, either, is_conversation, value_of
from mock.dataset.messages import asked, conversation, function_tools

ID_LIMIT = 120
TURN_LIMIT = 100
_OWN = frozenset(("id", "task_id", "query", "main_query"))
WEIGHT_LIMIT = 100.0
_SAFE = "!$&'()*+,-./:;=?@_~|[]{}"
"""Characters of a row's id that need no escaping in a header; `#` is the proxy's separator."""

Side = Literal["train", "held-out"]


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
    """The conversation to send first: it ends with the user's query, if any, or with the results of
    tools after it."""
    tools: tuple[dict[str, Any], ...] = ()
    """Tools to send with each turn, in the form of chat completions."""
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


class BadRows:
    """Unusable rows counted by reason; causes that differ only in numbers are one reason.

    Args:
        place: Unit of their numbers, see `ajet_swarm.data.records.Records.place`.
    """

    LIMIT = 100
    """Reasons that are kept."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._counts: Counter[str] = Counter()
        self.firsts: dict[str, BadRow] = {}
        """The first row of each reason."""

    def add(self, row: BadRow) -> bool:
        """Count a row; return whether its reason is new."""
        reason = re.sub(r"\d+", "N", row.cause)
        is_new = reason not in self.firsts and len(self.firsts) < self.LIMIT
        if is_new:
            self.firsts[reason] = row
        if reason in self.firsts:
            self._counts[reason] += 1
        return is_new

    def lines(self, most: int) -> list[str]:
        """Return a line for each of the `most` frequent reasons, with its first row."""
        lines = []
        for reason, count in self._counts.most_common(most):
            row = self.firsts[reason]
            more = f" (and {count - 1:,} more like it)" if count > 1 else ""
            lines.append(f"{self._place} {row.line}: {row.cause}{more}")
        return lines


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
    turns = _turns(*columns.find("turns", record))
    persona = _text(columns, "persona", record)
    if persona and turns:
        raise RowError("a `persona` and `turns` exclude each other")
    asked_first = turns[0].query if turns else ""
    messages, query, last_answer = _conversation(columns, record, asked_first, bool(persona))
    name, system = columns.find("system", record)
    if system:
        if not isinstance(system, str):
            raise RowError(f"`{name}` is not text")
        if not (messages and messages[0]["content"] == system):
            messages.insert(0, {"role": "system", "content": system})
    name, tools = columns.find("tools", record)
    dataset_id = _dataset_id(columns, record)
    reference = _reference(columns, record)
    if turns and _query(columns, record)[1] in ("", asked_first):
        reference = turns[0].reference if turns[0].reference is not None else reference
        turns = turns[1:]
    return Row(
        row_id=quote(dataset_id, safe=_SAFE)[:ID_LIMIT] if dataset_id else f"row-{line}",
        line=line,
        query=query,
        messages=tuple(messages),
        tools=function_tools(name, _unpacked(tools)),
        task_id=dataset_id,
        reference=last_answer if reference is None and last_answer and not turns else reference,
        metadata=_metadata(columns, record),
        then=turns,
        persona=persona,
        goal=_text(columns, "goal", record) if persona else "",
        weight=_weight(*columns.find("weight", record)),
    )


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


def _conversation(
    columns: Columns, record: Mapping[str, Any], asked_first: str, has_persona: bool
) -> tuple[list[dict[str, Any]], str, str]:
    """Return the messages to send first, the text of the user's last one, and the answer that
    ended the dataset's messages."""
    name, query = _query(columns, record)
    if name and not isinstance(query, str):  # a prompt that is a list of messages
        messages, query = conversation(name, query), ""
    else:
        messages_name, value = columns.find("messages", record)
        messages, name = conversation(messages_name, _unpacked(value)), name or messages_name
    query = query or asked_first
    if any(_is_question(message, query) for message in messages):
        query = ""
    if query or not has_persona:
        query += _context(columns, record, name, query)
    elif not asked(messages).strip():
        query = _text(columns, "opening", record)
    last_answer = ""
    if not query and messages and messages[-1]["role"] == "assistant":
        last_answer = content_text(messages.pop()["content"])
    if query:
        messages.append({"role": "user", "content": query})
    elif not (query := asked(messages)).strip():
        if not has_persona:
            raise RowError(_no_query(columns, name, messages))
        query = ""
        if last_answer:  # it opens the persona's conversation
            messages.append({"role": "assistant", "content": last_answer})
    return messages, query, last_answer if query else ""


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
        column, query = _query(Columns(), value)
        if isinstance(query, str) and query:
            query += _context(Columns(), value, column, query)
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


def _query(columns: Columns, record: Mapping[str, Any]) -> tuple[str, Any]:
    """Return column and value of the query: text, or a list of messages; empty without one."""
    for name in columns.names("query"):
        value = value_of(name, record)
        if isinstance(value, str) and value.strip():
            messages = _unpacked(value)
            return name, messages if is_conversation(messages) else value
        if value is not None and not isinstance(value, str):
            if not is_conversation(value):
                raise RowError(f"`{name}` is not text, nor a list of messages")
            return name, value
    return "", ""


def _context(columns: Columns, record: Mapping[str, Any], query_name: str, query: str) -> str:
    """Return what the query is about, to be appended to it.

    Raises:
        RowError: it cannot be appended; the question is not asked without it.
    """
    texts = [""]
    for name in columns.names("context"):
        value = value_of(name, record)
        if name == query_name or not value or (isinstance(value, str) and not value.strip()):
            continue
        if not (query and isinstance(value, str)) or name.startswith("image"):
            raise RowError(
                f"`{name}` belongs to the question, but only text can be appended to a text: put "
                "it into the query or its messages, or ask without it: --columns context="
            )
        texts.append(value)
    return "\n\n".join(texts)


def _is_question(message: Mapping[str, Any], text: str) -> bool:
    is_same = content_text(message["content"]).strip() == text.strip()
    return bool(text) and message["role"] == "user" and is_same


def _no_query(columns: Columns, name: str, messages: list[dict[str, Any]]) -> str:
    if not messages:
        return f"no query: {either(columns.names('query')[:3])} is missing or empty"
    if messages[-1]["role"] in ("user", "tool", "function"):
        return f"no query: the last user message of `{name}` is missing or has no text"
    return f"no query: `{name}` has no message of the user or of a tool to answer"


def _dataset_id(columns: Columns, record: Mapping[str, Any]) -> str:
    for key in columns.names("id"):
        value = record.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def _reference(columns: Columns, record: Mapping[str, Any]) -> str | None:
    nested = record.get("metadata")
    for place in (record, nested if isinstance(nested, dict) else {}):
        for name in columns.names("reference"):
            if (text := _reference_text(value_of(name, place))) is not None:
                return text
    return None


def _reference_text(value: Any) -> str | None:
    """Return the text of a reference: the first of several, or of an answer as a message."""
    if isinstance(value, list) and value:
        value = value[-1] if is_conversation(value) else value[0]
    if isinstance(value, dict):
        found = (value.get(key) for key in ("content", "value", "text"))
        return next((text for part in found if (text := _reference_text(part)) is not None), None)
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_plain else None


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
    parts = ("query", "system", "messages", "tools", "turns", "weight", "opening")
    used = {columns.find(part, record)[0].split(".")[0] for part in parts} | {name} | _OWN
    return {
        key: value
        for key, value in record.items()
        if key not in used and not isinstance(value, bytes)
    }
