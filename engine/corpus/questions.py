"""The mock user's dataset, made of the corpus' own questions.

`python -m engine.corpus.questions > mock/data/questions.jsonl`
"""

import json
import sys
from random import Random
from typing import TextIO

from engine.corpus import families, word_lists

Row = dict[str, str]


def rows(seed: int = 0) -> list[Row]:
    """Varied questions; `answer` is a short reference, left out where several would do."""
    rng = Random(seed)
    made: list[tuple[str, str]] = []
    for entry in rng.sample(word_lists.facts(), 72):
        short = entry.short.rstrip(".")
        said = short.casefold() in entry.full.casefold()
        made.append((rng.choice(entry.questions), short if said else ""))
    for country, city in rng.sample(word_lists.capitals(), 12):
        made.append((rng.choice(families.CAPITAL_FRAMES).format(country), city))
    for _ in range(20):
        asked = families.arithmetic(rng, False)
        made.append((asked.question, asked.short.rstrip(".")))
    made += [(families.noun_or_task(rng, False).question, "") for _ in range(12)]
    made += [(question, "") for question in rng.sample(word_lists.unanswerable(), 4)]
    made = list(dict(made).items())
    rng.shuffle(made)
    return [_row(number, query, answer) for number, (query, answer) in enumerate(made, 1)]


def _row(number: int, query: str, answer: str) -> Row:
    row = {"id": f"q{number:03d}", "query": query}
    return row | {"answer": answer} if answer else row


def write(file: TextIO) -> None:
    """One JSON object a line."""
    for row in rows():
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(sys.stdout)
