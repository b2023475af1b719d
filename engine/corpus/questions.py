"""The mock user's dataset, built from the corpus's own questions.

`python -m engine.corpus.questions > mock/data/questions.jsonl`
"""

import json
import sys
from random import Random
from typing import TextIO

from engine.corpus import families, word_lists

Row = dict[str, str]

SUMS = 200
"""Number of additions besides the mixed questions. The policy knows the facts and gets four of ten
additions wrong, so these are what it can learn."""
HELD_OUT = frozenset(
    {(2, 5), (2, 6), (2, 7), (2, 9), (2, 11), (2, 16), (2, 18), (3, 8), (3, 9), (3, 10), (3, 12)}
    | {(3, 16), (4, 8), (5, 15), (6, 13), (6, 14), (8, 11), (8, 20), (9, 18), (9, 19), (10, 10)}
    | {(10, 13), (11, 17), (11, 18), (12, 16), (12, 20), (13, 15), (14, 16), (15, 15), (15, 19)}
    | {(16, 17), (18, 19)}
)
"""Pairs of numbers that the shipped probe set adds, the smaller one first. The additions contain
them in neither order."""


def rows(seed: int = 0) -> list[Row]:
    """Return varied questions; `answer` is a short reference, omitted where several answers are
    right."""
    rng = Random(seed)
    pairs: list[tuple[str, str]] = []
    for entry in rng.sample(word_lists.facts(), 72):
        short = entry.short.rstrip(".")
        is_stated = short.casefold() in entry.full.casefold()
        pairs.append((rng.choice(entry.questions), short if is_stated else ""))
    for country, city in rng.sample(word_lists.capitals(), 12):
        pairs.append((rng.choice(families.CAPITAL_FRAMES).format(country), city))
    for _ in range(20):
        question = families.arithmetic(rng, False)
        pairs.append((question.question, question.short.rstrip(".")))
    pairs += [(families.noun_or_task(rng, False).question, "") for _ in range(12)]
    pairs += [(question, "") for question in rng.sample(word_lists.unanswerable(), 4)]
    pairs = list(dict(pairs).items())
    rng.shuffle(pairs)
    pairs = _mixed(pairs, _additions(rng, {query.casefold() for query, _ in pairs}))
    return [_row(number, query, answer) for number, (query, answer) in enumerate(pairs, 1)]


def _additions(rng: Random, taken: set[str]) -> list[tuple[str, str]]:
    """Return new additions that are not held out, with their results."""
    additions: dict[str, str] = {}
    while len(additions) < SUMS:
        sum_ = families.arithmetic(rng, False)
        first, sign, second = sum_.expression.split()
        pair = (min(int(first), int(second)), max(int(first), int(second)))
        if sign == "+" and pair not in HELD_OUT and sum_.question.casefold() not in taken:
            additions[sum_.question] = sum_.short.rstrip(".")
    return list(additions.items())


def _mixed(pairs: list[tuple[str, str]], additions: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return both lists as one, each in its order and evenly spread."""
    places = [((place + 0.25) / len(pairs), pair) for place, pair in enumerate(pairs)]
    places += [((place + 0.5) / len(additions), pair) for place, pair in enumerate(additions)]
    return [pair for _, pair in sorted(places, key=lambda place: place[0])]


def _row(number: int, query: str, answer: str) -> Row:
    row = {"id": f"q{number:03d}", "query": query}
    return row | {"answer": answer} if answer else row


def write(file: TextIO) -> None:
    """Write one JSON object per line."""
    for row in rows():
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(sys.stdout)
