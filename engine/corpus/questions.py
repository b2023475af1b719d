"""The mock user's dataset, built from the corpus's own questions.

`python -m engine.corpus.questions > mock/data/questions.jsonl`
"""

import json
import sys
from random import Random
from typing import TextIO

from engine.corpus import families, word_lists

Row = dict[str, str]


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
    return [_row(number, query, answer) for number, (query, answer) in enumerate(pairs, 1)]


def _row(number: int, query: str, answer: str) -> Row:
    row = {"id": f"q{number:03d}", "query": query}
    return row | {"answer": answer} if answer else row


def write(file: TextIO) -> None:
    """Write one JSON object per line."""
    for row in rows():
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(sys.stdout)
