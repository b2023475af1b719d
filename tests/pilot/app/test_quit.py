"""Quitting: the dialog, its progress, the fate of the processes."""

import asyncio

import msgspec
import pytest
from textual.widgets import Static

from console.screens.dialogs.quit import QuitScreen, StoppingScreen
from core.commands.plan_engines import stop_loss
from tests.pilot.app.test_screens import running_processes
from tests.support.checks import missing
from tests.support.console import FakeProcessManager, RunningConsole, run_console
from tests.support.sample import sample_state


@pytest.mark.parametrize("key", ["s", "l"])
async def test_quit_stops_the_processes_or_leaves_them_running(key: str) -> None:
    processes = running_processes()
    async with run_console(sample_state(), processes=processes) as console:
        await console.press("ctrl+q")
        assert not missing(console.text(), "processes are still running", "pid 4242")
        await console.pilot.press(key)
        async with asyncio.timeout(20):
            while console.app.is_running:
                await asyncio.sleep(0)
    assert processes.stopped is (key == "s")
    assert console.app.return_value == 0


async def test_quit_names_the_pool_that_a_stop_discards() -> None:
    state = sample_state()
    server = state.servers["embedded"]
    server.own = True
    assert server.pool is not None
    server.pool = msgspec.structs.replace(
        server.pool, completed_tasks=3, running_others=0, other_clients=()
    )
    done = next(
        group
        for group in reversed(state.groups.values())
        if group.phase == "DONE" and group.server == "embedded" and not group.lost
    )
    done.source, done.sealed_at = "human", server.since
    expected = "The pool of this step is discarded: 3 tasks, 1 human-rated."
    assert expected in " ".join(stop_loss(state, server))
    processes = running_processes()
    async with run_console(state, size=(80, 24), processes=processes) as console:
        await console.press("ctrl+q")
        body = str(console.app.screen.query_one(".dialog-body", Static).content)
        assert f"Stop them: {expected[0].lower()}{expected[1:]}" in body
        assert "human-rated." in console.text()
        await console.press("escape")
        del processes.children["engine"]
        console.session.touch(("children",))
        await console.press("ctrl+q")
        body = str(console.app.screen.query_one(".dialog-body", Static).content)
        assert "discarded" not in body


class SlowProcessManager(FakeProcessManager):
    """A process manager whose proxy is stopping until `done` is set."""

    def __init__(self) -> None:
        super().__init__(running_processes().children)
        self.stop_calls, self.done = 0, asyncio.Event()

    async def stop_all(self, *, now: bool = False) -> None:
        self.stop_calls += 1
        self.children["proxy"].phase = "stopping"
        if not now:
            await self.done.wait()
        await super().stop_all()


async def test_stopping_shows_its_progress_and_quit_asks_again() -> None:
    processes = SlowProcessManager()
    async with run_console(sample_state(), processes=processes) as console:
        await console.press("ctrl+q", "s")
        console.clock.now += 3
        await until(console, "proxy   pid 4242  … stopping, 3s")
        assert "engine  pid 4242  · next" in console.text()
        processes.children["proxy"].pid = None
        await until(console, "proxy   pid 4242  ✓ stopped")
        processes.children["proxy"].pid = 4242
        await console.press("ctrl+q")
        assert not missing(console.text(), "processes are still running", "Already stopping: proxy")
        await console.press("escape")
        assert "before quitting" not in console.text()
        await console.press("f2")
        assert console.app.current_mode == "requests"
        await console.press("ctrl+q", "s")
        assert processes.stop_calls == 2
        assert "Stopping before quitting" in console.text()
        processes.done.set()
        async with asyncio.timeout(20):
            while console.app.is_running:
                await asyncio.sleep(0)
    assert console.app.return_value == 0


@pytest.mark.parametrize("keys", [["q"], ["ctrl+q", "q"]])
async def test_one_key_ends_the_wait_for_what_still_runs(keys: list[str]) -> None:
    state, processes = sample_state(), SlowProcessManager()
    group = next(reversed(state.groups.values()))
    group.server, group.phase = "embedded", "SUBMITTING"
    async with run_console(state, size=(80, 24), processes=processes) as console:
        await console.press("ctrl+q", "q")  # nothing is stopping yet
        assert processes.stop_calls == 0
        assert "The rewards of 1 finished group are not on embedded yet" in words(console)
        await console.press("s")
        assert not missing(
            words(console),
            "Requests in flight finish first, which takes 20 s at most.",
            "The rewards of 1 finished group are not on embedded yet",
            "q stops now: requests in flight get no answer",
        )
        await console.press(*keys[:-1])
        if len(keys) == 2:
            assert not missing(
                words(console),
                "Already stopping: proxy. Leave: that goes on.",
                "Stop them s Now q Leave l Stay Esc",
            )
        await console.pilot.press(keys[-1])
        async with asyncio.timeout(20):
            while console.app.is_running:
                await asyncio.sleep(0)
    assert (processes.stop_calls, processes.stopped) == (2, True)
    assert console.app.return_value == 0


def words(console: RunningConsole) -> str:
    """The text on the screen without the lines and frames of dialogs."""
    return " ".join(console.text().replace("│", " ").split())


async def until(console: RunningConsole, words: str) -> None:
    """Wait until the terminal shows them."""
    async with asyncio.timeout(20):
        while words not in console.text():
            await asyncio.sleep(0.02)


async def test_escape_cancels_quitting() -> None:
    processes = running_processes()
    async with run_console(sample_state(), processes=processes) as console:
        await console.press("ctrl+q", "escape")
        assert console.app.is_running
        assert not processes.stopped
        assert console.app.current_mode == "overview"


async def test_quit_does_not_ask_when_nothing_runs() -> None:
    async with run_console(sample_state()) as console:
        await console.pilot.press("ctrl+q")
        async with asyncio.timeout(20):
            while console.app.is_running:
                await asyncio.sleep(0)


async def test_quitting_twice_at_once_leaves_no_dialog_behind() -> None:
    processes = SlowProcessManager()
    async with run_console(sample_state(), processes=processes) as console:
        await console.press("ctrl+q")
        question = console.app.screen
        assert isinstance(question, QuitScreen)
        question.action_choose("stop")
        while not isinstance(console.app.screen, StoppingScreen):
            await asyncio.sleep(0)
        await console.app.action_quit()  # before that screen is ready
        await until(console, "processes are still running")
        await console.press("escape")
        await console.pilot.pause()
        assert not any(isinstance(one, StoppingScreen) for one in console.app.screen_stack)
