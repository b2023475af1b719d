"""The corpus: broad, seeded, and right where it must be."""

import json
from pathlib import Path
from random import Random

from engine.corpus import Corpus, families, filler, questions, tones, word_lists
from engine.policy.chat_template import encode_dialogue, parse_call
from engine.tokenizer import Tokenizer

ROOT = Path(__file__).parents[4]


def test_equal_seeds_give_equal_dialogues() -> None:
    first, second = Corpus(5), Corpus(5)
    assert [first.dialogue() for _ in range(50)] == [second.dialogue() for _ in range(50)]
    assert Corpus(6).dialogue() != Corpus(5).dialogue()


def test_no_question_has_two_different_answers() -> None:
    answers: dict[str, str] = {}
    for entry in word_lists.facts():
        assert entry.full.endswith((".", "?"))
        assert entry.short.endswith(".")
        for question in entry.questions:
            assert answers.setdefault(question, entry.full) == entry.full


def _right(question: families.QuestionAnswer) -> bool:
    a, sign, b = question.expression.split()
    value = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign]
    return question.short == f"{value}."


def test_sums_are_right_until_noise_is_asked_for() -> None:
    rng = Random(0)
    assert all(_right(families.arithmetic(rng, False)) for _ in range(400))
    wrong = sum(not _right(families.arithmetic(rng, True)) for _ in range(2000)) / 2000
    assert 0.4 < wrong < 0.5


def test_tones_differ_in_what_they_say() -> None:
    rng = Random(1)
    loud = {tones.ENTHUSIASTIC.phrase(rng, "It is so.", "So.") for _ in range(40)}
    assert all("!" in text and "It is so." not in text for text in loud)
    assert len(loud) > 20
    assert sum(len(tones.TERSE.phrase(rng, "It is so.", "So.")) for _ in range(40)) < 40 * 8


def test_every_call_of_the_corpus_can_be_parsed() -> None:
    corpus, calls = Corpus(7), 0
    for _ in range(600):
        for turn in corpus.dialogue().turns:
            if turn.kind == "call":
                calls += 1
                assert parse_call(turn.text) is not None
    assert calls > 10


def test_long_dialogues_reach_far_and_learn_only_answers() -> None:
    corpus, tokenizer = Corpus(8), Tokenizer.shipped()
    lengths = []
    for _ in range(60):
        dialogue = corpus.long_dialogue(400)
        ids, learn = encode_dialogue(tokenizer, dialogue)
        lengths.append(len(ids))
        assert len(ids) == len(learn)
        assert any(learn)
        assert not learn[0]
    assert max(lengths) > 380
    assert sum(lengths) / len(lengths) > 200


def test_filler_has_the_length_asked_for() -> None:
    assert 80 <= len(filler.text(Random(2), 100)) <= 100
    assert filler.text(Random(2), 0) == ""


def test_the_shipped_questions_are_those_of_the_corpus() -> None:
    text = (ROOT / "mock" / "data" / "questions.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows == questions.rows()
    assert len(rows) >= 80
    assert len({row["query"] for row in rows}) == len(rows) == len({row["id"] for row in rows})
