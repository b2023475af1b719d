"""Preference pairs for TRL's `DPOTrainer` and `RewardTrainer`: conversational, explicit prompt.

Source: TRL 1.16, `trl/trainer/dpo_trainer.py` (`_prepare_dataset`: columns `prompt`, `chosen`,
`rejected`, `tools`; lists of messages) and `docs/source/dataset_formats.md`, type "preference".
Other columns are ignored there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from console.export.chat import MESSAGES, PROVENANCE, Unsuitable, answer_message, tools_text
from console.export.maker import RowMaker
from console.export.records import ExportedCandidate, ExportedGroup
from core.scoring.advantage import is_dead


class Preference:
    """One pair for each group: the winner, and the answer with the lowest reward."""

    about = "Pairs of a better and a worse answer: DPO (TRL)"
    suffix = ".jsonl"
    features: Mapping[str, Any] = {
        "prompt": MESSAGES,
        "chosen": MESSAGES,
        "rejected": MESSAGES,
        "tools": "string",
        "chosen_reward": "float64",
        "rejected_reward": "float64",
        "provenance": PROVENANCE,
    }

    def rows(self, record: ExportedGroup, maker: RowMaker) -> Iterator[dict[str, Any]]:
        """Yield the pair of one group."""
        prompt, pair = maker.prompt_of(record), pair_of(record)
        if pair is None:
            raise Unsuitable("no pair: fewer than two rewards, or all equal")
        chosen = pair[0]
        better = answer_message(chosen)
        worse, text = _rejected(record, chosen, better, maker)
        yield {
            "prompt": prompt,
            "chosen": [better],
            "rejected": [text],
            "tools": tools_text(record.tools),
            "chosen_reward": chosen.reward,
            "rejected_reward": worse.reward,
            "provenance": maker.provenance(record, [chosen, worse]),
        }


def pair_of(record: ExportedGroup) -> tuple[ExportedCandidate, ExportedCandidate] | None:
    """Return the answers with the highest and with the lowest reward; None if these are equal."""
    scored = record.scored
    if is_dead([candidate.reward for candidate in scored if candidate.reward is not None]):
        return None
    return scored[0], _worst_first(record)[0]


def _worst_first(record: ExportedGroup) -> list[ExportedCandidate]:
    """Return the candidates, worst first.

    Equal rewards, such as those of all others after a vote for the best, are in the order of the
    automatic rewards.
    """
    return sorted(
        record.scored,
        key=lambda candidate: (
            candidate.reward or 0.0,
            candidate.automatic or 0.0,
            candidate.index,
        ),
    )


def _rejected(
    record: ExportedGroup, chosen: ExportedCandidate, message: dict[str, Any], maker: RowMaker
) -> tuple[ExportedCandidate, dict[str, Any]]:
    """Return the worst answer that has a form in the file, with its message."""
    obstacle = "no pair: no worse answer is suitable"
    for candidate in _worst_first(record):
        if is_dead([candidate.reward or 0.0, chosen.reward or 0.0]):
            break
        rejected = maker.answer_of(candidate)
        if rejected is None:
            continue
        if rejected != message:
            return candidate, rejected
        obstacle = "no pair: the worse answers have the text of the best one"
    raise Unsuitable(obstacle)


FORMAT = Preference()
