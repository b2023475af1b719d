"""Prompts and rewards of the learning benchmark; training and evaluation prompts are disjoint."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from engine.corpus import families, word_lists
from engine.interface import Completion

HELD_OUT = 64
"""Number of evaluation prompts of a task."""
_SPLIT = 17
_HOT = re.compile(
    r"\b(wow|love|yes|hooray|exciting|amazing|fantastic|brilliant|awesome|wonderful|great)\b", re.I
)
_LOUD = re.compile(r"!+")


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt and the content of a right answer."""

    text: str
    cores: tuple[str, ...]
    """Texts, one of which a right answer to a fact contains verbatim; the number for a sum."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of one family, split for training and evaluation."""

    training: tuple[Question, ...]
    evaluation: tuple[Question, ...]

    def check(self) -> None:
        """Check that training and evaluation share no question and no source of an answer."""
        training = {question.text.casefold() for question in self.training}
        held = {question.text.casefold() for question in self.evaluation}
        assert len(held) == len(self.evaluation) == HELD_OUT
        assert not training & held


def facts() -> Prompts:
    """Return facts: complete entries with all their phrasings are held out."""
    rng = Random(_SPLIT)
    entries = rng.sample(word_lists.facts(), len(word_lists.facts()))
    held, rest = entries[:HELD_OUT], entries[HELD_OUT:]
    return Prompts(
        tuple(_fact(entry, text) for entry in rest for text in entry.questions),
        tuple(_fact(entry, rng.choice(entry.questions)) for entry in held),
    )


def _fact(entry: word_lists.FactEntry, text: str) -> Question:
    return Question(text, (entry.full[:-1], entry.short[:-1]))


def sums() -> Prompts:
    """Sums: a pair of numbers is held out in every phrasing and, where it may, in both orders."""
    rng = Random(_SPLIT)
    splits: tuple[dict[str, Question], dict[str, Question]] = ({}, {})
    while len(splits[1]) < HELD_OUT or len(splits[0]) < 1000:
        task = families.arithmetic(rng, False)
        left, sign, right = task.expression.split()
        pair = sorted((left, right)) if sign in "+*" else (left, right)
        held = Random(f"{sign}{pair}").random() < 0.25
        if not held or len(splits[1]) < HELD_OUT:
            text = task.question
            splits[held].setdefault(text.casefold(), Question(text, (task.short[:-1],)))
    return Prompts(tuple(splits[0].values()), tuple(splits[1].values()))


def enthusiasm(done: Completion) -> float:
    """Return 0.2 per run of `!` (up to three) and hot word (up to two); 0 when truncated."""
    return liveliness(done.text) if done.finish_reason == "stop" else 0.0


def liveliness(text: str) -> float:
    """Return 0 to 1: 0.2 for each run of `!` (up to three) and each hot word (up to two)."""
    return 0.2 * min(len(_LOUD.findall(text)), 3) + 0.2 * min(len(_HOT.findall(text)), 2)


def exact(question: Question, done: Completion) -> float:
    """Return 1 when the last number of the answer is right."""
    numbers = re.findall(r"\d+", done.text)
    right = bool(numbers) and numbers[-1] == question.cores[0]
    return float(right and done.finish_reason == "stop")


def intelligible(question: Question, done: Completion) -> bool:
    """Return whether the answer contains the fact verbatim and is complete."""
    return done.finish_reason == "stop" and any(core in done.text for core in question.cores)


def best_of(values: Sequence[float]) -> list[float]:
    """Return the rewards of one rating: 1 for the best, 0 for the others and in a tie."""
    if max(values) - min(values) < 1e-9:
        return [0.0] * len(values)
    best = list(values).index(max(values))
    return [float(i == best) for i in range(len(values))]


def shortest(group: Sequence[Completion]) -> list[float]:
    """Return 1 for the shortest complete answer of the group and 0 for the others."""
    sizes = [len(done.text) if done.finish_reason == "stop" else 10_000 for done in group]
    return best_of([-float(size) for size in sizes])
