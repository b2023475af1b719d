"""The questions about what trains: the laptop's engine, or an AgentJet server with its job."""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ajet_swarm.common.text import did_you_mean, one_line
from ajet_swarm.common.urls import server_root, web_address
from ajet_swarm.job.server import MODEL_VARIABLE
from ajet_swarm.job.tree import dump_job
from console.cli.engine.direct import answers_as_embedded
from console.cli.folders.scaffold import MODEL
from console.cli.setup.question import (
    AnswerRefused,
    Answers,
    Checked,
    Choice,
    Question,
    Situation,
    seen,
)
from console.doctor.remote import check_server
from console.models.job_form import for_server, masked, values, with_values
from core.jobs import server_job
from core.settings import parse_servers
from proxy.control.job_store import JobStore

LAPTOP, GPU = "laptop", "gpu"
OTHER = "unchanged"
"""Answer of a home with several servers, or in observe mode: the setup does not write these."""
SERVER = "swarm"
"""Name of the only swarm server of the settings."""
_GPU_ELSEWHERE = "the setup does not choose the model for a GPU of this machine"
_TODO_GPU = (
    "Choose `laptop`, then start `ajet-console --backend torch --model MODEL` "
    "(docs/guide/own-gpu.md); or give the URL of an AgentJet server, usually "
    "http://127.0.0.1:10086"
)


def _choices(situation: Situation) -> list[Choice]:
    has_gpu = shutil.which("nvidia-smi") is not None
    gpu = "found" if has_gpu else "not found"
    return [
        Choice(LAPTOP, "the embedded engine", "a small model on this CPU"),
        Choice(GPU, "this machine's GPU", f"{gpu}; see docs/guide/own-gpu.md"),
    ]


def _present(situation: Situation) -> str:
    own = situation.settings
    if own.upstream.url or isinstance(own.swarm_url, dict):
        return OTHER
    return LAPTOP if own.swarm_url == "embedded" else server_root(own.swarm_url)


def _check(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Check an engine; a URL is asked now, as `doctor` does."""
    if answer in (LAPTOP, "embedded"):
        return Checked(LAPTOP)
    if answer == OTHER == _present(situation):
        return Checked(answer)
    if answer == GPU:
        raise AnswerRefused(_GPU_ELSEWHERE, todo=_TODO_GPU)
    url = server_root(answer)
    if web_address(url) is None:
        todo = f"{did_you_mean(answer, (LAPTOP, GPU))} Give http://HOST:PORT, or `laptop`".strip()
        raise AnswerRefused(f"`{one_line(answer, 80)}` is not the URL of a server", todo=todo)
    parse_servers([url])
    if not situation.live:
        return Checked(url)
    situation.servers.pop(url, None)
    checked = seen(asyncio.run(check_server(situation.home, SERVER, url)), url, usable=url)
    if asyncio.run(answers_as_embedded(SERVER, url)):
        situation.servers[url] = "embedded"
        return Checked(url, (*checked.notes, "an embedded engine: it has a model of its own"))
    situation.servers[url] = "offline" if " is OFFLINE" in checked.notes[0] else "running"
    return checked


def recognize(situation: Situation) -> None:
    """Ask the server of the settings whether it is an embedded engine, which needs no model."""
    url = _present(situation)
    if situation.live and web_address(url) and asyncio.run(answers_as_embedded(SERVER, url)):
        situation.servers[url] = "embedded"


def _settings(situation: Situation, answer: str) -> Mapping[str, Any]:
    """Return the settings of an engine; observe mode ends."""
    if answer == OTHER:
        return {}
    upstream = {"upstream.url": ""} if situation.settings.upstream.url else {}
    return {"swarm_url": "embedded" if answer == LAPTOP else answer, **upstream}


def _needs_model(situation: Situation, answers: Answers) -> bool:
    url = answers.get("engine", "")
    return web_address(url) is not None and situation.servers.get(url) != "embedded"


def _present_model(situation: Situation) -> str:
    return values(_saved_job(situation))["model"]


def _models(situation: Situation) -> list[Choice]:
    name = os.environ.get(MODEL_VARIABLE) or MODEL
    return [Choice(name, name)]


def _check_model(situation: Situation, answers: Answers, answer: str) -> Checked:
    """Check the model and show the job that the server gets."""
    if answer.isdigit():
        todo = "Give a folder or hub name on the server"
        raise AnswerRefused(f"`{answer}` is a number, not a model", todo=todo)
    text = masked(for_server(with_values(_saved_job(situation), {"model": answer})).text)
    if situation.servers.get(answers.get("engine", "")) == "running":
        return Checked(answer, ("the server runs and keeps its job until it is stopped",))
    lines = (f"  {line}" for line in text.splitlines())
    return Checked(answer, ("the job that `ajet-console engine start` sends:", *lines))


def _saved_job(situation: Situation) -> str:
    """Return the job that is saved for the server; without one, the server's default job."""
    saved = JobStore.beside(situation.home.journal).load(SERVER)
    return saved[0] if saved is not None else dump_job(server_job())


def _present_gpus(situation: Situation) -> str:
    return values(_saved_job(situation))["gpus"]


def _check_gpus(situation: Situation, answers: Answers, answer: str) -> Checked:
    model = answers.get("model", "")
    for_server(with_values(_saved_job(situation), {"model": model, "gpus": answer}))
    return Checked(answer)


def files(situation: Situation, answers: Answers) -> dict[Path, str]:
    """Return the job to save for the server."""
    model = answers.get("model", "")
    if not (_needs_model(situation, answers) and model):
        return {}
    file = JobStore.beside(situation.home.journal).path(SERVER)
    fields = {"model": model, "gpus": answers.get("gpus", "")}
    return {file: with_values(_saved_job(situation), fields)}


QUESTIONS: Sequence[Question] = (
    Question(
        id="engine",
        title="What trains the policy?",
        choices=_choices,
        free="http://HOST:PORT of an AgentJet server",
        present=_present,
        check=_check,
        settings=_settings,
        renews=("model",),
    ),
    Question(
        id="model",
        title="Model that the server trains",
        free="a folder or hub name on the server",
        present=_present_model,
        choices=_models,
        check=_check_model,
        asked=_needs_model,
        optional=True,
    ),
    Question(
        id="gpus",
        title="GPUs of each node of the server",
        free="a number; 8 are assumed for an empty answer",
        present=_present_gpus,
        check=_check_gpus,
        asked=_needs_model,
        optional=True,
    ),
)
