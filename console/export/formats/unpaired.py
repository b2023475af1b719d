"""Answers with a label for TRL's `KTOTrainer`: type "unpaired preference", conversational.

Source: TRL 1.16, `trl/trainer/kto_trainer.py` (`_prepare_dataset`: columns `prompt`, `completion`,
`label`, `tools`) and `docs/source/dataset_formats.md`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from console.export.chat import MESSAGES, PROVENANCE, tools_text
from console.export.maker import RowMaker
from console.export.records import ExportedCandidate, ExportedGroup


class Unpaired:
    """One row for each answer that is better or worse than the mean of its group."""

    about = "Single answers, good or bad: KTO (TRL)"
    suffix = ".jsonl"
    features: Mapping[str, Any] = {
        "prompt": MESSAGES,
        "completion": MESSAGES,
        "label": "bool",
        "tools": "string",
        "reward": "float64",
        "advantage": "float64",
        "provenance": PROVENANCE,
    }

    def rows(self, record: ExportedGroup, maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield the labelled answers of one group."""
        prompt = maker.prompt_of(record)
        tools = tools_text(record.tools)
        for candidate in record.candidates:
            label = label_of(record, candidate)
            if label is None:
                maker.leave_out("answer without a label: no reward, or advantage 0")
                continue
            answer = maker.answer_of(candidate)
            if answer is None:
                continue
            yield {
                "prompt": prompt,
                "completion": [answer],
                "label": label,
                "tools": tools,
                "reward": candidate.reward,
                "advantage": candidate.advantage,
                "provenance": maker.provenance(record, [candidate]),
            }


def label_of(record: ExportedGroup, candidate: ExportedCandidate) -> bool | None:
    """Return the sign of the advantage; None at 0. All answers of a vote `bad` are labelled bad."""
    if candidate.reward is None:
        return None
    if record.vote is not None and record.vote.rating == "bad":
        return False
    advantage = candidate.advantage
    return None if not advantage else advantage > 0


FORMAT = Unpaired()
