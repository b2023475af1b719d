"""The questions of the setup, in their order: choices, check of an answer, settings and files."""

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ajet_swarm.common.text import did_you_mean, known_names, one_line
from ajet_swarm.common.urls import server_root, web_address
from ajet_swarm.job.server import MODEL_VARIABLE
from ajet_swarm.job.tree import dump_job
from console.cli.engine.target import answers_as_embedded
from console.cli.folders import MODEL, known
from console.cli.setup.question import (
    AnswerRefused,
    Checked,
    Choice,
    Draft,
    Question,
    one_of,
    seen,
)
from console.clients.catalog import clients, installed
from console.doctor.judge import check_judge
from console.doctor.remote import check_hooks, check_server
from console.models.datasets import SHIPPED, datasets, find_dataset
from console.models.job_form import for_server, masked, values, with_values
from core.jobs import server_job
from core.runtime.secrets import env_key
from core.settings import edit, parse_servers
from mock.dataset import Row, open_dataset
from proxy.control.job_store import JobStore
from proxy.rewards.judge.part import Judge
from proxy.rewards.judge.settings import address
from proxy.rewards.model import file as reward_files

# --- application and dataset -------------------------------------------------------------------

NONE = "none"
_PLACES = {"here": "in this folder", "home": "in the home"}


class _Application(Question):
    id = "application"
    title = "Which application asks the policy?"
    free = "another name of `ajet-console clients`"
    optional = True

    def choices(self, draft: Draft) -> Sequence[Choice]:
        found = "found on this machine"
        local = {client.name: Choice(client.name, client.title, found) for client in installed()}
        usual = [
            Choice(client.name, client.title)
            for client in clients()
            if client.name in ("openai", "curl") and client.name not in local
        ]
        return [*list(local.values())[:5], *usual]

    def present(self, draft: Draft) -> str:
        return draft.settings.console.application

    def check(self, draft: Draft, answer: str) -> Checked:
        return one_of([client.name for client in clients()], answer)

    def settings(self, draft: Draft, answer: str) -> Mapping[str, Any]:
        return {"console.application": answer}


class _Dataset(Question):
    id = "dataset"
    title = "Which questions does the mock user ask?"
    free = "a path: JSONL, JSON, CSV, Parquet, Hugging Face folder"

    def choices(self, draft: Draft) -> Sequence[Choice]:
        files = [file for file in datasets(draft.home.root, draft.here) if file.path]
        return [
            Choice(SHIPPED, "the questions that come with the program"),
            *(Choice(file.path, file.name, _PLACES[file.where]) for file in files[:4]),
            Choice(NONE, "none", "only your application asks"),
        ]

    def present(self, draft: Draft) -> str:
        return draft.settings.mock.dataset or NONE

    def check(self, draft: Draft, answer: str) -> Checked:
        if answer in (NONE, SHIPPED):
            return Checked(answer)
        path, size, query = _read_dataset(draft, answer)
        return Checked(str(path), (f"{size} rows; the first one: {one_line(query, 60)}",))

    def settings(self, draft: Draft, answer: str) -> Mapping[str, Any]:
        return {"mock.dataset": "" if answer == NONE else answer}


def _read_dataset(draft: Draft, answer: str) -> tuple[Path, str, str]:
    """Return the path of a dataset, the number of its rows, and its first question."""
    path = find_dataset(draft.home, answer).absolute()
    with open_dataset(path) as dataset:
        rows = (dataset.row(at) for at in range(dataset.records.count))
        queries = (row.query for row in rows if isinstance(row, Row) and row.query)
        size = f"{dataset.records.count}{'' if dataset.records.whole else ' or more'}"
        return path, size, next(queries, "")


def first_query(draft: Draft) -> str:
    """Return the first question of the dataset; empty when it has none."""
    dataset = draft.answers.get("dataset", NONE)
    return "" if dataset == NONE else _read_dataset(draft, dataset)[2]


# --- rewards -----------------------------------------------------------------------------------

KINDS = BUILT_IN, JUDGE, HOOKS = "built_in", "judge", "hooks"
HOOK_FILE = "on_compute_relative_reward.py"
PART = "helpful"
"""Name of the judge's part."""

_JUDGE_TEXT = """\
# Written by `ajet-console setup`; every setting: docs/guide/judge.md. Changes apply at once.
parts:
  degeneration: {kind: repetition, gate: true}
  finished: {gate: true}
  helpful:
    kind: judge
    weight: 1
    url: ""
    key_env: null
    model: null
    mode: listwise
"""


class _Rewards(Question):
    id = "rewards"
    title = "What scores the answers?"
    free = "the path of your hooks or rewards file"

    def choices(self, draft: Draft) -> Sequence[Choice]:
        verb = "uses" if _has_hooks(draft) else "writes an example to"
        return [
            Choice(BUILT_IN, "built-in rules", "or those of rewards.yaml in the home"),
            Choice(JUDGE, "a language model as a judge", "needs the URL of an API"),
            Choice(HOOKS, "your own Python function", f"{verb} hooks/ in the home"),
        ]

    def present(self, draft: Draft) -> str:
        own = draft.settings.rewards
        if own.hooks:
            return HOOKS if Path(own.hooks) == draft.hooks_folder else own.hooks
        if own.file:
            return JUDGE if Path(own.file) == draft.judge_file else own.file
        return BUILT_IN

    def check(self, draft: Draft, answer: str) -> Checked:
        """Check a kind or a path; hooks are loaded in a process of their own."""
        if answer == HOOKS and not _has_hooks(draft):
            return Checked(answer, (f"an example is written to {draft.hooks_folder}",))
        if answer in (BUILT_IN, JUDGE):
            return Checked(answer)
        path = draft.hooks_folder if answer == HOOKS else Path(answer).expanduser().absolute()
        if path.is_dir():
            return seen(asyncio.run(check_hooks(path)), answer if answer == HOOKS else str(path))
        if not path.is_file():
            what = f"there is no file or folder `{one_line(answer, 80)}`"
            raise AnswerRefused(what, todo=f"{known_names(answer, KINDS)}, or a path")
        parts = ", ".join(part.name for part in reward_files.load(path).active)
        return Checked(str(path), (f"parts: {parts}",))

    def settings(self, draft: Draft, answer: str) -> Mapping[str, Any]:
        own = {BUILT_IN: "", JUDGE: draft.judge_file, HOOKS: draft.hooks_folder}
        path = str(own.get(answer, answer))
        if answer == HOOKS or (path and Path(path).is_dir()):
            return {"rewards.hooks": path, "rewards.file": ""}
        return {"rewards.file": path, "rewards.hooks": ""}


def _has_hooks(draft: Draft) -> bool:
    return (draft.hooks_folder / HOOK_FILE).is_file()


class _OfJudge(Question):
    """A setting of the judge in the file that the setup writes."""

    def asked(self, draft: Draft) -> bool:
        return draft.answer("rewards") == JUDGE

    def present(self, draft: Draft) -> str:
        return _judge_value(draft, self.id.removeprefix("judge_"))


class _JudgeUrl(_OfJudge):
    id = "judge_url"
    title = "URL of the judge (an OpenAI-compatible API)"
    free = "https://HOST/v1"
    renews = ("judge_key_env", "judge_model")

    def check(self, draft: Draft, answer: str) -> Checked:
        return Checked(address(answer))


class _JudgeKey(_OfJudge):
    id = "judge_key_env"
    title = "Environment variable that has its key"
    free = "the name, never the key itself; - when it needs none"
    renews = ("judge_model",)
    optional = True

    def check(self, draft: Draft, answer: str) -> Checked:
        """Check that the variable has a usable key; an empty name means that none is needed."""
        absent = answer not in os.environ
        if answer:
            env_key(answer, "the judge's key", {answer: "unknown"} if absent else None)
        if answer and absent and draft.live:
            todo = f"The proxy reads it when it starts: `export {answer}=...` before"
            raise AnswerRefused("the variable is not set", answer, todo, usable=answer)
        return Checked(answer)


class _JudgeModel(_OfJudge):
    id = "judge_model"
    title = "Model of the judge"
    free = "its name; - takes the first one that the server lists"
    optional = True

    def check(self, draft: Draft, answer: str) -> Checked:
        """Ask the judge's server for its models, as `doctor` does."""
        if answer.isdigit():
            raise AnswerRefused(f"`{answer}` is a number, not a model", todo="Give its name, or -")
        key = draft.answer("judge_key_env")
        if key and key not in os.environ:
            return Checked(answer, (f"not checked: {key} is not set",))
        if not draft.live:
            return Checked(answer)
        file = draft.judge_file
        model = reward_files.parse(_judge_text(draft, {"judge_model": answer}), file)
        part = next(part for part in model.parts if part.kind == JUDGE)
        judge = reward_files.make(part, model, file.parent)
        assert isinstance(judge, Judge)
        return seen(asyncio.run(check_judge(judge)), answer, usable=answer)


def _judge_value(draft: Draft, name: str) -> str:
    """Return a setting of the judge in the file that the setup wrote; empty without one."""
    if not draft.judge_file.is_file():
        return ""
    part = reward_files.load(draft.judge_file).named(PART)
    return str(part.settings.get(name) or "") if part is not None else ""


def _judge_text(draft: Draft, more: Mapping[str, str]) -> str:
    """Return the rewards file with the judge of the answers; other lines stay as they are."""
    file = draft.judge_file
    text = file.read_text(encoding="utf-8") if file.is_file() else _JUDGE_TEXT
    for name in ("url", "key_env", "model"):
        answer = {**draft.answers, **more}.get(f"judge_{name}", "")
        if answer != _judge_value(draft, name):
            text = edit.put(text, ("parts", PART, name), json.dumps(answer or None))
    return text


def _reward_files(draft: Draft) -> dict[Path, str]:
    """Return the files of the judge or of the hooks that are not there yet or change."""
    if draft.answer("rewards") == JUDGE:
        return {draft.judge_file: _judge_text(draft, {})}
    if draft.answer("rewards") == HOOKS and not _has_hooks(draft):
        text = known("passive")[HOOK_FILE].read_text(encoding="utf-8")
        return {draft.hooks_folder / HOOK_FILE: text}
    return {}


# --- engine ------------------------------------------------------------------------------------

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


class _EngineQuestion(Question):
    id = "engine"
    title = "What trains the policy?"
    free = "http://HOST:PORT of an AgentJet server"
    renews = ("model",)

    def choices(self, draft: Draft) -> Sequence[Choice]:
        gpu = "found" if shutil.which("nvidia-smi") else "not found"
        return [
            Choice(LAPTOP, "the embedded engine", "a small model on this CPU"),
            Choice(GPU, "this machine's GPU", f"{gpu}; see docs/guide/own-gpu.md"),
        ]

    def present(self, draft: Draft) -> str:
        own = draft.settings
        if own.upstream.url or isinstance(own.swarm_url, dict):
            return OTHER
        return LAPTOP if own.swarm_url == "embedded" else server_root(own.swarm_url)

    def check(self, draft: Draft, answer: str) -> Checked:
        """Check an engine; a URL is asked now, as `doctor` does."""
        if answer in (LAPTOP, "embedded"):
            return Checked(LAPTOP)
        if answer == OTHER == self.present(draft):
            return Checked(answer)
        if answer == GPU:
            raise AnswerRefused(_GPU_ELSEWHERE, todo=_TODO_GPU)
        url = server_root(answer)
        if web_address(url) is None:
            meant = did_you_mean(answer, (LAPTOP, GPU))
            todo = f"{meant} Give http://HOST:PORT, or `laptop`".strip()
            raise AnswerRefused(f"`{one_line(answer, 80)}` is not the URL of a server", todo=todo)
        parse_servers([url])
        if not draft.live:
            return Checked(url)
        draft.servers.pop(url, None)
        checked = seen(asyncio.run(check_server(draft.home, SERVER, url)), url, usable=url)
        if asyncio.run(answers_as_embedded(SERVER, url)):
            draft.servers[url] = "embedded"
            return Checked(url, (*checked.notes, "an embedded engine: it has a model of its own"))
        draft.servers[url] = "offline" if " is OFFLINE" in checked.notes[0] else "running"
        return checked

    def settings(self, draft: Draft, answer: str) -> Mapping[str, Any]:
        """Return the settings of an engine; observe mode ends."""
        if answer == OTHER:
            return {}
        upstream = {"upstream.url": ""} if draft.settings.upstream.url else {}
        return {"swarm_url": "embedded" if answer == LAPTOP else answer, **upstream}


class _OfJob(Question):
    """A field of the job that is saved for an AgentJet server."""

    optional = True

    def asked(self, draft: Draft) -> bool:
        url = draft.answer("engine")
        return web_address(url) is not None and draft.servers.get(url) != "embedded"

    def present(self, draft: Draft) -> str:
        return values(_saved_job(draft))[self.id]


class _Model(_OfJob):
    id = "model"
    title = "Model that the server trains"
    free = "a folder or hub name on the server"

    def choices(self, draft: Draft) -> Sequence[Choice]:
        name = os.environ.get(MODEL_VARIABLE) or MODEL
        return [Choice(name, name)]

    def check(self, draft: Draft, answer: str) -> Checked:
        """Check the model and show the job that the server gets."""
        if answer.isdigit():
            todo = "Give a folder or hub name on the server"
            raise AnswerRefused(f"`{answer}` is a number, not a model", todo=todo)
        text = masked(for_server(with_values(_saved_job(draft), {"model": answer})).text)
        if draft.servers.get(draft.answer("engine")) == "running":
            return Checked(answer, ("the server runs and keeps its job until it is stopped",))
        lines = (f"  {line}" for line in text.splitlines())
        return Checked(answer, ("the job that `ajet-console engine start` sends:", *lines))


class _Gpus(_OfJob):
    id = "gpus"
    title = "GPUs of each node of the server"
    free = "a number; 8 are assumed for an empty answer"

    def check(self, draft: Draft, answer: str) -> Checked:
        fields = {"model": draft.answer("model"), "gpus": answer}
        for_server(with_values(_saved_job(draft), fields))
        return Checked(answer)


def recognize(draft: Draft) -> None:
    """Ask the server of the settings whether it is an embedded engine, which needs no model."""
    url = BY_ID["engine"].present(draft)
    if draft.live and web_address(url) and asyncio.run(answers_as_embedded(SERVER, url)):
        draft.servers[url] = "embedded"


def _saved_job(draft: Draft) -> str:
    """Return the job that is saved for the server; without one, the server's default job."""
    saved = JobStore.beside(draft.home.journal).load(SERVER)
    return saved[0] if saved is not None else dump_job(server_job())


def _engine_files(draft: Draft) -> dict[Path, str]:
    """Return the job to save for the server."""
    model = draft.answer("model")
    if not (model and BY_ID["model"].asked(draft)):
        return {}
    file = JobStore.beside(draft.home.journal).path(SERVER)
    fields = {"model": model, "gpus": draft.answer("gpus")}
    return {file: with_values(_saved_job(draft), fields)}


# --- all questions -----------------------------------------------------------------------------


class _Rating(Question):
    id = "rating"
    title = "Do you rate answers yourself?"

    def choices(self, draft: Draft) -> Sequence[Choice]:
        return [
            Choice("off", "off", "the rewards decide"),
            Choice("answer_first", "answer_first", "users are answered at once, you vote later"),
            Choice("hold", "hold", "users wait until you have voted"),
        ]

    def present(self, draft: Draft) -> str:
        return draft.settings.rating.mode

    def settings(self, draft: Draft, answer: str) -> Mapping[str, Any]:
        return {"rating.mode": answer}


QUESTIONS: Sequence[Question] = (
    _Application(),
    _Dataset(),
    _Rewards(),
    _JudgeUrl(),
    _JudgeKey(),
    _JudgeModel(),
    _EngineQuestion(),
    _Model(),
    _Gpus(),
    _Rating(),
)
"""All questions; some are only asked after certain answers."""

BY_ID = {question.id: question for question in QUESTIONS}


def asked(draft: Draft) -> list[Question]:
    """Return the questions that the answers raise, in order."""
    return [question for question in QUESTIONS if question.asked(draft)]


def missing(draft: Draft) -> list[Question]:
    """Return the questions of `asked` that have no answer."""
    return [question for question in asked(draft) if question.id not in draft.answers]


def take(draft: Draft, question: Question, answer: str) -> None:
    """Store an accepted answer; those that depend on another one are asked again or dropped."""
    before = draft.answers.get(question.id, draft.earlier.get(question.id))
    if before not in (None, answer):
        for name in question.renews:
            draft.open_again(name)
    if draft.configured and answer == question.present(draft):
        draft.changed.discard(question.id)
    else:
        draft.changed.add(question.id)
    draft.answers[question.id] = answer
    for name in draft.answers.keys() - {other.id for other in asked(draft)}:
        del draft.answers[name]
        draft.changed.discard(name)


def take_present(draft: Draft) -> None:
    """Take the answers that the home has now; those without one are left out."""
    for question in QUESTIONS if draft.configured else ():
        if question.asked(draft) and ((now := question.present(draft)) or question.optional):
            draft.answers[question.id] = now


def files(draft: Draft) -> dict[Path, str]:
    """Return the files of judge, hooks and job that the answers need, with their new texts."""
    return _reward_files(draft) | _engine_files(draft)
