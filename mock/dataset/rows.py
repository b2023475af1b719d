"""One row of a dataset: from whatever its file calls the columns to what is asked.

A row is an AgentJet task (`task_id`, `main_query`, `metadata`, `init_messages`) or a flat record
(`query`, `answer`, `system`, `id`, ...); only the query is needed, or `turns`: what the user says
one after the other, or a `persona` that a language model plays. The names each part may have are in
`mock.dataset.columns`.
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
"""Characters of a row's id that may stand in a header; `#` is the proxy's separator."""

Side = Literal["train", "held-out"]


class RowError(ValueError):
    """One row cannot be used; the text is the cause."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the user says."""

    query: str
    reference: str | None = None
    """The answer to compare with."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One usable row."""

    row_id: str
    """Unique in the dataset and fit for a header."""
    line: int
    """From 1; the number of the row where the file has no lines."""
    query: str
    """What the user says first; empty where the persona has to find it."""
    messages: tuple[dict[str, Any], ...]
    """The conversation to send first, ending with the user's query, if any."""
    task_id: str = ""
    """The dataset's own id, as it stands there; empty when it has none."""
    reference: str | None = None
    """The answer to compare with; never part of `messages`."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    then: tuple[Turn, ...] = ()
    """What the user says after each answer."""
    persona: str = ""
    """Who the user is, for a language model that plays it."""
    goal: str = ""
    """What that user wants."""
    weight: float = 1.0
    """How often it is asked in a pass; the fraction is a chance."""


class BadRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that cannot be used."""

    line: int
    cause: str


def parse_record(line: int, found: Mapping[str, Any], columns: Columns | None = None) -> Row:
    """One record as a row.

    Args:
        line: Where it stands.
        found: Column -> value.
        columns: What the columns are called; the usual names when left out.

    Raises:
        RowError: it cannot be used; says why.
    """
    columns = columns or Columns()
    history, last_answer = _history(*columns.find("messages", found))
    turns = _turns(*columns.find("turns", found))
    persona = _text(columns, "persona", found)
    if persona and turns:
        raise RowError("a `persona` and `turns` exclude each other")
    query = _query(columns, found, history, turns, persona)
    messages = list(history)
    name, system = columns.find("system", found)
    if system:
        if not isinstance(system, str):
            raise RowError(f"`{name}` is not text")
        messages.insert(0, {"role": "system", "content": system})
    if not query and last_answer:  # what the persona has before it
        messages.append({"role": "assistant", "content": last_answer})
        last_answer = ""
    if query and not (messages and messages[-1] == {"role": "user", "content": query}):
        messages.append({"role": "user", "content": query})
    own = _own_id(columns, found)
    reference = _reference(columns, found)
    if turns and turns[0].query == query:
        reference = turns[0].reference if turns[0].reference is not None else reference
        turns = turns[1:]
    return Row(
        row_id=quote(own, safe=_SAFE)[:ID_LIMIT] if own else f"row-{line}",
        line=line,
        query=query,
        messages=tuple(messages),
        task_id=own,
        reference=last_answer if reference is None and last_answer and not turns else reference,
        metadata=_metadata(columns, found),
        then=turns,
        persona=persona,
        goal=_text(columns, "goal", found) if persona else "",
        weight=_weight(*columns.find("weight", found)),
    )


def decode_json(data: bytes) -> dict[str, Any]:
    """JSON text as a record.

    Raises:
        RowError: it is not text, not JSON or no object.
    """
    if b"\x00" in data:
        raise RowError(f"a NUL byte at byte {data.index(0) + 1}: this is no JSON text")
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
        found = msgspec.json.decode(text)
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 at byte {error.start + 1}") from error
    except msgspec.MsgspecError as error:
        raise RowError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise RowError("nested too deeply") from error
    if not isinstance(found, dict):
        raise RowError("not an object")
    return found


def parse(line: int, data: bytes, columns: Columns | None = None) -> Row:
    """One line of JSON as a row.

    Raises:
        RowError: it cannot be used; says why.
    """
    return parse_record(line, decode_json(data), columns)


def side_of(row: Row, held_out: float) -> Side:
    """The side of the split a row is on, by its words alone: whatever file, order or id it has.

    Args:
        held_out: Share that is held out, 0 to 1.
    """
    words = row.query or f"{row.persona} {row.goal}"
    return "held-out" if chance(" ".join(words.split())) < held_out else "train"


def chance(text: str) -> float:
    """A number from 0 up to 1 that is always the same for `text`."""
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


# --- parts --------------------------------------------------------------------------------------


def _history(name: str, told: Any) -> tuple[list[dict[str, Any]], str]:
    """The messages before the query, and the text of an answer that ends them."""
    if told is None:
        return [], ""
    told = _unpacked(told)
    if not isinstance(told, list):
        raise RowError(f"`{name}` is not a list")
    for message in told:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            raise RowError(f"`{name}` holds something that is not a message")
    history = [dict(message) for message in told]
    if history and history[-1]["role"] == "assistant":
        return history[:-1], content_text(history[-1].get("content"))
    return history, ""


def _turns(name: str, told: Any) -> tuple[Turn, ...]:
    if told is None:
        return ()
    told = _unpacked(told)
    if not isinstance(told, list) or not told:
        raise RowError(f"`{name}` is not a list of what the user says")
    if len(told) > TURN_LIMIT:
        raise RowError(f"`{name}` has {len(told)} turns, more than {TURN_LIMIT}")
    return tuple(_turn(name, number, one) for number, one in enumerate(told, 1))


def _turn(name: str, number: int, told: Any) -> Turn:
    if isinstance(told, str) and told.strip():
        return Turn(query=told)
    if isinstance(told, dict):
        query = next((told[one] for one in ALIASES["query"] if told.get(one)), None)
        if isinstance(query, str) and query.strip():
            return Turn(query=query, reference=_reference(Columns(), told))
    raise RowError(f"turn {number} of `{name}` is neither text nor {{query, answer}}")


def _text(columns: Columns, part: str, found: Mapping[str, Any]) -> str:
    """A part that is text; empty for anything else, which is metadata then."""
    value = columns.find(part, found)[1]
    return value.strip() if isinstance(value, str) else ""


def _unpacked(told: Any) -> Any:
    """A list that a table's cell holds as JSON text."""
    if isinstance(told, str) and told.lstrip().startswith("["):
        try:
            return msgspec.json.decode(told)
        except (msgspec.MsgspecError, RecursionError):
            return told
    return told


def _query(
    columns: Columns,
    found: Mapping[str, Any],
    history: list[dict[str, Any]],
    turns: tuple[Turn, ...],
    persona: str,
) -> str:
    for name in columns.names("query"):
        value = found.get(name)
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
        return _text(columns, "opening", found)
    raise RowError(f"no query: {either(columns.names('query')[:3])} is missing or empty")


def _own_id(columns: Columns, found: Mapping[str, Any]) -> str:
    for key in columns.names("id"):
        value = found.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def _reference(columns: Columns, found: Mapping[str, Any]) -> str | None:
    nested = found.get("metadata")
    for place in (found, nested if isinstance(nested, dict) else {}):
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


def _metadata(columns: Columns, found: Mapping[str, Any]) -> dict[str, Any]:
    """The row's own metadata, else whatever else the row holds."""
    name, told = columns.find("metadata", found)
    if isinstance(told, dict):
        return told
    parts = ("query", "system", "messages", "turns", "weight", "opening")
    known = {columns.find(part, found)[0] for part in parts} | {name} | _OWN
    return {
        key: value
        for key, value in found.items()
        if key not in known and not isinstance(value, bytes)
    }
