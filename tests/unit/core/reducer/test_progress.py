"""Looks at the probe set: what the state has after each event."""

import msgspec
import pytest
from msgspec.structs import replace

from core.events import (
    EngineChanged,
    LookAdvanced,
    LookEnded,
    LookStarted,
    PairCounts,
    PairRated,
    ProbePrompt,
    ProbeSetLoaded,
    PromptFigures,
    ProxyStarted,
    Rewound,
    TrainingPaused,
    TrainingResumed,
    decode,
    encode,
)
from core.state import Progress, State, reduce
from core.state.progress import LOOK_CAP, PAIR_CAP
from core.verdict.conclusion import Verdict, sentence

BEFORE = (PromptFigures(id="a", rewards=(0.0, 1.0)),)
NOW = (PromptFigures(id="a", rewards=(1.0, 1.0)),)
BETTER = Verdict(
    outcome="better", effect=0.5, low=0.1, high=0.9, reference=0.0, prompts=1, samples=4, look=1,
    alpha=0.01, spent=0.01, more=0,
)  # fmt: skip


def _baseline(look_id: str = "b1") -> LookEnded:
    return LookEnded(
        server="s", look_id=look_id, role="baseline", outcome="complete", mean=0.5, prompts=BEFORE
    )


def _look(look_id: str, baseline_id: str = "b1", **fields: object) -> LookEnded:
    values: dict[str, object] = {"outcome": "complete", "prompts": NOW, "verdict": BETTER, **fields}
    return LookEnded(server="s", look_id=look_id, role="look", baseline_id=baseline_id, **values)  # type: ignore[arg-type]


def test_a_look_is_running_until_it_ends_and_the_newest_complete_one_is_current() -> None:
    state = State()
    prompts = (ProbePrompt(id="a", prompt="What is 7 + 8?", reference="15"),)
    reduce(state, ProbeSetLoaded(server="s", source="shipped", version="v", prompts=prompts))
    progress = state.progress["s"]
    assert progress.probe_set is not None
    assert progress.probe_set.prompts == prompts
    reduce(state, LookStarted(server="s", look_id="b1", role="baseline", step=1, samples=8, at=5.0))
    dirty = reduce(state, LookAdvanced(server="s", look_id="b1", done=3))
    assert dirty == {"progress", "progress:s"}
    assert progress.running is not None
    assert (progress.running.done, progress.running.since) == (3, 5.0)
    assert not reduce(state, LookAdvanced(server="s", look_id="other", done=9))
    reduce(state, _baseline())
    assert progress.running is None
    assert (progress.baseline, progress.current) == (progress.looks[0], None)
    reduce(state, _look("l1"))
    reduce(state, _look("l2", outcome="cut", cause="the engine left ROLLING", prompts=()))
    assert progress.current is progress.looks[1]
    assert (progress.before, progress.now) == (BEFORE, NOW)
    reduce(state, _baseline("b2"))
    assert progress.current is None, "its baseline is no longer the one in use"
    assert (progress.before, progress.now) == (BEFORE, ())


def test_a_look_belongs_to_the_run_of_the_engine_in_which_it_ended() -> None:
    state = State()
    for change in ("OFFLINE", "BOOTING", "ROLLING"):
        reduce(state, EngineChanged(server="s", state=change, step=1))
    reduce(state, _baseline())
    assert state.progress["s"].looks[0].engine_run == state.servers["s"].engine_run > 0


def test_a_new_proxy_has_no_running_look() -> None:
    state = State()
    reduce(state, LookStarted(server="s", look_id="l1", role="look"))
    started = ProxyStarted(client_uuid="c", pid=1, url="", version="", servers={}, rewards="")
    assert "progress" in reduce(state, started)
    assert state.progress["s"].running is None


def test_the_state_keeps_the_newest_looks_and_the_baseline_in_use() -> None:
    state = State()
    reduce(state, _baseline())
    for number in range(LOOK_CAP + 5):
        reduce(state, _look(f"l{number}"))
    progress = state.progress["s"]
    assert len(progress.looks) == LOOK_CAP
    assert progress.baseline is not None
    assert progress.baseline.look_id == "b1"
    assert progress.looks[-1].look_id == f"l{LOOK_CAP + 4}"


def test_the_best_step_is_the_one_whose_lower_limit_is_highest_while_it_has_a_checkpoint() -> None:
    state = State()
    reduce(state, replace(_baseline(), checkpoint="progress-1"))
    progress = state.progress["s"]
    assert progress.best is progress.baseline
    reduce(state, _look("l1", checkpoint="progress-2", verdict=replace(BETTER, low=0.3)))
    assert progress.best is progress.looks[1]
    reduce(state, _look("l2", checkpoint="progress-1", verdict=replace(BETTER, low=0.2)))
    assert progress.looks[0].checkpoint == "", "its checkpoint was replaced"
    assert progress.best is progress.looks[1]
    unknown = replace(BETTER, outcome="unknown", low=0.9)
    reduce(state, _look("l3", checkpoint="progress-1", verdict=unknown))
    reduce(state, _look("l4", outcome="cut", checkpoint="progress-2", verdict=None))
    assert progress.best is None, "no checkpoint of a verified look is left"


def test_the_rewards_of_the_best_verified_look_are_retained_until_a_new_baseline() -> None:
    state = State()
    reduce(state, _baseline())
    progress = state.progress["s"]
    reduce(state, _look("l1", verdict=replace(BETTER, outcome="unknown", low=-0.1)))
    assert progress.best_rewards is None, "no look is better with certainty"
    texts = (replace(NOW[0], answer="It is 7.", example="7"),)
    reduce(state, _look("l2", step=8, run=3, prompts=texts))
    best = progress.best_rewards
    assert best is not None
    assert (best.look_id, best.step, best.run, best.prompts) == ("l2", 8, 3, NOW)
    reduce(state, _look("l3", step=9, verdict=replace(BETTER, low=0.05), prompts=BEFORE))
    reduce(state, _look("l4", outcome="cut", verdict=None, prompts=()))
    assert progress.best_rewards.look_id == "l2", "the lower limit of no later one is higher"
    reduce(state, _look("l5", step=11, verdict=replace(BETTER, low=0.2), prompts=BEFORE))
    assert (progress.best_rewards.look_id, progress.best_rewards.prompts) == ("l5", BEFORE)
    assert msgspec.json.decode(msgspec.json.encode(progress), type=Progress) == progress
    reduce(state, _baseline("b2"))
    assert progress.best_rewards is None


def test_the_best_verified_look_stays_although_its_weights_are_gone() -> None:
    state = State()
    reduce(state, _baseline())
    for number in range(LOOK_CAP + 5):
        reduce(state, _look(f"l{number}", verdict=replace(BETTER, low=0.1 + 0.5 * (number == 1))))
    progress = state.progress["s"]
    assert (len(progress.looks), progress.best) == (LOOK_CAP, None)
    assert progress.best_rewards is not None
    assert progress.verified[0].look_id == progress.best_rewards.look_id == "l1"


def test_a_pause_is_part_of_the_state() -> None:
    state = State()
    reduce(state, TrainingPaused(server="s", cause="worse"))
    assert state.progress["s"].paused == "worse"
    reduce(state, TrainingResumed(server="s"))
    assert state.progress["s"].paused == ""


def test_the_best_step_is_known_without_a_checkpoint() -> None:
    state = State()
    assert _progress(state).best_step is None
    reduce(state, replace(_baseline(), step=1))
    assert (_progress(state).best_step, _progress(state).best) == (1, None)
    low, high = replace(BETTER, low=0.1), replace(BETTER, low=0.3)
    reduce(state, _look("l1", step=6, verdict=low, saved_as="/c/global_step_5"))
    reduce(state, _look("l2", step=8, verdict=high))
    reduce(state, _look("l3", step=9, verdict=replace(BETTER, outcome="unknown", low=0.9)))
    progress = _progress(state)
    assert progress.best_step == 8
    assert [one.look_id for one in progress.verified] == ["l2", "l1", "b1"]
    assert progress.best is not None
    assert (progress.best.look_id, progress.best.saved_as) == ("l1", "/c/global_step_5")


def test_the_best_look_outlasts_the_cap() -> None:
    state = State()
    reduce(state, _baseline())
    reduce(state, _look("best", saved_as="/c/global_step_5"))
    plain = replace(BETTER, outcome="unknown")
    for number in range(LOOK_CAP + 5):
        reduce(state, _look(f"n{number}", verdict=plain))
    looks = [look.look_id for look in _progress(state).looks]
    assert len(looks) == LOOK_CAP
    assert looks[:2] == ["b1", "best"]
    assert looks[-1] == f"n{LOOK_CAP + 4}"


def test_the_last_rewind_is_known() -> None:
    state = State()
    for step in (6, 9):
        event = Rewound(
            server="s", look_id="l1", step=step, baseline_id="b1", restored="/c", model="/c", at=7.0
        )
        assert reduce(state, event) == {"progress", "progress:s"}
    progress = _progress(state)
    assert progress.rewinds == 2
    assert progress.rewound is not None
    assert (progress.rewound.step, progress.rewound.model, progress.rewound.at) == (9, "/c", 7.0)


def _progress(state: State) -> Progress:
    return state.progress.get("s") or Progress()


def _pair(number: int, look_id: str = "l1", baseline_id: str = "b1") -> PairRated:
    return PairRated(
        server="s", pair_id=f"p{number}", baseline_id=baseline_id, look_id=look_id, step=4,
        prompt_id="a", before=number, now=0, left="now", choice="left", result=1.0,
        automatic=0.5, counts=PairCounts(now=3, tie=2, before=1),
    )  # fmt: skip


def test_pairs_are_counted_in_their_order_and_once_each() -> None:
    state = State()
    for event in (_baseline(), _look("l1"), _pair(1), _pair(2), _pair(1)):
        reduce(state, event)
    ratings = state.progress["s"].pair_ratings
    assert ratings is not None
    assert [pair.pair_id for pair in ratings.pairs] == ["p1", "p2"]
    assert (ratings.look_id, ratings.step, ratings.counts.different) == ("l1", 4, 6)
    assert ratings.figures is not None
    assert ratings.figures.ratings == 2
    assert reduce(state, _pair(1)) == frozenset(), "a repeated event changes nothing"


def test_ratings_of_another_look_or_baseline_begin_again() -> None:
    state = State()
    for event in (_baseline(), _look("l1"), _pair(1), _look("l2")):
        reduce(state, event)
    assert state.progress["s"].pair_ratings is not None, "a later look alone changes nothing"
    assert reduce(state, _pair(1, "l2")) == frozenset(("progress", "progress:s"))
    assert [pair.pair_id for pair in state.progress["s"].pairs.pairs] == ["p1"]  # type: ignore[union-attr]
    reduce(state, _baseline("b2"))
    assert state.progress["s"].pair_ratings is None
    reduce(state, _pair(5, "l3", "b2"))
    assert [pair.before for pair in state.progress["s"].pair_ratings.pairs] == [5]  # type: ignore[union-attr]


@pytest.mark.slow
def test_the_rated_pairs_are_capped() -> None:
    state = State()
    reduce(state, _baseline())
    for number in range(PAIR_CAP + 5):
        reduce(state, _pair(number))
    ratings = state.progress["s"].pair_ratings
    assert ratings is not None
    assert len(ratings.pairs) == PAIR_CAP
    assert ratings.pairs[0].before == 0, "the first ones stay: dropping them would bias the rate"


def test_a_look_of_a_released_journal_is_read_with_its_verdict() -> None:
    stored = (
        b'{"kind":"look_ended","seq":7,"at":5.0,"run_id":"r","server":"s","look_id":"l1",'
        b'"role":"look","outcome":"complete","step":12,"baseline_id":"b1","mean":0.62,"verdict":'
        b'{"outcome":"better","effect":0.21,"low":0.12,"high":0.3,"reference":0.0,"prompts":64,'
        b'"samples":1024,"look":3,"alpha":0.004,"spent":0.04,"more":0}}'
    )
    event = decode(stored)
    assert isinstance(event, LookEnded)
    assert event.verdict is not None
    assert sentence(event.verdict) == "better by 0.21 (0.12 to 0.30)"
    assert (event.verdict.look, event.verdict.more, event.run) == (3, 0, 0)
    assert decode(encode(event)) == event
    tiny = decode(stored.replace(b'"more":0', b'"more":null'))
    assert isinstance(tiny, LookEnded)
    assert tiny.verdict == replace(event.verdict, more=None)
