"""Rows for the mock user: each prompt once, with its reference; the reader is `mock.dataset`."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from console.export.chat import Unsuitable
from console.export.json_text import JsonText
from console.export.maker import RowMaker
from console.export.records import ExportedGroup


class Dataset:
    """One row for each prompt."""

    about = "Questions and references for `ajet-console run mock`"
    suffix = ".jsonl"
    features: Mapping[str, Any] = {}

    def rows(self, record: ExportedGroup, maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield the prompt of one group."""
        maker.check(record)
        prompt, opened = list(record.prompt), record.opened
        if not prompt or prompt[-1].get("role") != "user" or not opened.query.strip():
            raise Unsuitable("prompt that does not end with a question of the user")
        maker.check_new((prompt, opened.reference))
        row: dict[str, Any] = {"id": _name(record, maker), **_question(prompt)}
        if opened.reference is not None:
            row["answer"] = opened.reference
        # As text, since its shape differs; without it the reader takes all unknown columns.
        row["metadata"] = JsonText(opened.metadata or {})
        row["provenance"] = maker.provenance(record, record.candidates)
        yield row


def _question(prompt: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of the prompt: `query`, with `system` or `messages` before it."""
    last = prompt[-1].get("content")
    plain = [
        set(message) <= {"role", "content"} and isinstance(message["content"], str)
        for message in prompt
    ]
    if isinstance(last, str) and all(plain):
        if len(prompt) == 1:
            return {"query": last}
        if len(prompt) == 2 and prompt[0]["role"] == "system":
            return {"system": prompt[0]["content"], "query": last}
    return {"messages": prompt}


def _name(record: ExportedGroup, maker: RowMaker) -> str:
    """Return the id of the dataset row it came from; else one that depends on the prompt alone.

    Another prompt with the same id gets a hash after it.
    """
    name = _first_name(record)
    if maker.is_new(("id", name)):
        return name
    data = msgspec.json.encode((record.prompt, record.opened.reference), order="sorted")
    unique = f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
    maker.is_new(("id", unique))
    return unique


def _first_name(record: ExportedGroup) -> str:
    opened = record.opened
    name = opened.dataset_task_id or opened.row_id
    if name:
        return f"{name}-turn-{opened.turn}" if opened.turn > 1 else name
    data = msgspec.json.encode(record.prompt, order="sorted")
    return f"prompt-{hashlib.sha256(data).hexdigest()[:12]}"


FORMAT = Dataset()
