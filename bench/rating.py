"""Sixty groups rated in ten minutes at a person's pace: 80x24, a real terminal, no mouse.

    .venv/bin/python -m bench.rating [GROUPS]

The rater of `tests/support/pty/rating_run.py` reads the screen of a console on a pseudo terminal,
thinks for 4.5 to 8.5 seconds a group and presses a key every 0.2 to 0.45 seconds: bests, rankings,
scores, ties, all bad, skips, a vote taken back now and then. The server is a scripted one that
notes which answer got which reward; that is compared, group by group, with what the keys meant.
Groups that come back for a second vote are rated again and must send nothing.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from bench.bars import Verdicts
from tests.support.pty.rating_run import HUMAN, Outcome, rating_run

GROUPS = 60
LIMIT = 600.0


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
    print(
        f"{outcome.keys} keys; a vote is off the screen after {outcome.median_move:.2f} s (median)"
    )


def main() -> None:
    """Rate and compare."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else GROUPS
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(rating_run(Path(folder) / "home", count, HUMAN))
    tell(outcome)
    verdicts = Verdicts()
    verdicts.at_least("groups_rated", len(outcome.expected), count, "groups")
    verdicts.at_most("seconds", outcome.seconds, LIMIT * count / GROUPS, "s")
    verdicts.at_most("groups_that_differ", len(outcome.differing()), 0, "groups")
    verdicts.at_most("rewards_sent_twice", outcome.duplicates, 0, "rewards")
    verdicts.close()


if __name__ == "__main__":
    main()
