"""Consoles that name themselves to the proxy, and raters with a token of their own."""

from pathlib import Path
from typing import Any, cast

import pytest

from core.events import ConsoleAttached, ConsoleDetached, GroupLeased, RatingAwaited, VoteCast
from proxy.control.client import ControlClient, ControlError
from tests.support.proxy.guarded import Guarded, guarded

GROUP: dict[str, Any] = {"server": "embedded", "group_id": "g0001"}


async def attached(one: Guarded, client: ControlClient, **names: str) -> Any:
    """The feed of a console, after its own first event."""
    state = await client.snapshot()
    events = cast(Any, client.events(state.seq, console=True, **names))
    assert isinstance(await anext(events), ConsoleAttached)
    return events


async def test_a_console_is_present_while_it_follows_the_feed(tmp_path: Path) -> None:
    async with guarded(tmp_path) as one, ControlClient(one.url, "secret") as owner:
        state, now = one.context.bus.state, one.context.clock()
        events = await attached(one, owner, holder="h1", rater="\x1b[31mann\n" + "x" * 99)
        (console,) = state.attached.values()
        assert "ann" in console.rater
        assert len(console.rater) <= 40
        assert "\x1b" not in console.rater
        async with one.client("rater") as client:
            theirs = await attached(one, client, holder="h2", rater="somebody else")
            assert state.attached["h2"].rater == "rater-1"  # of the token
            one.context.bus.publish(
                GroupLeased(**GROUP, holder="h2", rater="rater-1", until=now + 60)
            )
            assert state.groups["g0001"].leases
            await theirs.aclose()
        while not isinstance(event := await anext(events), ConsoleDetached):
            pass
        assert (event.holder, event.consoles) == ("h2", 1)
        assert list(state.attached) == ["h1"]
        assert not state.groups["g0001"].leases  # a console that leaves has no group open
        await events.aclose()


async def test_two_tokens_rate_a_group_that_needs_two_votes(tmp_path: Path) -> None:
    async with guarded(tmp_path) as one, one.client("rater") as client:
        bus, now = one.context.bus, one.context.clock()
        bus.publish(
            RatingAwaited(**GROUP, until=now + 500, fallback="accept", why="hold", overlap=2)
        )
        bus.publish(GroupLeased(**GROUP, holder="c1", rater="boris", until=now + 60))
        vote = {"group_id": "g0001", "rating": "tie"}
        await client.command("group.rate", vote)  # one vote is missing besides that of boris
        release = {"group_id": "g0001", "holder": "c1", "seconds": 0}
        with pytest.raises(ControlError, match="console c1 is that of another rater"):
            await client.command("group.lease", release)
        bus.publish(VoteCast(**GROUP, rating="tie", rewards=(0.5,) * 4, rater="eve"))
        with pytest.raises(ControlError, match="boris is rating group g0001"):
            await client.command("group.rate", vote)
        with pytest.raises(ControlError, match=r"`group\.settle` needs the role operator"):
            await client.command("group.settle", vote)
        assert [args["rater"] for _, args in one.recorder.executed] == ["rater-1"]
