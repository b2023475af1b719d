"""The Job screen: fields, YAML, changes, saving, applying after confirmation."""

from functools import lru_cache
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Input, TextArea

from ajet_swarm.job.schema import BATCH, EPOCHS, LEARNING_RATE
from ajet_swarm.job.tree import dump_job, get, load_job, put
from console.screens.engine.inside import InsideScreen
from console.screens.engine.job import JobScreen
from console.screens.engine.panel import server_panel, work_lines
from console.screens.engine.screen import EngineScreen
from console.screens.engine.text import episode_loss
from console.session.app_state import Session
from console.shell.palette import entries
from console.text.sections import Room
from core.control_payloads import EpisodeDetails, JobInfo, LogLine, ServerDetails, TaskDetails
from core.events import AlertRaised, EngineChanged, OperationStep, WorkChanged
from core.jobs import default_job, hand_job
from core.state import Server
from tests.support.console import (
    HOSTILE,
    NOW,
    FakeLink,
    RunningConsole,
    group_events,
    run_console,
    sample_state,
)
from tests.support.sample import sample_events, state_of


@lru_cache
def job(**values: Any) -> str:
    made = default_job()
    put(made, LEARNING_RATE, values.get("lr", 5e-4))
    put(made, BATCH, values.get("batch", 4))
    return dump_job(made)


def link(**more: Any) -> FakeLink:
    made = FakeLink(sample_state())
    made.job_sheet = JobInfo(
        **{
            "server": "embedded",
            "running": job(),
            "whole": True,
            "source": "as last sent from here",
            "default": job(),
            "hand": dump_job(hand_job()),
            "path": "/h/jobs/embedded.yaml",
            **more,
        }
    )
    return made


async def opened(console: RunningConsole) -> JobScreen:
    await console.press("e")
    for _ in range(20):
        if "Learning rate" in console.text() and "CHANGES" in console.text():
            break
        await console.settle()
    screen = console.app.screen
    assert isinstance(screen, JobScreen)
    return screen


async def typed(console: RunningConsole, field: str, text: str) -> None:
    box = console.app.screen.query_one(f"#job-{field}", Input)
    box.focus()
    box.value = text
    await console.settle()


async def test_the_screen_shows_the_saved_job_its_changes_and_the_presets() -> None:
    made = link(saved=job(lr=1e-4, batch=9), saved_at=NOW)
    async with run_console(link=made, at="engine") as console:
        screen = await opened(console)
        for size in ((80, 24), (160, 48)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            for words in (
                "Job of embedded",
                "/h/jobs/embedded.yaml",
                "Learning rate",
                "0.0005",
                "→ 0.0001",
                "as last sent from here",
            ):
                assert words in console.text(), words
        batch = screen.query_one("#job-batch", Input)
        assert batch.value == "9"
        for key, value in (("h", "1"), ("d", "4"), ("h", "1"), ("u", "4")):
            await console.press(key)
            assert batch.value == value, key


async def test_a_preset_sets_some_fields_beside_its_purpose_and_a_field_shows_its_help() -> None:
    async with run_console(link=link(saved=job(lr=1e-4)), at="engine", size=(120, 36)) as console:
        screen = await opened(console)
        assert "c Careful a policy in use: 16 tasks of 8 answers" in " ".join(
            console.text().split()
        )
        for key, batch, epochs in (("c", 16, 1), ("f", 2, 2)):
            await console.press(key)
            made = load_job(screen.editor.draft.text)
            assert (get(made, BATCH), get(made, EPOCHS), get(made, LEARNING_RATE)) == (
                batch,
                epochs,
                1e-4,
            )
            assert screen.query_one("#job-batch", Input).value == str(batch)
        await console.press("y", "escape", "c")
        assert "train_batch_size: 16" in screen.query_one("#job-yaml", TextArea).text
        await console.press("escape", "y", "e")
        for size in ((120, 36), (80, 24)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            assert "Model: The model to train" in console.text()
            assert ("ajet.model.path" in console.text()) == (size == (120, 36))


async def test_a_changed_field_is_compared_saved_and_applied_and_an_invalid_one_is_named() -> None:
    async with run_console(link=link(), at="engine") as console:
        await opened(console)
        assert "no difference" in console.text()
        await typed(console, "batch", "x[/b]")
        assert "Tasks a step: cannot be `x[/b]`" in console.text()
        await console.press("escape", "s")
        await console.press("escape", "a")
        assert console.link.commands == []
        assert console.app.focused is None or console.app.focused.id == "job-batch"
        await typed(console, "batch", "4")
        await typed(console, "lr", "3e-4")
        assert "→ 0.0003" in console.text()
        await console.press("escape", "s")
        name, args = console.link.commands.pop()
        assert (name, args["server"]) == ("engine.job", "embedded")
        assert get(load_job(args["job"]), LEARNING_RATE) == 3e-4
        await console.press("a")
        text = console.text()
        for words in ("Apply the job to embedded?", "Changes: Learning rate", "are lost"):
            assert words in text, words
        await console.press("n")
        assert console.link.commands == []
        await console.press("a", "y")
        name, args = console.link.commands[-1]
        assert (name, args["server"]) == ("engine.apply", "embedded")
        assert get(load_job(args["job"]), LEARNING_RATE) == 3e-4
        assert not isinstance(console.app.screen, JobScreen)


async def test_a_yaml_error_shows_its_line() -> None:
    async with run_console(link=link(), at="engine") as console:
        await opened(console)
        await console.press("y")
        area = console.app.screen.query_one("#job-yaml", TextArea)
        assert area.text == job()
        area.text = "ajet:\n  rollout:\n    num_repeat: few\n"
        await console.press("escape", "s")
        assert "num_repeat` is 'few'" in console.text()
        assert "line 3" in console.text()
        assert area.cursor_location == (2, 0)
        area.text = job(batch=6) + "extra: 1\n"
        await console.press("escape", "s")
        assert console.link.commands[-1][1]["job"].endswith("extra: 1\n")
        assert "unknown key `extra`" in console.text()
        await console.press("y")
        assert console.app.screen.query_one("#job-batch", Input).value == "6"
        await console.press("y")
        area.text = "other:\n  here: 1\n"
        await console.press("escape", "s")
        result = " ".join(console.text().split())
        assert "Put everything under `ajet:`, as in `ajet: {model: {path: ...}}`" in result


async def test_unsaved_changes_are_confirmed_before_leaving() -> None:
    async with run_console(link=link(), at="engine") as console:
        for way in ("escape", "f5"):
            await opened(console)
            await typed(console, "batch", "x")
            await console.press("escape", way)
            assert "Leave the job of embedded?" in console.text()
            await console.press("n")
            assert "Tasks a step: cannot be `x`" in console.text()
            await typed(console, "batch", "6")
            await console.press("escape", way)
            assert "neither saved (s) nor" in console.text()
            await console.press("y")
            assert not isinstance(console.app.screen, JobScreen)
            assert console.link.commands == []
        await opened(console)  # a saved one closes without a question
        await console.press("h", "y", "escape", "escape")
        assert not isinstance(console.app.screen, JobScreen)
        await opened(console)
        await typed(console, "batch", "6")
        await console.press("escape", "s", "escape")
        assert not isinstance(console.app.screen, JobScreen)


async def test_a_read_only_console_shows_the_job_and_sends_nothing() -> None:
    async with run_console(link=link(), at="engine", read_only=True) as console:
        await opened(console)
        await console.press("s", "a")
        assert console.link.commands == []


async def test_a_job_that_cannot_be_read_shows_the_error() -> None:
    made = link()
    made.job_sheet = None
    async with run_console(link=made, at="engine") as console:
        await console.press("e")
        await console.settle()
        assert "The job cannot be read: embedded: there is no such server" in console.text()
        await console.press("escape")
        assert not isinstance(console.app.screen, JobScreen)


async def test_hostile_text_of_a_job_is_shown_safely() -> None:
    made = default_job(HOSTILE)
    async with run_console(link=link(saved=dump_job(made), source=HOSTILE), at="engine") as console:
        await opened(console)
        text = console.text()
        assert "[/b][red]" in text
        assert "\x1b" not in text


# --- several servers -----------------------------------------------------------------------------


def several() -> FakeLink:
    state = state_of(
        *sample_events(),
        EngineChanged(server="gpu", state="ROLLING", url="http://gpu:1", step=3),
        EngineChanged(server="cpu", state="OFFLINE", url="http://cpu:1"),
    )
    made = link()
    made.state = state
    return made


async def test_all_servers_are_stopped_and_get_a_job_after_one_confirmation() -> None:
    async with run_console(link=several(), size=(100, 40), at="engine") as console:
        titles = [title for title, _, _ in entries(console.app)]
        assert "Engine: Stop embedded, gpu" in titles
        assert "Engine: Start cpu" in titles
        await console.press("K")
        text = console.text()
        assert "embedded:" in text
        assert "gpu:" in text
        await console.press("y")
        assert sorted(args["server"] for _, args in console.link.commands) == ["embedded", "gpu"]
        assert {name for name, _ in console.link.commands} == {"engine.stop"}
        console.link.commands.clear()
        await opened(console)
        await console.press("A")
        text = console.text()
        assert "Apply the job to 3 servers?" in text
        assert "The engine is OFFLINE: it starts" in text
        await console.press("y")
        result = [(name, args["server"]) for name, args in console.link.commands]
        assert sorted(result) == [("engine.apply", server) for server in ("cpu", "embedded", "gpu")]


# --- running operations --------------------------------------------------------------------------


def working(phase: str = "doing", message: str = "") -> WorkChanged:
    return WorkChanged(
        server="embedded",
        work="Apply a job",
        began=NOW - 12,
        phase=phase,
        said=message,
        steps=(
            OperationStep(title="stop the engine", phase="done", began=NOW - 12, ended=NOW - 9),
            OperationStep(title="wait for a stable OFFLINE", phase=phase, began=NOW - 9),
            OperationStep(title="send the job"),
        ),
    )


async def test_each_step_of_an_operation_is_shown_and_can_be_cancelled() -> None:
    async with run_console(link=link(), at="engine") as console:
        console.link.publish(working())
        await console.settle()
        text = console.text()
        assert "✓ stop the engine 3.0s" in text
        assert "▸ wait for a stable OFFLINE 9s" in text
        assert "· send the job" in text
        await console.press("n")
        assert console.link.commands == [("engine.cancel", {"server": "embedded"})]
        console.link.publish(working("cancelled", "cancelled; the engine is OFFLINE"))
        await console.settle()
        assert "the engine is OFFLINE" in console.text()


def test_a_successful_operation_disappears_after_a_while() -> None:
    done = WorkChanged(work="Start", phase="done", began=NOW - 9, at=NOW - 5, said="it is ROLLING")
    assert "it is ROLLING" in work_lines(done, NOW, 80)[0].plain
    assert not work_lines(done, NOW + 300, 80)
    assert work_lines(replace(done, phase="failed"), NOW + 300, 80)
    assert not work_lines(None, NOW, 80)


def test_a_successful_operation_disappears_once_the_engine_is_stopped() -> None:
    server = Server(name="embedded", url="", state="ROLLING", since=NOW - 60)
    server.work = WorkChanged(
        work="Resume", phase="done", began=NOW - 70, at=NOW - 60, said="it resumed"
    )
    session, room = Session(clock=lambda: NOW), Room(80, 24, tall=False)
    assert "it resumed" in server_panel(server, session, room).plain
    server.state, server.since = "OFFLINE", NOW - 9
    assert "it resumed" not in server_panel(server, session, room).plain


# --- inside a server -----------------------------------------------------------------------------


async def test_the_longest_idle_episode_is_aborted_with_a_reason() -> None:
    made = link()
    made.looks["embedded"] = ServerDetails(
        server="embedded",
        at=NOW,
        free=6,
        claimed=2,
        episodes=(
            EpisodeDetails(uuid="e-late", client="other", idle=230.0, limit=240.0, calls=3),
            EpisodeDetails(uuid="e-new", client=made.state.client_uuid, idle=2.0, limit=240.0),
        ),
        tasks=(TaskDetails(task="t1", episodes=2, rewards=(0.25, 0.75)),),
        log=(LogLine(at=NOW, tag="trainer", text=HOSTILE),),
    )
    async with run_console(link=made, size=(100, 48), at="engine") as console:
        await console.press("i")
        await console.settle()
        text = console.text()
        for words in (
            "2 episodes claimed of 8 slots, 6 free",
            "3m50 / 4m00",
            "other",
            "TASKS OF THIS BATCH",
            "0.25 0.75",
            "SERVER LOG",
        ):
            assert words in text, words
        await console.press("x")
        assert "Client other holds it and is not consulted." in console.text()
        assert "recorded in the proxy's log" in console.text()  # there may be no group of ours
        await console.press("3", "y")
        assert console.link.commands == [
            (
                "engine.abort_episode",
                {"server": "embedded", "episode": "e-late", "reason": "debugging"},
            )
        ]
        await console.press("escape")
        assert not isinstance(console.app.screen, InsideScreen)


@pytest.mark.parametrize("read_only", [False, True])
async def test_the_key_of_a_held_batch_opens_its_episodes(read_only: bool) -> None:
    made = link()
    dead = EpisodeDetails(uuid="e-dead", client="5f0c4d1e", idle=41.0, limit=240.0, calls=3)
    made.looks["embedded"] = ServerDetails(
        server="embedded", at=NOW, free=0, claimed=1, episodes=(dead,)
    )
    cause = "ROLLING_POST for 12 s: 3 episodes held by client 5f0c4d1e, last seen 41 s ago"
    held = AlertRaised(key="held:embedded", alert_kind="held", cause=cause, level="error")
    async with run_console(link=made, size=(118, 48), read_only=read_only) as console:
        console.app.session.state.alerts.clear()
        console.link.publish(held)
        await console.settle()
        result = " ".join(console.text().split())
        assert "3 episodes held by client 5f0c4d1e," in result
        assert "last seen 41 s ago" in result
        assert " 5 i " in result or read_only
        await console.press("a")
        await console.settle()
        assert isinstance(console.app.screen, InsideScreen)
        assert console.app.screen.target_server == "embedded"
        assert "e-dead" in console.text()
        await console.press("escape")
        assert isinstance(console.app.screen, EngineScreen)


def test_aborting_an_episode_states_its_cost() -> None:
    state = state_of(*group_events(1, until="GENERATING"))
    group = state.groups["g0001"]
    one = EpisodeDetails(uuid="ep-1-0", client="me", idle=3.0, limit=240.0, calls=1)
    assert "candidate of your group g0001" in episode_loss(one, group, "me", "ROLLING")
    assert "goes back to the pool" in episode_loss(one, group, "me", "ROLLING")
    assert "is deleted" in episode_loss(one, None, "me", "ROLLING_POST")
    assert "no open group holds it" in episode_loss(one, None, "me", "ROLLING")


async def test_act_on_an_alert_closes_an_open_job_screen() -> None:
    refused = AlertRaised(
        key="refused:embedded", alert_kind="refused", cause="off", todo="start it"
    )
    async with run_console(link=link(), at="engine") as console:
        await opened(console)
        console.app.session.state.alerts.clear()
        console.link.publish(refused)
        await console.settle()
        await console.press("f1", "a")
        assert isinstance(console.app.screen, EngineScreen), console.app.screen_stack
        await opened(console)
        await typed(console, "lr", "3e-4")
        await console.press("f1", "a")
        assert "Leave the job of embedded?" in console.text()  # changes are not lost


def with_key(value: str, **more: Any) -> str:
    return f"{job(**more)}  teacher_model:\n    api_key: {value}\n"


async def test_a_saved_secret_is_masked_everywhere() -> None:
    made = link(saved=with_key("'*** aaaaaaaa'"), running=with_key("'*** bbbbbbbb'"))
    async with run_console(link=made, size=(160, 48), at="engine") as console:
        await opened(console)
        assert "teacher_model.api_key" in console.text()
        assert "*** (changed)" in console.text()
        await console.press("y")
        area = console.app.screen.query_one("#job-yaml", TextArea)
        area.text = with_key("hunter2")
        await console.press("escape", "s")
        assert made.commands[-1][1]["job"] == with_key("hunter2")
        await console.settle()
        assert area.text == with_key("'*** aaaaaaaa'")
        assert "hunter2" not in console.text()
