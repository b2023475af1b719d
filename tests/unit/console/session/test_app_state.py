"""One way to order something, one clock, one log."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from console.session.app_state import Session
from console.session.logs import LogStore, LogTail, parse
from core.control_payloads import EpisodeTokens
from core.roles import Identity
from tests.support.console import NOW, Clock, FakeLink, FakeProcessManager


async def test_a_proxy_command_goes_through_the_link() -> None:
    link = FakeLink()
    session = Session(link=link, clock=Clock())
    outcome = await session.command("group.rate", group_id="g1", rating="best", order=(2,))
    assert outcome.ok
    assert link.commands == [("group.rate", {"group_id": "g1", "rating": "best", "order": (2,)})]


async def test_a_console_command_goes_to_the_process_manager() -> None:
    processes, link = FakeProcessManager(), FakeLink()
    outcome = await Session(link=link, processes=processes).command("mock.start", concurrency=2)
    assert (outcome.ok, outcome.message) == (True, "mock.start done")
    assert processes.commands == [("mock.start", {"concurrency": 2})]
    assert link.commands == []


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("group.rate", {"group_id": "g1", "rating": "nice"}, "nice"),
        ("no.such", {}, "no.such"),
        ("mock.start", {}, "this console started no process"),
        ("proxy.drain", {"x": 1}, "`x`"),
    ],
)
async def test_an_impossible_command_returns_a_message_and_raises_nothing(
    name: str, args: dict[str, Any], words: str
) -> None:
    outcome = await Session(link=FakeLink()).command(name, **args)
    assert not outcome.ok
    assert words in outcome.message


async def test_refusals_and_errors_become_outcomes() -> None:
    link = FakeLink()
    session = Session(link=link)
    link.refuse = AjetError("the engine is not OFFLINE", todo="Stop it first")
    outcome = await session.command("engine.start")
    assert (outcome.ok, outcome.message) == (False, "the engine is not OFFLINE. Stop it first")

    class Broken(FakeLink):
        async def command(self, name: str, args: Mapping[str, Any]) -> Any:
            raise RuntimeError("boom")

    outcome = await Session(link=Broken()).command("engine.start")
    assert not outcome.ok
    assert "boom" in outcome.message
    assert "no connection" in (await Session().command("engine.start")).message


async def test_a_command_may_have_an_argument_called_name() -> None:
    link = FakeLink()
    await Session(link=link).command("engine.save", name="mine")
    assert link.commands == [("engine.save", {"name": "mine"})]


async def test_tokens_are_read_through_the_link() -> None:
    link = FakeLink()
    link.token_log = EpisodeTokens(episode_uuid="", state="live", calls=())
    assert (await Session(link=link).proxy.tokens("e1", "s")).episode_uuid == "e1"
    assert link.token_requests == [("e1", "s")]
    with pytest.raises(AjetError, match="no connection"):
        await Session().proxy.tokens("e1", "s")


async def test_a_read_only_session_sends_no_command() -> None:
    link, processes = FakeLink(), FakeProcessManager()
    session = Session(link=link, processes=processes, read_only=True)
    for name in ("engine.stop", "mock.start"):
        outcome = await session.command(name)
        assert not outcome.ok
        assert "read-only" in outcome.message
    assert (link.commands, processes.commands) == ([], [])


def test_stale_data_has_an_age_and_fresh_data_has_none() -> None:
    clock = Clock()
    session = Session(clock=clock)
    before = session.stale_for
    assert before is None
    session.lost_at = NOW
    clock.now += 12
    assert session.stale_for == 12
    assert session.as_of == NOW


def test_changed_keys_are_returned_once() -> None:
    session = Session()
    session.touch(["groups"])
    session.touch(["groups", "mock"])
    assert session.take_dirty() == {"groups", "mock"}
    assert session.take_dirty() == frozenset()


def test_log_lines_keep_their_source_level_and_order() -> None:
    session = Session(clock=Clock())
    session.note("proxy", "up")
    session.note("engine", "no", "error")
    assert [(one.source, one.level, one.text) for one in session.logs()] == [
        ("proxy", "info", "up"),
        ("engine", "error", "no"),
    ]
    assert [one.text for one in session.logs("engine")] == ["no"]
    assert session.logs("mock") is not None
    assert "log" in session.take_dirty()


def test_a_traceback_has_the_level_of_an_error() -> None:
    store = LogStore()
    for text in ("INFO fine", "Traceback (most recent call last):", '  File "x"', "ValueError: no"):
        store.add("proxy", text, NOW)
    assert [line.level for line in store.lines()] == ["info", "error", "error", "error"]
    store.add("proxy", "INFO again", NOW)
    assert list(store.lines())[-1].level == "info"


def test_the_log_is_bounded() -> None:
    store = LogStore(cap=3)
    for number in range(10):
        store.add("proxy", str(number), NOW)
    assert [line.text for line in store.lines("proxy")] == ["7", "8", "9"]
    assert store.total == 10


def test_time_and_level_are_parsed_off_a_log_line() -> None:
    at, level, text = parse("2026-11-21 03:29:28,612 WARNING engine: slow", 5.0)
    assert (level, text) == ("warning", "engine: slow")
    assert time.strftime("%H:%M:%S", time.localtime(at)) == "03:29:28"
    assert parse("  File x", 5.0) == (5.0, "", "  File x")
    assert parse("2026-99-99 99:99:99 INFO x", 5.0) == (5.0, "", "2026-99-99 99:99:99 INFO x")


def test_a_log_tail_reads_new_lines_and_handles_rotation(tmp_path: Any) -> None:
    path = tmp_path / "proxy.log"
    tail = LogTail(path)
    assert tail.read() == []
    path.write_bytes(b"one\ntwo\nhal")
    assert tail.read() == ["one", "two"]
    with path.open("ab") as file:
        file.write(b"f\n\xff\n")
    assert tail.read() == ["half", "\ufffd"]
    path.rename(tmp_path / "proxy.log.1")
    path.write_bytes(b"new\n")
    assert tail.read() == ["new"]


async def test_the_role_of_the_token_limits_the_commands() -> None:
    link = FakeLink()
    session = Session(link=link)
    session.identity = Identity("anna", "rater")
    assert not session.read_only
    assert "needs the role operator" in (await session.command("engine.stop")).message
    assert (await session.command("group.note", group_id="g1", note="why")).ok
    session.identity = Identity("boris", "viewer")
    assert session.read_only
    assert "needs the role rater" in (await session.command("group.mark", group_id="g1")).message
    assert link.commands == [("group.note", {"group_id": "g1", "note": "why"})]
