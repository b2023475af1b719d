"""Rewind of a server: shows what it restores and what is lost, and asks."""

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from console.models.consequences import apply_loss, restore_loss
from console.views.job import describe_changes
from core.control_payloads import RewindPlan
from core.state import Server

COMMAND = "progress.rewind"
_PATH_HELP = "Folder on the server that holds config.json and safetensors, or a model on the hub:"


async def ask_rewind(app: AppHost, name: str, path: str = "") -> None:
    """Rewind a server once the operator has agreed to the plan; await it inside a worker.

    If the weights cannot be found, the merge command is shown, and a path can be entered.

    Args:
        app: The app.
        name: Name of the server.
        path: Folder or model with the weights; by default the checkpoint folder of its job.
    """
    while True:
        try:
            plan = await app.session.rewind_plan(name, path)
        except AjetError as error:
            app.say(str(error), "error")
            return
        server = app.session.state.servers.get(name)
        if not plan.problem:
            break
        if server is None or server.checkpoints is not None or plan.step is None:
            app.say(f"{plan.problem}. {plan.todo}", "warning")
            return
        title, body = f"Rewind {one_line(name, 30)}?", problem_text(plan)
        if not await app.confirm(title, body, "Name a path", plan.command):
            return
        given = await app.ask(title, _PATH_HELP, path)
        if not given:
            return
        path = given
    if server is None:
        return
    title, body, changes = plan_question(app, server, plan)
    if await app.confirm(title, body, "Rewind", changes):
        given_path = {"path": path} if path else {}
        await app.send_command(COMMAND, server=name, plan_id=plan.plan_id, **given_path)


def problem_text(plan: RewindPlan) -> str:
    """Return why a rewind is not possible, and what to do."""
    lines = [f"{plan.problem}.", "", f"{plan.todo}{':' if plan.command else '.'}"]
    return "\n".join(one_line(line, 600) for line in lines)


def plan_question(app: AppHost, server: Server, plan: RewindPlan) -> tuple[str, str, str]:
    """Return title and body of the question before a rewind, and the changes of the job."""
    from console.models.job_form import difference

    session = app.session
    title = f"Rewind {one_line(server.name, 30)} to step {plan.step}?"
    why = "It is the baseline."
    if plan.effect is not None:
        why = f"It is better than the baseline: {plan.effect:+.2f}."
    if not plan.job:
        body = f"{why}\n{restore_loss(session, server, plan.weights)}"
        return title, body, ""
    changes = difference(plan.before, plan.job, True)
    lost = "\n".join(one_line(line, 600) for line in plan.loss)
    body = f"{why}\n{lost}\n\n{apply_loss(session.state, server)}"
    return title, body, describe_changes(changes, 400)
