"""Waiting times of a new user: the console in a real terminal, from an empty home.

    .venv/bin/python -m bench.first_use

First paint, engine ROLLING, then one key of the first screen: the mock user asks; first group
scored, first policy update. The last figure is the new user's: from first paint to that update.
The processes take free ports and a home of their own; all of them are ended.
"""

import tempfile
import time
from pathlib import Path

from bench.bars import Verdicts
from core.runtime.home import running
from core.state import State
from tests.support.pty.terminal import Terminal
from tests.support.stack import Stack, until


def scored(state: State) -> bool:
    """Whether the screen shows a group with candidates, rewards and a winner."""
    return any(
        group.best is not None and len(group.candidates) >= 2 for group in state.groups.values()
    )


def main() -> None:
    """Measure once; figures are seconds since the command was entered."""
    verdicts = Verdicts()
    with (
        tempfile.TemporaryDirectory() as folder,
        Stack(Path(folder) / "home", forks=False) as stack,
    ):
        environment = {**stack.environment, "AJET_CONSOLE__ENGINE__PORT": "0"}
        with Terminal(["--port", "0"], environment, width=80, height=24) as console:

            def since() -> float:
                return time.monotonic() - console.began

            console.expect("STARTING", limit=20)
            painted = since()
            verdicts.at_most("first_paint", painted, 1.0, "s")
            console.expect("Start the mock user", limit=60)  # as soon as requests are taken
            console.expect("ROLLING", limit=60)
            verdicts.at_most("engine_rolling", since(), 60.0, "s")
            first = stack.step()
            console.type("m")
            until("a scored group", lambda: console.read(0) is None or scored(stack.state()), 60)
            verdicts.at_most("first_group_scored", since(), 60.0, "s")
            until("an update", lambda: console.read(0) is None or stack.step() > first, 300)
            verdicts.at_most("first_policy_update", since(), 300.0, "s")
            verdicts.at_most("first_paint_to_update_by_one_key", since() - painted, 30.0, "s")
            console.type("\x11")
            console.expect("Leave running", limit=10)
            console.type("s")
            console.wait()
        left = [role for role in ("engine", "proxy", "mock") if running(stack.home, role)]
        verdicts.at_most("processes_left", len(left), 0, "processes")
    verdicts.close()


if __name__ == "__main__":
    main()
