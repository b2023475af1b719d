"""Causes in words."""

import pytest

from console.causes import candidate_words, cause_words
from swarm.answers import RefusedKind
from swarm.errors import ChatErrorKind
from swarm.schemas import EngineState


@pytest.mark.parametrize("name", [*RefusedKind, *EngineState])
def test_every_name_of_a_refused_claim_has_words(name: str) -> None:
    told = cause_words(f"no episodes in time: {name}")
    assert told.startswith("no episode in time: ")
    assert told != f"no episode in time: {name}"


@pytest.mark.parametrize("name", list(ChatErrorKind))
def test_every_name_of_a_failed_answer_has_words(name: str) -> None:
    assert candidate_words(f"{name}: said") != f"{name}: said"
    assert candidate_words(f"{name}: said").endswith(": said")
    assert str(name) not in cause_words(f"no candidate gave an answer: {name}").split(", ")


def test_what_is_not_known_stays() -> None:
    assert cause_words("2 of 4 rewards taken, 1 unknown, 1 expired") == (
        "2 of 4 rewards taken, 1 not confirmed, 1 expired"
    )
    assert cause_words("aborted by the operator: no") == "aborted by the operator: no"
    assert cause_words("") == ""
    assert candidate_words("gone") == "gone"
