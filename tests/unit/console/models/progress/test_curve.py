"""The points of the curve of the looks."""

from console.models.progress.curve import look_points
from core.events import EngineChanged
from tests.support.looks import SERVER, baseline, broken_look, look, looks, verdict
from tests.support.sample import state_of

ROLLING = (
    EngineChanged(server=SERVER, state="BOOTING", step=12),
    EngineChanged(server=SERVER, state="ROLLING", step=12),
)
WINS = verdict(effect=0.64, low=0.55, high=0.73, reference=0.5)


def test_points_are_complete_looks_and_mark_the_comparison_in_use() -> None:
    events = [
        *looks((0.5, 0.6)),
        broken_look("l9", 8, "cut", "x"),
        baseline("b2", 9, mean=0.61),
        look("m1", 10, 0.7, baseline_id="b2"),
        look("m2", None, 0.7, baseline_id="b2"),
    ]
    result = look_points(state_of(*events).progress[SERVER])
    shown = [(one.step, one.mean, one.is_baseline, one.is_current) for one in result]
    assert shown == [
        (1, 0.41, True, False),
        (4, 0.5, False, False),
        (6, 0.6, False, False),
        (9, 0.61, True, True),
        (10, 0.7, False, True),
    ]


def test_steps_that_a_later_engine_run_repeats_are_taken_from_that_run() -> None:
    again = [
        EngineChanged(server=SERVER, state="OFFLINE", step=0),
        EngineChanged(server=SERVER, state="BOOTING", step=0),
        EngineChanged(server=SERVER, state="ROLLING", step=0),
    ]
    state = state_of(*ROLLING, *looks((0.5, 0.6)), *again, look("l9", 4, 0.55))
    assert [(one.step, one.mean) for one in look_points(state.progress[SERVER])] == [
        (1, 0.41),
        (4, 0.55),
    ]


def test_a_baseline_of_comparisons_is_drawn_at_an_even_win_rate() -> None:
    state = state_of(
        *looks((0.5,)),
        baseline("b2", 5, mode="wins", mean=0.0),
        look("m1", 6, 0.64, baseline_id="b2", mode="wins", verdict=WINS),
    )
    result = look_points(state.progress[SERVER])
    assert [(one.step, one.mean) for one in result] == [(5, 0.5), (6, 0.64)], "one scale only"
