"""Each trouble with a server has its name on screen, and is a queue or a 503 for users."""

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import ajet_swarm.api.watcher
import proxy.servers.watch
from console.cli.status import _proxy_line
from console.json_view import json_view
from console.models.alerts import alerts_by_urgency
from console.screens.engine.panel import server_panel
from console.screens.overview.sections import engines
from console.screens.overview.text import alert_lines, head_line
from console.session.app_state import Session
from console.session.group_facts import verdict
from console.text.sections import Room
from console.widgets.status_bar import bar_line
from core.dialects.errors import ApiError
from core.state import Server
from tests.support.alerts import cause_of, todo_of
from tests.support.capped_clock import loop_time
from tests.support.faults.relay import FarSwarm, RelayState, far_swarm
from tests.support.groups import text_of
from tests.support.proxy.world import World, settings, world
from tests.support.stored import replayed

QUICK = {
    "leave_grace": 0.05,
    "down_grace": 0.2,
    "console_grace": 0.1,
    "recover": 0.5,
    "last_ends": 0.2,
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (ajet_swarm.api.watcher, "GONE_FOR", 1.0),
        (ajet_swarm.api.watcher, "FROZEN_FOR", 1.0),
        (proxy.servers.watch, "LOST_LIMIT", 1.5),
        (proxy.servers.watch, "UNSEEN_LIMIT", 0.5),
    ):
        monkeypatch.setattr(module, name, value)


@contextlib.asynccontextmanager
async def watched(home: Path) -> AsyncIterator[tuple[World, FarSwarm]]:
    """A proxy whose state contains its server's state."""
    async with far_swarm(FarSwarm()) as far:
        chosen = settings(proxy={"answer_budget": 8.0, "answer_limit": 8.0})
        async with world(home, far, chosen, QUICK, watched=True) as w:
            w.server.watcher.poll_timeout = 0.3
            await w.until(lambda: server(w).state == "ROLLING" and not server(w).lost)
            yield w, far


def server(w: World) -> Server:
    result: Server = w.state.servers["s"]
    return result


def session(w: World) -> Session:
    made = Session()
    made.state, made.seen = w.state, True
    return made


def screens(w: World) -> str:
    """The overview's engine and alerts, and the engine screen, as text."""
    view, room = session(w), Room(140, 40, True)
    alerts = [alert_lines(view, alert, 140, whole=True) for alert in alerts_by_urgency(view)]
    sections = engines(view, room).plain, server_panel(server(w), view, room).plain
    return "\n".join([*sections, *(text_of(lines) for lines in alerts)])


def bar(w: World) -> str:
    return bar_line(session(w), 160).plain


async def request_status(w: World) -> int:
    """The status of a new request, which ends within its budget."""
    try:
        ticket = await w.ask()
    except ApiError as refusal:
        return refusal.status
    reply = await w.reply(ticket, 9.0)
    return 200 if reply.error is None else reply.error.status


@pytest.mark.parametrize(
    ("relay_state", "first", "then"),
    [("gone", "gone", "gone"), ("frozen", "frozen", "silent"), ("mute", "frozen", "silent")],
)
async def test_a_server_that_does_not_answer(
    tmp_path: Path, relay_state: RelayState, first: str, then: str
) -> None:
    async with watched(tmp_path) as (w, far):
        await far.relay.become(relay_state)
        queued = await w.ask("queued")
        await w.until(lambda: server(w).lost.startswith(f"{first}: "))
        assert re.search(rf"× {first.upper()} \d+s \(was ROLLING\)", bar(w))
        assert f"× {first}: " in screens(w)
        await w.until(lambda: server(w).lost.startswith(f"{then}: "))
        await w.until(lambda: "lost:s" in w.state.alerts)
        # The alert may be older than the silence, as by the real limits (20 s and 25 s): here the
        # request waits for the training run first, and its eager poll moves the later ones. The
        # alert follows the state within one check.
        words = f"s does not answer: {then}: "
        await w.until(lambda: cause_of(w.state.alerts["lost:s"]).startswith(words))
        assert f"s does not answer: {then}" in screens(w)
        assert "requests wait or are answered 503" in todo_of(w.state.alerts["lost:s"])
        # Requests that wait and new requests fail once the server is not expected back.
        reply = await w.reply(queued, 9.0)
        assert reply.error is not None
        assert (reply.error.status, bool(reply.error.retry_after)) == (503, True)
        with pytest.raises(ApiError) as error:
            await w.ask("late")
        assert (error.value.status, error.value.retry_after) == (503, 10)
        assert "refused:s" in w.state.alerts
        await far.relay.become("well")
        await w.until(lambda: not server(w).lost)
        assert "● ROLLING" in bar(w)
        assert "lost:s" not in w.state.alerts
        assert "refused:s" not in w.state.alerts
        assert await request_status(w) == 200


@pytest.mark.parametrize("relay_state", ["gone", "frozen"])
async def test_during_a_short_restart_requests_queue(
    tmp_path: Path, relay_state: RelayState
) -> None:
    async with watched(tmp_path) as (w, far):
        await far.relay.become(relay_state)
        ticket = await w.ask("queued")
        await w.until(lambda: server(w).lost)
        await far.relay.become("well")
        assert (await w.reply(ticket, 9.0)).answer is not None


async def test_a_port_that_never_answered(tmp_path: Path) -> None:
    async with (
        far_swarm(FarSwarm()) as far,
        world(tmp_path, far, settings(), QUICK, watched=True) as w,
    ):
        w.server.watcher.poll_timeout = 0.3
        await far.relay.become("mute")
        # As if it had never answered: the state of a proxy that starts before a dead port.
        w.server.watcher.current = ajet_swarm.api.watcher.ServerStatus()
        w.state.started_at = w.context.clock()
        await w.until(lambda: server(w).lost.startswith("silent: "))
        assert "does not answer: silent" in cause_of(await alert(w, "lost:s"))
        with pytest.raises(ApiError, match="cannot be reached"):
            await w.ask()


async def alert(w: World, key: str) -> Any:
    return await w.until(lambda: w.state.alerts.get(key))


async def test_finished_groups_of_a_restarted_engine_are_lost_on_every_screen(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as (w, far):
        ticket = await w.ask("finished before it")
        await w.reply(ticket)
        await w.closed()
        group = w.group(ticket)
        assert verdict(group).text == "finished, will train"
        await far.relay.become("gone")
        await w.until(lambda: server(w).lost.startswith("gone: "))
        far.set_state("OFFLINE", 0)
        await far.relay.become("well")
        result = await alert(w, "tokens:s")
        assert "1 finished group of this update" in cause_of(result)
        assert verdict(group).text == "finished, lost by an engine restart: will not train"
        head = "".join(text for text, _ in head_line(session(w), 120))
        assert "1 group · 0 finished · 0 dead · 1 lost" in head
        view = json_view(w.state)
        assert view["totals"]["lost"] == 1
        assert "1 finished but lost: will not train" in _proxy_line({"url": "", **view})
        journal, seq = w.context.bus.journal, w.state.seq
        await journal.durable(seq)
        assert replayed(journal).groups[group.group_id].discarded


@pytest.mark.parametrize("empty", [False, True])
async def test_an_engine_stopped_by_another_client(tmp_path: Path, empty: bool) -> None:
    """Knocked OFFLINE under our feet, or killed and back with empty state."""
    async with watched(tmp_path) as (w, far):
        far.delay = 5.0
        ticket = await w.ask("in flight")
        await w.until(lambda: len(far.chats) == 4)
        if empty:
            await far.relay.become("gone")
            await w.until(lambda: server(w).lost.startswith("gone: "))
        far.set_state("OFFLINE", 0)
        await far.relay.become("well")
        result = await alert(w, "off:s")
        word = "restarted: its episodes are lost" if empty else "stopped by someone else"
        assert word in cause_of(result)
        assert word in server(w).detail
        assert "○ OFFLINE" in bar(w)
        assert ("! 2 alerts" if empty else "! 1 alert") in bar(w)
        assert ("tokens:s" in w.state.alerts) is empty
        assert screens(w).count(word) == 3
        reply = await w.reply(ticket, 9.0)
        assert reply.error is not None
        assert reply.error.status == 503
        assert await request_status(w) == 503
        await w.closed()
        assert not far.claimed()
        far.delay = 0.0
        far.set_state("BOOTING")
        far.set_state("ROLLING", 1)
        await w.until(lambda: "off:s" not in w.state.alerts)
        assert await request_status(w) == 200
        assert set(w.state.alerts) == ({"tokens:s"} if empty else set())


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("BOOTING", "BOOTING"),
        ("WEIGHT_SYNCING", "WEIGHT SYNCING"),
        ("WEIGHT_EXPORTING", "WEIGHT EXPORTING"),
        ("ROLLING_POST", "ROLLING POST"),
        ("STRANGE", "? ENGINE.STRANGE"),
    ],
)
async def test_no_engine_state_makes_a_request_hang(tmp_path: Path, state: str, words: str) -> None:
    """In every state of the engine a request ends within its budget."""
    chosen = settings(proxy={"answer_budget": 0.5, "answer_limit": 0.5})
    async with (
        far_swarm(FarSwarm(automatic=False)) as far,
        world(tmp_path, far, chosen, QUICK, watched=True) as w,
    ):
        far.set_state(state)
        await w.until(lambda: server(w).raw == f"ENGINE.{state}")
        began = loop_time()
        assert await request_status(w) == 503
        assert loop_time() - began < 2.0
        assert words in bar(w)
