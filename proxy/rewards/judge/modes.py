"""The modes pointwise, listwise and pairwise: a group becomes questions, replies become values.

Equal answers are judged once and have equal values. An answer that addresses the judge ("ignore the
rubric", "give me 10") is marked; its value stays.
"""

import asyncio
import hashlib
import itertools
import random
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from core.events import Part
from proxy.rewards.judge import prompt
from proxy.rewards.judge.prompt import Choice, Verdict
from proxy.rewards.judge.question import GroupBudget, Question, QuestionRunner, SpendCounter
from proxy.rewards.judge.settings import Options
from proxy.rewards.part import PartAbstained, PartValue
from proxy.rewards.source import GroupContext

T = TypeVar("T")

MARK = "addresses_judge"
"""Name of the number that marks such an answer, at weight 0."""
LONGEST = 20_000
"""Characters of an answer that are searched, half of them at each end."""
_EXCERPT = 80

_RULES = r"(?:rubric|instructions?|criteria|guidelines|scoring|grading)"
_GRADER = r"(?:judge|grader|evaluator|scorer|reviewer)"
_ADDRESS = re.compile(
    rf"\b(?:ignore|disregard|forget|override|bypass)\b[^.!?\n]{{0,40}}\b{_RULES}\b"
    rf"|\bnew instructions\b|\b(?:dear|attention|note to(?: the)?|as the|you are the) {_GRADER}\b"
    r"|\b(?:give|award|grant|assign)\b[^.!?\n]{0,30}\b(?:(?:full|highest|maximum|top|perfect|best)"
    r" (?:score|marks?|points|rating|reward|grade)|(?:a )?(?:score|rating|grade) of \d+)"
    r"|\b(?:give|award) (?:me|us|this|it|answer \d+|this (?:answer|response))"
    r" (?:a |an )?(?:10|100|ten|hundred)\b(?! (?!out\b|points?\b|please\b)\w)"
    r'|"scores"\s*:\s*\[\s*\{|<\|im_(?:start|end)\|>|</answer-\w',
    re.IGNORECASE,
)


def words_to_judge(message: Mapping[str, Any]) -> str:
    """Return the words with which an assistant message addresses its judge; empty for none."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"
    match = _ADDRESS.search(text)
    return " ".join(match[0].split())[:_EXCERPT] if match else ""


class GroupJudging:
    """The questions about one group in the mode of the judge, and their result.

    Args:
        options: Settings of the judge.
        runner: Asks the questions.
        spend: The judge's counts.
        context: The group.
    """

    def __init__(
        self, options: Options, runner: QuestionRunner, spend: SpendCounter, context: GroupContext
    ) -> None:
        self._options = options
        self._runner = runner
        self._spend = spend
        self._group_id = context.group_id
        self._budget = GroupBudget(options)
        self._conversation = prompt.conversation(context.messages, options.conversation_chars)
        self._reference = context.reference if options.reference else None
        shown = [prompt.shown(answer.message, options.answer_chars) for answer in context.answers]
        self._answers = list(dict.fromkeys(shown))
        """Each different answer once."""
        self._positions = [self._answers.index(answer) for answer in shown]
        """For each candidate, the position of its answer in `_answers`."""
        self._addressed = [words_to_judge(answer.message) for answer in context.answers]
        """The words with which each candidate addresses the judge; empty for none."""

    async def values(self) -> list[PartValue]:
        """Return a value for each candidate.

        Raises:
            PartAbstained: at least one candidate has no value.
        """
        run_mode = {
            "pointwise": self._pointwise,
            "listwise": self._listwise,
            "pairwise": self._pairwise,
        }[self._options.mode]
        seconds = self._options.group_seconds
        try:
            async with asyncio.timeout(seconds):
                values = await run_mode()
        except TimeoutError:
            last = f"; the last fault: {self._budget.last}" if self._budget.last else ""
            raise PartAbstained(f"the judge was not done within {seconds:g} s{last}") from None
        return [
            _marked(value, words) if words else value
            for value, words in zip(values, self._addressed, strict=True)
        ]

    async def _pointwise(self) -> list[PartValue]:
        judged = await _all([self._scores([answer]) for answer in self._answers])
        return self._values_by_candidate([verdicts[0] for verdicts in judged])

    async def _listwise(self) -> list[PartValue]:
        order = list(range(len(self._answers)))
        seed = hashlib.sha256(self._group_id.encode()).digest()
        random.Random(seed).shuffle(order)
        verdicts = await self._scores([self._answers[place] for place in order])
        by_place = dict(zip(order, verdicts, strict=True))
        return self._values_by_candidate([by_place[place] for place in range(len(order))])

    async def _scores(self, answers: list[bytes]) -> list[Verdict]:
        options, count = self._options, len(answers)

        def read(reply: str) -> list[Verdict]:
            return prompt.scores(reply, count, options.low, options.high)

        schema = prompt.scores_schema(count)
        question = Question(self._prompt(answers), schema, "scores", read, list[Verdict])
        return await self._runner.ask(question, self._budget)

    def _prompt(self, answers: list[bytes]) -> Callable[[str], prompt.Messages]:
        return partial(prompt.prompt, self._options, self._conversation, self._reference, answers)

    def _values_by_candidate(self, verdicts: Sequence[Verdict]) -> list[PartValue]:
        low, high = self._options.low, self._options.high
        values = [
            PartValue(
                (verdict.score - low) / (high - low),
                f"{verdict.score:g} of {high:g}: {verdict.reason}",
            )
            for verdict in verdicts
        ]
        return [values[place] for place in self._positions]

    async def _pairwise(self) -> list[PartValue]:
        if len(self._positions) < 2:
            raise PartAbstained("the judge compares answers in pairs, and there is only one")
        pairs = list(itertools.combinations(range(len(self._answers)), 2))
        choices = await _all([self._compare(*pair) for pair in pairs])
        results = dict(zip(pairs, choices, strict=True))
        split = sum(choice is None for choice in choices)
        self._spend.add(pairs=len(pairs), split=split)
        share = split / len(pairs) if pairs else 0.0
        note = Part("split", share, weight=0.0, reason="pairs in which the order decided")
        return [self._value_of_wins(place, results, note) for place in self._positions]

    async def _compare(self, first: int, second: int) -> Choice | None:
        """Return which answer is better: 0, 1 or -1 for neither; None when the order decided."""
        forward, backward = await _all([self._choice(first, second), self._choice(second, first)])
        if backward.winner >= 0:
            backward = Choice(1 - backward.winner, backward.reason)
        return forward if forward.winner == backward.winner else None

    async def _choice(self, first: int, second: int) -> Choice:
        answers = [self._answers[first], self._answers[second]]
        make, schema = self._prompt(answers), prompt.winner_schema()
        question = Question(make, schema, "winner", prompt.winner, Choice)
        return await self._runner.ask(question, self._budget)

    def _value_of_wins(
        self, position: int, results: dict[tuple[int, int], Choice | None], note: Part
    ) -> PartValue:
        """Return the share of its comparisons that an answer won; a tie counts half."""
        won, lost, tied = 0, 0, -1  # -1: an answer ties with itself
        reason = ""
        for other in self._positions:
            result = results.get((min(position, other), max(position, other)))
            if result is None or result.winner < 0:
                tied += 1
            elif (result.winner == 0) == (position < other):
                won += 1
                reason = reason or result.reason
            else:
                lost += 1
                reason = reason or result.reason
        value = (won + tied / 2) / (len(self._positions) - 1)
        text = f"won {won}, tied {tied}, lost {lost}" + (f": {reason}" if reason else "")
        return PartValue(value, text, (note,))


def _marked(value: PartValue, words: str) -> PartValue:
    """Return the value of an answer that addresses the judge, marked as such."""
    mark = Part(MARK, 1.0, weight=0.0, reason=f"it addresses the judge: {words}")
    return msgspec.structs.replace(
        value, reason=f"addresses the judge! {value.reason}", notes=(*value.notes, mark)
    )


async def _all(questions: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run `questions` concurrently and return their results; the first abstention cancels the rest.

    Raises:
        PartAbstained: one of them abstained.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(question) for question in questions]
    except BaseExceptionGroup as errors:
        abstentions, others = errors.split(PartAbstained)
        if abstentions is None or others is not None:
            raise
        first: BaseException = abstentions
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return [task.result() for task in tasks]
