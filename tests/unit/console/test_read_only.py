"""Looking on: no way to change anything, by key, palette, command line or connection."""

import io
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.cli import main
from console.cli.registry import reading_words
from console.models.available_commands import available_commands
from console.session.app_state import Session
from core.commands import COMMANDS
from core.commands.plan import IN_WATCH_ONLY
from core.commands.spec import Command
from core.events import ProxyStarted
from core.runtime.home import ENVIRONMENT
from core.state import State, reduce
from proxy.control.client import ControlClient, ControlError
from tests.support.commands import tree
from tests.support.commands.cli import Cli
from tests.support.console import Clock, FakeLink, FakeProcessManager
from tests.support.sample import sample_state

WORDS = {"text": "x", "int": 1, "float": 1.0, "flag": True, "ints": [0], "floats": [0.5]}


def args_of(command: Command) -> dict[str, Any]:
    """Arguments that pass the check of the registry."""
    return {
        arg.name: arg.choices[0] if arg.choices else WORDS.get(arg.kind, ["x"])
        for arg in command.args
        if arg.required
    }


def watched(state: State) -> State:
    """The same state of a proxy that only watches."""
    state.watch_only = True
    return state


async def test_a_read_only_console_offers_no_command_of_the_registry() -> None:
    for command in COMMANDS.values():
        link, processes = FakeLink(), FakeProcessManager({})
        session = Session(link=link, processes=processes, read_only=True, clock=Clock())
        outcome = await session.command(command.name, **args_of(command))
        assert not outcome.ok, command.name
        assert "read-only" in outcome.message, command.name
        assert not [*link.commands, *processes.commands], command.name


async def test_a_watch_only_console_offers_no_command_for_a_server() -> None:
    state = watched(sample_state())
    for command in COMMANDS.values():
        link, processes = FakeLink(), FakeProcessManager({})
        session = Session(link=link, processes=processes, clock=Clock())
        session.state = state
        outcome = await session.command(command.name, **args_of(command))
        assert outcome.ok == (command.name in IN_WATCH_ONLY), command.name
        value = {name for name, _ in [*link.commands, *processes.commands]}
        of_the_journal = {"alert.dismiss", "journal.prune", "run.name", "run.note", "run.pin"}
        assert value <= {*of_the_journal, "proxy.restart"}, command.name


def test_the_palette_offers_nothing() -> None:
    state = sample_state()
    group = next(iter(state.groups))
    session = Session(read_only=True, clock=Clock())
    session.state, session.seen = state, True
    assert available_commands(session, group, None) == []
    session = Session(processes=FakeProcessManager({}), clock=Clock())
    session.state, session.seen = watched(sample_state()), True
    assert {
        command.command for command in available_commands(session, group, None)
    } <= IN_WATCH_ONLY


def test_watch_only_is_known_from_the_first_event() -> None:
    state = State()
    more = {"client_uuid": "me", "pid": 1, "url": "", "version": "1", "rewards": "builtin"}
    reduce(state, ProxyStarted(servers={}, watch_only=True, **more))  # type: ignore[arg-type]  # they fit
    assert state.watch_only
    reduce(state, ProxyStarted(servers={}, **more))  # type: ignore[arg-type]  # they fit
    assert not state.watch_only


async def test_a_read_only_connection_sends_nothing_but_questions() -> None:
    methods: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        return httpx.Response(200, json={"ok": True, "message": "", "directive": "run"})

    transport = httpx.MockTransport(answer)
    async with ControlClient("http://p", "t", transport, read_only=True) as client:
        for command in COMMANDS.values():
            with pytest.raises(ControlError, match="read-only"):
                await client.command(command.name, args_of(command))
        with pytest.raises(ControlError, match="read-only"):
            await client.register_row({})
        assert not methods
        assert await client.directive("m") == "run"
        assert methods == ["GET"]


def test_every_verb_that_writes_is_refused(cli: Cli) -> None:
    commands = tree.verbs()
    for name in sorted(set(commands) - set(reading_words())):
        line = tree.smallest_line(name, commands[name])
        for argv in (["--read-only", *line], [*line, "--read-only"]):
            assert f"`{name}` is refused with --read-only" in cli.refused(*argv), argv


@pytest.mark.parametrize("name", [*reading_words(), "rewards test"])
def test_a_command_that_only_reads_leaves_a_missing_home_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "missing"
    monkeypatch.setenv(ENVIRONMENT, str(root))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # `mcp` reads to the end
    monkeypatch.setattr("signal.signal", lambda *_: None)  # `mcp` ends the process on Ctrl+C
    assert main(tree.smallest_line(name, tree.verbs()[name])) in range(3)
    assert not root.exists()
    error_output = capsys.readouterr().err
    assert "internal error" not in error_output
    if name in ("rating raters", "rewards show", "watch"):
        assert f"{root}: no proxy runs in this home" in error_output
