"""Run an available command: ask for a missing argument, confirm a loss, then send it."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from console.models.available_commands import NAMES, AvailableCommand
from console.screens.dialogs.abort import AbortScreen
from console.screens.dialogs.rewind import ask_rewind, by_job
from console.screens.group.model import abort_question
from console.screens.group.text import abort_extra
from console.screens.progress.model import mock_start_args, rewind_words, trust_loss
from console.session.app_state import Session
from console.session.command_plans import consequences, refusal
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
        if why := refusal(app.session, offer.command, **args):
            app.say(f"{why.what[:1].upper()}{why.what[1:]}. {why.todo}".strip(), "error")
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
    body = loss_of(app.session, offer.command, offer.servers or (args.get("server"),), args)
    if offer.command == "progress.rewind":
        progress = app.session.state.progress[str(args["server"])]
        body = f"{rewind_words(progress)}\n\n{body}"
    return await app.confirm(offer.title, body, verb.partition(" ")[0])


def _abort_body(app: AppHost, offer: AvailableCommand) -> str:
    state = app.session.state
    if offer.command == "rating.abort_all":
        return "\n".join(abort_all_consequences(state, [offer.args["server"]]))
    group = state.groups.get(str(offer.args["group_id"]))
    if group is None:
        return ""
    # the rating screen hides the winner while blind
    describe = getattr(app.front, "abort_details", abort_extra)
    return abort_question(app.session, group, describe(group))


def loss_of(
    session: Session,
    command: str,
    servers: Sequence[str | None],
    args: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return the body of the question before a command, on one server or on several."""
    if len(servers) == 1:
        named = {} if servers[0] is None else {"server": servers[0]}
        return consequences(session, command, **{**args, **named})
    losses = []
    for name in servers[:NAMES]:
        body = consequences(session, command, **{**args, "server": name})
        title = one_line(str(name), 30)
        losses.append(f"{title}:\n{body}" if body else title)
    if len(servers) > NAMES:
        losses.append(f"and {len(servers) - NAMES} more servers")
    return "\n\n".join(losses)
