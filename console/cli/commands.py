"""Registry commands that are sent to the proxy unchanged, and what all such commands share."""

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

from ajet_swarm.common.text import plain
from console.cli.common import (
    cert_of,
    existing_home,
    need_proxy,
    say,
    say_json,
    send_command,
    token_of,
)
from console.cli.options import add_json, add_note, add_proxy_access
from core.commands import COMMANDS, validate
from core.commands.spec import Arg
from core.runtime.home import Home

EXIT = "Exit code: 0 everything was done, 1 something was refused, 2 wrong use."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that the registry defines for a command."""
    add_common(parser, send_plain)
    for arg in COMMANDS[parser.get_default("order_name")].args:
        _add_argument(parser, arg)


def add_common(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    *,
    proxy: bool = True,
) -> None:
    """Add the options of all registry commands: `--json` and, unless disabled, the proxy.

    Args:
        parser: The command's parser.
        run: Carries out the command and returns the exit code.
        proxy: Whether to add the options that choose the proxy.
    """
    parser.set_defaults(handler=run)
    add_note(parser, EXIT)
    add_json(parser, "print the result as JSON")
    if proxy:
        add_proxy_access(parser)


def _add_argument(parser: argparse.ArgumentParser, arg: Arg) -> None:
    """Add one argument: positional when it is required, else an option."""
    if arg.kind == "texts":
        parser.add_argument(arg.name, nargs="*", metavar="PART=W", help=arg.help)
    elif not arg.required:
        kind = int if arg.kind == "int" else str
        parser.add_argument(f"--{arg.name}", type=kind, metavar="X", help=arg.help)
    elif arg.kind == "float":
        parser.add_argument(arg.name, type=float, metavar="X", help=arg.help)
    elif choices := ("on", "off") if arg.kind == "flag" else arg.choices:
        parser.add_argument(arg.name, choices=choices, help=arg.help)
    else:
        parser.add_argument(arg.name, metavar=arg.name.upper(), help=arg.help)


def send_plain(args: argparse.Namespace) -> int:
    """Send a command with the arguments that the registry defines."""
    names = [arg.name for arg in COMMANDS[args.order_name].args]
    values = {name: getattr(args, name, None) for name in names}
    return send(args, existing_home(args), args.order_name, values)


def send(args: argparse.Namespace, home: Home, name: str, values: dict[str, Any]) -> int:
    """Send one command and print its result."""
    validate(name, values)
    message = asyncio.run(
        send_command(need_proxy(args, home), token_of(args, home), name, values, cert_of(home))
    )
    if getattr(args, "json", False):
        say_json({"command": name, "ok": True, "message": message})
    else:
        say(plain(message))
    return 0
