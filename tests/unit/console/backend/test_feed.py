"""Snapshot, events, a connection that breaks, a reset."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from console.backend.feed import Feed
from console.session.app_state import Session
from core.events import AlertRaised, RatingModeChanged
from core.roles import Identity
from proxy.control.client import ControlError
from tests.support.console import Clock, FakeLink
from tests.support.sample import group_events, sample_state


async def until(check: Callable[[], bool]) -> None:
    """Let the loop run until `check` holds."""
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0)


@asynccontextmanager
async def following(session: Session, link: FakeLink) -> AsyncIterator[tuple[Feed, list[float]]]:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    feed = Feed(session, link, sleep=sleep)
    async with Tasks("test") as tasks:
        tasks.spawn(feed.run(), "feed")
        yield feed, pauses


def make(state: Any = None, **more: Any) -> tuple[Session, FakeLink]:
    link = FakeLink(state)
    return Session(link=link, clock=Clock(), **more), link


async def test_snapshot_then_events() -> None:
    session, link = make(sample_state())
    async with following(session, link):
        await until(lambda: session.seen and bool(link.after))
        assert "*" in session.take_dirty()
        assert session.state.groups.keys() == link.state.groups.keys()
        link.publish(RatingModeChanged(mode="hold"))
        await until(lambda: session.state.rating_mode == "hold")
        assert session.take_dirty() == {"proxy"}
    assert link.snapshots == 1


async def test_a_named_token_gives_role_and_rater() -> None:
    session, link = make(sample_state())
    link.identity = Identity("anna", "rater")
    async with following(session, link):
        await until(lambda: session.seen and bool(link.after))
    assert (session.identity, session.rater) == (Identity("anna", "rater"), "anna")
    assert not session.allows("engine.stop")


async def test_after_a_lost_connection_the_feed_continues_with_the_next_event() -> None:
    session, link = make(sample_state())
    clock: Any = session._clock
    async with following(session, link) as (_, pauses):
        await until(lambda: bool(link.after))
        seq = session.state.seq
        link.cut(AjetError("the proxy does not answer"))
        await until(lambda: len(pauses) > 4)
        clock.now += 7
        age = session.stale_for
        assert age == 7
        assert "does not answer" in session.trouble
        groups = session.state.groups
        link.mend()
        link.publish(*group_events(5000, until="QUEUED"))
        await until(lambda: "g5000" in session.state.groups)
        assert session.stale_for is None
        assert session.trouble == ""
        assert session.state.groups is groups, "the state must not be replaced"
    assert (link.after[-1], link.snapshots) == (seq, 1)


async def test_a_revoked_token_is_named_once_with_what_to_do() -> None:
    session, link = make(sample_state())
    link.identity = Identity("anna", "rater")
    async with following(session, link) as (_, pauses):
        await until(lambda: bool(link.after))
        link.cut(
            ControlError("the control token is missing, wrong, revoked or expired", status=401)
        )
        await until(lambda: len(pauses) > 3)
        assert session.refused == "the token anna was revoked or has expired"
        assert "Ask for a new one" in session.trouble
        assert [text[1:] for text, _ in session.messages] == [session.trouble[1:]]
        link.mend()
        link.publish(RatingModeChanged(mode="hold"))
        await until(lambda: session.stale_for is None)
        assert session.refused == ""


async def test_reconnect_delays_grow_up_to_a_limit() -> None:
    session, link = make()
    link.broken = AjetError("down")
    async with following(session, link) as (_, pauses):
        await until(lambda: len(pauses) > 8)
    assert pauses[0] < 0.5
    assert pauses[4] > pauses[0] * 3
    assert max(pauses) <= 6
    assert session.stale_for is None, "what was never there is not stale"
    assert not session.seen


async def test_a_reset_reads_the_snapshot_again() -> None:
    session, link = make(sample_state())
    async with following(session, link):
        await until(lambda: bool(link.after))
        link.reset()
        await until(lambda: link.snapshots == 2)
        link.publish(AlertRaised(key="new", cause="c"))
        await until(lambda: "new" in session.state.alerts)


async def test_a_repeated_event_is_applied_once() -> None:
    session, link = make()
    async with following(session, link):
        await until(lambda: bool(link.after))
        link.publish(*group_events(1, until="QUEUED"))
        await until(lambda: session.state.totals.groups == 1)
        for queue in link._queues:
            queue.put_nowait(link._sent[0])
        link.publish(RatingModeChanged(mode="hold"))
        await until(lambda: session.state.rating_mode == "hold")
        assert session.state.totals.groups == 1


async def test_a_read_only_console_reads_the_snapshot_after_a_reconnect() -> None:
    session, link = make(sample_state(), read_only=True)
    async with following(session, link) as (_, pauses):
        await until(lambda: bool(link.after))
        link.cut(AjetError("down"))
        await until(lambda: bool(pauses))
        link.mend()
        await until(lambda: link.snapshots >= 2)
        assert session.stale_for is None


async def test_an_unexpected_error_does_not_end_the_feed() -> None:
    class Odd(FakeLink):
        async def snapshot(self, *, whole: int | None = None) -> Any:
            self.snapshots += 1
            if self.snapshots == 1:
                raise RuntimeError("odd")
            return self.state

    link = Odd()
    session = Session(link=link, clock=Clock())
    async with following(session, link):
        await until(lambda: session.seen)
    assert link.snapshots == 2
