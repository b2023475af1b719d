"""Confirmation of the first job that is sent to an AgentJet server."""

from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.app_host import AppHost
from core.control_payloads import JobInfo


async def may_start(app: AppHost, args: Mapping[str, Any]) -> bool:
    """Return whether to start; ask first when the server would get its first job from here.

    Opens the job screen for a job that an AgentJet server cannot start with. Await it inside a
    worker.

    Args:
        args: Arguments of the command: server, preset, job.
    """
    servers = app.session.state.servers
    name = args.get("server") or next(iter(servers), "")
    server = servers.get(name)
    if server is None or server.job is not None:
        return True
    try:
        sheet = await app.session.proxy.job(name)
    except AjetError:
        return True  # the command itself reports the error
    text = start_text(sheet, args)
    if not text:
        return True
    from console.models.job_form import first_job_text, for_server, masked

    try:
        text = masked(for_server(text, sheet.model).text)
    except AjetError as error:
        app.say(f"{one_line(name, 30)} is not started: {error.what}. {error.todo}", "warning")
        app.open_job(name)
        return False
    about = first_job_text(text, args.get("preset") or "")
    return await app.confirm(f"Start {one_line(name, 30)}?", about, "Start", text)


def start_text(sheet: JobInfo, args: Mapping[str, Any]) -> str:
    """Return the job a start would send to an AgentJet server; empty when no question is needed."""
    if sheet.embedded:
        return ""
    if job := args.get("job"):
        return str(job)
    if preset := args.get("preset"):
        return sheet.hand if preset == "hand" else sheet.default
    return "" if sheet.last else sheet.next
