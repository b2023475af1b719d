"""The questions on a terminal: numbers, Enter for the answer in brackets, `b` back."""

import shutil
import textwrap
from collections.abc import Collection, Sequence

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, plain
from console.cli.output import progress, say
from console.cli.setup.question import AnswerRefused, Checked, Choice, Draft, Question
from console.cli.setup.questions import asked, missing, take

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


def ask_missing(draft: Draft, besides: Collection[str] = (), *, leave: bool = False) -> None:
    """Ask each question that has no answer yet, in order; `b` goes back to the one before.

    Args:
        draft: The answers.
        besides: Ids of questions that stay without an answer.
        leave: `b` at the first question keeps its earlier answer, and asks no more.
    """
    done: list[Question] = []
    while left := [question for question in missing(draft) if question.id not in besides]:
        question = left[0]
        number = f"{1 + len(done)}/{len(done) + len(left)}"
        if _ask(draft, question, number, back=leave or bool(done)):
            done = [*(question for question in done if question.asked(draft)), question]
        elif done:
            draft.open_again(done.pop().id)
        else:
            if question.id in draft.earlier:
                draft.answers[question.id] = draft.earlier[question.id]
            return


def review(draft: Draft) -> str:
    """Show the answers and let the operator change single ones.

    Returns:
        `write` for Enter, or `try` to send a request with the present answers.
    """
    while True:
        listed = asked(draft)
        say("\nYour answers" if draft.changed else f"\nAnswers in {draft.home.config}")
        width = max(len(question.id) for question in listed)
        for number, question in enumerate(listed, 1):
            mark = "*" if question.id in draft.changed else " "
            answer = one_line(draft.answer(question.id) or "–", 100)
            say(f" {mark}{number:2}  {question.id:{width}}  {answer}")
        keys = "Enter writes" if draft.changed else "t sends a test request, Enter leaves"
        text = read_line(f"A number changes an answer, {keys} them [Enter]: ")
        if not text or (text == "t" and not draft.changed):
            return "try" if text else "write"
        if text.isdecimal() and 1 <= int(text) <= len(listed):
            question = listed[int(text) - 1]
            besides = {other.id for other in missing(draft)} - {question.id}
            draft.open_again(question.id)
            ask_missing(draft, besides, leave=True)
        else:
            say(f"  `{one_line(text, 40)}` is not one of them: 1 to {len(listed)}, or Enter")


def _ask(draft: Draft, question: Question, number: str, *, back: bool) -> bool:
    """Ask one question until the answer is accepted; False for `b`."""
    choices = question.choices(draft)
    _show(question, choices, number)
    default, usable = question.default(draft), None
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
                    checked = question.checked(draft, text)
        except AjetError as error:
            say_notes(f"! {one_line(str(error), 400)}")
            usable = getattr(error, "usable", None)
            if usable is not None:
                say("  Enter uses it nevertheless; or give another answer")
                default = usable
        else:
            say_notes(*checked.notes)
            take(draft, question, checked.answer)
            return True


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
