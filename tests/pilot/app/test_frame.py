"""The frame: status bar, timeline, figures, themes."""

import pytest

from console.session.app_state import Session
from console.text.format import (
    countdown,
    duration,
    elapsed,
    number,
    percent,
    progress,
    state_style,
)
from console.text.sections import bar
from console.text.theme import THEMES
from console.views.timeline import StateSpan, cells, stays, step_seconds, sync_seconds, timeline
from console.widgets.status_bar import bar_line
from core.events import EngineChanged, EngineLost, PoolChanged
from core.state import Span, State
from tests.support.checks import missing, present
from tests.support.console import Clock, run_console
from tests.support.sample import HOSTILE, NOW, group_events, sample_state, state_of


def session_of(state: State) -> Session:
    session = Session(clock=Clock())
    session.state = state
    session.seen = True
    return session


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120, 160])
def test_the_bar_fits_and_keeps_what_matters_most(width: int) -> None:
    line = bar_line(session_of(sample_state()), width)
    assert line.cell_length <= width
    assert not missing(line.plain, "ROLL", "12", "2/4", "★ 1", "0:08", "!")
    if width >= 80:
        assert not missing(line.plain, "2 in flight", "★ 1 to rate 0:08")
        assert "open" not in line.plain
    if width == 160:
        assert not missing(line.plain, "2/4 tasks", "! 2 alerts")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_long_hostile_name_and_a_long_state_still_fit(width: int) -> None:
    state = state_of(
        EngineChanged(server=HOSTILE, state="UNKNOWN", raw="X" * 99, step=123456, at=NOW - 9e5),
        *(event for number in range(12) for event in group_events(number, until="AWAITING_RATING")),
    )
    session = session_of(state)
    session.observing = True
    session.lost_at = NOW - 400
    assert bar_line(session, width).cell_length <= width


def test_stale_data_stays_on_screen_with_its_age() -> None:
    session = session_of(sample_state())
    clock: Clock = session._clock  # type: ignore[assignment]  # the test's own clock
    before = bar_line(session, 120).plain
    session.lost_at = NOW
    clock.now += 42
    after = bar_line(session, 120).plain
    assert "STALE 42s" in after
    assert "ROLLING 1m26" in before
    assert "ROLLING 1m26" in after, "the time in a state is not known to go on"


@pytest.mark.parametrize("width", [100, 160])
def test_a_refused_token_is_named_beside_the_age(width: int) -> None:
    session = session_of(sample_state())
    session.lost_at = NOW
    session.refused = "the token anna was revoked or has expired"
    session.trouble = f"{session.refused}. Ask for a new one, and start again with it"
    assert session.refused in bar_line(session, width).plain


def test_a_lost_server_keeps_its_state_with_its_age() -> None:
    state = state_of(
        EngineChanged(server="e", state="ROLLING", step=4, at=NOW - 90),
        EngineLost(server="e", error="gone: refused", seen_at=NOW - 36),
    )
    text = bar_line(session_of(state), 100).plain
    assert not missing(text, "× GONE 36s (was ROLLING)", "step 4")
    assert "× GONE 36s" in bar_line(session_of(state), 60).plain


def test_a_stopped_proxy_is_shown_in_the_status_bar() -> None:
    state = sample_state()
    state.proxy_up = False
    assert "PROXY STOPPED" in bar_line(session_of(state), 100).plain


def test_the_status_bar_shows_no_figures_before_the_first_snapshot() -> None:
    session = Session(clock=Clock())
    text = bar_line(session, 100).plain
    assert "STARTING" in text
    assert "0" not in text


@pytest.mark.parametrize(
    ("at", "width", "shown"),
    [
        ("rate", 60, "F2 F3 Rate  F4"),  # digits vote there
        ("rate", 80, "F2 F3 Rate  F4"),
        ("overview", 80, "1 Overview  2"),
        ("history", 80, "9 0 History"),
        ("mock", 120, "1 2 3 Rate 4 Mock user  5 Engine 6 7 8 9 0"),
        (
            "mock",
            160,
            "3 Rate 4 Mock user  5 Engine 6 Rewards 7 Log 8 Progress 9 Servers 0 History",
        ),
    ],
)
async def test_every_width_names_the_screen_and_the_keys_beside_it(
    at: str, width: int, shown: str
) -> None:
    async with run_console(sample_state(), size=(width, 24), at=at) as console:
        assert console.text().splitlines()[0].rstrip().endswith(shown)


def pool(method: str) -> PoolChanged:
    return PoolChanged(
        method=method,
        completed_episodes=9,
        episode_target=16,
        completed_tasks=3,
        task_target=4,
        non_dummy_tasks=2,
    )


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("rollout_until_finish_enough_episodes", "9/16 episodes"),
        ("rollout_until_finish_enough_tasks", "3/4 tasks"),
        ("rollout_until_finish_enough_non_dummy_tasks", "2/4 non-dummy tasks"),
        ("rollout_until_all_clients_agree_sync_weight", "3 tasks"),
        ("something_new", "3/4 tasks"),
    ],
)
def test_pool_progress_follows_the_stop_rule(method: str, text: str) -> None:
    result = present(progress(pool(method)))
    assert result.text() == text


def test_unknown_pool_progress_is_none() -> None:
    assert progress(None) is None
    assert progress(PoolChanged()) is None
    state = state_of(EngineChanged(server="e", state="ROLLING"), PoolChanged(server="e"))
    assert "pool –" in bar_line(session_of(state), 120).plain


def test_timeline_cells_fill_the_width_with_one_for_each_span() -> None:
    assert (cells([1, 1], 10), sum(cells([0.0, 1000.0, 0.001], 20))) == ([5, 5], 20)
    assert (min(cells([0.0, 1000.0, 0.001], 20)), cells([0.0, 0.0], 2)) == (1, [1, 1])


def test_the_timeline_fills_its_width_and_names_each_state() -> None:
    result = [
        StateSpan("ROLLING", 40, 3),
        StateSpan("ROLLING_POST", 4, None),
        StateSpan("WEIGHT_SYNCING", 9, None),
    ]
    for width in (3, 10, 78, 200):
        assert timeline(result, width).cell_length == width
    text = timeline(result, 78).plain
    assert not missing(text, "ROLL 3 · 40s", "SYNC")
    assert (timeline(result, 3).plain, timeline([], 10).plain) == ("RPS", "")


def test_durations_of_steps_and_syncs_are_computed() -> None:
    spans = [
        Span(state="ROLLING", since=100, step=1),
        Span(state="WEIGHT_SYNCING", since=140, step=1),
        Span(state="ROLLING", since=150, step=2),
    ]
    assert (step_seconds(spans), sync_seconds(spans, 170)) == ({1: 50}, {1: 10})
    assert [stay.seconds for stay in stays(spans, 170)] == [40, 10, 20]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.04, "0.0s"),
        (9.94, "9.9s"),
        (59.4, "59s"),
        (59.9, "1m00"),
        (185, "3m05"),
        (3725, "1h02"),
        (900_000, "10d"),
        (-3, "0.0s"),
    ],
)
def test_durations_have_readable_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_small_figures_keep_significant_digits() -> None:
    assert (elapsed(59.99), countdown(0.2), countdown(-5)) == ("59s", "0:01", "0:00")
    assert number(None) == number(float("nan")) == "–"
    assert (number(0.0), percent(0, 0)) == ("0.00", "–")
    assert state_style("NEW_STATE", "ENGINE.NEW").word == "ENGINE.NEW"
    for share in (None, 0.0, 0.33, 1.0, 7.0):
        assert bar(share, 20).cell_length == 20


@pytest.mark.parametrize("theme", list(THEMES))
async def test_every_screen_paints_in_every_theme(theme: str) -> None:
    async with run_console(sample_state(), theme=theme) as console:
        for place in ("engine", "log", "overview"):
            console.app.action_go(place)
            await console.settle()
            assert "ROLLING" in console.text()


async def test_no_color_disables_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    monkeypatch.setenv("NO_COLOR", "1")
    async with run_console(sample_state()) as console:
        svg = console.app.export_screenshot()
        style = svg[svg.index("<style>") : svg.index("</style>")]
        colors = {c.lower() for c in re.findall(r"fill: (#[0-9a-fA-F]{6})", style)}
        grey = {c for c in colors if c[1:3] == c[3:5] == c[5:7]}
        assert colors - grey <= {"#c5c8c6"}, "only the picture's own frame has a tint"
        assert "● ROLLING" in console.text()
