"""`rating raters`: who rates, how fast and how alike, and the disagreements to settle."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

import msgspec

from console.cli.common import say_result, snapshot
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
    state = asyncio.run(snapshot(args))
    now = time.time()
    rows, agreed, disputed = rater_rows(state, now), agreement(state), disagreements(state)
    lines = [line_text(line) for line in rater_lines(rows, agreed, len(disputed))]
    lines += [disagreement_row(group, _WIDTH) for group in disputed]
    if disputed:
        lines.append(
            "\najet-console group settle GROUP N [N ...]: the best answer, or all, best first"
        )
    return say_result(args, _data(rows, agreed, disputed), lines)


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
