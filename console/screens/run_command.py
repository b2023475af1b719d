"""Run an available command: ask for a missing argument, confirm a loss, then send it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.text import known_names, one_line
from console.models.app_host import AppHost
from console.models.available_commands import AvailableCommand
from console.models.consequences import loss, server_of
from console.models.job_commands import loss_of_all
from console.models.progress.pause import mock_start_args
from console.models.progress.standing import trust_loss
from console.screens.dialogs.abort import AbortScreen
from console.screens.dialogs.rewind import ask_rewind, by_job
from console.views.group_detail import abort_extra
from core.commands import COMMANDS
from core.commands.plan_groups import abort_all_consequences

WITH_REASON = frozenset({"group.abort", "rating.abort_all"})
"""Commands whose question also asks for a reason."""


def run_available(app: AppHost, offer: AvailableCommand) -> None:
    """Run a command that is available now; ask for missing arguments and confirm a loss."""
    app.run_worker(_run(app, offer), name=offer.command, group="command", exit_on_error=False)


async def _run(app: AppHost, offer: AvailableCommand) -> None:
    args = dict(offer.args)
    if offer.command == "progress.rewind" and by_job(app, str(args["server"])):
        await ask_rewind(app, str(args["server"]))
        return
    if offer.command == "mock.start":
        agreed = await mock_start_args(app, **args)
        if agreed is not None:
            await app.send_command(offer.command, **agreed)
        return
    if offer.ask:
        known = {arg.name: arg.help for arg in COMMANDS[offer.command].args}
        answer = await app.ask(offer.title, known[offer.ask], offer.value)
        if answer is None:
            return
        args[offer.ask] = answer
        if offer.command == "engine.restore" and (why := no_checkpoint(app, args)):
            app.say(why, "error")
            return
    if offer.command in WITH_REASON:
        reason = await app.push_screen_wait(AbortScreen(f"{offer.title}?", _abort_body(app, offer)))
        if reason is None:
            return
        args.update({"reason": reason} if reason else {})
    elif not await _agreed(app, offer, args):
        return
    if offer.servers:
        async with asyncio.TaskGroup() as tasks:
            for name in offer.servers:
                tasks.create_task(app.send_command(offer.command, **{**args, "server": name}))
        return
    await app.send_command(offer.command, **args)


async def _agreed(app: AppHost, offer: AvailableCommand, args: Mapping[str, Any]) -> bool:
    """Return whether the operator agrees to the loss; True without a question if there is none."""
    if offer.command == "progress.trust":
        title, body = trust_loss(app.session.state, str(args["server"]))
        return await app.confirm(title, body, "Trust it")
    if not offer.danger:
        return True
    verb = offer.title.partition(": ")[2]
    body = (
        loss_of_all(app.session, offer.command, offer.servers)
        if offer.servers
        else loss(app.session, offer.command, args)
    )
    return await app.confirm(offer.title, body, verb.partition(" ")[0])


def no_checkpoint(app: AppHost, args: Mapping[str, Any]) -> str:
    """Return why the checkpoint does not exist; empty when it exists or may exist."""
    server = server_of(app.session, args.get("server"))
    name = str(args.get("name", "")).strip()
    if server is None or server.checkpoints is None or server.checkpoints_more:
        return ""
    names = ["base", *(one.name for one in server.checkpoints)]
    if name in names:
        return ""
    return f"There is no checkpoint `{one_line(name, 64)}`. {known_names(name, names)}"


def _abort_body(app: AppHost, offer: AvailableCommand) -> str:
    state = app.session.state
    if offer.command == "rating.abort_all":
        return "\n".join(abort_all_consequences(state, [offer.args["server"]]))
    group = state.groups.get(str(offer.args["group_id"]))
    describe = getattr(
        app.front, "abort_details", abort_extra
    )  # the rating screen hides the winner while blind
    more = describe(group) if group is not None else ""
    return "\n".join(text for text in (loss(app.session, offer.command, offer.args), more) if text)
