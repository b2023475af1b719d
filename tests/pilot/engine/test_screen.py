"""The Engine screen: servers, steps, start, stop and restart, processes."""

import pytest

from console.screens.engine.steps import step_table
from console.screens.engine.widgets import ServerPanel
from console.views.timeline import step_seconds, sync_seconds
from core.commands.plan_engines import stop_loss
from core.events import EngineChanged, EngineLost, Event, PoolChanged, UpdateDone
from core.state import Server, Span
from tests.support.console import (
    HOSTILE,
    NOW,
    FakeChild,
    FakeProcessManager,
    group_events,
    run_console,
    sample_events,
    sample_state,
    state_of,
)
from tests.support.groups import text_of


def offline() -> list[Event]:
    return sample_events()[:2]


def processes_with(**children: FakeChild) -> FakeProcessManager:
    return FakeProcessManager(dict(children))


async def test_the_panel_shows_everything_known_of_a_server() -> None:
    async with run_console(sample_state(), size=(100, 40), at="engine") as console:
        text = console.text()
        for words in (
            "http://127.0.0.1:10086",
            "tiny",
            "2/4 tasks",
            "until enough tasks",
            "8 claimed: 8 ours, 0 of others",
            "no other client is active",
            "loss",
            "0.31",
            "54s",
            "10s",
        ):
            assert words in text, words


STATS = {
    "kl": 0.0123,
    "no_signal_share": 0.25,
    "clip_fraction": 0.02,
    "entropy": 1.25,
    "response_tokens": 24.5,
    "grad_norm": 0.31,
    "seconds": 0.2,
    "step_seconds": 21.0,
    "sync_seconds": 0.4,
    "samples": 16.0,
    "tokens": 392.0,
    "reward_mean": 0.7,
    "reward_std": 0.1,
}


def updated(source: str = "engine", **stats: float) -> Server:
    state = state_of(
        *sample_events(),
        UpdateDone(server="embedded", step=12, stats=stats or STATS, source=source),
    )
    return state.servers["embedded"]


@pytest.mark.parametrize("width", [40, 75, 100, 150])
def test_the_table_of_updates_has_the_columns_that_fit(width: int) -> None:
    lines = [text_of([line]) for line in step_table(updated(), NOW, width, 5)]
    assert len(lines) == 6
    assert all(len(line) <= width for line in lines)
    wanted = {40: 5, 75: 9, 100: 13, 150: 16}[width]
    titles = lines[0].replace("no sig", "nosig").split()
    assert len(titles) >= wanted, titles
    if width >= 75:
        for words in ("0.012", "25%", "21s", "0.4s", "2%"):
            assert words in lines[1], words
    if width == 150:
        for words in ("24.5", "0.310", "0.2s", " 16 ", "392"):
            assert words in lines[1] + " ", words


def test_the_reward_of_other_clients_comes_from_the_update() -> None:
    server = updated()
    server.steps = server.steps[-1:]
    server.steps[0].rewards = server.steps[0].auto = 0
    assert "0.70" in text_of(step_table(server, NOW, 75, 5))


def test_figures_from_the_pool_are_marked() -> None:
    lines = [
        text_of([line]) for line in step_table(updated("pool", no_signal_share=0.5), NOW, 75, 3)
    ]
    assert "50%" in lines[1]
    assert "from the last reading of the pool" in lines[-1]
    assert "of the pool" not in text_of(step_table(updated(), NOW, 75, 3))


def test_repeated_steps_are_timed_again() -> None:
    spans = [
        Span(state="ROLLING", since=0.0, step=1),
        Span(state="WEIGHT_SYNCING", since=8.0, step=1),
        Span(state="ROLLING", since=10.0, step=2),
        Span(state="ROLLING", since=30.0, step=3),
        Span(state="OFFLINE", since=40.0, step=3),
        Span(state="ROLLING", since=41.0, step=1),
    ]
    assert step_seconds(spans[:4]) == {1: 10.0, 2: 20.0}
    assert step_seconds(spans) == {}
    assert sync_seconds(spans[:5], 50.0) == {1: 2.0}
    assert sync_seconds(spans, 50.0) == {}
    spans.append(Span(state="ROLLING", since=46.0, step=2))
    assert step_seconds(spans) == {1: 5.0}


def test_a_step_that_goes_on_in_the_next_engine_run_has_no_duration_yet() -> None:
    spans = [
        Span(state=state, since=since, step=step)
        for state, since, step in (
            ("ROLLING", 1.0, 1),
            ("WEIGHT_SYNCING", 9.0, 1),
            ("ROLLING", 11.0, 2),
            ("WEIGHT_SYNCING", 14.0, 2),
            ("OFFLINE", 15.0, 0),
            ("ROLLING", 100.0, 2),
        )
    ]
    assert step_seconds(spans) == {1: 10.0}
    assert sync_seconds(spans, 101.0) == {1: 2.0}
    spans.append(Span(state="ROLLING", since=104.0, step=3))
    assert step_seconds(spans) == {1: 10.0, 2: 4.0}


async def test_an_engine_that_is_offline_can_be_started_and_not_stopped() -> None:
    async with run_console(state_of(*offline()), at="engine") as console:
        assert "s starts it with its job" in console.text()
        await console.press("k")
        assert "Engine: Stop" not in console.text()
        await console.press("s")
        assert console.link.commands == [("engine.start", {"server": "embedded"})]
        await console.press("h")
        assert console.link.commands[-1] == (
            "engine.start",
            {"server": "embedded", "preset": "hand"},
        )


async def test_stop_names_the_loss_and_waits_for_the_answer() -> None:
    async with run_console(sample_state(), at="engine") as console:
        console.link.publish(
            PoolChanged(
                server="embedded",
                method="rollout_until_finish_enough_tasks",
                completed_tasks=2,
                task_target=4,
                running=20,
                running_others=12,
                other_clients=("a", "b", "c"),
            )
        )
        await console.settle()
        await console.press("k")
        text = console.text()
        assert "12 episodes of 3 other clients are lost" in text
        assert "8 claimed episodes of yours are lost" in text
        assert "1 of them unrated" in text
        await console.press("enter")
        assert console.link.commands == []
        await console.press("k", "y")
        assert console.link.commands == [("engine.stop", {"server": "embedded"})]


async def test_the_keys_apply_to_the_focused_server() -> None:
    state = state_of(
        EngineChanged(server="a", state="OFFLINE", at=NOW),
        EngineChanged(server="b", state="OFFLINE", at=NOW),
    )
    async with run_console(state, size=(100, 40), at="engine") as console:
        await console.press("s", "tab", "s")
        assert [args["server"] for _, args in console.link.commands] == ["a", "b"]


async def test_panels_come_and_go_with_the_servers() -> None:
    async with run_console(state_of(*offline()), at="engine") as console:
        console.link.publish(EngineChanged(server="late", state="ROLLING", step=3))
        await console.settle()
        assert {panel.server for panel in console.app.screen.query(ServerPanel)} == {
            "embedded",
            "late",
        }
        del console.session.state.servers["late"]
        console.session.touch(["servers"])
        await console.settle()
        assert len(console.app.screen.query(ServerPanel)) == 1


async def test_a_crashed_process_is_shown_and_can_be_restarted() -> None:
    tail = ("Traceback (most recent call last):", '  File "x"', f"ValueError: {HOSTILE}")
    processes = processes_with(
        engine=FakeChild("engine", "exited", None, "", 3, "", tail), proxy=FakeChild("proxy")
    )
    async with run_console(
        sample_state(), size=(100, 40), at="engine", processes=processes
    ) as console:
        text = console.text()
        assert "ended with exit code 3" in text
        assert '  File "x"' in text
        assert "ValueError: [/b]" in text
        await console.press("r")
        assert processes.commands == [("engine.restart_process", {})]


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_a_crash_is_on_top_of_the_screen_and_resume_in_the_footer(
    size: tuple[int, int],
) -> None:
    processes = processes_with(engine=FakeChild("engine"), proxy=FakeChild("proxy"))
    async with run_console(sample_state(), size=size, at="engine", processes=processes) as console:
        lines = console.text().splitlines()
        assert "PROCESSES" not in lines[1]
        assert "Resume" not in lines[-1]
        processes.children["engine"] = FakeChild(
            "engine", "exited", None, "", -9, "killed by SIGKILL"
        )
        console.session.touch(["children"])
        await console.settle()
        lines = console.text().splitlines()
        assert "PROCESSES" in lines[1]
        assert "killed by SIGKILL" in lines[2]
        assert lines[-1].lstrip().startswith("r Resume")
        processes.children["engine"] = FakeChild("engine")
        console.session.touch(["children"])
        await console.settle()
        assert "PROCESSES" not in console.text().splitlines()[1]
        assert "Resume" not in console.text().splitlines()[-1]


async def test_a_running_process_is_restarted_after_confirmation() -> None:
    processes = processes_with(engine=FakeChild("engine"))
    async with run_console(sample_state(), at="engine", processes=processes) as console:
        await console.press("r")
        assert "pid 4242 is stopped and started again" in console.text()
        await console.press("n")
        assert processes.commands == []


async def test_a_server_of_others_has_no_process_to_restart() -> None:
    async with run_console(sample_state(), at="engine") as console:
        assert "none was started from this console" in console.text()
        await console.press("r", "p")
        assert "started again" not in console.text()


async def test_a_failed_boot_shows_the_remedy() -> None:
    state = state_of(EngineChanged(server="e", state="BOOTING", at=NOW - 61))
    async with run_console(state, size=(120, 30), at="engine") as console:
        text = console.text()
        assert "BOOTING for 1m01: the start has probably failed" in text
        assert "Stop the engine (k)" in text


async def test_a_lost_server_shows_the_age_of_its_figures() -> None:
    async with run_console(sample_state(), size=(100, 40), at="engine") as console:
        console.link.publish(EngineLost(server="embedded", error=HOSTILE, seen_at=NOW - 9))
        await console.settle()
        text = console.text()
        assert "last answered 9s ago; the figures above are from then" in text
        assert "2/4 tasks" in text
        await console.press("k")
        assert "Engine: Stop" in console.text(), "as the proxy, which stops it"


def test_stopping_a_silent_engine_assumes_everything_is_lost() -> None:
    state = state_of(EngineChanged(server="e", state="ROLLING", step=1))
    assert "does not report claimed episodes" in " ".join(stop_loss(state, state.servers["e"]))


def test_open_groups_of_other_servers_are_not_lost() -> None:
    state = state_of(
        EngineChanged(server="e", state="ROLLING", step=1),
        *group_events(1, server="other", until="GENERATING"),
    )
    assert "open group" not in " ".join(stop_loss(state, state.servers["e"]))
