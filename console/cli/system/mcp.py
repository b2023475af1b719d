"""`mcp`: the MCP server, with which agents read the state of a proxy and send commands."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import UsageError
from console.cli.common import connected, existing_home, settings_of
from console.cli.options import PROXY, Args, flag, option, takes

if TYPE_CHECKING:
    from console.mcp.tools import Control


@takes(
    option(
        "--role",
        "read offers tools that read (the default), act also those that change something",
        choices=("read", "act"),
        default="read",
    ),
    flag(
        "--content",
        "show texts of users and models, marked as untrusted; without it no tool shows any",
    ),
    PROXY,
    notes=(
        "An MCP client starts it and talks to it over standard input and output. It needs the "
        "extra `mcp`: pip install 'ajet-console[mcp]'.",
    ),
)
def mcp(args: Args) -> int:
    """Serve until standard input ends.

    Raises:
        UsageError: the extra `mcp` is not installed.
    """
    if find_spec("mcp") is None:
        raise UsageError(
            "the MCP SDK is not installed", "mcp", "Install it: pip install 'ajet-console[mcp]'"
        )
    from console.mcp.content import ContentPolicy
    from console.mcp.processes import Processes
    from console.mcp.server import serve
    from console.mcp.tools import Tools
    from core.runtime.log_format import setup

    setup()
    home = existing_home(args)
    acts = args.role == "act" and not args.read_only
    own = acts and home.exists and not (args.url or args.token_file)

    @asynccontextmanager
    async def connect() -> AsyncIterator["Control"]:
        async with connected(args, read_only=not acts) as client:
            yield client

    processes = Processes(home, settings_of(home)) if own else None
    tools = Tools(
        connect,
        role="act" if acts else "read",
        content=ContentPolicy(shown=args.content),
        processes=processes,
    )
    signal.signal(signal.SIGINT, _leave)
    if sys.stdin.isatty():
        sys.stderr.write(
            "This is an MCP server: a client starts it and talks to it. Ctrl+C ends it\n"
        )
    try:
        asyncio.run(serve(tools))
    finally:
        if processes is not None:
            processes.close()
    return 0


def _leave(*_: object) -> None:
    """End at once: an orderly end would wait for the next line of standard input."""
    os._exit(130)
