"""The answers about what trains: the laptop's engine, or an AgentJet server with its job."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import did_you_mean, one_line
from ajet_swarm.common.urls import server_root, web_address
from ajet_swarm.protocol.server_job import MODEL_VARIABLE
from console.cli.setup.question import (
    AnswerRefused,
    Answers,
    Checked,
    Choice,
    ServerAnswer,
    Situation,
)

LAPTOP = "laptop"
GPU = "gpu"
SERVER = "swarm"
"""Name of the only swarm server of the settings."""
SEVERAL = "several"
OBSERVE = "observe"
NO_GPU_ENGINE = "ajet-console has no engine for GPUs: the embedded engine trains on the CPU"
TODO_GPU = (
    "Start an AgentJet server on this machine (docs/guide/gpu-server.md) and give its URL, "
    "usually http://127.0.0.1:10086; or choose `laptop`"
)
KEPT = "unchanged: edit config.yaml"


def choices(situation: Situation) -> list[Choice]:
    """Return the engines; a GPU of this machine needs a server of its own."""
    has_gpu = shutil.which("nvidia-smi") is not None
    gpu = "found, but used only by" if has_gpu else "not available: needs"
    listed = [
        Choice(LAPTOP, "the embedded engine", "a small model on this CPU"),
        Choice(GPU, "this machine's GPU", f"{gpu} an AgentJet server"),
    ]
    if (now := present(situation)) in (SEVERAL, OBSERVE):
        listed.append(Choice(now, _many(situation), KEPT))
    return listed


def _many(situation: Situation) -> str:
    servers = situation.settings.servers()
    names = ", ".join(one_line(f"{name} {url}", 60) for name, url in servers.items())
    return f"observe mode: {names}" if situation.settings.upstream.url else names


def present(situation: Situation) -> str:
    """Return the present answer; empty before the first setup."""
    own = situation.settings
    if own.upstream.url:
        return OBSERVE
    if isinstance(own.swarm_url, dict):
        return SEVERAL
    if own.swarm_url != "embedded":
        return server_root(own.swarm_url)
    return LAPTOP if situation.configured else ""


async def check(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Check an engine; a URL is asked now, as `doctor` does."""
    if answer in (LAPTOP, "embedded"):
        return Checked(LAPTOP)
    if answer in (SEVERAL, OBSERVE) and answer == present(situation):
        return Checked(answer)
    if answer == GPU:
        raise AnswerRefused(NO_GPU_ENGINE, todo=TODO_GPU)
    url = server_root(answer)
    parts = web_address(url)
    if parts is None:
        meant = did_you_mean(answer, (LAPTOP, GPU))
        todo = f"{meant} Give http://HOST:PORT, or `laptop`".strip()
        raise AnswerRefused(f"`{one_line(answer, 80)}` is not the URL of a server", todo=todo)
    from core.settings import parse_servers
    from core.settings.file import SettingsError

    try:
        parse_servers([url])
    except SettingsError as error:
        raise AnswerRefused(error.what, "engine", error.todo) from error
    if not situation.live:
        return Checked(url)
    from console.cli.engine.direct import answers_as_embedded
    from console.doctor.remote import check_server

    finding = await check_server(situation.home, SERVER, url)
    if finding.level == "fail":
        situation.servers.pop(url, None)
        raise AnswerRefused(finding.text, todo=finding.todo, usable=url)
    embedded = await answers_as_embedded(SERVER, url)
    offline = " is OFFLINE" in finding.text
    situation.servers[url] = ServerAnswer(embedded, offline)
    note = ("an embedded engine: it has a model of its own",) if embedded else ()
    return Checked(url, (finding.text, *note))


async def recognize(situation: Situation) -> None:
    """Ask the server of the settings whether it is an embedded engine, which needs no model."""
    from console.cli.engine.direct import answers_as_embedded

    url = present(situation)
    if situation.live and web_address(url) and await answers_as_embedded(SERVER, url):
        situation.servers[url] = ServerAnswer(embedded=True, offline=False)


def settings(situation: Situation, answer: str) -> Mapping[str, Any]:
    """Return the settings of an engine; observe mode ends."""
    if answer in (SEVERAL, OBSERVE):
        return {}
    url = "embedded" if answer == LAPTOP else answer
    upstream = {"upstream.url": ""} if situation.settings.upstream.url else {}
    return {"swarm_url": url, **upstream}


def comment(answer: str) -> str:
    """Return what an answer means."""
    if answer == LAPTOP:
        return "the embedded engine, on this machine's CPU"
    return "the AgentJet server that trains"


# --- the job ---------------------------------------------------------------------------------


def is_url(answers: Answers) -> bool:
    """Return whether a swarm server was chosen by its URL."""
    return web_address(answers.get("engine", "")) is not None


def needs_model(situation: Situation, answers: Answers) -> bool:
    """Return whether the server of the answers needs a model in its job."""
    server = situation.servers.get(answers.get("engine", ""))
    return is_url(answers) and (server is None or not server.embedded)


def present_model(situation: Situation) -> str:
    """Return the model of the job that is saved for the server; empty without one."""
    from ajet_swarm.protocol.job import MODEL, get, load_job

    text = _saved_job(situation)
    return str(get(load_job(text), MODEL) or "") if text else ""


def default_model(situation: Situation) -> str:
    """Return the model of the environment, else that of AgentJet's tutorials."""
    from console.cli.folders.scaffold import MODEL

    return os.environ.get(MODEL_VARIABLE) or MODEL


async def check_model(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Check the model and show the job that the server gets."""
    if answer.isdigit():
        todo = "Give a folder or hub name on the server"
        raise AnswerRefused(f"`{answer}` is a number, not a model", todo=todo)
    from console.models.job_form import for_server, masked

    try:
        text = masked(for_server(_job(situation, answer)).text)
    except AjetError as error:
        raise AnswerRefused(error.what, error.where, error.todo) from error
    server = situation.servers.get(answers.get("engine", ""))
    if server is not None and not server.offline:
        return Checked(answer, ("the server runs and keeps its job until it is stopped",))
    lines = tuple(f"  {line}" for line in text.splitlines())
    return Checked(answer, ("the job that `ajet-console engine-start` sends:", *lines))


def _saved_job(situation: Situation) -> str:
    from proxy.control.job_store import JobStore

    saved = JobStore.beside(situation.home.journal).load(SERVER)
    return saved[0] if saved is not None else ""


def _job(situation: Situation, model: str) -> str:
    """Return the saved job with another model, else the server's default job."""
    from ajet_swarm.protocol.job import MODEL, dump_job, get, load_job, put
    from ajet_swarm.protocol.server_job import server_job

    if not (text := _saved_job(situation)):
        return dump_job(server_job(model))
    job = load_job(text)
    if get(job, MODEL) == model:
        return text
    put(job, MODEL, model)
    return dump_job(job)


def files(situation: Situation, answers: Answers) -> dict[Path, str]:
    """Return the job to save for the server."""
    from proxy.control.job_store import JobStore

    model = answers.get("model", "")
    if not (needs_model(situation, answers) and model):
        return {}
    file = JobStore.beside(situation.home.journal).path(SERVER)
    return {file: _job(situation, model)}
