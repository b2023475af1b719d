"""Verdicts on finished groups after the update of their step."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from console.screens.group.text import DetailOptions, header_lines
from console.screens.overview.text import group_line
from console.session.app_state import Session
from console.session.filters import parse
from console.session.group_facts import Verdict, verdict_in
from core.events import (
    CandidatesAnswered,
    EngineChanged,
    EpisodesEnded,
    Event,
    GroupLost,
    GroupOpened,
    ProxyStarted,
    UpdateDone,
)
from core.state.server import STEP_CAP
from tests.support.groups import text_of
from tests.support.proxy.singles import with_outcome
from tests.support.sample import NOW, group_events, state_of

STATS = {"kl": 0.1}


def engine(state: str, step: int = 0, at: float = NOW + 20) -> Event:
    return EngineChanged(server="embedded", state=state, step=step, at=at)


def update(step: int) -> Event:
    return UpdateDone(server="embedded", step=step, stats=STATS, at=NOW + 30)


def started(url: str = "http://e:1") -> Event:
    return ProxyStarted(
        client_uuid="c",
        pid=1,
        url="http://p",
        version="1",
        servers={"embedded": url},
        embedded=(),
        rewards="",
    )


BARELY = (0.52, 0.5, 0.5, 0.5)


BEGAN = engine("ROLLING", 7, NOW - 90)


GROUP = group_events(1, step=7)


RESTART = (engine("OFFLINE"), engine("BOOTING"))


def of(*events: Event) -> Verdict:
    state = state_of(*events)
    return verdict_in(state, state.groups["g0001"])


def text(*events: Event) -> str:
    return of(*events).text


def test_a_group_is_trained_once_the_update_of_its_step_is_done() -> None:
    events = [BEGAN, *GROUP, engine("WEIGHT_SYNCING", 7)]
    assert text(BEGAN, *GROUP) == text(*events) == "finished, will train"
    assert of(*events, update(7)) == Verdict("train", "trained by update 7")
    assert text(*events, update(7), engine("ROLLING", 8)) == "trained by update 7"
    assert text(*events, update(6)) == "finished, will train"


def test_the_newest_groups_name_the_update() -> None:
    state = state_of(BEGAN, *GROUP, update(7))
    session = Session(clock=lambda: NOW + 40)
    session.state = state
    line = group_line(session, state.groups["g0001"], 100, {})
    assert "✔ trained by update 7 " in text_of([line])


def test_a_step_that_is_over_without_figures_proves_no_training() -> None:
    assert of(BEGAN, *GROUP, engine("ROLLING", 8)) == Verdict("none", "step 7 is over")
    steps = [engine("ROLLING", step) for step in range(8, 8 + STEP_CAP)]
    state = state_of(BEGAN, *GROUP, update(7), *steps)
    assert state.servers["embedded"].steps[0].step == 8
    assert verdict_in(state, state.groups["g0001"]).text == "step 7 is over"


@pytest.mark.parametrize("back", [7, 5])
@pytest.mark.parametrize("trained", [True, False])
def test_a_step_that_a_later_run_repeats_was_dropped(back: int, trained: bool) -> None:
    updates = [update(7), engine("ROLLING", 8)] if trained else []
    rewound = [BEGAN, *GROUP, *updates, *RESTART, engine("ROLLING", back)]
    assert text(*rewound) == "step 7 was dropped"
    again = [engine("ROLLING", step) for step in range(back, 9)]
    assert text(*rewound, *again, update(7)) == "step 7 was dropped"


def test_an_update_stays_true_in_the_next_engine_run() -> None:
    events = [BEGAN, *GROUP, update(7), *RESTART, engine("ROLLING", 8)]
    assert text(*events) == "trained by update 7"


@pytest.mark.parametrize(
    "events",
    [
        (BEGAN, *GROUP, engine("OFFLINE")),
        (BEGAN, *GROUP, *RESTART, engine("ROLLING", 9)),
        tuple(GROUP),
        (started(), BEGAN, *GROUP, update(7), started("http://e:2")),
        (
            started(),
            BEGAN,
            *GROUP,
            started("http://e:2"),
            engine("ROLLING", 7),
            update(7),
            engine("ROLLING", 8),
        ),
    ],
)
def test_what_the_state_does_not_show_is_not_claimed(events: Sequence[Event]) -> None:
    state = state_of(*events)
    assert verdict_in(state, state.groups["g0001"]) == Verdict("none", "not known if trained")


def test_a_server_that_was_removed_proves_nothing() -> None:
    state = state_of(BEGAN, *GROUP, update(7))
    state.servers.clear()
    assert verdict_in(state, state.groups["g0001"]).text == "not known if trained"


def test_a_single_reward_that_was_taken_trains_nothing() -> None:
    events = [
        with_outcome(event, "expired" if event.episodes[0].index else "ended")
        if isinstance(event, EpisodesEnded)
        else event
        for event in GROUP
    ]
    assert text(BEGAN, *events, update(7)) == "not known if trained"


def test_answers_of_a_later_step_are_trained_by_its_update() -> None:
    events = [
        replace(
            event, candidates=tuple(replace(answer, later_step=8) for answer in event.candidates)
        )
        if isinstance(event, CandidatesAnswered)
        else event
        for event in GROUP
    ]
    next_step = (BEGAN, *events, update(7), engine("ROLLING", 8))
    assert text(*next_step) == "finished, will train"
    assert text(*next_step, update(8)) == "trained by update 8"


def test_other_groups_keep_their_verdict_after_the_update() -> None:
    def after(*events: Event) -> str:
        return text(BEGAN, *events, update(7), engine("ROLLING", 8))

    def typed(kind: str, outcome: str) -> list[Event]:
        return [
            replace(event, episode_type=kind)
            if isinstance(event, GroupOpened)
            else with_outcome(event, outcome)
            if isinstance(event, EpisodesEnded)
            else event
            for event in GROUP
        ]

    lost = GroupLost(server="embedded", group_id="g0001", cause="an engine stop")
    assert after(*GROUP, lost) == "finished, lost by an engine stop: will not train"
    assert after(*group_events(1, step=7, rewards=(0.5, 0.5))) == "dead: equal rewards"
    assert after(*group_events(1, step=7, until="AWAITING_RATING")) == "will train"
    assert after(*group_events(1, step=7, until="GENERATING")) == "not scored yet"
    assert after(*group_events(1, step=7, until="ABORTED")).startswith("lost: aborted")
    assert after(*typed("eval", "ended")) == "not trained on (eval)"
    assert after(*typed("observe", "recorded")) == "not trained on (observe)"
    assert after(*typed("train", "unknown")) == "finished, not all confirmed"


@pytest.mark.parametrize(
    ("damping", "texts"),
    [
        (0.0, ("will train", "finished, will train", "trained by update 7")),
        (
            0.2,
            (
                "would teach almost nothing: largest advantage 0.072",
                "teaches almost nothing: largest advantage 0.072",
                "taught almost nothing: largest advantage 0.072, update 7",
            ),
        ),
    ],
)
def test_a_group_that_hardly_teaches_is_not_called_trained(
    damping: float, texts: tuple[str, str, str]
) -> None:
    waits, sealed = (
        group_events(1, step=7, rewards=BARELY, damping=damping, until=until)
        for until in ("AWAITING_RATING", "DONE")
    )
    state = state_of(BEGAN, *sealed, update(7))
    group = state.groups["g0001"]
    assert (text(BEGAN, *waits), text(BEGAN, *sealed), verdict_in(state, group).text) == texts
    dead = bool(damping)
    assert (state.totals.dead, state.servers["embedded"].steps[-1].dead) == (dead, dead)
    assert parse("dead:yes").matches(group) is dead
    assert "● finished" in text_of(header_lines(group, NOW, 120, DetailOptions()))
