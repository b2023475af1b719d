"""The question before the first start of an AgentJet server: the job it will be sent."""

from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from core.control_payloads import JobInfo


async def may_start(app: AppHost, args: Mapping[str, Any]) -> bool:
    """Return whether to start; confirm the job when the server would get its first one from here.

    A job that no AgentJet server can start with leads to the screen where it is changed. Await it
    inside a worker.

    Args:
        args: Of the command: server, preset, job.
    """
    servers = app.session.state.servers
    name = args.get("server") or next(iter(servers), "")
    server = servers.get(name)
    if server is None or server.job is not None:
        return True
    try:
        sheet = await app.session.job(name)
    except AjetError:
        return True  # the order itself says what is wrong
    text = start_text(sheet, args)
    if not text:
        return True
    from console.models.job_form import for_server, masked, values

    try:
        text = masked(for_server(text, sheet.model).text)
        model = values(text)["model"]
    except AjetError as error:
        app.say(f"{one_line(name, 30)} is not started: {error.what}. {error.todo}", "warning")
        app.open_job(name)
        return False
    return await app.confirm(f"Start {one_line(name, 30)}?", first_words(model), "Start", text)


def first_words(model: str) -> str:
    """Return the text above the first job of an AgentJet server."""
    return f"Its first job from here trains {one_line(model, 60)}. All that is sent (↑ ↓ scrolls):"


def start_text(sheet: JobInfo, args: Mapping[str, Any]) -> str:
    """Return the job a start would send to an AgentJet server; empty when no question is needed."""
    if sheet.embedded:
        return ""
    if job := args.get("job"):
        return str(job)
    if preset := args.get("preset"):
        return sheet.hand if preset == "hand" else sheet.default
    return "" if sheet.last else sheet.saved or sheet.default
