"""All answers of each group with rewards and parts, best first: for rankings and reward models."""

from collections.abc import Iterator, Mapping
from typing import Any

from console.export.chat import (
    PROVENANCE,
    TEXT_MESSAGES,
    Unsuitable,
    tools_text,
    with_text_arguments,
)
from console.export.maker import RowMaker
from console.export.records import ExportedCandidate, ExportedGroup

PART = {
    "name": "string",
    "value": "float64",
    "weight": "float64",
    "gate": "bool",
    "reason": "string",
}


class Ranking:
    """One row for each group."""

    about = "All answers with rewards and parts, best first"
    suffix = ".jsonl"
    features: Mapping[str, Any] = {
        "prompt": TEXT_MESSAGES,
        "tools": "string",
        "answers": [
            {
                "index": "int64",
                "completion": TEXT_MESSAGES,
                "reward": "float64",
                "automatic": "float64",
                "human": "float64",
                "advantage": "float64",
                "weights": "string",
                "parts": [PART],
            }
        ],
        "provenance": PROVENANCE,
    }

    def rows(self, record: ExportedGroup, maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield the ranking of one group."""
        prompt = [with_text_arguments(message) for message in maker.prompt_of(record)]
        answers, used = [], []
        for candidate in record.scored:
            if (message := maker.answer_of(candidate)) is not None:
                completion = [with_text_arguments(message)]
                answers.append({**scored_answer(candidate), "completion": completion})
                used.append(candidate)
        if not answers:
            raise Unsuitable("no answer with a reward")
        yield {
            "prompt": prompt,
            "tools": tools_text(record.tools),
            "answers": answers,
            "provenance": maker.provenance(record, used),
        }


def scored_answer(candidate: ExportedCandidate, *more: str) -> dict[str, Any]:
    """Return an answer with its rewards and their parts, and with more of its fields.

    Args:
        candidate: The answer.
        more: Names of the other fields.
    """
    names = ("index", *more, "reward", "automatic", "human", "advantage", "weights")
    fields = {name: getattr(candidate, name) for name in names}
    parts = [{name: getattr(part, name) for name in PART} for part in candidate.parts]
    return {**fields, "parts": parts}


FORMAT = Ranking()
