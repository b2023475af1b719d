"""The overview before the first request: explanation and one-key first steps."""

import json
from pathlib import Path

import pytest

from console.app import SETUP_FOLLOWS
from console.backend.options import ConsoleOptions
from console.backend.startup import open_session
from console.clients import catalog
from console.screens.first_steps.widgets import FirstSteps, FirstStepsScreen
from console.screens.overview.screen import RecentGroups
from console.session.app_state import EVERYTHING
from core.events import EngineChanged, ProxyStarted
from core.runtime.home import Home
from core.settings import Settings
from core.state import Progress, State
from tests.support.console import (
    FakeChild,
    FakeProcessManager,
    RunningConsole,
    group_events,
    run_console,
    sample_state,
    state_of,
)

SIZES = [(80, 24), (160, 48)]
MOCK, CURL, RATE = "m  Start the mock user", "c  Copy a curl line", "r  Rate by hand"


@pytest.fixture(autouse=True)
def no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs installed on this machine change no test."""
    monkeypatch.setattr(catalog.shutil, "which", lambda name: None)


def fresh(engine: str = "ROLLING", mode: str = "off", watch_only: bool = False) -> State:
    """A proxy that was just started, with one server."""
    return state_of(
        ProxyStarted(
            client_uuid="c",
            pid=1,
            url="http://127.0.0.1:8000",
            version="1",
            servers={"gpu": "http://gpu:10086"},
            rewards="builtin",
            rating_mode=mode,
            watch_only=watch_only,
        ),
        EngineChanged(server="gpu", url="http://gpu:10086", state=engine),
    )


def footer(console: RunningConsole) -> str:
    return console.text().splitlines()[-1]


@pytest.mark.parametrize("size", SIZES)
async def test_the_first_screen_explains_itself(size: tuple[int, int]) -> None:
    async with run_console(fresh(), size=size, processes=FakeProcessManager()) as console:
        text = console.text()
        assert "trains a language model while an application uses it" in text
        assert "application ──▶ N answers ──▶ rewards ──▶ update" in text
        assert "best answer" in text
        assert "new weights" in text
        assert all(way in text for way in (MOCK, CURL, RATE))
        assert "http://127.0.0.1:8000/v1" in text
        assert isinstance(console.app.focused, FirstSteps)
        assert "m Mock user" in footer(console)


async def test_one_key_starts_the_mock_user() -> None:
    processes = FakeProcessManager()
    async with run_console(fresh(), processes=processes) as console:
        await console.press("m")
        await console.until(lambda: processes.commands)
        assert processes.commands[0][0] == "mock.start"
        assert not processes.commands[0][1].get("dataset")


async def test_one_key_copies_the_curl_line() -> None:
    async with run_console(fresh(), processes=FakeProcessManager()) as console:
        await console.press("c")
        line = console.app.clipboard
        assert line.startswith("curl http://127.0.0.1:8000/v1/chat/completions")
        assert '-H "Authorization: Bearer ${OPENAI_API_KEY:-any-key}"' in line


@pytest.mark.parametrize("mode", ["off", "answer_first", "hold"])
async def test_one_key_sends_one_question_and_opens_rate(mode: str) -> None:
    processes = FakeProcessManager()
    async with run_console(fresh(mode=mode), processes=processes) as console:
        await console.press("r")
        await console.until(lambda: console.app.current_mode == "rate")
        switched = [args for name, args in console.link.commands if name == "rating.mode"]
        assert switched == ([{"mode": "answer_first"}] if mode == "off" else [])
        name, args = processes.commands[0]
        assert name == "mock.start"
        assert args["restart"]
        lines = Path(args["dataset"]).read_text().splitlines()
        assert [list(json.loads(line)) for line in lines] == [["id", "query"]]


@pytest.mark.parametrize("key", ["m", "r"])
async def test_both_ask_first_while_training_is_paused(key: str) -> None:
    state, processes = fresh(), FakeProcessManager()
    state.progress["gpu"] = Progress(paused="paused by the operator")
    async with run_console(state, processes=processes) as console:
        await console.press(key)
        await console.shows("Start without training?")
        await console.press("escape")
        await console.settle()
        assert (console.link.commands, processes.commands) == ([], [])
        await console.press(key)
        await console.shows("Start without training?")
        await console.press("y")
        await console.until(lambda: processes.commands)
        assert processes.commands[0][1]["override"]


async def test_no_question_is_sent_if_the_mode_cannot_be_switched() -> None:
    processes = FakeProcessManager()
    async with run_console(fresh(), processes=processes) as console:
        console.link.reply.ok = False
        await console.press("r")
        assert processes.commands == []
        assert console.app.current_mode == "overview"


@pytest.mark.parametrize("size", SIZES)
async def test_an_engine_that_is_offline_is_started_first(size: tuple[int, int]) -> None:
    async with run_console(fresh("OFFLINE"), size=size, processes=FakeProcessManager()) as console:
        text = console.text()
        assert "s  Start the engine: gpu is OFFLINE" in text
        assert MOCK not in text
        assert RATE not in text
        assert "m Mock user" not in footer(console).replace("4 Mock user", "")
        console.link.publish(EngineChanged(server="gpu", url="http://gpu:10086", state="ROLLING"))
        await console.settle()
        assert MOCK in console.text()
        assert "s  Start the engine" not in console.text()


async def test_in_hold_mode_the_mock_user_waits_for_ratings() -> None:
    async with run_console(fresh(mode="hold"), processes=FakeProcessManager()) as console:
        assert "m  Start the mock user; each answer waits for your rating (3)" in console.text()
        assert "mode hold" in console.text()


@pytest.mark.parametrize("size", SIZES)
async def test_watch_only_shows_no_address_and_only_keys_that_work(
    size: tuple[int, int],
) -> None:
    async with run_console(
        fresh(watch_only=True), size=size, processes=FakeProcessManager()
    ) as console:
        text = console.text()
        assert "watch-only" in text
        assert "/v1" not in text
        assert not any(way in text for way in (MOCK, CURL, RATE))
        assert "5  Engine" in text
        assert not any(name in footer(console) for name in ("Requests", "Rate", "Mock", "Rewards"))
        await console.press("m", "r", "c", "s")
        assert console.link.commands == []


async def test_a_read_only_console_offers_only_allowed_steps() -> None:
    async with run_console(fresh(), read_only=True) as console:
        assert CURL in console.text()
        assert MOCK not in console.text()
        assert RATE not in console.text()


async def test_in_observe_mode_nothing_is_trained() -> None:
    async with run_console(fresh("OBSERVING"), processes=FakeProcessManager()) as console:
        assert "nothing is trained" in console.text()
        assert "rewards ──▶ journal" in console.text()
        assert "watch it score answers" in console.text()


async def test_a_client_that_is_installed_is_named_and_its_settings_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog.shutil, "which", lambda name: name if name == "claude" else None)
    monkeypatch.setattr("console.screens.first_steps.widgets.window_of", lambda *_: 512)
    async with run_console(fresh(), processes=FakeProcessManager()) as console:
        await console.shows("v  Copy the settings of Claude Code")
        await console.press("v")
        await console.until(lambda: console.app.clipboard)
        assert "ANTHROPIC_BASE_URL=http://127.0.0.1:8000" in console.app.clipboard
        assert "CONTEXT_TOKENS=512" in console.app.clipboard
        assert "512 tokens" in console.text()


async def test_first_steps_disappear_with_the_first_group_and_open_from_the_palette() -> None:
    async with run_console(fresh(), processes=FakeProcessManager()) as console:
        console.link.publish(*group_events(1))
        await console.settle()
        assert "FIRST STEPS" not in console.text()
        assert "NEWEST GROUPS" in console.text()
        assert isinstance(console.app.focused, RecentGroups)
        await console.press("ctrl+p", *"First steps")
        await console.shows("Console: First steps")
        await console.press("enter")
        await console.until(lambda: isinstance(console.app.screen, FirstStepsScreen))
        await console.shows(MOCK)
        await console.press("c")
        assert console.app.clipboard.startswith("curl")
        assert not isinstance(console.app.screen, FirstStepsScreen)


async def test_a_journal_with_groups_shows_no_first_steps() -> None:
    async with run_console(sample_state(), processes=FakeProcessManager()) as console:
        assert "FIRST STEPS" not in console.text()


async def test_the_first_start_offers_the_setup_which_follows_the_console() -> None:
    processes = FakeProcessManager({"proxy": FakeChild("proxy", 7)})
    async with run_console(fresh(), size=(80, 24), processes=processes) as console:
        assert "Setup" not in console.text()
        console.app.session.offers_setup = True
        console.app.session.touch(EVERYTHING)
        await console.shows("w  Setup: five questions")
        assert all(way in console.text() for way in (MOCK, CURL, RATE))
        await console.press("w")
        await console.until(lambda: console.app.return_value == SETUP_FOLLOWS)
        assert processes.stopped


@pytest.mark.parametrize("name", ["", "config.yaml", "journal.db"])
def test_only_a_home_without_settings_and_journal_is_offered_the_setup(
    tmp_path: Path, name: str
) -> None:
    if name:
        (tmp_path / name).touch()
    options = ConsoleOptions(home=Home.at(tmp_path), settings=Settings())
    assert open_session(options)[0].offers_setup == (not name)
