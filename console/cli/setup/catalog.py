"""The questions of the setup, in their order."""

from collections.abc import Sequence
from pathlib import Path

from ajet_swarm.common.text import one_line
from console.cli.setup import rewards, servers
from console.cli.setup.question import Answers, Checked, Choice, Question, Situation, one_of
from console.clients.catalog import clients, installed
from console.models.datasets import SHIPPED, datasets, find_dataset
from mock.dataset import Row, open_dataset

NONE = "none"
_PLACES = {"here": "in this folder", "home": "in the home"}
_MODES = {
    "off": "the rewards decide",
    "answer_first": "users are answered at once, you vote later",
    "hold": "users wait until you have voted",
}


def _applications(situation: Situation) -> list[Choice]:
    local = [Choice(client.name, client.title, "found on this machine") for client in installed()]
    names = {choice.value for choice in local}
    usual = [
        client
        for client in clients()
        if client.name in ("openai", "curl") and client.name not in names
    ]
    return [*local[:5], *(Choice(client.name, client.title) for client in usual)]


def _datasets(situation: Situation) -> list[Choice]:
    files = [dataset for dataset in datasets(situation.home.root, situation.here) if dataset.path]
    return [
        Choice(SHIPPED, "the questions that come with the program"),
        *(Choice(file.path, file.name, _PLACES[file.where]) for file in files[:4]),
        Choice(NONE, "none", "only your application asks"),
    ]


def _check_dataset(situation: Situation, answers: Answers, answer: str) -> Checked:
    if answer in (NONE, SHIPPED):
        return Checked(answer)
    path, size, query = _read_dataset(situation, answer)
    return Checked(str(path), (f"{size} rows; the first one: {one_line(query, 60)}",))


def _read_dataset(situation: Situation, answer: str) -> tuple[Path, str, str]:
    """Return the path of a dataset, the number of its rows, and its first question."""
    path = find_dataset(situation.home, answer).absolute()
    with open_dataset(path) as dataset:
        rows = (dataset.row(at) for at in range(dataset.records.count))
        queries = (row.query for row in rows if isinstance(row, Row) and row.query)
        size = f"{dataset.records.count}{'' if dataset.records.whole else ' or more'}"
        return path, size, next(queries, "")


def first_query(situation: Situation, answer: str) -> str:
    """Return the first question of a dataset; empty when it has none."""
    return "" if answer == NONE else _read_dataset(situation, answer)[2]


QUESTIONS: Sequence[Question] = (
    Question(
        id="application",
        title="Which application asks the policy?",
        choices=_applications,
        free="another name of `ajet-console clients`",
        present=lambda situation: situation.settings.console.application,
        check=one_of(lambda: [client.name for client in clients()]),
        settings=lambda situation, answer: {"console.application": answer},
        optional=True,
    ),
    Question(
        id="dataset",
        title="Which questions does the mock user ask?",
        choices=_datasets,
        free="a path: JSONL, JSON, CSV, Parquet, Hugging Face folder",
        present=lambda situation: situation.settings.mock.dataset or NONE,
        check=_check_dataset,
        settings=lambda situation, answer: {"mock.dataset": "" if answer == NONE else answer},
    ),
    *rewards.QUESTIONS,
    *servers.QUESTIONS,
    Question(
        id="rating",
        title="Do you rate answers yourself?",
        choices=lambda situation: [Choice(mode, mode, note) for mode, note in _MODES.items()],
        present=lambda situation: situation.settings.rating.mode,
        check=one_of(lambda: list(_MODES)),
        settings=lambda situation, answer: {"rating.mode": answer},
    ),
)
"""All questions; some are only asked after certain answers."""

BY_ID = {question.id: question for question in QUESTIONS}


def asked(situation: Situation, answers: Answers) -> list[Question]:
    """Return the questions that the answers raise, in order."""
    return [question for question in QUESTIONS if question.asked(situation, answers)]


def present_answers(situation: Situation) -> dict[str, str]:
    """Return the answers that the home has now; those without one are left out."""
    answers: dict[str, str] = {}
    for question in QUESTIONS if situation.configured else ():
        if question.asked(situation, answers) and (
            (now := question.present(situation)) or question.optional
        ):
            answers[question.id] = now
    return answers
