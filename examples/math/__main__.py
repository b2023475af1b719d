"""Teach small sums from a dataset with answers.

    python -m examples.math

The mock user asks the rows of `sums.jsonl`; the reward compares the answer's number with the row's.
"""

import re
import sys
from pathlib import Path

from examples.lesson import Lesson, Row, main

HERE = Path(__file__).resolve().parent
_NUMBER = re.compile(r"-?\d+")


def right(row: Row, text: str) -> float:
    """1 when the last number of the answer is the row's."""
    found = _NUMBER.findall(text)
    return float(bool(found) and found[-1] == row.reference)


LESSON = Lesson(
    name="math",
    measure="share of right answers",
    score=right,
    held_out=HERE / "held_out.jsonl",
    dataset=HERE / "sums.jsonl",
    proxy=("--rewards", str(HERE / "rewards.yaml")),
)

if __name__ == "__main__":
    sys.exit(main(LESSON))
