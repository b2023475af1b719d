"""Registry commands that are sent to the proxy unchanged, and what all such commands share."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from ajet_swarm.common.text import plain
from console.cli.common import existing_home, send_command
from console.cli.options import PROXY, Args, argument, option, takes
from console.cli.output import say_result
from console.session.rater_name import saved_name
from core.commands import COMMANDS
from core.commands.spec import Arg
from core.commands.table import ABORT_REASONS

ABORT_REASON = option("--reason TEXT", f"such as: {', '.join(ABORT_REASONS)}")
EXIT = "Exit code: 0 everything was done, 1 something was refused, 2 wrong use."


def about(command: str, name: str) -> str:
    """Return the help of an argument of a command."""
    return next(arg.help for arg in COMMANDS[command].args if arg.name == name)


def _params(command: str) -> list[click.Parameter]:
    return [_param(arg) for arg in COMMANDS[command].args]


def _param(arg: Arg) -> click.Parameter:
    """Return the parameter for an argument: positional when it is required, else an option."""
    kinds = {"int": int, "float": float}
    if arg.kind == "texts":
        return argument(arg.name, arg.help, nargs=-1, metavar="PART=W")
    if not arg.required:
        return option(f"--{arg.name} X", arg.help, type=kinds.get(arg.kind))
    if choices := ("on", "off") if arg.kind == "flag" else arg.choices:
        return argument(arg.name, arg.help, choices=choices)
    return argument(arg.name, arg.help, type=kinds.get(arg.kind), metavar=arg.name.upper())


def values_of(args: Args, command: str) -> dict[str, Any]:
    """Return the arguments of a command that the command line has options for."""
    return {arg.name: getattr(args, arg.name, None) for arg in COMMANDS[command].args}


def rater_of(args: Args) -> str | None:
    """Return the name of the rater: of `--rater`, else of the home; None without any."""
    return args.rater or saved_name(existing_home(args)) or None


@takes(_params, PROXY, notes=(EXIT,))
def send_plain(args: Args) -> int:
    """Send a command with the arguments that the registry defines."""
    return send(args, args.order_name, values_of(args, args.order_name))


def send(args: Args, name: str, values: Mapping[str, Any]) -> int:
    """Send one command and print its result."""
    message = asyncio.run(send_command(args, name, values)).message
    return say_result(args, {"command": name, "ok": True, "message": message}, (plain(message),))
