"""`rating raters`: who rates, how fast and how alike, and the disagreements to settle."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

import msgspec

from console.cli.common import existing_home, say, say_json, snapshot
from console.cli.options import PROXY, Args, takes
from console.screens.rate.raters.model import (
    RaterAgreement,
    RaterRow,
    agreement,
    disagreements,
    rater_rows,
)
from console.screens.rate.raters.text import disagreement_row, rater_lines
from console.session.group_facts import vote_choice
from console.text.lines import line_text
from core.state import Group

_WIDTH = 118
"""Width of a text line, in cells."""


@takes(PROXY)
def raters(args: Args) -> int:
    """Print the raters, their agreement and their disagreements.

    Raises:
        NotRunning: no proxy runs in the home and none is named.
        AjetError: the proxy does not answer, or refuses the token.
    """
    state = asyncio.run(snapshot(args, existing_home(args)))
    now = time.time()
    rows, agreed, disputed = rater_rows(state, now), agreement(state), disagreements(state)
    if args.json:
        say_json(_data(rows, agreed, disputed))
        return 0
    for line in rater_lines(rows, agreed, len(disputed)):
        say(line_text(line).rstrip())
    for group in disputed:
        say(disagreement_row(group, _WIDTH))
    if disputed:
        say("\najet-console group settle GROUP N [N ...]: the best answer, or all, best first")
    return 0


def _data(rows: list[RaterRow], agreed: RaterAgreement, disputed: list[Group]) -> dict[str, Any]:
    return {
        "raters": [asdict(row) for row in rows],
        "agreement": {
            "best": msgspec.to_builtins(agreed.best),
            "order": msgspec.to_builtins(agreed.order),
        },
        "disagreements": [
            {
                "group_id": group.group_id,
                "sent": group.sealed_at is not None,
                "query": group.query,
                "votes": [
                    {"rater": vote.rater, "best": vote_choice(group, vote), "rewards": vote.rewards}
                    for vote in group.votes
                ],
            }
            for group in disputed
        ],
    }
