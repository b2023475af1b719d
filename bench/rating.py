"""Sixty groups rated in ten minutes at a person's pace: 80x24, a real terminal, no mouse.

    .venv/bin/python -m bench.rating [GROUPS] [--fast]

They are rated twice: with one key a vote, and with `rating.confirm: enter`. The rater of
`tests/support/pty/rating_run.py` reads the screen of a console on a pseudo terminal, thinks for 4.5
to 8.5 seconds a group (`--fast`: 0.3 to 0.4) and presses a key every 0.2 to 0.45 seconds: bests,
rankings, scores, ties, all bad, skips, a vote taken back now and then. The server is a scripted one
that notes which answer got which reward; that is compared, group by group, with what the keys
meant. Groups that come back for a second vote are rated again and must send nothing.
"""

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

from bench.bars import Verdicts
from tests.support.pty.rating_run import FAST, HUMAN, Outcome, rating_run

GROUPS = 60
LIMIT = 600.0
NEXT_GROUP = 0.06
"""Seconds from the key of a vote to the next group, 95 % of them."""


def tell(outcome: Outcome) -> None:
    """Compare the intended votes with the received ones, group by group."""
    differing = set(outcome.differing())
    for group, meant in sorted(outcome.expected.items()):
        got = outcome.received.get(group, {})
        shown = " ".join(f"{got[index]:.2f}" for index in sorted(got)) or "nothing"
        expected = (
            "nothing" if meant is None else " ".join(f"{meant[at]:.2f}" for at in sorted(meant))
        )
        sign = "DIFFERS" if group in differing else "same"
        print(f"group {group:3}  meant {expected:20}  server got {shown:20}  {sign}")
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(outcome.kinds.items()))
    print(f"\n{kinds}; {outcome.undone} taken back first, {outcome.second_votes} second votes")


def judge(verdicts: Verdicts, confirm: str, outcome: Outcome, count: int) -> None:
    """Compare the figures of one setting of `rating.confirm` with their bars."""
    verdicts.at_least(f"groups_rated_{confirm}", len(outcome.expected), count, "groups")
    verdicts.at_most(f"seconds_{confirm}", outcome.seconds, LIMIT * count / GROUPS, "s")
    verdicts.at_most(f"groups_that_differ_{confirm}", len(outcome.differing()), 0, "groups")
    verdicts.at_most(f"rewards_sent_twice_{confirm}", outcome.duplicates, 0, "rewards")
    verdicts.info(f"keys_per_vote_{confirm}", statistics.fmean(outcome.typed), "keys")
    verdicts.at_most(f"key_to_next_group_p95_{confirm}", outcome.slow_move, NEXT_GROUP, "s")
    per_minute = 60 * len(outcome.expected) / outcome.seconds
    verdicts.info(f"votes_per_minute_{confirm}", per_minute, "votes")


def main() -> None:
    """Rate and compare."""
    numbers = [word for word in sys.argv[1:] if word != "--fast"]
    count = int(numbers[0]) if numbers else GROUPS
    pace = FAST if "--fast" in sys.argv else HUMAN
    verdicts = Verdicts()
    for confirm in ("none", "enter"):
        with tempfile.TemporaryDirectory() as folder:
            outcome = asyncio.run(rating_run(Path(folder) / "home", count, pace, confirm=confirm))
        print(f"rating.confirm: {confirm}")
        tell(outcome)
        judge(verdicts, confirm, outcome, count)
    verdicts.close()


if __name__ == "__main__":
    main()
