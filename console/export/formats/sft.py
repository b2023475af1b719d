"""Conversations for TRL's `SFTTrainer`: column `messages`, whose last message is the best answer.

Source: TRL 1.16, `trl/trainer/sft_trainer.py` (`_prepare_dataset`, language modeling case: columns
`messages` and `tools`) and `docs/source/dataset_formats.md`, type "language modeling".
"""

from collections.abc import Iterator, Mapping
from typing import Any

from console.export.chat import (
    MESSAGES,
    PROVENANCE,
    Unsuitable,
    answer_message,
    corrected_message,
    prompt_messages,
    tools_text,
)
from console.export.formats.preference import pair_of
from console.export.maker import RowMaker
from console.export.records import ExportedCandidate, ExportedGroup, rater_hash


class Sft:
    """One conversation for each group: with the correction of a person, else with the winner."""

    about = "Best answers and corrections: SFT (TRL)"
    suffix = ".jsonl"
    features: Mapping[str, Any] = {
        "messages": MESSAGES,
        "tools": "string",
        "corrected": "bool",
        "provenance": PROVENANCE,
    }

    def rows(self, record: ExportedGroup, maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield the conversation of one group."""
        correction = record.correction
        maker.check(record)
        prompt, candidates = prompt_messages(record), record.candidates
        if correction is not None:
            used = [candidate for candidate in candidates if candidate.index == correction.index]
            answer = corrected_message(correction.edited)
        elif (winner := winner_of(record)) is not None:
            used, answer = [winner], answer_message(winner)
        else:
            raise Unsuitable("no winner: no reward, or all rewards equal")
        row: dict[str, Any] = {
            "messages": [*prompt, answer],
            "tools": tools_text(record.tools),
            "corrected": correction is not None,
            "provenance": maker.provenance(record, used),
        }
        if correction is not None:
            rater = correction.rater if maker.names else rater_hash(correction.rater)
            row["provenance"] |= {"mode": "human", "rater": rater}
        yield row


def winner_of(record: ExportedGroup) -> ExportedCandidate | None:
    """Return the best answer; None if all rewards are equal.

    A single answer has no rival: it is the best one if a person voted so.
    """
    vote = record.vote
    if len(record.candidates) == 1 and vote is not None and vote.rating == "best":
        only = record.candidates[0]
        return only if only.index in (vote.order[:1] or (only.index,)) else None
    pair = pair_of(record)
    return pair[0] if pair is not None else None


FORMAT = Sft()
