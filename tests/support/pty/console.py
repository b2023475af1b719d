"""A console on a fake link in a terminal of its own; writes what it orders.

python -m tests.support.pty.console FILE
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.events import Event, RatingModeChanged
from core.settings import RatingSettings
from tests.support.console import NOW, FakeLink, FakeReply, build_app, group_events, state_of


class Told(FakeLink):
    """Records each order."""

    async def command(self, name: str, args: Mapping[str, Any]) -> FakeReply:
        reply = await super().command(name, args)
        with Path(sys.argv[1]).open("a") as file:
            file.write(json.dumps([name, dict(args)]) + "\n")
        return reply


def main() -> None:
    """Run until Ctrl+Q."""
    events: list[Event] = [RatingModeChanged(mode="answer_first")]
    for number in range(1, 9):
        events += group_events(
            number, query=f"Question {number}", at=NOW + number - 10, until="AWAITING_RATING"
        )
    link = Told(state_of(*events))
    app = build_app(link=link, rating=RatingSettings(repeats=0.0, confirm="enter"))
    app.run()


if __name__ == "__main__":
    main()
