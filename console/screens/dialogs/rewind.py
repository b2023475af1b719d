"""Rewind of an AgentJet server: shows the changed job and what is lost, and asks."""

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from console.session.command_plans import consequences
from core.control_payloads import RewindPlan
from core.state import Server

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
