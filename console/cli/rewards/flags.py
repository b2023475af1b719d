"""`reward-test`, as the parser knows it."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ajet_swarm.common.text import one_line

Maker = Callable[..., argparse.ArgumentParser]


def add_reward_test(commands: Any, command: Maker) -> None:
    """Add `reward-test`.

    Args:
        commands: Where commands go.
        command: Makes one.
    """
    parser = command(
        commands,
        "reward-test",
        "console.cli.rewards.test:reward_test",
        "Re-score stored groups and show what would change; nothing is sent",
        "reward-test --last 200 --rewards new.yaml",
    )
    parser.epilog = (
        f"{parser.epilog}\n"
        "         ajet-console reward-test --weight length=0.1 --weight diversity=0.6\n"
        "         ajet-console reward-test --one g3f2 --hooks ./my_hooks --pdb\n"
        "Exit code: 0 all groups got rewards, 1 one abstained or the rewards do not load, "
        "2 wrong use."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--last", type=whole_number, metavar="K", help="the newest K groups of the journal; 100"
    )
    what.add_argument("--one", metavar="GROUP", help="one group, each answer with its parts")
    what.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="JSON lines of query, answers and perhaps reference, messages, rewards",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--rewards", type=Path, metavar="FILE", help="rewards file to try")
    how.add_argument("--hooks", type=Path, metavar="DIR", help="folder of hooks to try")
    parser.add_argument(
        "--weight",
        action="append",
        metavar="PART=W",
        help="another weight for a part; repeat it for several",
    )
    parser.add_argument(
        "--pdb", action="store_true", help="with --one: in this process, under the debugger"
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask before a judge is; needed without a terminal"
    )
    parser.add_argument("--all", action="store_true", help="a line for every group")
    parser.add_argument("--json", action="store_true", help="the same as JSON, all groups")


def whole_number(text: str) -> int:
    """The number, 1 or more.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {one_line(text, 40)!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number
