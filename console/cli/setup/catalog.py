"""The questions of the setup, in their order."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import known_names, one_line
from console.cli.setup import rewards, servers
from console.cli.setup.question import (
    AnswerRefused,
    Answers,
    Checked,
    Choice,
    Question,
    Situation,
)
from console.clients.catalog import CLIENTS
from console.clients.installed import installed
from console.models.datasets import SHIPPED, datasets, find_dataset

NONE = "none"
MOST_FILES = 4
"""Datasets in the folders that are offered."""
_PLACES = {"here": "in this folder", "home": "in the home"}


def _nothing(situation: Situation, answer: str) -> Mapping[str, Any]:
    return {}


def one_of(
    choices: Callable[[Situation], Sequence[Choice]],
) -> Callable[[Situation, Answers, str], Awaitable[Checked]]:
    """Return a check that accepts the values of the choices."""

    async def check(situation: Situation, answers: Answers, answer: str) -> Checked:
        known = [one.value for one in choices(situation)]
        if answer not in known:
            raise AnswerRefused(
                f"`{one_line(answer, 60)}` is not an answer", todo=known_names(answer, known)
            )
        return Checked(answer)

    return check


# --- application -----------------------------------------------------------------------------


def _applications(situation: Situation) -> list[Choice]:
    local = [Choice(one.name, one.title, "found on this machine") for one in installed()]
    names = {one.value for one in local}
    usual = [one for one in CLIENTS if one.name in ("openai", "curl") and one.name not in names]
    return [*local[:5], *(Choice(one.name, one.title) for one in usual)]


async def _check_application(situation: Situation, answers: Answers, answer: str) -> Checked:
    names = [one.name for one in CLIENTS]
    if answer not in names:
        raise AnswerRefused(
            f"no client is called `{one_line(answer, 60)}`", todo=known_names(answer, names)
        )
    return Checked(answer)


# --- dataset ---------------------------------------------------------------------------------


def _datasets(situation: Situation) -> list[Choice]:
    files = [one for one in datasets(situation.home.root, situation.here) if one.path]
    return [
        Choice(SHIPPED, "the questions that come with the program"),
        *(Choice(one.path, one.name, _PLACES[one.where]) for one in files[:MOST_FILES]),
        Choice(NONE, "none", "only your application asks"),
    ]


async def _check_dataset(situation: Situation, answers: Answers, answer: str) -> Checked:
    if answer in (NONE, SHIPPED):
        return Checked(answer)
    try:
        path, note = await asyncio.to_thread(_read_dataset, situation, answer)
    except AjetError as error:
        raise AnswerRefused(error.what, error.where, error.todo) from error
    return Checked(path, (note,))


def _read_dataset(situation: Situation, answer: str) -> tuple[str, str]:
    """Return the path of a dataset and what is in it."""
    from mock.dataset import Dataset, Row

    path = find_dataset(situation.home, answer).absolute()
    with Dataset.open(path) as dataset:
        rows = (dataset.row(at) for at in range(dataset.row_count))
        first = next((one for one in rows if isinstance(one, Row)), None)
        size = f"{dataset.row_count}{'' if dataset.whole else ' or more'} rows"
    return str(path), f"{size}; the first one: {one_line(first.query if first else '', 60)}"


def first_query(situation: Situation, answer: str) -> str:
    """Return the first question of a dataset; empty when it has none. Reads the file."""
    from mock.dataset import Dataset, Row

    if answer == NONE:
        return ""
    with Dataset.open(find_dataset(situation.home, answer)) as dataset:
        for position in range(dataset.row_count):
            row = dataset.row(position)
            if isinstance(row, Row) and row.query:
                return row.query
    return ""


# --- rating ----------------------------------------------------------------------------------

_MODES = {
    "off": "the rewards decide",
    "answer_first": "users are answered at once, you vote later",
    "hold": "users wait until you have voted",
}


def _modes(situation: Situation) -> list[Choice]:
    return [Choice(mode, mode, note) for mode, note in _MODES.items()]


def _dataset_comment(answer: str) -> str:
    if answer == NONE:
        return "the mock user is not used (empty: the shipped questions)"
    return "the questions that the mock user asks"


QUESTIONS: Sequence[Question] = (
    Question(
        "application",
        "Which application asks the policy?",
        _applications,
        lambda situation: situation.settings.console.application,
        lambda situation: _applications(situation)[0].value,
        _check_application,
        lambda situation, answer: {"console.application": answer},
        lambda answer: "the client whose settings the setup prints",
        free="another name of `ajet-console clients`",
        optional=True,
    ),
    Question(
        "dataset",
        "Which questions does the mock user ask?",
        _datasets,
        lambda situation: situation.settings.mock.dataset or (NONE if situation.configured else ""),
        lambda situation: SHIPPED,
        _check_dataset,
        lambda situation, answer: {"mock.dataset": "" if answer == NONE else answer},
        _dataset_comment,
        free="a path: JSONL, JSON, CSV, Parquet, Hugging Face folder",
    ),
    Question(
        "rewards",
        "What scores the answers?",
        rewards.choices,
        rewards.present,
        lambda situation: rewards.BUILT_IN,
        rewards.check,
        rewards.settings,
        rewards.comment,
        free="the path of your hooks or rewards file",
    ),
    Question(
        "judge_url",
        "URL of the judge (an OpenAI-compatible API)",
        lambda situation: [],
        lambda situation: rewards.judge_value(situation, "url"),
        lambda situation: "",
        rewards.check_judge_url,
        _nothing,
        lambda answer: "",
        free="https://HOST/v1",
        renews=("judge_key_env", "judge_model"),
        asked=lambda situation, answers: rewards.has_judge(answers),
    ),
    Question(
        "judge_key_env",
        "Environment variable that has its key",
        lambda situation: [],
        lambda situation: rewards.judge_value(situation, "key_env"),
        lambda situation: "",
        rewards.check_judge_key,
        _nothing,
        lambda answer: "",
        free="the name, never the key itself; - when it needs none",
        renews=("judge_model",),
        asked=lambda situation, answers: rewards.has_judge(answers),
        optional=True,
        may_be_empty=True,
    ),
    Question(
        "judge_model",
        "Model of the judge",
        lambda situation: [],
        lambda situation: rewards.judge_value(situation, "model"),
        lambda situation: "",
        rewards.check_judge_model,
        _nothing,
        lambda answer: "",
        free="its name; - takes the first one that the server lists",
        asked=lambda situation, answers: rewards.has_judge(answers),
        optional=True,
        may_be_empty=True,
    ),
    Question(
        "engine",
        "What trains the policy?",
        servers.choices,
        servers.present,
        lambda situation: servers.LAPTOP,
        servers.check,
        servers.settings,
        servers.comment,
        free="http://HOST:PORT of an AgentJet server",
        renews=("model",),
    ),
    Question(
        "model",
        "Model that the server trains",
        lambda situation: [],
        servers.present_model,
        servers.default_model,
        servers.check_model,
        _nothing,
        lambda answer: "",
        free="a folder or hub name on the server",
        asked=servers.needs_model,
        optional=True,
    ),
    Question(
        "rating",
        "Do you rate answers yourself?",
        _modes,
        lambda situation: situation.settings.rating.mode if situation.configured else "",
        lambda situation: "off",
        one_of(_modes),
        lambda situation, answer: {"rating.mode": answer},
        lambda answer: _MODES[answer],
    ),
)
"""All questions; some are only asked after certain answers."""

BY_ID = {one.id: one for one in QUESTIONS}


def asked(situation: Situation, answers: Answers) -> list[Question]:
    """Return the questions that the answers raise, in order."""
    return [one for one in QUESTIONS if one.asked(situation, answers)]


def present_answers(situation: Situation) -> dict[str, str]:
    """Return the answers that the home has now; those without one are left out."""
    answers: dict[str, str] = {}
    for one in QUESTIONS:
        if one.asked(situation, answers):
            answer = one.present(situation)
            if answer or one.may_be_empty:
                answers[one.id] = answer
    return answers


def files_of(situation: Situation, answers: Answers) -> dict[Path, str]:
    """Return the text of each file that the answers need and that is not there yet or changes."""
    return {**rewards.files(situation, answers), **servers.files(situation, answers)}
