"""Two consoles on one queue: an idle one releases its group, a key takes a group over."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core.events import ConsoleAttached, GroupLeased, GroupRated, RatingModeChanged
from tests.pilot.rate.test_screen import PLACES, held, order_of, votes, waiting
from tests.support.console import (
    BY_ENTER,
    NOW,
    Clock,
    FakeLink,
    FakeReply,
    RunningConsole,
    run_console,
    state_of,
)


class LeasingLink(FakeLink):
    """Carries out leases and votes as the proxy does."""

    def __init__(self, state: Any, clock: Clock) -> None:
        super().__init__(state)
        self.clock = clock
        self.consoles = 0
        self.leases: list[tuple[float, str, float]] = []
        """Time, group and seconds of each lease that was ordered."""

    async def command(self, name: str, args: Mapping[str, Any]) -> FakeReply:
        reply = await super().command(name, args)
        now = self.clock()
        if name == "group.lease" and not args.get("shared"):
            self.leases.append((now - NOW, args["group_id"], args["seconds"]))
            self._lease(now, **args)
        elif name == "group.rate":
            rating, order = args["rating"], tuple(args.get("order", ()))
            self.publish(
                GroupRated(server="embedded", group_id=args["group_id"], rating=rating, order=order)
            )
        return reply

    def _lease(
        self,
        now: float,
        group_id: str,
        holder: str,
        seconds: float,
        rater: str = "",
        take: bool = False,
        **_: Any,
    ) -> None:
        old = self.state.groups[group_id].lease
        if take or old is None or not old.of_another(holder, now):
            until = now + seconds if seconds else 0.0
            self.publish(
                GroupLeased(
                    server="embedded",
                    group_id=group_id,
                    holder=holder,
                    rater=rater,
                    until=until,
                    at=now,
                )
            )


class LateLink(LeasingLink):
    """Answers a takeover before its event arrives, as two connections may."""

    late = False

    def _lease(self, now: float, group_id: str, *args: Any, **more: Any) -> None:
        if self.late and more.get("take"):
            self.delayed = (now, group_id, args, more)
        else:
            super()._lease(now, group_id, *args, **more)

    def publish_delayed(self) -> None:
        """Publish the delayed event."""
        now, group_id, value, more = self.delayed
        super()._lease(now, group_id, *value, **more)


@asynccontextmanager
async def rating(link: LeasingLink, rater: str, **more: Any) -> AsyncIterator[RunningConsole]:
    """A console on Rate that shares `link` with others."""
    async with run_console(
        link=link, clock=link.clock, places=PLACES, at="rate", rating=BY_ENTER, rater=rater, **more
    ) as console:
        link.consoles += 1
        link.publish(ConsoleAttached(consoles=link.consoles))
        await console.settle()
        yield console


async def seconds(console: RunningConsole, count: int) -> None:
    """Let time pass without a key."""
    for _ in range(count):
        console.clock.now += 1
        await console.settle()


def leased(holder: str, rater: str, since: float) -> GroupLeased:
    return GroupLeased(
        server="embedded",
        group_id="g0001",
        holder=holder,
        rater=rater,
        until=NOW + 15,
        at=NOW - since,
    )


async def test_a_lease_is_released_after_a_minute_without_a_key() -> None:
    clock = Clock()
    link = LeasingLink(state_of(RatingModeChanged(mode="hold"), *held(1, 0, 900)), clock)
    async with rating(link, "root") as console:
        link.publish(ConsoleAttached(consoles=2))
        await console.settle()
        await seconds(console, 100)
        assert link.leases[0] == (0.0, "g0001", 20.0)
        assert link.leases[-1] == (60.0, "g0001", 0.0)
        assert link.state.groups["g0001"].lease is None
        await console.press("tab")
        await seconds(console, 1)
        assert link.leases[-1] == (101.0, "g0001", 20.0)


async def test_an_idle_console_does_not_keep_held_users_waiting() -> None:
    """Three held answers; root's console stays on Rate, bob rates the groups on his screen."""
    clock = Clock()
    events = [event for number in (1, 2, 3) for event in held(number, 0, 900 + number)]
    link = LeasingLink(state_of(RatingModeChanged(mode="hold"), *events), clock)
    waits: dict[str, float] = {}
    async with rating(link, "root") as idle:
        link.publish(ConsoleAttached(consoles=2))
        await idle.settle()
        async with rating(link, "bob") as console:
            for second in range(120):
                clock.now = NOW + second
                await idle.settle()
                await console.settle()
                before = len(votes(console))
                if "1-4 best" in console.text():
                    await console.press("1", "enter")
                waits.update((name, float(second)) for name, *_ in votes(console)[before:])
                if len(waits) == 3:
                    break
    assert waits.keys() == {"g0001", "g0002", "g0003"}
    assert max(waits.values()) <= 62.0, waits


async def test_a_key_takes_a_group_over_and_the_other_console_names_the_rater() -> None:
    clock = Clock()
    events = [event for number in (1, 2) for event in held(number, 0, 900 + number)]
    link = LeasingLink(state_of(RatingModeChanged(mode="hold"), *events), clock)
    async with rating(link, "root") as first:
        link.publish(ConsoleAttached(consoles=2))
        await first.settle()
        async with rating(link, "bob") as console:
            assert "Held 1" in first.text()
            assert "Held 2" in console.text()
            await seconds(first, 40)
            await console.settle()
            result = "root has 1 open group on another console since 0:40; T takes it"
            assert result in console.text()
            await console.press("T")
            await console.shows("Held 1")
            await first.shows("bob is rating the group that was here")
            await first.shows("Held 2")
            await console.press("1", "enter")
            assert votes(console)[-1] == ("g0001", "best", (order_of(1)[0],))


@pytest.mark.parametrize(("groups", "before"), [(2, "Held 2"), (1, "T takes it")])
async def test_a_taken_over_lease_is_kept_until_the_group_is_on_screen(
    groups: int, before: str
) -> None:
    clock = Clock()
    events = [event for at in range(1, groups + 1) for event in held(at, 0, 900 + at)]
    link = LateLink(state_of(RatingModeChanged(mode="hold"), *events), clock)
    link.publish(leased("x", "root", 60))
    async with rating(link, "bob") as console:
        link.publish(ConsoleAttached(consoles=2))
        await console.shows(before)
        link.late = True
        await console.press("T")
        await console.until(lambda: hasattr(link, "delayed"), "the takeover")
        await console.settle()
        link.late = False
        link.publish_delayed()
        await console.shows("Held 1")
        assert [lease for lease in link.leases if lease[1] == "g0001"] == [(0.0, "g0001", 20.0)]
        clock.now += 13
        await console.settle()
        await console.until(lambda: link.leases[-1] == (13.0, "g0001", 20.0), "a longer lease")


async def test_a_queue_leased_by_another_console_is_not_shown_as_empty() -> None:
    link = LeasingLink(waiting(1), Clock())
    link.publish(ConsoleAttached(consoles=2), leased("x", "", 12))
    async with rating(link, "bob") as console:
        assert console.text().count("another console has 1 open group since 0:12; T takes it") == 1
        await console.press("T")
        assert "Question 1" in console.text()
        link.publish(leased("y", "ada", 0))
        await console.settle()
        assert "ada has 1 open group on another console since 0:00; T takes it" in console.text()


async def test_a_read_only_console_takes_over_no_group() -> None:
    link = LeasingLink(waiting(1), Clock())
    link.publish(ConsoleAttached(consoles=2), leased("x", "root", 12))
    async with rating(link, "bob", read_only=True) as console:
        assert "root has 1 open group on another console since 0:12" in console.text()
        assert "T takes" not in console.text()
        await console.press("T")
        assert link.commands == []
