"""A question of the setup as data: its text, its choices, the check of an answer, its settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.doctor.finding import Finding
from core.runtime.home import Home
from core.settings import Settings, load

Answers = Mapping[str, str]
"""Id of a question -> its answer."""
EMPTY = ("-", "none")
"""What an operator types for an empty answer."""


class Choice(NamedTuple):
    """An answer that is offered."""

    value: str
    title: str
    note: str = ""


class Checked(NamedTuple):
    """An answer that was accepted, in the form in which it is stored, and what the check saw."""

    answer: str
    notes: tuple[str, ...] = ()


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


@dataclass(slots=True)
class Situation:
    """What the questions are asked about.

    Attributes:
        home: The home; it may not exist yet.
        settings: The settings of `config.yaml`, without environment and flags.
        configured: Whether there is a `config.yaml`.
        here: The working folder.
        live: Whether answers are checked at servers.
        servers: What is known of each server that was asked, by URL.
    """

    home: Home
    settings: Settings
    configured: bool
    here: Path
    live: bool = True
    servers: dict[str, Literal["embedded", "offline", "running"]] = field(default_factory=dict)

    @classmethod
    def of(cls, home: Home, here: Path, *, live: bool = True) -> Self:
        """Return the situation of a home."""
        return cls(home, load(home.config, environment={}), home.config.exists(), here, live)

    @property
    def judge_file(self) -> Path:
        """The rewards file that the setup writes for a judge."""
        return self.home.root / "judge.yaml"

    @property
    def hooks_folder(self) -> Path:
        """The folder of hooks that the setup writes."""
        return self.home.root / "hooks"


Check = Callable[[Situation, Answers, str], Checked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question.

    Attributes:
        id: Its name in `KEY=VALUE`.
        title: The question.
        choices: The answers that are offered.
        free: What may be typed besides the choices; empty when nothing may.
        present: The answer of a home with a `config.yaml`; empty for none.
        check: Accepts or refuses an answer.
        settings: Setting -> value that an answer stands for; the first one gets the comment.
        asked: Whether the other answers raise the question.
        optional: Whether the answer may be left out; `EMPTY` stands for an empty one.
        renews: Ids of questions that are asked again after another answer to this one.
    """

    id: str
    title: str
    choices: Callable[[Situation], Sequence[Choice]] = lambda situation: ()
    free: str = ""
    present: Callable[[Situation], str]
    check: Check
    settings: Callable[[Situation, str], Mapping[str, Any]] = lambda situation, answer: {}
    asked: Callable[[Situation, Answers], bool] = lambda situation, answers: True
    optional: bool = False
    renews: tuple[str, ...] = ()

    def checked(self, situation: Situation, answers: Answers, text: str) -> Checked:
        """Check an answer.

        Raises:
            AjetError: the answer cannot be used.
        """
        if not text.isprintable():
            raise AnswerRefused(f"`{one_line(text, 60)}` has control characters", self.id)
        empty = self.optional and text in EMPTY
        return self.check(situation, answers, "" if empty else text)

    def default(self, situation: Situation) -> str:
        """Return the answer of an empty line: the present one, else the first choice."""
        present = self.present(situation) if situation.configured else ""
        return present or next((choice.value for choice in self.choices(situation)), "")

    def comment(self, situation: Situation, answer: str) -> str:
        """Return what an answer means, for the file."""
        chosen = [choice for choice in self.choices(situation) if choice.value == answer]
        return next(
            (option.note if option.title == answer else option.title for option in chosen),
            self.title,
        )


def one_of(values: Callable[[], Sequence[str]]) -> Check:
    """Return a check that accepts these values."""

    def check(situation: Situation, answers: Answers, answer: str) -> Checked:
        if answer not in values():
            what = f"`{one_line(answer, 60)}` is not an answer"
            raise AnswerRefused(what, todo=known_names(answer, values()))
        return Checked(answer)

    return check


def seen(finding: Finding, answer: str, *, usable: str | None = None) -> Checked:
    """Return the answer with what `doctor` says of it.

    Raises:
        AnswerRefused: `doctor` calls it a failure.
    """
    if finding.level == "fail":
        raise AnswerRefused(finding.text, todo=finding.todo, usable=usable)
    return Checked(answer, (finding.text,))
