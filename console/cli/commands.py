"""Commands of the registry that go to the proxy as they are, and what all of them share."""

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

from ajet_swarm.common.errors import AjetError
from console.cli.common import cert_of, look_home, need_proxy, order, say, say_json, token_of
from console.cli.options import add_json, add_note, add_proxy_access
from core.commands import COMMANDS, validate
from core.commands.spec import Arg
from core.runtime.home import Home
from core.state import Group, State

EXIT = "Exit code: 0 all done, 1 something was refused, 2 wrong use."


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command of the registry as the registry describes them."""
    add_common(parser, send_plain)
    for arg in COMMANDS[parser.get_default("order_name")].args:
        _add_argument(parser, arg)


def add_common(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    *,
    proxy: bool = True,
) -> None:
    """Add what all commands of the registry have: `--json` and, unless told otherwise, the proxy.

    Args:
        parser: Of the command.
        run: Carries the command out and returns the exit code.
        proxy: The command goes to a proxy that can be named.
    """
    parser.set_defaults(handler=run)
    add_note(parser, EXIT)
    add_json(parser, "what was done, as JSON")
    if proxy:
        add_proxy_access(parser)


def _add_argument(parser: argparse.ArgumentParser, arg: Arg) -> None:
    """Add one argument: by its place when it is required, else as an option."""
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
    """Send a command whose arguments are those of the registry."""
    names = [arg.name for arg in COMMANDS[args.order_name].args]
    values = {name: getattr(args, name, None) for name in names}
    return send(args, look_home(args), args.order_name, values)


def find_group(state: State, group_id: str) -> Group | None:
    """The one group whose id begins so.

    Raises:
        AjetError: there are several.
    """
    if group_id in state.groups:
        return state.groups[group_id]
    found = [group for known, group in state.groups.items() if known.startswith(group_id)]
    if len(found) > 1:
        raise AjetError(
            f"{len(found)} groups begin with `{group_id}`", todo="Give more of the group's id"
        )
    return found[0] if found else None


async def snapshot(given: argparse.Namespace, home: Home) -> State:
    from proxy.control.client import ControlClient

    async with ControlClient(
        need_proxy(given, home), token_of(given, home), cert=cert_of(home)
    ) as client:
        return await client.snapshot()


def send(given: argparse.Namespace, home: Home, name: str, args: dict[str, Any]) -> int:
    """Send one command and print its result."""
    validate(name, args)
    told = asyncio.run(
        order(need_proxy(given, home), token_of(given, home), name, args, cert_of(home))
    )
    if getattr(given, "json", False):
        say_json({"command": name, "ok": True, "message": told})
    else:
        say(told)
    return 0
