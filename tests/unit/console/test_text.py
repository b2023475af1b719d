"""Causes, servers without an answer, values and events in words."""

from typing import Any

import msgspec
import pytest

from ajet_swarm.protocol.errors import ChatErrorKind
from ajet_swarm.protocol.schemas import EngineState, RefusedKind
from console.text.causes import candidate_words, cause_words, held_down
from console.text.format import is_starting, lost_text, lost_word, state_text, state_word
from console.text.values import value_words
from console.views.events import event_line
from core.events import (
    AnyEvent,
    EngineChanged,
    EngineLost,
    Event,
    GroupClosed,
    Part,
    ProxyStarted,
    Rewound,
    TrainingPaused,
    TrainingResumed,
    TrainingRunIdentified,
)
from core.events.causes import CAUSES, AllExpired, GroupCause, NoAnswers, NoEpisodes, NotAllTaken
from core.state import Group, Server, reduce
from core.state.proxy import ANSWERS_WITHIN, STARTS_WITHIN
from tests.support.checks import present
from tests.support.looks import SERVER, baseline, broken_look, look, probe_set, running_look
from tests.support.sample import NOW, group_events, stamp, state_of


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
    assert (cause_words(closed(None, "")), candidate_words("gone")) == ("", "gone")
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


def started(**servers: str) -> ProxyStarted:
    return ProxyStarted(
        client_uuid="c",
        pid=1,
        url="http://p",
        version="1",
        servers=servers,
        embedded=("own",),
        rewards="builtin",
    )


def cold() -> dict[str, Server]:
    """The home's own engine and a remote server, right after the proxy's start."""
    refused = "gone: connection refused"
    return state_of(
        started(own="http://own", far="http://far"),
        EngineLost(server="own", error=refused, seen_at=0.0),
        EngineLost(server="far", error=refused, seen_at=0.0),
    ).servers


@pytest.mark.parametrize(("name", "limit"), [("own", STARTS_WITHIN), ("far", ANSWERS_WITHIN)])
def test_a_starting_server_does_not_count_as_lost_before_its_limit(name: str, limit: float) -> None:
    server = cold()[name]
    for seconds in (0.0, limit - 1):
        now = NOW + seconds
        assert is_starting(server, now)
        assert lost_text(server, now) == "STARTING"
        assert "STARTING" in state_text(server, now).forms[0]
        assert state_text(server, now).color == "$engine-booting"
        assert "GONE" not in state_word(server, now)[0]
    late = NOW + limit + 1
    assert lost_text(server, late) == "NOT REACHED"
    assert state_text(server, late).forms[0] == "× GONE · NOT REACHED"


def test_a_server_that_stops_answering_is_gone_at_once() -> None:
    state = state_of(
        started(own="http://own"),
        EngineChanged(server="own", state="ROLLING", step=3),
        EngineLost(server="own", error="gone: refused", seen_at=NOW),
    )
    server = state.servers["own"]
    assert lost_text(server, NOW + 3) == "GONE 3s (was ROLLING)"
    assert state_word(server, NOW + 36)[0] == "× GONE 36s (was ROLLING)"
    reduce(state, stamp(started(own="http://own"), 9))
    assert lost_text(state.servers["own"], NOW + 1) == "STARTING"


@pytest.mark.parametrize("word", ["gone", "frozen", "silent", "unrecognized"])
def test_a_lost_server_is_shown_by_its_trouble(word: str) -> None:
    lost = EngineLost(server="own", error=f"{word}: no answer", seen_at=NOW)
    state = state_of(started(own="http://own"), EngineChanged(server="own", state="ROLLING"), lost)
    assert lost_word(state.servers["own"]) == word.upper()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "yes"),
        (0.123456, "0.1235"),
        (None, "none"),
        ([1, "a", False], "1 a no"),
        (list(range(8)), "0 1 2 3 4 5 and 2 more"),
        ({"a": 1, "b": None}, "a 1 b none"),
        ("two\nlines", "two lines"),
    ],
)
def test_each_kind_of_value_is_one_line(value: Any, words: str) -> None:
    assert value_words(value) == words


@pytest.mark.parametrize(
    ("event", "text", "level"),
    [
        (probe_set(), "probe set shipped: 4 held-out prompts, never trained on", "info"),
        (
            probe_set(enabled=False),
            "probe set shipped: 4 held-out prompts, never trained on; looks are off "
            "(`probe.share: 0`)",
            "info",
        ),
        (
            probe_set(error="no probe set: set `probe.file`"),
            "no probe set: set `probe.file`",
            "warning",
        ),
        (running_look(0)[0], "look at step 13 begins: 512 answers", "info"),
        (baseline(seconds=12.4), "baseline at step 1: 0.41 (0.35 to 0.47) in 12 s", "info"),
        (
            look("l1", 12, restarted="the reward changed"),
            "look at step 12: 0.62 (0.55 to 0.69) in 11 s; better by 0.21 (0.12 to 0.30); "
            "new comparison: the reward changed",
            "info",
        ),
        (
            broken_look("l2", 13, "cut", "the weights\x1b[2J were replaced"),
            "look at step 13 was cut short: the weights␛ were replaced",
            "warning",
        ),
        (broken_look("l2", None, "failed", "judge down"), "look failed: judge down", "warning"),
        (
            TrainingPaused(server=SERVER, cause="by the operator"),
            "training is paused: by the operator",
            "warning",
        ),
        (TrainingResumed(server=SERVER), "training is resumed", "info"),
        (
            Rewound(server=SERVER, look_id="l1", step=12, restored="progress-2"),
            "rewound to the weights of step 12: restored from progress-2",
            "info",
        ),
        (
            Rewound(server=SERVER, look_id="l1", restored="/m\x1b[2J", model="/m"),
            "rewound to the weights of the baseline: the job has the model /m␛",
            "info",
        ),
        (
            baseline("b2", 12, seconds=12.4, restarted="requested by the operator"),
            "baseline at step 12: 0.41 (0.35 to 0.47) in 12 s; "
            "new comparison: requested by the operator",
            "info",
        ),
        (
            TrainingRunIdentified(server=SERVER, number=2, name="math.3", start="best"),
            "the weights are of training run 2 (math.3), begun with best",
            "info",
        ),
    ],
)
def test_each_event_is_one_line(event: Event, text: str, level: str) -> None:
    line = present(event_line(event))
    assert (line.about, line.level) == (SERVER, level)
    assert line.text.replace("[2J", "") == text


def test_a_growing_look_has_no_line() -> None:
    assert event_line(running_look(3)[1]) is None
