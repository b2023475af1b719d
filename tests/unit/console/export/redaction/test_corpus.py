"""Redaction of a corpus that was written without looking at the patterns."""

import json
import re

import pytest

from console.export.redaction import Redactor
from tests.support.export.secrets_corpus import Planted, clean, planted, structured

TEXTS = 1_000


def survives(one: Planted, redacted: str) -> bool:
    """Return whether eight consecutive characters of the secret, or a line of a key, are left."""
    lines = [line for line in one.secret.split("\n") if not line.startswith("-----")]
    pieces = [line[at : at + 8] for line in lines for at in range(max(1, len(line) - 7))]
    return any(piece in redacted for piece in pieces)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 22))]
)
@pytest.mark.slow
def test_no_planted_secret_survives(seed: int) -> None:
    redactor = Redactor()
    left = [
        (one.kind, one.secret, redacted)
        for one in planted(TEXTS, seed)
        if survives(one, redacted := redactor.text(one.text))
    ]
    assert not left, left[:5]


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 22))]
)
@pytest.mark.slow
def test_at_most_one_of_a_hundred_clean_texts_is_altered(seed: int) -> None:
    redactor = Redactor()
    altered = [
        (text, redacted) for text in clean(TEXTS, seed) if (redacted := redactor.text(text)) != text
    ]
    assert len(altered) <= TEXTS // 100, altered[:5]


def test_the_rest_of_a_text_stays() -> None:
    redactor = Redactor()
    for one in planted(100):
        before, _, after = one.text.partition(one.secret)
        redacted = redactor.text(one.text)
        rest = re.split(r"\[redacted: [^\]]*\]", redacted)
        assert before.startswith(rest[0]), redacted
        assert after.endswith(rest[-1].lstrip("!#$?")), redacted


def test_no_secret_of_a_structured_value_survives() -> None:
    redactor = Redactor()
    left = [
        (secret, clean)
        for secret, value in structured(200)
        if secret in json.dumps(clean := redactor.value(value))
    ]
    assert not left, left[:5]
