"""The questions on a terminal: numbers, Enter for the answer in brackets, `b` back."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, plain
from console.cli.output import say
from console.cli.setup.question import AnswerRefused, Checked, Choice, Question, Situation
from console.cli.setup.questions import asked

BACK = "b"
KEYS = "Enter takes the answer in [brackets], b goes back, Ctrl+C writes nothing."


def read_line(prompt: str) -> str:
    """Return the line that the operator enters, without spaces around it.

    Raises:
        KeyboardInterrupt: the input ended.
    """
    try:
        return input(prompt).strip()
    except EOFError:
        raise KeyboardInterrupt from None


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a line on standard error while the block runs; only on a terminal."""
    with Console(stderr=True).status(Text(f"{one_line(text, 60)} …")):
        yield


class Dialog:
    """Asks the questions and changes `answers`.

    Args:
        situation: What the questions are asked about.
        answers: The present answers.
    """

    def __init__(self, situation: Situation, answers: dict[str, str]) -> None:
        self.situation = situation
        self.answers = answers
        self.changed: set[str] = set()
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
                done = [
                    question for question in done if question.asked(self.situation, self.answers)
                ] + [question]
            else:
                self._open_again(done.pop().id)

    def _missing(self) -> list[Question]:
        questions = asked(self.situation, self.answers)
        return [question for question in questions if question.id not in self.answers]

    def _open_again(self, name: str) -> None:
        if name in self.answers:
            self._earlier[name] = self.answers.pop(name)

    def review(self) -> str:
        """Show the answers and let the operator change single ones.

        Returns:
            `write` for Enter, or `try` to send a request with the present answers.
        """
        while True:
            listed = asked(self.situation, self.answers)
            say("\nYour answers" if self.changed else f"\nAnswers in {self.situation.home.config}")
            width = max(len(question.id) for question in listed)
            for number, question in enumerate(listed, 1):
                mark = "*" if question.id in self.changed else " "
                answer = one_line(self.answers.get(question.id, "") or "–", 100)
                say(f" {mark}{number:2}  {question.id:{width}}  {answer}")
            keys = "Enter writes" if self.changed else "t sends a test request, Enter leaves"
            text = read_line(f"A number changes an answer, {keys} them [Enter]: ")
            if not text:
                return "write"
            if text == "t" and not self.changed:
                return "try"
            if text.isdecimal() and 1 <= int(text) <= len(listed):
                self._change(listed[int(text) - 1])
            else:
                say(f"  `{one_line(text, 40)}` is not one of them: 1 to {len(listed)}, or Enter")

    def _change(self, question: Question) -> None:
        """Ask one question again, and those that its answer raises or renews."""
        before = {question.id for question in self._missing()}
        if self._ask(question, "Change", back=True):
            while missing := [
                question for question in self._missing() if question.id not in before
            ]:
                self._ask(missing[0], "Also", back=False)

    def _ask(self, question: Question, number: str, *, back: bool) -> bool:
        """Ask one question until the answer is accepted; False for `b`."""
        choices = question.choices(self.situation)
        _show(question, choices, number)
        default = self.answers.get(question.id, self._earlier.get(question.id))
        if default is None:
            default = question.default(self.situation)
        usable: str | None = None
        while True:
            values = [choice.value for choice in choices]
            shown = str(values.index(default) + 1) if default in values else default
            text = read_line(f"  answer{f' [{one_line(shown, 80)}]' if shown else ''}: ")
            if text == BACK and back:
                return False
            try:
                text = _chosen(text, choices) if text else default
                if not (text or question.optional):
                    raise AnswerRefused("this question needs an answer")
                checked = Checked(text)
                if text != usable:
                    with progress("checking"):
                        checked = question.checked(self.situation, self.answers, text)
            except AjetError as error:
                say_notes(f"! {one_line(str(error), 400)}")
                usable = getattr(error, "usable", None)
                if usable is not None:
                    say("  Enter uses it nevertheless; or give another answer")
                    default = usable
            else:
                say_notes(*checked.notes)
                self.take(question, checked.answer)
                return True

    def take(self, question: Question, answer: str) -> None:
        """Store an accepted answer; those that depend on another one are dropped."""
        if self.answers.get(question.id) not in (None, answer):
            for name in question.renews:
                self._open_again(name)
        if self.situation.configured and answer == question.present(self.situation):
            self.changed.discard(question.id)
        else:
            self.changed.add(question.id)
        self.answers[question.id] = answer
        raised = {question.id for question in asked(self.situation, self.answers)}
        for name in self.answers.keys() - raised:
            del self.answers[name]
            self.changed.discard(name)


def _chosen(text: str, choices: Sequence[Choice]) -> str:
    """Return the answer that the operator means by a line; refuse `b` and other numbers."""
    if text == BACK:
        raise AnswerRefused("there is no question to go back to")
    if not (text.isdecimal() and choices):
        return text
    if not 1 <= int(text) <= len(choices):
        raise AnswerRefused(f"there is no answer {one_line(text, 20)}", "", f"1 to {len(choices)}")
    return choices[int(text) - 1].value


def _show(question: Question, choices: Sequence[Choice], number: str) -> None:
    say(f"\n{number}  {question.title}")
    width = min(40, max((len(choice.title) for choice in choices), default=0))
    for place, choice in enumerate(choices, 1):
        title = f"{one_line(choice.title, 40):{width}}"
        say(f"  {place:2}  {title}  {one_line(choice.note, 200)}".rstrip())
    if question.free:
        say(f"      {'or ' if choices else ''}{question.free}")


def say_notes(*notes: str) -> None:
    """Write what a check saw, in lines of the terminal's width."""
    width = max(40, shutil.get_terminal_size().columns - 1)
    for note in notes:
        space = " " * (2 + len(note) - len(note.lstrip()))
        text = plain(note).strip()
        say(textwrap.fill(text, width, initial_indent=space, subsequent_indent=space))
