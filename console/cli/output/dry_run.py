"""Commands to the proxy, which a dry run checks and shows instead of sending them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from console.cli.output import output

if TYPE_CHECKING:
    from proxy.control.client import CommandReply, ControlClient


async def order(client: "ControlClient", name: str, args: Mapping[str, Any]) -> "CommandReply":
    """Send a command to the proxy; a dry run asks it what it would do.

    Raises:
        AjetError: the command is refused, or would be.
    """
    if not output().dry_run:
        return await client.command(name, args)
    from core.commands.plan import shown_args
    from proxy.control.client import CommandReply

    plan = await client.plan(name, args)
    message = output().plan(
        plan.message, command=name, args=shown_args(plan.args), loses=plan.loses
    )
    return CommandReply(True, message)
