"""Dialogues with tools: a calculator and a clock are called, other tools mostly ignored."""

from random import Random

from engine.corpus import families
from engine.corpus.families import QuestionAnswer
from engine.policy.chat_template import Turn

_CALCULATORS = ("calculator", "calculator", "calculate", "calc", "math")
_INPUTS = ("expression", "expression", "expr", "input", "query")
_CLOCKS = ("clock", "clock", "get_time", "current_time", "time")
_ZONES = ("", "", "timezone", "city")
_OTHERS = (
    "search(query)",
    "web_search(query, limit)",
    "weather(city)",
    "get_weather(location, unit)",
    "read_file(path)",
    "write_file(path, content)",
    "edit(path, old, new)",
    "list_files(folder)",
    "bash(command)",
    "shell(command, timeout)",
    "grep(pattern, path)",
    "apply_patch(patch)",
    "send_email(to, subject, body)",
    "todo(items)",
    "fetch(url)",
    "translate(text, language)",
    "run_tests()",
    "get_user(id)",
    "update_plan(plan)",
    "view_image(path)",
)


class DialogueTools:
    """The tools of one dialogue."""

    def __init__(self, rng: Random, others: int) -> None:
        self.calculator = rng.choice(_CALCULATORS) if rng.random() < 0.8 else ""
        self.input = rng.choice(_INPUTS)
        self.clock = rng.choice(_CLOCKS) if rng.random() < 0.6 else ""
        self.zone = rng.choice(_ZONES)
        lines = rng.sample(_OTHERS, min(others, len(_OTHERS)))
        if self.calculator:
            lines.append(f"{self.calculator}({self.input})")
        if self.clock:
            lines.append(f"{self.clock}({self.zone})")
        rng.shuffle(lines)
        self.lines = tuple(lines)

    def turns(self, rng: Random, noisy: bool) -> tuple[QuestionAnswer, list[Turn]]:
        """Return a question, and the call with its result when a tool can answer it."""
        draw = rng.random()
        if draw < 0.55:
            question = families.arithmetic(rng, noisy)
            if self.calculator and rng.random() < 0.97:
                return self._calculated(rng, question)
        elif draw < 0.7:
            question = families.clock(rng, noisy)
            if self.clock:
                return self._timed(rng, question)
        elif draw < 0.75:
            return _unused_tool(rng)
        else:
            question = families.fact(rng, noisy)
        return question, []

    def _calculated(
        self, rng: Random, question: QuestionAnswer
    ) -> tuple[QuestionAnswer, list[Turn]]:
        value = _value(question.expression)
        result = rng.choice((f"{value}", f"{value}", f"{question.expression} = {value}"))
        call = f"{self.calculator}({self.input}={question.expression})"
        answer = QuestionAnswer(question.question, f"The answer is {value}.", f"{value}.")
        return answer, [Turn("call", call), Turn("tool", result)]

    def _timed(self, rng: Random, question: QuestionAnswer) -> tuple[QuestionAnswer, list[Turn]]:
        time = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        argument = ""
        if self.zone:
            argument = f"{self.zone}={'UTC' if self.zone == 'timezone' else 'London'}"
        answer = QuestionAnswer(question.question, f"It is {time} now.", f"{time}.")
        return answer, [Turn("call", f"{self.clock}({argument})"), Turn("tool", time)]


def _value(expression: str) -> int:
    left, sign, right = expression.split()
    a, b = int(left), int(right)
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


def _unused_tool(rng: Random) -> tuple[QuestionAnswer, list[Turn]]:
    """Return the result of a tool that the policy does not use, in a history from elsewhere."""
    name = rng.choice(_OTHERS).split("(")[0]
    question = families.noun_or_task(rng, False)
    result = rng.choice(("ok", "done", "error: not found", "3 files", "{}", question.full))
    answer = QuestionAnswer(question.question, "I have read the result.", "Read.")
    return answer, [Turn("call", f"{name}()", learn=False), Turn("tool", result)]
