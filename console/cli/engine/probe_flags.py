"""`try` and `try-stop` as the parser knows them; light."""

import argparse
from collections.abc import Callable
from typing import Any

from core.commands.engine import TRY

LAST = 3
"""Earlier answers that are shown beside the new one."""


def add_try(
    commands: Any,
    command: Callable[..., argparse.ArgumentParser],
    reach: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the commands to the parser.

    Args:
        commands: Where commands go.
        command: Makes one.
        reach: Adds the flags that name a proxy.
    """
    ask, stop = TRY
    parser = command(
        commands,
        "try",
        "console.cli.engine.probe:try_prompt",
        ask.help,
        "try 'Why is the sky blue?'",
    )
    parser.add_argument("prompt", metavar="PROMPT", help="what to ask; - reads standard input")
    parser.add_argument("--server", metavar="NAME", help="which swarm server; else the first")
    parser.add_argument(
        "--last", type=int, default=LAST, metavar="N", help=f"earlier answers shown; {LAST}"
    )
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="give it back after S seconds"
    )
    parser.add_argument("--json", action="store_true", help="for scripts")
    reach(parser)
    ended = command(commands, "try-stop", "console.cli.engine.probe:stop", stop.help, "try-stop")
    ended.add_argument("try_id", nargs="?", metavar="TRY", help=stop.args[0].help)
    ended.add_argument("--json", action="store_true", help="for scripts")
    reach(ended)
