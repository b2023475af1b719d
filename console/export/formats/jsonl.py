"""Everything that the journal has of each group, one JSON object per line."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from console.export.formats.ranking import scored_answer
from console.export.json_text import JsonText
from console.export.maker import RowMaker
from console.export.records import ExportedGroup, rater_hash, rater_text, utc
from console.text.values import fields_of

BESIDE_REWARDS = ("message", "finish_reason", "seconds", "prompt_tokens", "completion_tokens")


class Jsonl:
    """One row for each group."""

    about = "Everything of each group"
    suffix = ".jsonl"
    features: Mapping[str, Any] = {}

    def rows(self, record: ExportedGroup, maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield one group."""
        maker.check(record)
        group, opened = record.group, record.opened
        yield {
            **fields_of(opened, "model session turn dataset_task_id reference"),
            **fields_of(group, "server latency dead returned marked note lost"),
            "type": opened.episode_type,
            "request": opened.body,
            "row": opened.row_id,
            "metadata": JsonText(opened.metadata or {}),  # its shape differs between rows
            "opened": utc(opened.at),
            "closed": utc(group.closed_at or opened.at),
            "answers": [
                scored_answer(candidate, *BESIDE_REWARDS) for candidate in record.candidates
            ],
            "vote": _vote(record, maker),
            "correction": _correction(record, maker),
            "provenance": maker.provenance(record, record.candidates),
        }


def _vote(record: ExportedGroup, maker: RowMaker) -> dict[str, Any] | None:
    vote = record.vote
    if vote is None:
        return None
    fields: dict[str, Any] = msgspec.to_builtins(vote, order="sorted")
    for name in ("kind", "seq", "at", "run_id", "server", "group_id"):
        fields.pop(name, None)
    return {
        **fields,
        "rater": rater_text(vote, names=maker.names),
        "raters": [rater_text(vote, names=maker.names) for vote in record.votes],
        "votes": [list(vote.rewards) for vote in record.votes],
        "settled": record.settled,
        "time": utc(vote.at),
    }


def _correction(record: ExportedGroup, maker: RowMaker) -> dict[str, Any] | None:
    edit = record.correction
    if edit is None:
        return None
    rater = edit.rater if maker.names else rater_hash(edit.rater)
    return {"index": edit.index, "text": edit.edited, "rater": rater, "time": utc(edit.at)}


FORMAT = Jsonl()
