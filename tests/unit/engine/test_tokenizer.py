"""The byte-level BPE."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import tokenizer as bpe
from engine.tokenizer import FIRST_MERGE, TAGS, VOCAB, Tokenizer

SHIPPED = Tokenizer.shipped()


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_text_round_trips_and_never_becomes_a_tag(text: str) -> None:
    ids = SHIPPED.encode(text)
    assert SHIPPED.decode(ids) == text
    assert not TAGS.intersection(ids)


def test_digits_are_single_tokens() -> None:
    assert [SHIPPED.decode([i]) for i in SHIPPED.encode("1024")] == ["1", "0", "2", "4"]


def test_words_of_the_corpus_are_short_in_tokens() -> None:
    text = "What is the capital of Japan?"
    assert len(SHIPPED.encode(text)) <= len(text) / 2.5


def test_lone_surrogates_become_question_marks() -> None:
    assert SHIPPED.decode(SHIPPED.encode("a\ud800b")) == "a?b"


def test_tags_and_broken_bytes_decode_to_nothing() -> None:
    euro = "€".encode()
    assert SHIPPED.decode([bpe.END, *euro, bpe.CALL, euro[0]]) == "€"


def test_training_is_deterministic_and_takes_the_most_frequent_pair_first() -> None:
    texts = ["abab abab", "ab cd"]
    merges = bpe.train(texts, FIRST_MERGE + 2)
    assert merges == bpe.train(reversed(texts), FIRST_MERGE + 2)
    assert merges[0] == (ord("a"), ord("b"))


def test_merges_fill_the_vocabulary(tmp_path: Path) -> None:
    merges = bpe.load_merges(bpe._DATA / "merges.txt")
    assert FIRST_MERGE + len(merges) == VOCAB
    bpe.save_merges(tmp_path / "m", merges)
    assert bpe.load_merges(tmp_path / "m") == merges
