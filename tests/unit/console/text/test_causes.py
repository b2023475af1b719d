"""Causes in words."""

import pytest

from ajet_swarm.api.outcomes import RefusedKind
from ajet_swarm.protocol.errors import ChatErrorKind
from ajet_swarm.protocol.schemas import EngineState
from console.text.causes import candidate_words, cause_words, held_down
from core.events import Part


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


def test_a_late_candidate_is_told_once() -> None:
    late = "no answer 10 s after the other 3, the batch waits for it"
    assert candidate_words(f"timed_out: {late}") == late
    assert cause_words("no candidate gave an answer: upstream; not retried: retries are off") == (
        "no candidate gave an answer: the engine failed; not retried: retries are off"
    )


def test_what_is_not_known_stays() -> None:
    assert cause_words("2 of 4 rewards taken, 1 unknown, 1 expired") == (
        "2 of 4 rewards taken, 1 not confirmed, 1 expired"
    )
    assert cause_words("aborted by the operator: no") == "aborted by the operator: no"
    assert cause_words("") == ""
    assert candidate_words("gone") == "gone"


@pytest.mark.parametrize(
    ("parts", "reward", "said"),
    [
        ((Part("a", 0.2, gate=True, reason="declines"), Part("b", 1.0)), 0.2, "a: declines"),
        ((Part("a", 0.5, gate=True), Part("c", 0.0, gate=True, reason="empty")), 0.0, "c: empty"),
        ((Part("a", 1.0, gate=True, reason="stop"), Part("b", 0.4, reason="r")), 0.4, ""),
        ((Part("b", 0.0, 0.3, reason="x"), Part("c", 0.0, 0.7, reason="ends with 8")), 0.0,
         "c: ends with 8"),
        ((Part("n", 3.0, 0.0), Part("b", 0.0)), 0.0, "b"),
        ((Part("a\x1b[1m", 0.0, gate=True, reason="x\ny"),), 0.0, "a␛[1m: x y"),
        ((), 0.0, ""),
    ],
)  # fmt: skip
def test_what_holds_a_reward_down(parts: tuple[Part, ...], reward: float, said: str) -> None:
    assert held_down(parts, reward) == said
