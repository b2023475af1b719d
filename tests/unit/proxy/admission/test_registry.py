"""Requests beside a flood, and requests that name their server."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from core.dialects.errors import ApiError
from core.events import EpisodesClaimed
from proxy.admission.sessions import RequestCount
from proxy.dialects.chat.request import read_request
from proxy.dialects.client_marks import key_of
from proxy.groups.answer import AnswerWaiter
from proxy.groups.run import RunEnded
from proxy.http.connection_use import ConnectionUse
from proxy.http.errors import BUSY, overloaded
from tests.support.capped_clock import loop_time
from tests.support.proxy.front import BODIES, Front, fronted
from tests.support.proxy.world import HEADERS, World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow


LIMITS = [64, pytest.param(256, marks=pytest.mark.soak)]
"""Of the queue, the usual one in the long form."""


FEW = 8
"""Groups that a single request lets pass at most: in each of two queues two others have the turn
first, which may serve two groups at a time, and more turns end while its intent is committed."""


ONE, OTHER = "10.0.0.1", "10.0.0.2"


async def say(
    w: World,
    text: str,
    key: str = "a",
    address: str = ONE,
    session: str = "",
    idle: bool = False,
    use: ConnectionUse | None = None,
) -> AnswerWaiter:
    """Submit one request of a sender on the connection of `use`, or if `idle` on its own."""
    headers = {**HEADERS, "authorization": f"Bearer {key}"}
    if session:
        headers["x-session-id"] = session
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    request = read_request(json.dumps(body).encode(), headers, address)
    use = use or ConnectionUse(0.0 if idle else None)
    return w.groups.admission.admit(msgspec.structs.replace(request, connection=use))


async def flood(w: World, kind: str, idle: bool, size: int) -> list[AnswerWaiter]:
    """As many requests as get in."""
    names = {"unmarked": lambda number: "", "sessions": lambda number: f"s{number}"}
    name = names.get(kind, lambda number: "s")
    tickets: list[AnswerWaiter] = []
    for number in range(size):
        with contextlib.suppress(ApiError):
            tickets.append(await say(w, f"flood {number}", session=name(number), idle=idle))
    return tickets


def served_before(w: World, ticket: AnswerWaiter, asked: int) -> int:
    """Number of groups that got their episodes before that of a ticket.

    Args:
        asked: Number of events when it was asked.
    """
    claims = [event for event in w.events[asked:] if isinstance(event, EpisodesClaimed)]
    started = [claim.group_id for claim in claims if claim.expires_at]
    return started.index(ticket.group_id)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    ("kind", "key", "address", "session", "idle"),
    [
        ("unmarked", "b", ONE, "", ""),
        ("unmarked", "a", OTHER, "", ""),
        ("unmarked", "a", ONE, "mine", ""),
        ("sessions", "b", ONE, "", ""),
        ("sessions", "a", OTHER, "", ""),
        ("one session", "a", ONE, "mine", ""),
        ("one session", "a", ONE, "", ""),
        # Only its time distinguishes it from the flood: each has a connection of its own.
        ("unmarked", "a", ONE, "", "all"),
        ("sessions", "a", ONE, "", "all"),
        ("sessions", "a", ONE, "mine", "all"),
        # The flood keeps its connections.
        ("unmarked", "a", ONE, "", "one"),
        ("sessions", "a", ONE, "mine", "one"),
        # Its connection was used just before.
        ("unmarked", "a", ONE, "", "used"),
        ("sessions", "a", ONE, "mine", "used"),
    ],
)
async def test_a_single_request_is_served_during_a_flood(
    tmp_path: Path, kind: str, key: str, address: str, session: str, idle: str, limit: int
) -> None:
    uncapped = settings(proxy={"session_cap": 0, "session_calls": 0, "queue_limit": limit})
    async with ScriptedSwarm(slots=8) as swarm, world(tmp_path, swarm, uncapped) as w:
        swarm.delay = 0.2  # two groups at a time: a queue of 64 takes 6 s
        tickets = await flood(w, kind, idle == "all", 2 * limit)
        assert len(tickets) >= limit
        await w.until(lambda: swarm.claims)
        began, asked = loop_time(), len(w.events)
        use = ConnectionUse({"": None, "used": 2.9}.get(idle, 0.0))
        alone = await say(w, "alone", key, address, session, use=use)
        reply = await w.reply(alone)
        assert reply.answer is not None
        assert served_before(w, alone, asked) <= FEW
        assert loop_time() - began < 2.0
        assert w.groups.waiting > 0.78 * limit  # all others wait still
        for ticket in tickets:
            ticket.leave()
        await w.closed()
        await w.until(lambda: not swarm.claimed())


@pytest.mark.world(settings(proxy={"queue_limit": 6}), state="WEIGHT_SYNCING", automatic=False)
async def test_the_sender_with_the_most_places_yields_one_when_the_queue_is_full(w: World) -> None:
    flood = [await say(w, f"a{number}") for number in range(6)]
    with pytest.raises(ApiError):
        await say(w, "a6")
    others = [await say(w, f"b{number}", "b") for number in range(3)]
    with pytest.raises(ApiError):  # half is its share
        await say(w, "b3", "b")
    for ticket in flood[3:]:  # the newest
        reply = await w.reply(ticket)
        assert (reply.error.status, reply.error.retry_after) == (503, 2)
    assert w.groups.waiting == 6
    third = await say(w, "c0", "c")
    await w.until(lambda: len(w.groups.runs) == 6)
    w.swarm.finish_sync()
    replies = await asyncio.gather(*(w.reply(waiter) for waiter in (*flood[:3], *others, third)))
    assert sum(reply.answer is None for reply in replies) == 1
    assert replies[-1].answer is not None
    await w.closed()
    causes = [group.cause for group in w.state.groups.values() if group.phase == "ABORTED"]
    assert causes == ["displaced by another sender"] * 4


@pytest.mark.world(settings(proxy={"queue_limit": 6}), state="WEIGHT_SYNCING", automatic=False)
async def test_requests_that_may_overtake_do_not_displace_the_older_half(w: World) -> None:
    flood = [await say(w, f"a{number}", idle=True) for number in range(12)]
    one = await say(w, "mine", session="s")  # of another origin: the newest gives way
    for ticket in flood[3:9] + flood[11:]:
        reply = await w.reply(ticket)
        assert reply.error.status == 503
    assert w.groups.waiting == 6
    w.swarm.finish_sync()
    replies = await asyncio.gather(*(w.reply(it) for it in (*flood[:3], *flood[9:11], one)))
    assert all(it.answer is not None for it in replies)
    await w.closed()


@pytest.mark.world(settings(proxy={"queue_limit": 200}), state="WEIGHT_SYNCING", automatic=False)
async def test_a_connection_is_marked_when_its_request_waits_in_order(w: World) -> None:
    uses = [ConnectionUse(0.0 if number >= 70 else None) for number in range(80)]
    for number, use in enumerate(uses):
        await say(w, f"flood {number}", use=use)
    await w.until(lambda: w.groups.waiting == 80)
    w.swarm.finish_sync()
    await w.closed()
    claiming, in_order, overtook = uses[:2], uses[8:70], uses[70:]
    assert not any(use.waited for use in claiming)
    assert all(use.waited for use in in_order)
    assert not any(use.waited for use in overtook)


@pytest.mark.world(settings(proxy={"queue_limit": 2}), state="WEIGHT_SYNCING", automatic=False)
async def test_a_refused_request_marks_its_connection(w: World) -> None:
    tickets = [await say(w, f"flood {number}") for number in range(2)]
    use = ConnectionUse()
    with pytest.raises(ApiError):
        await say(w, "refused", use=use)
    assert use.waited
    for ticket in tickets:
        ticket.leave()
    await w.closed()


async def test_only_the_first_request_of_a_session_on_an_idle_connection_may_overtake(
    w: World,
) -> None:
    classify = w.groups.admission.classify
    overtake = []
    for session, idle in (("s", True), ("s", True), ("t", False), ("", True), ("", False)):
        headers = {**HEADERS, "x-session-id": session} if session else HEADERS
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
        use = ConnectionUse(0.0 if idle else None)
        request = msgspec.structs.replace(read_request(body, headers, ONE), connection=use)
        overtake.append(classify(request, None, w.server, RequestCount()).may_overtake)
    assert overtake == [True, False, False, True, False]


def test_the_name_of_an_api_key_does_not_reveal_it() -> None:
    key = "sk-one-two-three"
    names = {key_of({"authorization": f"bearer {key}"}), key_of({"x-api-key": key})}
    assert len(names) == 1
    assert key not in names.pop()
    sessions = {key_of({"x-api-key": f"sk-ajet-session-{name}"}) for name in "abc"}
    assert len(sessions) == 1
    assert key_of({}) == ""


@pytest.mark.world(settings(proxy={"api_key": "k"}))
async def test_with_a_required_key_other_headers_do_not_identify_a_sender(w: World) -> None:
    for key in ("made up", "made up too"):
        ticket = await say(w, "q", key, session=key)
        assert w.groups.runs[ticket.group_id].origin[0] == ""
        await w.reply(ticket)
    await w.closed()


async def test_a_run_that_is_stopped_before_its_first_step_is_closed(w: World) -> None:
    ticket = await w.ask()
    run = w.groups.runs[ticket.group_id]
    assert w.groups.stop(run, RunEnded("ABORTED", "too many", refusal=overloaded(1)))
    assert (await w.reply(ticket)).error is not None
    await w.closed()
    group = w.group(ticket)
    assert (group.phase, group.cause) == ("ABORTED", "too many")
    assert w.swarm.claimed() == []


@pytest.fixture
async def b() -> AsyncIterator[ScriptedSwarm]:
    async with ScriptedSwarm() as swarm:
        yield swarm


@pytest.fixture
async def pair(tmp_path: Path, b: ScriptedSwarm) -> AsyncIterator[World]:
    async with world(tmp_path, others={"b": b}) as made:
        yield made


async def has_state(pair: World, server: str, state: str) -> None:
    watcher = pair.context.servers[server].watcher
    await watcher.wait_for(lambda status: status.display_state.value == state, 20)


async def test_the_model_picks_the_server_and_any_other_name_the_first(
    pair: World, b: ScriptedSwarm
) -> None:
    tickets = [await pair.ask(f"q {name}", model=name) for name in ("b", "s", "gpt-4o", "")]
    for ticket in tickets:
        assert (await pair.reply(ticket)).answers
    await pair.closed()
    assert [pair.group(ticket).server for ticket in tickets] == ["b", "s", "s", "s"]
    assert len(b.claims) == 4
    assert len(pair.swarm.claims) == 12
    assert pair.groups.models() == ["scripted", "s", "b"]


async def test_a_request_for_b_waits_while_the_first_rolls(pair: World, b: ScriptedSwarm) -> None:
    b.automatic = False
    b.set_state("WEIGHT_SYNCING")
    await has_state(pair, "b", "WEIGHT_SYNCING")
    waiting = await pair.ask("for b", model="b")
    assert (
        await pair.reply(await pair.ask("for any"))
    ).answers  # the first server serves meanwhile
    assert pair.group(waiting).phase == "QUEUED"
    assert not b.claims
    b.set_state("ROLLING")
    assert (await pair.reply(waiting)).answers
    await pair.closed()
    assert pair.group(waiting).server == "b"
    assert (len(b.claims), len(pair.swarm.claims)) == (4, 4)


async def test_requests_of_a_server_that_stops_fail_with_its_name(
    pair: World, b: ScriptedSwarm
) -> None:
    b.automatic = False
    b.set_state("BOOTING")
    await has_state(pair, "b", "BOOTING")
    waiting = await pair.ask("for b", model="b")
    b.set_state("OFFLINE")
    refusal = (await pair.reply(waiting)).error
    result = (
        "Server b is OFFLINE: it answers no request until the operator of this server starts it"
    )
    assert (refusal.status, refusal.retry_after) == (503, 60)
    assert refusal.message.startswith(result)
    with pytest.raises(ApiError, match=re.escape(result)):
        await pair.ask("for b, later", model="b")
    assert (await pair.reply(await pair.ask("for any"))).answers
    await pair.closed()
    assert not b.claims
    assert len(pair.swarm.claims) == 4


async def test_a_stopped_first_server_is_not_replaced(pair: World, b: ScriptedSwarm) -> None:
    pair.swarm.automatic = False
    pair.swarm.set_state("OFFLINE")
    await has_state(pair, "s", "OFFLINE")
    with pytest.raises(ApiError) as refused:
        await pair.ask("for any")
    assert refused.value.message.startswith("The engine is OFFLINE: ")
    assert BUSY not in refused.value.message
    assert (await pair.reply(await pair.ask("for b", model="b"))).answers
    await pair.closed()
    assert not pair.swarm.claims


async def test_a_late_answer_names_the_server(tmp_path: Path, b: ScriptedSwarm) -> None:
    configured = settings(proxy={"answer_budget": 0.2, "answer_limit": 0.2})
    async with world(tmp_path, configured=configured, others={"b": b}) as pair:
        b.automatic = False
        b.set_state("WEIGHT_SYNCING")
        await has_state(pair, "b", "WEIGHT_SYNCING")
        refusal = (await pair.reply(await pair.ask("for b", model="b"))).error
        assert refusal.message.startswith("Server b is WEIGHT_SYNCING. ")
        assert not pair.swarm.claims


@pytest.fixture
async def front(tmp_path: Path, b: ScriptedSwarm) -> AsyncIterator[Front]:
    async with fronted(tmp_path, others={"b": b}) as made:
        yield made


@pytest.mark.parametrize("path", BODIES)
async def test_every_dialect_names_the_stopped_server(
    front: Front, b: ScriptedSwarm, path: str
) -> None:
    b.automatic = False
    b.set_state("OFFLINE")
    await has_state(front.world, "b", "OFFLINE")
    body = {**BODIES[path], "model": "b"}
    answer = await asyncio.wait_for(front.client.post(path, json=body), 20)
    assert answer.status_code == 503
    assert "Server b is OFFLINE: " in answer.text
    assert not front.world.swarm.claims
