"""Run an available command: ask for a missing argument, confirm a loss, then send it."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from console.models.available_commands import NAMES, AvailableCommand
from console.screens.dialogs.abort import AbortScreen
from console.screens.group.model import abort_question
from console.screens.group.text import abort_extra
from console.screens.progress.model import mock_start_args, rewind_words, trust_loss
from console.session.app_state import Session
from console.session.command_plans import consequences, refusal
from core.commands import COMMANDS
from core.commands.plan_groups import abort_all_consequences
from core.control_payloads import RewindPlan
from core.state import Server

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


_PATH_HELP = "Folder on the server with config.json and safetensors, or a model on the hub:"
_CHANGE = 400
"""Maximum length of one change in the question."""


def by_job(app: AppHost, name: str) -> bool:
    """Return whether a rewind of the server sends a job: it has no checkpoints of its own."""
    state = app.session.state
    server, progress = state.servers.get(name), state.progress.get(name)
    best = progress.best if progress is not None else None
    by_engine = best is not None and best.checkpoint
    return server is not None and server.checkpoints is None and not by_engine


async def ask_rewind(app: AppHost, name: str) -> None:
    """Rewind a server once the operator has agreed to the plan; await it inside a worker.

    If the weights cannot be used or seen, the merge command is shown, and a path can be entered.
    """
    path = ""
    while True:
        try:
            plan = await app.session.proxy.rewind_plan(name, path)
        except AjetError as error:
            app.say(f"{error.what}. {error.todo}", "error")
            return
        server = app.session.state.servers.get(name)
        if server is None or not plan.problem:
            break
        if plan.step is None:
            app.say(f"{plan.problem}. {plan.todo}", "warning")
            return
        title = f"Rewind {one_line(name, 30)}: the weights of step {plan.step}"
        if not await app.confirm(title, problem_text(plan), "Name a path", plan.command):
            return
        response = await app.ask(title, _PATH_HELP, path)
        if not response:
            return
        path = response
    if server is None:
        return
    title, body, changes = plan_question(app, server, plan)
    if await app.confirm(title, body, "Rewind", changes):
        path_args = {"path": path} if path else {}
        await app.send_command("progress.rewind", server=name, plan_id=plan.plan_id, **path_args)


def problem_text(plan: RewindPlan) -> str:
    """Return why a rewind is not possible, and what to do."""
    todo = f"{plan.todo}{':' if plan.command else '.'}"
    return f"{one_line(plan.problem, 600)}.\n\n{one_line(todo, 600)}"


def plan_question(app: AppHost, server: Server, plan: RewindPlan) -> tuple[str, str, str]:
    """Return title and body of the question before a rewind, and the changes of the job."""
    from console.models.job_form import describe_changes, difference

    title = f"Rewind {one_line(server.name, 30)} to step {plan.step}?"
    why = "It is the baseline."
    if plan.effect is not None:
        why = f"It is better than the baseline by {plan.effect:.2f}."
    lost = "\n".join(one_line(line, 600) for line in plan.loss)
    body = f"{why} {lost}\n\n{consequences(app.session, 'engine.apply', server=server.name)}"
    changes = difference(plan.before, plan.job, True)
    return title, body, describe_changes(changes, _CHANGE)
