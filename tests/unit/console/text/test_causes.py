"""Causes in words."""

import msgspec
import pytest

from ajet_swarm.protocol.errors import ChatErrorKind
from ajet_swarm.protocol.schemas import EngineState, RefusedKind
from console.text.causes import candidate_words, cause_words, held_down
from core.events import AnyEvent, GroupClosed, Part
from core.events.causes import CAUSES, AllExpired, GroupCause, NoAnswers, NoEpisodes, NotAllTaken
from core.state import Group
from tests.support.console import group_events, state_of


def closed(params: GroupCause | None, cause: str = "as text") -> Group:
    """A group as in a console's state after the feed's event of its end."""
    (opened, *_) = group_events(1, until="CLAIMING")
    event = GroupClosed(
        group_id="g0001",
        phase="ABORTED",
        cause=cause,
        cause_kind=params.kind if params is not None else "",
        cause_params=params.as_json() if params is not None else {},
    )
    sent = msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent)
    return state_of(opened, sent).groups["g0001"]


@pytest.mark.parametrize("name", [*RefusedKind, *EngineState])
def test_every_name_of_a_refused_claim_has_words(name: str) -> None:
    sentence = cause_words(closed(NoEpisodes(refusal=name)))
    assert sentence.startswith("no episode in time: ")
    assert sentence != f"no episode in time: {name}"


@pytest.mark.parametrize("name", list(ChatErrorKind))
def test_every_name_of_a_failed_answer_has_words(name: str) -> None:
    assert candidate_words(f"{name}: said", name, "said") != f"{name}: said"
    assert candidate_words(f"{name}: said", name, "said").endswith("said")
    sentence = cause_words(closed(NoAnswers(errors=(name,))))
    assert sentence.startswith("no candidate gave an answer: ")
    assert str(name) not in sentence.removeprefix("no candidate gave an answer: ").split(", ")


def test_a_late_candidate_is_reported_once() -> None:
    late = "no answer 10 s after the other 3, the batch waits for it"
    assert candidate_words(f"timed_out: {late}", "timed_out", late) == late
    assert candidate_words("timed_out", "timed_out") == "no answer in time"
    failures = NoAnswers(errors=("upstream", "odd"), unretried=("retries are off",))
    assert cause_words(closed(failures)) == (
        "no candidate gave an answer: the engine failed, odd; not retried: retries are off"
    )


def test_the_outcomes_of_rewards_have_words() -> None:
    some = NotAllTaken(taken=2, of=4, others={"unknown": 1, "expired": 1})
    assert cause_words(closed(some)) == "2 of 4 rewards taken, 1 not confirmed, 1 expired"
    assert cause_words(closed(AllExpired())) == "its time ran out before the rewards were sent"


def test_a_cause_of_an_earlier_version_stays_as_it_is() -> None:
    text = "no episodes in time: OFFLINE"
    assert cause_words(closed(None, text)) == text


@pytest.mark.parametrize("kind", ["of_a_newer_version", *sorted(set(CAUSES) - {AllExpired.kind})])
def test_a_cause_of_a_newer_version_stays_as_it_is(kind: str) -> None:
    params = {"of": "?", "refusal": 5, "errors": 0}
    event = GroupClosed(
        group_id="g", phase="FAILED", cause="as text", cause_kind=kind, cause_params=params
    )
    assert cause_words(event) == "as text"


def test_what_is_not_known_stays() -> None:
    assert cause_words(closed(None, "aborted by the operator: no")) == (
        "aborted by the operator: no"
    )
    assert cause_words(closed(None, "")) == ""
    assert candidate_words("gone") == "gone"
    assert candidate_words("odd: said", "odd", "said") == "odd: said"


@pytest.mark.parametrize(
    ("parts", "reward", "result"),
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
def test_what_holds_a_reward_down(parts: tuple[Part, ...], reward: float, result: str) -> None:
    assert held_down(parts, reward) == result
