"""The verbs about engines on the command line: names, flags and their help."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.commands import COMMANDS
from core.commands.engine import PRESETS

Maker = Callable[..., argparse.ArgumentParser]
Adder = Callable[[argparse.ArgumentParser], None]

_RESULT = "One result line a server. Exit code: 0 all done, 1 one or more failed, 2 wrong use."


def add_engine(commands: Any, command: Maker, reach: Adder, swarm: Adder, yes: Adder) -> None:
    """Add them.

    Args:
        commands: Where commands go.
        command: Makes one.
        reach: Adds the flags that name a proxy.
        swarm: Adds the flag that names a swarm server to ask without a proxy.
        yes: Adds `--yes`.
    """

    def verb(name: str, target: str, example: str) -> argparse.ArgumentParser:
        spelled = name.replace(".", "-").replace("_", "-")
        about = COMMANDS[name].help
        parser = command(commands, spelled, target, about, f"{spelled} {example}".strip())
        parser.epilog = f"{parser.epilog}\n{_RESULT}"
        parser.set_defaults(order_name=name)
        parser.add_argument("--json", action="store_true", help="the results as JSON")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--server", metavar="NAME", help="which swarm server; else the first")
        if name != "engine.abort_episode":
            which.add_argument("--all", action="store_true", help="every swarm server")
        reach(parser)
        return parser

    start = verb("engine.start", "console.cli.engine.control:start", "--preset hand")
    stop = verb("engine.stop", "console.cli.engine.control:stop", "--all --yes")
    job = verb("engine.job", "console.cli.engine.jobs:job", "--set lr=1e-4 --set batch=8")
    apply = verb("engine.apply", "console.cli.engine.jobs:apply", "--all --set lr=1e-4 --yes")
    verb("engine.cancel", "console.cli.engine.control:plain", "--server gpu")
    verb("engine.resume", "console.cli.engine.control:plain", "--all")
    reset = verb("engine.reset", "console.cli.engine.control:asked", "--server gpu --yes")
    abort = verb("engine.abort_episode", "console.cli.engine.control:asked", "3f5bc3c9 --yes")
    abort.add_argument(
        "episode", metavar="EPISODE", help=COMMANDS["engine.abort_episode"].args[0].help
    )
    abort.add_argument("--reason", metavar="TEXT", help="why")
    for parser in (start, stop, job, apply):
        swarm(parser)
    for parser in (start, stop, apply, reset, abort):
        yes(parser)
    for parser in (start, job, apply):
        source = parser.add_mutually_exclusive_group()
        source.add_argument("--file", type=Path, metavar="FILE", help="the job as YAML; - reads it")
        source.add_argument("--preset", choices=PRESETS, help="a job that comes with the program")
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="FIELD=VALUE",
            help="change one field: model, batch, repeats, lr, epochs, kl, temperature, rule, "
            "prompt, response, turn, window",
        )
    show = job.add_mutually_exclusive_group()
    show.add_argument("--check", action="store_true", help="check it, save nothing")
    show.add_argument("--diff", action="store_true", help="against the job the server runs")
    show.add_argument("--running", action="store_true", help="the job the server runs")
