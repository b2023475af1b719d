"""Each role has its commands and routes, and each console its name."""

from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from core.commands import COMMANDS
from core.events import (
    AlertRaised,
    ConsoleAttached,
    ConsoleDetached,
    GroupLeased,
    GroupRated,
    RatingAwaited,
    VoteCast,
)
from core.roles import OWNER, ROLES, AccessRole, Identity
from core.state import Rating
from proxy.control.client import ControlClient, ControlError, ControlLost
from tests.support.proxy.guarded import NOT_NOW, RATING, Guarded, arguments, guarded, make_ready

pytestmark = pytest.mark.slow


GROUP: dict[str, Any] = {"server": "embedded", "group_id": "g0001"}


def test_the_commands_of_raters_are_those_of_rating() -> None:
    assert {command.name for command in COMMANDS.values() if command.role == "rater"} == RATING
    assert not [command.name for command in COMMANDS.values() if command.role == "viewer"]


async def test_each_command_is_permitted_to_its_roles_only(one: Guarded) -> None:
    make_ready(one)
    for role in ROLES:
        one.recorder.executed.clear()
        expected = {"viewer": set(), "rater": RATING, "operator": set(COMMANDS)}[role]
        async with one.client(role) as client:
            for name, command in COMMANDS.items():
                if name in expected - NOT_NOW:
                    await client.command(name, arguments(command))
                if name in expected:
                    continue
                why = f"`{name}` needs the role {command.role}; {role}-1 is a {role}"
                with pytest.raises(ControlError, match=why) as refused:
                    await client.command(name, arguments(command))
                assert refused.value.status == 403
                with pytest.raises(ControlError, match=why):  # before the arguments
                    await client.command(name, {"nonsense": 1})
        assert {name for name, _ in one.recorder.executed} == expected - NOT_NOW


async def test_only_operators_use_the_routes_that_write_or_show_jobs(tmp_path: Path) -> None:
    paths = {"GET": ["/job/x", "/rewind/x", "/mock"], "POST": ["/rows", "/rows/over", "/facts"]}
    reads = ["/snapshot", "/settings", "/groups", "/groups/g0001"]
    async with guarded(tmp_path) as one, httpx.AsyncClient(base_url=one.url) as http:
        for role in ROLES:
            headers = {"authorization": f"Bearer {one.tokens[role]}"}
            for method, some in paths.items():
                for path in some:
                    body = b"{}" if method == "POST" else None
                    response = await http.request(
                        method, f"/control{path}", headers=headers, content=body
                    )
                    assert (response.status_code == 403) == (role != "operator"), (role, path)
            for path in reads:
                assert (await http.get(f"/control{path}", headers=headers)).status_code == 200


async def test_a_named_token_votes_under_its_own_name(one: Guarded) -> None:
    vote = {"group_id": "g0001", "rating": "tie", "rater": "somebody else"}
    for role in ("rater", "operator"):
        async with one.client(cast(AccessRole, role)) as client:
            await client.command("group.rate", vote)
    async with ControlClient(one.url, "secret") as owner:
        await owner.snapshot()
        assert owner.identity == OWNER
        await owner.command("group.rate", vote)
    names = [args["rater"] for _, args in one.recorder.executed]
    assert names == ["rater-1", "operator-1", "somebody else"]


async def test_a_rater_changes_no_vote_or_lease_of_another(
    one: Guarded, rater: ControlClient
) -> None:
    bus, now = one.context.bus, one.context.clock()
    group = {"server": "embedded", "group_id": "g0001"}
    bus.publish(GroupRated(**group, rating="tie", rater="boris", rewards=(0.5, 0.5)))
    with pytest.raises(ControlError, match="the vote on group g0001 is of boris"):
        await rater.command("group.unrate", {"group_id": "g0001"})
    for flag, name in (("override", "group.rate"), ("take", "group.lease")):
        args = arguments(COMMANDS[name]) | {flag: True}
        with pytest.raises(ControlError, match=f"with `{flag}` needs the role operator"):
            await rater.command(name, args)
    bus.publish(GroupLeased(**group, holder="c1", rater="boris", until=now + 60))
    for name in ("group.rate", "group.lease"):  # under the name of his console too
        args = arguments(COMMANDS[name]) | {"holder": "c1"}
        with pytest.raises(ControlError, match="boris is rating group g0001"):
            await rater.command(name, args)
    assert one.recorder.executed == []


async def test_a_rater_does_not_end_a_group_that_waits_for_others(
    one: Guarded, rater: ControlClient
) -> None:
    accept = {"group_id": "g0001"}
    bus, now = one.context.bus, one.context.clock()
    with pytest.raises(ControlError, match="does not wait for your vote alone"):
        await rater.command("group.accept", accept)
    with pytest.raises(ControlError, match="with `override` needs the role operator"):
        await rater.command("group.accept", {**accept, "override": True})
    waits = {"until": now + 500, "fallback": "accept", "why": "hold", "overlap": 2}
    bus.publish(RatingAwaited(**GROUP, **waits))
    bus.publish(VoteCast(**GROUP, rating="best", order=(0,), rater="rater-1", rewards=(1, 0)))
    with pytest.raises(ControlError, match="does not wait for your vote alone"):
        await rater.command("group.accept", accept)
    assert one.recorder.executed == []


async def test_the_own_vote_is_changed_while_another_rater_has_the_group_open(
    one: Guarded, rater: ControlClient
) -> None:
    bus, now = one.context.bus, one.context.clock()
    waits = {"until": now + 500, "fallback": "accept", "why": "hold", "overlap": 2}
    bus.publish(RatingAwaited(**GROUP, **waits))
    bus.publish(VoteCast(**GROUP, rating="best", order=(0,), rater="rater-1", rewards=(1, 0)))
    bus.publish(GroupLeased(**GROUP, holder="c2", rater="boris", until=now + 60))
    for name in ("group.rate", "group.unrate", "group.note"):
        await rater.command(name, arguments(COMMANDS[name]))
    assert [name for name, _ in one.recorder.executed] == [
        "group.rate",
        "group.unrate",
        "group.note",
    ]


async def test_votes_and_leases_without_a_name_are_not_those_of_a_rater(
    one: Guarded, rater: ControlClient
) -> None:
    bus, now = one.context.bus, one.context.clock()
    bus.publish(GroupLeased(**GROUP, holder="owner", rater="", until=now + 60))
    for name in ("group.rate", "group.lease"):
        with pytest.raises(ControlError, match="another rater is rating group g0001"):
            await rater.command(name, arguments(COMMANDS[name]) | {"holder": "owner"})
    own = Rating(rating="tie", rater="", holder="owner")
    assert not own.by("rater-1", "owner")
    assert own.by("", "owner")


async def test_no_client_follows_the_feed_as_the_console_of_another(
    one: Guarded, rater: ControlClient
) -> None:
    bus, now = one.context.bus, one.context.clock()
    bus.publish(GroupLeased(**GROUP, holder="theirs", rater="boris", until=now + 60))
    url = "/control/events?console=1&holder=theirs"
    with pytest.raises(ControlError, match="another console has this name"):
        await rater._call("GET", url)
    assert one.context.bus.state.groups["g0001"].leases


async def test_texts_that_all_clients_get_are_bounded(one: Guarded, rater: ControlClient) -> None:
    for name, arg in (("group.note", "note"), ("group.lease", "holder")):
        with pytest.raises(ControlError, match=f"`{arg}` has 5000 characters"):
            await rater.command(name, arguments(COMMANDS[name]) | {arg: "x" * 5_000})
    assert one.recorder.executed == []


async def test_a_revoked_token_ends_its_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.control.api.PING_EVERY", 0.02)
    async with guarded(tmp_path) as one, one.client("viewer") as client:
        before = await client.snapshot()
        assert client.identity == Identity("viewer-1", "viewer")
        one.context.bus.publish(AlertRaised(key="k", cause="c"))
        events = client.events(before.seq)
        assert isinstance(await anext(events), AlertRaised)
        one.access.revoke("viewer-1")
        one.access.add("viewer-1", "viewer")  # a new token in place of one that became known
        with pytest.raises(ControlLost, match="closed the feed"):
            await anext(events)
        with pytest.raises(ControlError, match="revoked or expired") as refused:
            await client.snapshot()
        assert refused.value.status == 401


async def test_no_group_waits_for_the_vote_of_a_viewer(one: Guarded) -> None:
    attached: list[int] = []
    for role in ("viewer", "rater"):
        async with one.client(cast(AccessRole, role)) as client:
            state = await client.snapshot()
            events = client.events(state.seq, console=True)
            if role == "rater":
                event = await anext(events)
                assert isinstance(event, ConsoleAttached)
                attached.append(event.consoles)
            await events.aclose()  # type: ignore[attr-defined] # it is a generator
    assert attached == [1]


async def attached(one: Guarded, client: ControlClient, **names: str) -> Any:
    """The feed of a console, after its own first event."""
    state = await client.snapshot()
    events = cast(Any, client.events(state.seq, console=True, **names))
    assert isinstance(await anext(events), ConsoleAttached)
    return events


async def test_a_console_is_present_while_it_follows(one: Guarded, owner: ControlClient) -> None:
    state, now = one.context.bus.state, one.context.clock()
    events = await attached(one, owner, holder="h1", rater="\x1b[31mann\n" + "x" * 99)
    (console,) = state.attached.values()
    assert "ann" in console.rater
    assert len(console.rater) <= 40
    assert "\x1b" not in console.rater
    async with one.client("rater") as client:
        theirs = await attached(one, client, holder="h2", rater="somebody else")
        assert state.attached["h2"].rater == "rater-1"  # of the token
        one.context.bus.publish(GroupLeased(**GROUP, holder="h2", rater="rater-1", until=now + 60))
        assert state.groups["g0001"].leases
        await theirs.aclose()
    while not isinstance(event := await anext(events), ConsoleDetached):
        pass
    assert (event.holder, event.consoles) == ("h2", 1)
    assert list(state.attached) == ["h1"]
    assert not state.groups["g0001"].leases  # a console that leaves has no group open
    await events.aclose()


async def test_two_tokens_give_a_group_its_two_votes(one: Guarded, rater: ControlClient) -> None:
    bus, now = one.context.bus, one.context.clock()
    bus.publish(RatingAwaited(**GROUP, until=now + 500, fallback="accept", why="hold", overlap=2))
    bus.publish(GroupLeased(**GROUP, holder="c1", rater="boris", until=now + 60))
    vote = {"group_id": "g0001", "rating": "tie"}
    await rater.command("group.rate", vote)  # one vote is missing besides that of boris
    release = {"group_id": "g0001", "holder": "c1", "seconds": 0}
    with pytest.raises(ControlError, match="console c1 is that of another rater"):
        await rater.command("group.lease", release)
    bus.publish(VoteCast(**GROUP, rating="tie", rewards=(0.5,) * 4, rater="eve"))
    with pytest.raises(ControlError, match="boris is rating group g0001"):
        await rater.command("group.rate", vote)
    with pytest.raises(ControlError, match=r"`group\.settle` needs the role operator"):
        await rater.command("group.settle", vote)
    assert [args["rater"] for _, args in one.recorder.executed] == ["rater-1"]
