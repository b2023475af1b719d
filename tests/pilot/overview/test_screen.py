"""The Overview screen and its sections."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from ajet_swarm.common.errors import AjetError
from console.screens.engine.steps import step_table, with_curves
from console.screens.group.screen import GroupScreen
from console.screens.overview.screen import RecentGroups
from console.screens.overview.sections import PARTS, engines, mock, pace
from console.screens.overview.text import group_line, head_line
from console.screens.rewards.model import Digests, figures
from console.session.app_state import Session
from console.session.logs import SOURCES
from console.text.format import server_colors
from console.text.lines import line_width
from console.text.sections import Room
from console.ui import curve as chart
from console.ui.curve import Point
from console.views.rewards.curve import rewards
from core.events import (
    AlertRaised,
    EngineChanged,
    EngineLost,
    Event,
    GroupOpened,
    GroupScored,
    GroupSealed,
    MockFinished,
    MockRowDone,
    MockStarted,
    PoolChanged,
    ProxyStarted,
    RatingModeChanged,
    UpdateDone,
)
from core.events.alerts import params_of
from core.state import State
from tests.support.console import (
    HOSTILE,
    NOW,
    Clock,
    FakeLink,
    group_events,
    run_console,
    sample_events,
    sample_state,
    state_of,
)
from tests.support.groups import text_of

ROOM = Room(width=78, height=6, tall=False)
LARGE = Room(width=100, height=16, tall=True)


def session_of(state: State) -> Session:
    session = Session(clock=Clock())
    session.state = state
    session.seen = True
    return session


async def test_the_overview_of_a_busy_console_shows_every_section() -> None:
    async with run_console(sample_state(), size=(80, 24)) as console:
        text = console.text()
        for words in (
            "● ROLLING 1m26",
            "step 12",
            "2/4 tasks",
            "0.74 ±0.12 at step 11",
            "▲ up 0.25 since step 1",
            "raised ValueError",
            "→ See the traceback",
            "/min in",
            "dead 11% of 46",
            "generate 5.7s",
            "14/60",
            "NEWEST GROUPS",
            "○ dead",
        ):
            assert words in text, words


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 48)])
async def test_no_figure_is_cut(size: tuple[int, int]) -> None:
    async with run_console(sample_state(), size=size) as console:
        text = console.text()
        for words in ("steps 54s 54s 54s", "dead 11% of 46: equal", "submit 0.2s", "1 failed"):
            assert words in text, words
        assert "16m26 left · 2.8/min" in text


def test_the_end_of_the_mock_user_names_the_next_keys() -> None:
    state = state_of(
        MockStarted(mock_id="m", target="a", dataset="d", total=2),
        MockFinished(mock_id="m", how="finished", at=NOW),
    )
    text = mock(session_of(state), LARGE).plain
    assert "press 8: what it taught · press 4 then s: once more" in text


async def test_an_empty_overview_names_the_next_action() -> None:
    async with run_console(state_of(*sample_events()[:2])) as console:
        text = console.text()
        assert "press 5 then s to start it" in text
        assert "s  Start the engine" in text
        assert "http://127.0.0.1:8000/v1" in text
        assert "ALERTS  none" in text


async def test_a_pause_of_training_is_an_alert_that_leads_to_progress() -> None:
    alert = params_of("paused", server="embedded", reason="paused by the operator")
    raised = AlertRaised(
        key="paused:embedded",
        alert_kind=alert.kind,
        params=alert.as_json(),
        level="warning",
        server="embedded",
    )
    async with run_console(state_of(*sample_events()[:2], raised), size=(80, 24)) as console:
        text = console.text()
        assert "training on embedded is paused by the operator" in text
        assert "8 r" in text
        assert "!1" in text.splitlines()[0].replace("! 1 alert", "!1")
        await console.press("a")
        assert console.app.current_mode == "progress"


async def test_unknown_figures_are_dashes() -> None:
    state = state_of(
        ProxyStarted(
            client_uuid="c",
            pid=1,
            url="http://p",
            version="1",
            servers={"gpu": "http://gpu"},
            rewards="builtin",
        )
    )
    async with run_console(state) as console:
        first = console.text().splitlines()[0]
        assert "STARTING" in first
        assert "GONE" not in console.text()
        assert "step –" in first
        console.clock.now += 6
        await console.settle()
        assert "NOT REACHED" in console.text().splitlines()[0]
        assert "pool –" in first


async def test_the_start_shows_each_starting_process() -> None:
    link = FakeLink()
    link.broken = AjetError("down")
    async with run_console(link=link) as console:
        session = console.session
        session.step("engine", "doing", title="start the embedded engine")
        console.clock.now += 4
        await console.settle()
        text = console.text()
        assert "start the embedded engine" in text
        assert "4s" in text
        assert "NEWEST GROUPS" not in text
        link.broken = None
        link.state = sample_state()
        for _ in range(200):
            await console.settle()
            if session.seen:
                break
        assert "NEWEST GROUPS" in console.text()


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40), (160, 48)])
async def test_hostile_text_stays_text(size: tuple[int, int]) -> None:
    events = [
        *sample_events(HOSTILE),
        AlertRaised(key=HOSTILE, cause=HOSTILE, todo=HOSTILE),
        EngineChanged(server="embedded", state="UNKNOWN", raw=HOSTILE, detail=HOSTILE, step=12),
    ]
    async with run_console(state_of(*events), size=size) as console:
        text = console.text()
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "[/b]" in text
        assert all(cell_len(line) <= size[0] for line in text.splitlines())


def test_a_lost_server_keeps_its_figures_with_their_age() -> None:
    state = sample_state()
    from core.state import reduce

    reduce(state, EngineLost(server="embedded", error="refused", seen_at=NOW - 30, seq=9999))
    text = engines(session_of(state), ROOM).plain
    assert "refused, seen 30s ago" in text
    assert "ROLL 12" in text


def test_a_boot_that_hangs_is_recognised() -> None:
    state = state_of(EngineChanged(server="e", state="BOOTING", at=NOW - 75))
    assert "BOOTING for 1m15" in engines(session_of(state), ROOM).plain
    young = state_of(EngineChanged(server="e", state="BOOTING", at=NOW - 30))
    assert "failed" not in engines(session_of(young), ROOM).plain


def test_several_servers_each_have_their_line() -> None:
    state = state_of(
        EngineChanged(server="a", state="ROLLING", step=1, at=NOW - 9),
        EngineChanged(server="b", state="OFFLINE", step=0, at=NOW - 5),
        PoolChanged(server="a", method="rollout_until_finish_enough_episodes", episode_target=8),
    )
    text = engines(session_of(state), ROOM).plain
    assert "a  ● ROLLING 9s" in text
    assert "b  ○ OFFLINE 5s" in text
    assert "0/8 episodes" in text


def test_pace_counts_only_groups_of_the_last_minutes() -> None:
    state = state_of(
        *group_events(1, at=NOW - 60),
        *group_events(2, at=NOW - 50),
        *group_events(3, at=NOW - 3000),
    )
    text = pace(session_of(state), ROOM).plain
    assert "0.7/min in 3m00" in text
    assert "0% of 3" in text
    assert "answer 6.1s" in text


def test_pace_covers_no_time_before_the_first_group() -> None:
    two = (*group_events(1, at=NOW - 40), *group_events(2, at=NOW - 30))
    assert "3.0/min in 40s" in pace(session_of(state_of(*two)), ROOM).plain
    text = pace(session_of(state_of(*group_events(1, at=NOW - 8))), ROOM).plain
    assert "–/min" in text


def test_counts_of_groups_that_do_not_fit_end_with_an_ellipsis() -> None:
    one = session_of(state_of(*group_events(1)))
    totals = one.state.totals
    totals.groups, totals.done, totals.lost, totals.aborted, totals.failed = 720, 709, 5, 3, 3
    for width in (40, 60, 80, 160):
        assert line_width(head_line(one, width)) <= width
    assert text_of([head_line(one, 60)]).endswith("…")
    assert "3 aborted" in text_of([head_line(one, 120)])


def test_pace_without_groups_shows_no_figures() -> None:
    text = pace(session_of(State()), ROOM).plain
    assert "No group is finished yet" in text
    assert "0.0" not in text


def test_groups_are_newest_first_with_clock_and_verdict() -> None:
    session = session_of(sample_state())
    values = list(session.state.groups.values())[:-20:-1]
    lines = [text_of([group_line(session, group, 100, {})]) for group in values]
    assert "queued" in lines[0]
    assert "rate 0:08" in lines[1]
    assert any("dead: equal rewards" in line for line in lines)
    assert {cell_len(line) for line in lines} == {100}


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_one_of_the_newest_groups_is_opened_by_enter_or_a_click(
    size: tuple[int, int],
) -> None:
    async with run_console(sample_state(), size=size) as console:
        newest = console.app.screen.query_one(RecentGroups)
        first, _, third = newest.keys[:3]
        assert newest.cursor == first
        console.link.publish(*group_events(950, until="GENERATING"))
        await console.settle()
        assert newest.cursor == newest.keys[0] != first, "it keeps to the newest"
        await console.press("down")
        assert newest.cursor == first
        console.link.publish(*group_events(951, until="GENERATING"))
        await console.settle()
        assert newest.cursor == first, "and stays on a group it was moved to"
        await console.press("enter")
        assert isinstance(console.app.screen, GroupScreen)
        assert console.app.screen.target_group == first
        await console.press("escape")
        row = newest.keys.index(third) + 1
        await console.pilot.click(RecentGroups, offset=(20, row))
        assert newest.cursor == third
        await console.pilot.click(RecentGroups, offset=(20, row))
        await console.settle()
        assert isinstance(console.app.screen, GroupScreen)
        assert console.app.screen.target_group == third


async def test_several_servers_have_their_colours_beside_the_groups() -> None:
    state = state_of(*sample_events(), EngineChanged(server="other", state="OFFLINE"))
    values = list(state.groups.values())[-3:]
    session = session_of(state)
    for group in values:
        line = group_line(session, group, 120, server_colors(state))
        assert {text.strip(): tone for text, tone in line}["embedded"] == "$server-1"
        assert "embedded" not in text_of([group_line(session, group, 120, {})])


def test_mock_line_counts_rows_of_earlier_starts() -> None:
    state = state_of(
        MockStarted(mock_id="m", dataset="d", target="t", total=20, done=5, at=NOW - 60),
        MockRowDone(mock_id="m", row_id="r", query="q", ok=False, seconds=1.0, error="x", at=NOW),
    )
    text = mock(session_of(state), LARGE).plain
    assert "6/20" in text
    assert "1 failed" in text


def test_every_part_of_the_latency_has_its_colour_and_word() -> None:
    assert len({word for _, word, _ in PARTS}) == len(PARTS) == 6
    assert len(SOURCES) == 4


# --- the curve -------------------------------------------------------------------------------


def test_figures_of_the_last_update_are_shown_beside_the_curve() -> None:
    stats = {
        "kl": 0.0123,
        "no_signal_share": 0.5,
        "step_seconds": 21.0,
        "sync_seconds": 0.4,
        "entropy": 1.25,
    }
    state = state_of(*sample_events(), UpdateDone(server="embedded", step=12, stats=stats))
    narrow = rewards(session_of(state), ROOM).plain.splitlines()
    assert "KL 0.012" in narrow[0]
    assert "no signal 50%" in narrow[0]
    assert "▲ up 0.24" in narrow[0]
    assert all(cell_len(line) <= ROOM.width for line in narrow)
    tall = rewards(session_of(state), LARGE).plain.splitlines()
    assert len(tall) == LARGE.height
    assert "KL" not in tall[0]
    last = tall[-1]
    for words in ("update 12", "0.012", "no signal", "50%", "took 21s", "sync 0.4s"):
        assert words in last, words


def test_a_server_without_update_figures_shows_none_beside_the_curve() -> None:
    state = state_of(*sample_events())
    for step in state.servers["embedded"].steps:
        step.update = {}
    for room in (ROOM, LARGE):
        text = rewards(session_of(state), room).plain
        assert "KL" not in text
        assert "no signal" not in text
        assert "since step 1" in text


def test_rewards_of_other_clients_make_a_curve() -> None:
    updates = [
        UpdateDone(server="e", step=step, stats={"reward_mean": 0.2 * step, "reward_std": 0.1})
        for step in (1, 2, 3)
    ]
    state = state_of(EngineChanged(server="e", state="ROLLING", step=1), *updates)
    assert "0.60 ±0.10 at step 3" in rewards(session_of(state), ROOM).plain


def curve(points: list[Point], width: int, height: int) -> list[str]:
    """The lines of a curve without their styles."""
    return ["".join(text for text, _ in line) for line in chart.curve(points, width, height)]


def test_without_rewards_there_is_no_curve() -> None:
    assert curve([], 40, 8) == []
    assert "No reward was sent yet" in rewards(session_of(State()), ROOM).plain


def test_in_observe_mode_rewards_are_recorded_and_there_is_no_step() -> None:
    events = [EngineChanged(server="e", state="OBSERVING"), *group_events(1)]
    text = rewards(session_of(state_of(*events)), ROOM).plain
    assert "Rewards are recorded" in text
    assert "No reward was sent yet" not in text


def test_the_curve_marks_where_an_engine_run_ended() -> None:
    points = [Point(step, 0.1, 0.0, engine_run=1 + (step > 3)) for step in range(1, 6)]
    *plot, axis = curve(points, 46, 6)
    assert {line.find("┊") for line in plot} == {-1, 6 + 24}
    assert not any("┊" in line for line in curve(points[:3], 46, 6))
    assert "step 1" in axis


def test_the_curve_has_the_requested_size() -> None:
    points = [Point(step, 0.1 * step, 0.05) for step in range(1, 6)]
    for width, height in ((20, 4), (60, 9), (150, 20)):
        lines = curve(points, width, height)
        assert len(lines) == height
        assert all(len(line) <= width for line in lines)
        assert lines[-1].strip().startswith("step 1")
        assert lines[-1].endswith("5")


def test_a_rising_curve_rises() -> None:
    lines = curve([Point(1, 0.0, 0.0), Point(2, 1.0, 0.0)], 30, 9)
    rows = [line[6:] for line in lines[:-1]]
    first = [row[:1].strip(" ⠀") for row in rows]
    last = [row[-1:].strip(" ⠀") for row in rows]
    assert first[-1]
    assert not first[0]
    assert last[0]
    assert not last[-1]


def test_human_ratings_are_marked_separately_with_a_legend() -> None:
    events: list[Event] = [EngineChanged(server="embedded", state="ROLLING", step=1)]
    for number in (1, 2, 3):
        for event in group_events(number, step=number):
            by_hand = number == 2 and isinstance(event, GroupSealed)
            events.append(replace(event, source="human") if by_hand else event)
    shown = rewards(session_of(state_of(*events)), ROOM).plain
    assert shown.count("◆") == 2  # the step's mark and its name
    assert "◆ human-rated" in shown
    plain = rewards(session_of(state_of(*group_events(1))), ROOM).plain
    assert "◆" not in plain
    marked = [Point(step, 0.5, 0.1, step / 4 if step > 2 else None) for step in range(5)]
    rows = [line[6:] for line in curve(marked, 46, 9)[:-1]]
    assert [row.find("◆") for row in rows if "◆" in row] == [39, 29]
    assert rows[0].endswith("◆")


def test_the_trend_ignores_votes() -> None:
    events: list[Event] = [EngineChanged(server="embedded", state="ROLLING", step=1)]
    auto = dict.fromkeys((1, 2, 3), (0.2, 0.9, 0.4, 0.1))
    auto |= dict.fromkeys((4, 5, 6), (0.3, 0.9, 0.5, 0.1))
    for step, rewards_of in auto.items():
        for event in group_events(step, step=step, rewards=rewards_of):
            if isinstance(event, GroupSealed) and step > 3:
                best = [
                    replace(reward, reward=float(reward.index == 1)) for reward in event.rewards
                ]
                event = replace(event, source="human", rewards=tuple(best))
            events.append(event)
    events.append(UpdateDone(server="embedded", step=6, stats={"kl": 0.1}))
    session = session_of(state_of(*events))
    head, *plot = rewards(session, LARGE).plain.splitlines()
    assert "0.45" in head
    assert "▲ up 0.05 since step 1" in head  # the mean of the rewards sent falls from 0.40 to 0.25
    assert any("◆ human-rated: reward of the winner" in line for line in plot)
    assert "◆" in plot[0] + plot[1]  # the vote names the automatic winner: 1, on top
    server = session.state.servers["embedded"]
    titles, newest, _, _, older, *_ = (
        text_of([line]).split() for line in step_table(server, NOW, 75, 5)
    )
    assert titles[3:6] == ["reward", "±std", "human"]
    assert (newest[3], newest[5], older[3], older[5]) == ("0.45", "1.00", "0.40", "–")
    figured = figures(Digests().last(session.state, 10), "v1")
    assert figured.reward is not None
    assert figured.reward.mean == pytest.approx(0.425)
    assert (figured.by_hand, figured.hand) == (3, 1.0)


def test_headline_and_trend_cover_finished_updates_only() -> None:
    def shown(*steps: tuple[int, float], update: int = 0) -> tuple[str, str]:
        events: list[Event] = []
        for step, level in steps:
            events.append(EngineChanged(server="embedded", state="ROLLING", step=step))
            events += group_events(step, step=step, rewards=[level, level - 0.1] * 2)
        if update:
            events.append(UpdateDone(server="embedded", step=update, stats={"kl": 0.1}))
        session = session_of(state_of(*events))
        server = session.state.servers["embedded"]
        head = with_curves(server, [], step_table(server, NOW, 60, 5), 160)
        return rewards(session, LARGE).plain.splitlines()[0], "\n".join(one.plain for one in head)

    head, engine = shown((1, 0.5))
    assert "0.45 ±0.05 at step 1 so far  no update yet" in head
    assert "reward 0.45  step 1 so far" in engine
    head, engine = shown((1, 0.5), (2, 0.9))
    assert "0.45 ±0.05 at step 1  one step so far" in head
    assert "reward 0.45  step 1" in engine
    assert "so far" not in engine
    head, engine = shown((1, 0.5), (2, 0.6), (3, 0.1))
    assert "0.55 ±0.05 at step 2  2 steps so far" in head
    assert "reward 0.55  step 2" in engine
    head, _ = shown((1, 0.5), (2, 0.6), (3, 0.1), update=3)  # the next step has not begun yet
    assert "0.05 ±0.05 at step 3  3 steps so far" in head
    seven = [(step, 0.5 if step < 4 else 0.6 if step < 7 else 0.1) for step in range(1, 8)]
    assert "0.55 ±0.05 at step 6  ▲ up 0.10 since step 1" in shown(*seven)[0]
    assert "0.05 ±0.05 at step 7  ≈ -0.07 ± 0.33 since step 1" in shown(*seven, update=7)[0]


@pytest.mark.parametrize(
    ("levels", "words", "tone"),
    [
        ((0.3, 0.3, 0.4, 0.6, 0.7, 0.7), "▲ up 0.33", "$reward-up"),
        ((0.7, 0.7, 0.6, 0.4, 0.3, 0.3), "▼ down 0.33", "$reward-down"),
        ((0.3, 0.8, 0.4, 0.9, 0.2, 0.7), "≈ +0.10 ± 0.52", "$muted"),
    ],
)
def test_a_change_that_may_be_noise_has_neither_arrow_nor_colour(
    levels: Sequence[float], words: str, tone: str
) -> None:
    events: list[Event] = []
    for step, level in enumerate(levels, 1):
        events.append(EngineChanged(server="embedded", state="ROLLING", step=step))
        events += group_events(step, step=step, rewards=[level] * 4)
    events.append(EngineChanged(server="embedded", state="ROLLING", step=len(levels) + 1))
    shown = rewards(session_of(state_of(*events)), LARGE)
    at = shown.plain.index(words)
    assert shown.plain[at:].startswith(f"{words} since step 1")
    assert [span.style for span in shown.spans if span.start <= at < span.end][-1] == tone


def test_a_step_of_human_ratings_alone_without_automatic_rewards_is_no_point() -> None:
    events: list[Event] = [EngineChanged(server="embedded", state="ROLLING", step=1)]
    for event in group_events(1):
        if isinstance(event, GroupSealed):
            events.append(replace(event, source="human"))
        elif not isinstance(event, GroupScored):
            events.append(event)
    events.append(UpdateDone(server="embedded", step=1, stats={"reward_mean": 0.25}))
    shown = rewards(session_of(state_of(*events)), ROOM).plain
    assert "Only human ratings so far: the curve shows automatic rewards" in shown


def test_a_reward_version_change_is_marked_and_ends_the_trend() -> None:
    events: list[Event] = [EngineChanged(server="embedded", state="ROLLING", step=1)]
    levels = [(1, 0.9, "v1"), (2, 0.8, "v1")]
    levels += [(step, 0.2 if step < 6 else 0.3, "v2") for step in range(3, 9)]
    for step, level, version in levels:
        for event in group_events(step, step=step, rewards=[level, level - 0.1] * 2):
            sent = isinstance(event, GroupSealed)
            events.append(replace(event, version=version) if sent else event)
    done = EngineChanged(server="embedded", state="ROLLING", step=9)
    shown = rewards(session_of(state_of(*events, done)), LARGE).plain
    assert "▲ up 0.10 since step 3, when the rewards changed" in shown
    assert "┆" in shown
    for steps, words in ((3, "first step"), (5, "3 steps")):
        older = events[: 1 + len(events[1:]) * steps // 8]
        first = rewards(session_of(state_of(*older, replace(done, step=steps + 1))), LARGE).plain
        assert f"{words} since the rewards changed" in first
    marked = [Point(step, 0.5, 0.1, version="v1" if step < 3 else "v2") for step in range(5)]
    rows = [line[6:] for line in curve(marked, 46, 9)[:-1]]
    assert {row.find("┆") for row in rows if "┆" in row} == {29}
    assert "┆" not in "".join(curve(marked[3:], 46, 9))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (RatingModeChanged(mode="answer_first"), "the rating mode"),
        (
            MockStarted(mock_id="m2", dataset="other.jsonl", target="t", total=9),
            "the dataset",
        ),
    ],
)
def test_no_arrow_spans_a_change_of_dataset_or_rating_mode(change: Event, what: str) -> None:
    events: list[Event] = [EngineChanged(server="embedded", state="ROLLING", step=1)]
    events.append(MockStarted(mock_id="m1", dataset="sums.jsonl", target="t", total=9))
    for step, level in enumerate([0.9] * 4 + [0.2] * 4, 1):
        if step == 5:
            events.append(change)
        events += [
            replace(event, row_id=f"row{step}") if isinstance(event, GroupOpened) else event
            for event in group_events(step, step=step, rewards=[level, level - 0.1] * 2)
        ]
    events.append(EngineChanged(server="embedded", state="ROLLING", step=9))
    shown = rewards(session_of(state_of(*events)), LARGE).plain
    assert f"4 steps since {what} changed" in shown
    assert "down" not in shown


def test_a_step_of_an_unknown_rating_mode_is_no_change_of_it() -> None:
    events: list[Event] = [EngineChanged(server="embedded", state="ROLLING", step=1)]
    for step in range(1, 9):
        events += group_events(step, step=step, rewards=[step / 10, step / 20] * 2)
    state = state_of(*events, EngineChanged(server="embedded", state="ROLLING", step=9))
    for stats in state.servers["embedded"].steps:
        if stats.step in (1, 2, 5, 8):  # of an older version, or without a group of this console
            stats.mode = ""
    assert "since step 1" in rewards(session_of(state), LARGE).plain
    assert "changed" not in rewards(session_of(state), LARGE).plain


async def test_a_panel_of_one_line_has_its_title_in_the_border_like_the_others() -> None:
    left = [
        event
        for event in sample_events()
        if not isinstance(event, AlertRaised | MockStarted | MockRowDone)
    ]
    async with run_console(state_of(*left), size=(160, 48)) as console:
        rows = console.text().splitlines()
        assert any("╭─ ALERTS ─" in row for row in rows)
        assert any("╭─ MOCK USER ─" in row for row in rows)
        assert any("│ none " in row for row in rows)
        assert any("│ not started: press 4 then s" in row for row in rows)
        assert not any("│ ALERTS" in row or "│ MOCK USER" in row for row in rows)
