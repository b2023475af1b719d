"""The whole app: switching screens, dialogs, messages, commands, quitting."""

import asyncio

from textual.command import CommandList

from ajet_swarm.common.errors import AjetError
from console.models.screen_registry import SCREENS
from console.shell.palette import entries
from core.events import EngineChanged, MockStarted, ProxyStarted, RatingModeChanged
from tests.support.checks import missing, present
from tests.support.console import (
    FakeChild,
    FakeLink,
    FakeProcessManager,
    RunningConsole,
    run_console,
)
from tests.support.sample import HOSTILE, sample_events, sample_state, state_of


def running_processes() -> FakeProcessManager:
    return FakeProcessManager(
        {"engine": FakeChild("engine", url="http://127.0.0.1:10086"), "proxy": FakeChild("proxy")}
    )


async def test_f_keys_digits_and_typed_names_open_screens() -> None:
    async with run_console(sample_state()) as console:
        for place in (*SCREENS[1:], SCREENS[0]):
            await console.press(f"f{place.number}")
            assert console.app.current_mode == place.name
            assert console.app.front is not None
            assert console.app.front.area.startswith(place.title.split(" ")[0])
        for keys, mode in (
            (["5"], "engine"),
            (["7"], "log"),
            (["f3", "5"], "rate"),  # digits vote there
            (["colon", *"eng", "enter"], "engine"),
            (["colon", *"nowhere", "enter"], "engine"),
            (["colon", "escape"], "engine"),
        ):
            await console.press(*keys)
            assert console.app.current_mode == mode, keys


async def titles(console: RunningConsole) -> list[str]:
    return [title for title, _, _ in entries(console.app)]


async def test_the_palette_offers_available_commands() -> None:
    async with run_console(
        state_of(*sample_events()[:2]), processes=running_processes()
    ) as console:
        result = await titles(console)
        assert "Engine: Start" in result
        assert "Engine: Stop" not in result
        assert "Mock user: Start" in result
        assert "Mock user: Pause" not in result
        assert "Rating: Switch to off" not in result
        console.link.publish(
            EngineChanged(server="embedded", state="ROLLING", step=1),
            MockStarted(mock_id="m", dataset="d", target="t", total=3),
            RatingModeChanged(mode="hold"),
        )
        await console.settle()
        result = await titles(console)
        assert "Engine: Stop" in result
        assert "Engine: Start" not in result
        assert "Mock user: Pause" in result
        assert "Mock user: Start" not in result
        assert "Rating: Switch to off" in result
        assert not any(title.startswith("Group:") for title in result)
        assert all(": " in title for title in result)


async def test_a_read_only_console_offers_no_commands() -> None:
    async with run_console(
        sample_state(), processes=running_processes(), read_only=True
    ) as console:
        areas = {title.partition(":")[0] for title in await titles(console)}
        assert areas == {"Screen", "Theme", "Console"}
        assert "read-only" in console.text() or "RO" in console.text()
        await console.press("f5", "k")
        assert "Engine: Stop" not in console.text()


async def test_the_palette_sends_a_command() -> None:
    async with run_console(sample_state(), processes=running_processes()) as console:
        await console.press("ctrl+p")
        await console.press(*"switch hold")
        result = console.app.screen.query_one(CommandList)
        async with asyncio.timeout(60):
            while result.option_count != 1 or result.highlighted is None:
                await console.settle()
        await console.press("enter")
        await console.settle()
        assert console.link.commands == [("rating.mode", {"mode": "hold"})]


async def test_the_palette_confirms_dangerous_commands() -> None:
    async with run_console(sample_state(), processes=running_processes()) as console:
        run = {title: run for title, _, run in entries(console.app)}["Engine: Stop"]
        run()
        await console.settle()
        assert "8 claimed episodes of yours are lost" in console.text()
        await console.press("n")
        assert console.link.commands == []
        run()
        await console.settle()
        await console.press("y")
        assert console.link.commands == [("engine.stop", {"server": "embedded"})]


async def test_questions_and_messages() -> None:
    async with run_console(sample_state(), size=(100, 30)) as console:
        app = console.app
        answers: list[bool | str | None] = []

        async def confirm() -> None:
            answers.append(await app.confirm("Abort [/b]", f"4 episodes {HOSTILE}", "Abort"))

        async def ask() -> None:
            answers.append(await app.ask("Note", "why", "old"))

        async def work() -> None:
            raise ValueError("no luck [/b]")

        for key, expected in (("enter", False), ("escape", False), ("n", False), ("y", True)):
            app.run_worker(confirm())
            await console.settle()
            assert "Abort [/b]" in console.text()
            await console.press(key)
            assert answers[-1] is expected, key
        for keys, lines in ((["end", *" 12", "enter"], ("old 12", " 12")), (["escape"], (None,))):
            app.run_worker(ask())
            await console.settle()
            await console.press(*keys)
            assert answers[-1] in lines
        console.link.refuse = AjetError(f"no [/b] {HOSTILE}")
        app.run_command("engine.start")
        await console.settle()
        assert "no [/b]" in console.text()
        assert "\x1b" not in console.text()
        console.session.notify("your flags do not apply", "warning")
        await console.settle()
        assert "your flags do not apply" in console.text()
        assert console.session.messages == []
        app.run_worker(work(), name="some work", exit_on_error=False)
        await console.settle()
        assert any("no luck" in line.text for line in console.session.logs("console"))


async def test_a_fault_in_one_view_does_not_end_the_console() -> None:
    async with run_console(sample_state()) as console:
        screen = present(console.app.front)

        def broken(dirty: frozenset[str]) -> None:
            raise RuntimeError("boom")

        screen.update_view = broken  # type: ignore[method-assign]  # the fault under test
        for _ in range(3):
            console.session.touch(["groups"])
            await console.settle()
        assert console.app.is_running
        texts = [line.text for line in console.session.logs("console")]
        assert texts.count("RuntimeError: boom") == 1
        assert console.app.view_faults == ["Overview: RuntimeError: boom"]
        console.app.view_faults.clear()


async def test_nothing_is_requested_before_the_first_paint() -> None:
    link = FakeLink()
    link.broken = AjetError("down")
    async with run_console(link=link) as console:
        assert "STARTING" in console.text()
        result = (
            f"port taken [/b] by a process with a long name. {'Stop it. ' * 6}Or another --port"
        )
        console.session.step("proxy", "failed", "ended with exit code 2", [result])
        await console.settle()
        text = console.text()
        assert "START FAILED" in text.splitlines()[0]
        assert "ended with exit code 2" in text.splitlines()[0]
        assert "starting the engine" not in text
        assert not missing(text, "✖ proxy", "port taken [/b]")
        assert "--port" in text, "the way out is not cut off"
        assert "Press 7" in text


async def test_a_failed_start_names_the_key_that_retries() -> None:
    link = FakeLink()
    link.broken = AjetError("down")
    processes = FakeProcessManager({"proxy": FakeChild("proxy", "exited", None, "", 2)})
    async with run_console(link=link, processes=processes) as console:
        console.session.step("proxy", "failed", "ended with exit code 2")
        await console.settle()
        assert "Press 5, there p starts the proxy again" in console.text()
        await console.press("5", "p")
        assert processes.commands == [("proxy.restart", {})]


async def test_three_choices_fit_the_smallest_terminal() -> None:
    processes = running_processes()
    processes.children["mock"] = FakeChild("mock")
    async with run_console(sample_state(), processes=processes, size=(60, 15)) as console:
        for proxy in (True, False):
            await console.press("ctrl+q")
            text = console.text()
            assert not missing(text, "Stop them  s", "Leave running  l", "Stay  Esc")
            assert ("users are still answered" in text) is proxy
            await console.press("escape")
            processes.children.pop("proxy", None)


async def test_a_watch_only_proxy_serves_no_requests_on() -> None:
    watching = ProxyStarted(
        client_uuid="me",
        pid=1,
        url="",
        version="1",
        servers={"gpu": "http://gpu"},
        rewards="builtin",
        watch_only=True,
    )
    async with run_console(state_of(watching), processes=running_processes()) as console:
        await console.press("ctrl+q")
        assert "it keeps watching" in console.text()
        assert "users are still answered" not in console.text()
