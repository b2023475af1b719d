"""A question of the setup as data: its text, its choices, the check of an answer, its settings."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from core.runtime.home import Home
from core.settings import Settings

Answers = Mapping[str, str]
"""Id of a question -> its answer."""
EMPTY = ("-", "none")
"""What an operator types for an empty answer."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer that is offered."""

    value: str
    title: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What a swarm server answered."""

    embedded: bool
    """It is an embedded engine, which has a model of its own."""
    offline: bool
    """Its engine is not started."""


@dataclass(slots=True)
class Situation:
    """What the questions are asked about.

    Attributes:
        home: The home; it may not exist yet.
        settings: The settings of `config.yaml`, without environment and flags.
        configured: Whether there is a `config.yaml`.
        here: The working folder.
        live: Whether answers are checked at servers.
        servers: What each server answered that was asked, by URL.
    """

    home: Home
    settings: Settings
    configured: bool
    here: Path
    live: bool = True
    servers: dict[str, "ServerAnswer"] = field(default_factory=dict)

    @property
    def judge_file(self) -> Path:
        """The rewards file that the setup writes for a judge."""
        return self.home.root / "judge.yaml"

    @property
    def hooks_folder(self) -> Path:
        """The folder of hooks that the setup writes."""
        return self.home.root / "hooks"


@dataclass(frozen=True, slots=True)
class Checked:
    """An answer that was accepted."""

    answer: str
    """In the form in which it is stored."""
    notes: tuple[str, ...] = ()
    """What the check saw, a line each."""


class AnswerRefused(UsageError):
    """An answer cannot be used.

    Attributes:
        usable: The answer when only a live check failed, which may pass later; else None.
    """

    def __init__(
        self, what: str, where: str = "", todo: str = "", *, usable: str | None = None
    ) -> None:
        self.usable = usable
        super().__init__(what, where, todo)


def _always(situation: Situation, answers: Answers) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        id: Its name in `KEY=VALUE`.
        title: The question.
        choices: The answers that are offered.
        present: The answer that the home has now; empty for none.
        default: The answer of an empty line at the first setup; empty when there is none.
        check: Accepts or refuses an answer.
        settings: Setting -> value that an answer stands for; the first one gets the comment.
        comment: What an answer means, for the file.
        free: What may be typed besides the choices; empty when nothing may.
        asked: Whether the other answers raise the question.
        optional: Whether a script may leave the answer out.
        may_be_empty: Whether the answer may be empty, which `-` and `none` stand for.
        renews: Ids of questions that are asked again after another answer to this one.
    """

    id: str
    title: str
    choices: Callable[[Situation], Sequence[Choice]]
    present: Callable[[Situation], str]
    default: Callable[[Situation], str]
    check: Callable[[Situation, Answers, str], Awaitable[Checked]]
    settings: Callable[[Situation, str], Mapping[str, Any]]
    comment: Callable[[str], str]
    free: str = ""
    asked: Callable[[Situation, Answers], bool] = _always
    optional: bool = False
    may_be_empty: bool = False
    renews: tuple[str, ...] = ()


async def checked_answer(
    question: Question, situation: Situation, answers: Answers, text: str
) -> Checked:
    """Check an answer, in which `EMPTY` may stand for none.

    Raises:
        AnswerRefused: the answer cannot be used.
    """
    if question.may_be_empty and text in EMPTY:
        text = ""
    if not text.isprintable():
        raise AnswerRefused(f"`{one_line(text, 60)}` has control characters", question.id)
    return await question.check(situation, answers, text)
