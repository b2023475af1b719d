"""The questions on a terminal: numbers, Enter for the answer in brackets, `b` back."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, plain
from console.cli.common import say
from console.cli.setup.catalog import BY_ID, asked
from console.cli.setup.progress import progress
from console.cli.setup.question import (
    AnswerRefused,
    Checked,
    Choice,
    Question,
    Situation,
    checked_answer,
)

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

BACK = "b"
KEYS = "Enter takes the answer in [brackets], b goes back, Ctrl+C writes nothing."


def read_line(prompt: str) -> str:
    """Return the line that the operator enters, without spaces around it.

    Raises:
        KeyboardInterrupt: the input ended.
    """
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt
    return line.strip()


def confirmed(prompt: str, default: bool) -> bool:
    """Ask a question with the answers yes and no."""
    text = read_line(f"{prompt} [{'Y/n' if default else 'y/N'}] ").lower()
    return text in ("y", "yes") if text else default


class Dialog:
    """Asks the questions and changes `answers`.

    Args:
        situation: What the questions are asked about.
        answers: The present answers.
        run: Runs a coroutine to its end.
    """

    def __init__(self, situation: Situation, answers: dict[str, str], run: Run[Any]) -> None:
        self.situation = situation
        self.answers = answers
        self.changed: set[str] = set()
        self._run = run
        self._earlier: dict[str, str] = {}
        """Answers to questions that are asked again: their default."""

    def ask_missing(self) -> None:
        """Ask each question that has no answer yet, in order; `b` goes back."""
        say(KEYS)
        done: list[Question] = []
        while missing := self._missing():
            question = missing[0]
            number = f"{1 + len(done)}/{len(done) + len(missing)}"
            if self._ask(question, number, back=bool(done)):
                done = [one for one in done if one.asked(self.situation, self.answers)] + [question]
            else:
                name = done.pop().id
                self._earlier[name] = self.answers.pop(name, "")

    def _missing(self) -> list[Question]:
        questions = asked(self.situation, self.answers)
        return [one for one in questions if one.id not in self.answers]

    def review(self) -> str:
        """Show the answers and let the operator change single ones.

        Returns:
            `write` for Enter, or `try` to send a request with the present answers.
        """
        while True:
            listed = asked(self.situation, self.answers)
            say("\nYour answers" if self.changed else f"\nAnswers in {self.situation.home.config}")
            width = max(len(one.id) for one in listed)
            for number, one in enumerate(listed, 1):
                mark = "*" if one.id in self.changed else " "
                answer = one_line(self.answers.get(one.id, "") or "–", 100)
                say(f" {mark}{number:2}  {one.id:{width}}  {answer}")
            enter = "Enter writes them" if self.changed else "Enter leaves them"
            text = read_line(
                f"A number changes an answer, t sends a test request, {enter} [Enter]: "
                if not self.changed
                else f"A number changes an answer, {enter} [Enter]: "
            )
            if not text:
                return "write"
            if text == "t" and not self.changed:
                return "try"
            if text.isdigit() and 1 <= int(text) <= len(listed):
                self._change(listed[int(text) - 1])
            else:
                say(f"  `{one_line(text, 40)}` is not one of them: 1 to {len(listed)}, or Enter")

    def _change(self, question: Question) -> None:
        """Ask one question again, and those that its answer raises or renews."""
        before = {one.id for one in self._missing()}
        if not self._ask(question, "Change", back=True):
            return
        while missing := [one for one in self._missing() if one.id not in before]:
            self._ask(missing[0], "Also", back=False)

    def _ask(self, question: Question, number: str, *, back: bool) -> bool:
        """Ask one question until the answer is accepted; False for `b`."""
        choices = question.choices(self.situation)
        self._show(question, choices, number)
        default = self.answers.get(question.id, self._earlier.get(question.id))
        if default is None:
            default = question.present(self.situation) or question.default(self.situation)
        usable: str | None = None
        while True:
            values = [one.value for one in choices]
            shown = str(values.index(default) + 1) if default in values else default
            text = read_line(f"  answer{f' [{one_line(shown, 80)}]' if shown else ''}: ")
            if text == BACK and back:
                return False
            try:
                text = _chosen(text, choices) if text else default
                if not (text or question.may_be_empty):
                    raise AnswerRefused("this question needs an answer")
                is_agreed = usable is not None and text == usable
                checked = Checked(text) if is_agreed else self._checked(question, text)
            except AjetError as error:
                _say_wrapped(f"! {one_line(str(error), 400)}", 2)
                usable = error.usable if isinstance(error, AnswerRefused) else None
                if usable is not None:
                    say("  Enter uses it nevertheless; or give another answer")
                    default = usable
            else:
                self._replace(question, checked)
                return True

    def _replace(self, question: Question, checked: Checked) -> None:
        """Store an answer; another one than before makes its dependent questions open again."""
        if self.answers.get(question.id) not in (None, checked.answer):
            for name in question.renews:
                if name in self.answers:
                    self._earlier[name] = self.answers.pop(name)
        say_notes(checked.notes)
        self.take(question, checked)

    def _checked(self, question: Question, text: str) -> Checked:
        async def check() -> Checked:
            async with progress("checking"):
                return await checked_answer(question, self.situation, self.answers, text)

        checked: Checked = self._run(check())
        return checked

    def take(self, question: Question, checked: Checked) -> None:
        """Store an accepted answer; answers that it makes needless are dropped."""
        if checked.answer != question.present(self.situation):
            self.changed.add(question.id)
        elif self.situation.configured:
            self.changed.discard(question.id)
        else:
            self.changed.add(question.id)
        self.answers[question.id] = checked.answer
        for one in list(self.answers):
            if one in BY_ID and not BY_ID[one].asked(self.situation, self.answers):
                del self.answers[one]
                self.changed.discard(one)

    @staticmethod
    def _show(question: Question, choices: Sequence[Choice], number: str) -> None:
        say(f"\n{number}  {question.title}")
        width = min(40, max((len(one.title) for one in choices), default=0))
        for place, one in enumerate(choices, 1):
            head = f"  {place:2}  {one_line(one.title, 40):{width}}  "
            _say_wrapped(one.note, len(head), head)
        if question.free:
            _say_wrapped(f"{'or ' if choices else ''}{question.free}", 6)


def _chosen(text: str, choices: Sequence[Choice]) -> str:
    """Return the answer that the operator means by a line.

    Raises:
        AnswerRefused: the line is `b`, or a number without an answer.
    """
    if text == BACK:
        raise AnswerRefused("there is no question to go back to")
    if not (text.isdigit() and choices):
        return text
    if not 1 <= int(text) <= len(choices):
        raise AnswerRefused(f"there is no answer {one_line(text, 20)}", "", f"1 to {len(choices)}")
    return choices[int(text) - 1].value


def say_notes(notes: Sequence[str]) -> None:
    """Write what a check saw."""
    for note in notes:
        _say_wrapped(note, 2 + len(note) - len(note.lstrip()))


def _say_wrapped(text: str, indent: int, head: str = "") -> None:
    """Write a text in lines of the terminal's width, indented below `head`."""
    width = max(40, shutil.get_terminal_size().columns - 1)
    lines = textwrap.wrap(plain(text).strip(), max(20, width - indent)) or [""]
    for place, line in enumerate(lines):
        space = head if head and not place else " " * indent
        say(f"{space}{line}".rstrip())
