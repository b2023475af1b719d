"""Teach small sums from a dataset with answers.

    python -m examples.math
    python -m examples.math --tool    # with a calculator: examples/math/tool.py

The mock user asks the rows of `sums.jsonl`; the reward compares the answer's number with the row's.
"""

import sys
from pathlib import Path

from examples.ask import last_number
from examples.lesson import Lesson, Row, main
from examples.math import tool

HERE = Path(__file__).resolve().parent


def right(row: Row, text: str) -> float:
    """Return 1 when the last number of the answer is the row's."""
    return float(str(last_number(text)) == row.reference)


LESSON = Lesson(
    name="math",
    measure="share of right answers",
    score=right,
    held_out=HERE / "held_out.jsonl",
    dataset=HERE / "sums.jsonl",
    proxy=("--rewards", str(HERE / "rewards.yaml")),
)

if __name__ == "__main__":
    args = [word for word in sys.argv[1:] if word != "--tool"]
    sys.exit(main(LESSON) if args == sys.argv[1:] else tool.main(args))
