"""A question of the setup as data, and the draft of the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.doctor.finding import Finding
from core.runtime.home import Home
from core.settings import Settings, load

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
class Draft:
    """The answers, and what they are about.

    Attributes:
        home: The home; it may not exist yet.
        settings: The settings of `config.yaml`, without environment and flags.
        configured: Whether there is a `config.yaml`.
        here: The working folder.
        live: Whether answers are checked at servers.
        servers: What is known of each server that was asked, by URL.
        answers: Id of a question -> its answer.
        changed: Ids of the questions whose answers are new.
        earlier: Answers to questions that are asked again: their default.
    """

    home: Home
    settings: Settings
    configured: bool
    here: Path
    live: bool = True
    servers: dict[str, Literal["embedded", "offline", "running"]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    earlier: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, home: Home, here: Path, *, live: bool = True) -> Self:
        """Return the draft of a home, without answers."""
        return cls(home, load(home.config, environment={}), home.config.exists(), here, live)

    @property
    def judge_file(self) -> Path:
        """The rewards file that the setup writes for a judge."""
        return self.home.root / "judge.yaml"

    @property
    def hooks_folder(self) -> Path:
        """The folder of hooks that the setup writes."""
        return self.home.root / "hooks"

    def answer(self, name: str) -> str:
        """Return the answer to a question; empty for none."""
        return self.answers.get(name, "")

    def open_again(self, name: str) -> None:
        """Remove an answer, which stays the default of its question."""
        if name in self.answers:
            self.earlier[name] = self.answers.pop(name)


class Question:
    """One question; a subclass has what is its own.

    Attributes:
        id: Its name in `KEY=VALUE`.
        title: The question.
        free: What may be typed besides the choices; empty when nothing may.
        optional: Whether the answer may be left out; `EMPTY` stands for an empty one.
        renews: Ids of questions that are asked again after another answer to this one.
    """

    id: str
    title: str
    free = ""
    optional = False
    renews: tuple[str, ...] = ()

    def choices(self, draft: Draft) -> Sequence[Choice]:
        """Return the answers that are offered."""
        return ()

    def asked(self, draft: Draft) -> bool:
        """Return whether the other answers raise the question."""
        return True

    def present(self, draft: Draft) -> str:
        """Return the answer of a home with a `config.yaml`; empty for none."""
        raise NotImplementedError

    def check(self, draft: Draft, answer: str) -> Checked:
        """Return an answer in the form in which it is stored; by default one of the choices.

        Raises:
            AjetError: it cannot be used.
        """
        values = [choice.value for choice in self.choices(draft)]
        return one_of(values, answer)

    def settings(self, draft: Draft, answer: str) -> Mapping[str, Any]:
        """Return setting -> value that an answer stands for; the first one gets the comment."""
        return {}

    def checked(self, draft: Draft, text: str) -> Checked:
        """Check an answer.

        Raises:
            AjetError: the answer cannot be used.
        """
        if not text.isprintable():
            raise AnswerRefused(f"`{one_line(text, 60)}` has control characters", self.id)
        return self.check(draft, "" if self.optional and text in EMPTY else text)

    def default(self, draft: Draft) -> str:
        """Return the answer of an empty line: the present or earlier one, else the first choice."""
        given = draft.answers.get(self.id, draft.earlier.get(self.id))
        if given is not None:
            return given
        present = self.present(draft) if draft.configured else ""
        return present or next((choice.value for choice in self.choices(draft)), "")

    def comment(self, draft: Draft, answer: str) -> str:
        """Return what an answer means, for the file."""
        for choice in self.choices(draft):
            if choice.value == answer:
                return choice.note if choice.title == answer else choice.title
        return self.title


def one_of(values: Sequence[str], answer: str) -> Checked:
    """Return the answer if it is one of some values.

    Raises:
        AnswerRefused: it is not.
    """
    if answer not in values:
        what = f"`{one_line(answer, 60)}` is not an answer"
        raise AnswerRefused(what, todo=known_names(answer, values))
    return Checked(answer)


def seen(finding: Finding, answer: str, *, usable: str | None = None) -> Checked:
    """Return the answer with what `doctor` says of it.

    Raises:
        AnswerRefused: `doctor` calls it a failure.
    """
    if finding.level == "fail":
        raise AnswerRefused(finding.text, todo=finding.todo, usable=usable)
    return Checked(answer, (finding.text,))
