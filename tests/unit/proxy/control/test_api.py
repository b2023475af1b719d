"""The control API from outside, through its own client: snapshot, feed, commands, facts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import httpx
import pytest
from fastapi import FastAPI

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from core.bus import Bus
from core.commands import CommandError
from core.events import (
    AlertRaised,
    AnyEvent,
    GroupNoted,
    GroupOpened,
    MockFinished,
    MockRowDone,
    MockStarted,
    ProxyStarted,
    encode,
)
from core.journal.file import JournalError
from core.settings import ProxySettings, Settings
from core.state import reduce
from core.state.brief import brief_groups
from proxy.context import ProxyContext
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient, ControlError, ControlLost, Reset
from proxy.control.dispatch import CommandDispatcher, identifiers
from proxy.control.group_commands import GroupCommands
from proxy.dataset_rows import Row, Rows
from proxy.http.app import ProxyApp
from proxy.http.server import http_config
from proxy.rewards.model.source import ComposedSource
from tests.support.proxy.guarded import Guarded, guarded
from tests.support.proxy.world import world
from tests.support.runs import run_events
from tests.support.sample import group_events
from tests.support.served import below, served

pytestmark = pytest.mark.slow


class FakeGroupCommands(GroupCommands):
    """Records the calls of its command methods, and of the registry's methods."""

    runs: ClassVar[dict[str, Any]] = {}
    server_facts: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__(cast(Any, SimpleNamespace(context=None, runs=None)))
        self.calls: list[tuple[str, dict[str, Any]]] = []
        for command in self.table:
            name = "set_mode" if command == "rating.mode" else command.partition(".")[2]
            self.table[command] = self.__getattr__(name)

    def __getattr__(self, name: str) -> Any:
        async def call(**args: Any) -> str:
            self.calls.append((name, args))
            if args.get("group_id") == "g0002":
                raise AjetError("the group is sealed", "g0002", "Its rewards are on their way")
            return f"{name} done"

        return call


class ServedApi:
    """A proxy's control API with nothing behind it."""

    def __init__(self, context: ProxyContext, groups: FakeGroupCommands, url: str) -> None:
        self.context = context
        self.groups = groups
        self.url = url

    def client(self, token: str = "secret") -> ControlClient:
        return ControlClient(self.url, token)


@pytest.fixture
async def api(bus: Bus) -> AsyncIterator[ServedApi]:
    groups, rewards = FakeGroupCommands(), ComposedSource()
    async with Tasks("test") as tasks:
        context = ProxyContext(Settings(), bus.journal, bus, {}, rewards, Rows(), tasks, "me")
        orders = CommandDispatcher(context, cast(Any, groups), groups)
        app = ControlApi(context, orders, "secret", frozenset()).app()
        async with served(below("/control", app)) as url:
            yield ServedApi(context, groups, url)


@pytest.fixture
async def client(api: ServedApi) -> AsyncIterator[ControlClient]:
    async with api.client() as made:
        yield made


def opened(name: str) -> GroupOpened:
    return GroupOpened(group_id=name, request_id="r", task_id="t", n=1, query="q", body={})


async def collect(
    client: ControlClient, after: int, count: int, console: bool = False
) -> list[AnyEvent | Reset]:
    result: list[AnyEvent | Reset] = []
    events = client.events(after, console)
    async for event in events:
        result.append(event)
        if len(result) >= count:
            break
    await events.aclose()  # type: ignore[attr-defined] # it is a generator
    return result


async def test_snapshot_and_events_give_the_state(api: ServedApi, client: ControlClient) -> None:
    api.context.bus.publish(
        ProxyStarted(client_uuid="c", pid=1, url="u", version="v", servers={}, rewards="b")
    )
    api.context.bus.publish(opened("g1"))
    state = await client.snapshot()
    api.context.bus.publish(opened("g2"))
    api.context.bus.publish(AlertRaised(key="k", cause="c"))
    for event in await collect(client, state.seq, 2):
        assert not isinstance(event, Reset)
        reduce(state, event)
    assert state == api.context.bus.state


async def test_live_events_arrive_and_resume_by_seq(api: ServedApi, client: ControlClient) -> None:
    api.context.bus.publish(opened("g1"))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(collect(client, 1, 2))
        while api.context.bus.followers == 0:
            await asyncio.sleep(0.01)
        api.context.bus.publish(opened("g2"))
        api.context.bus.publish(opened("g3"))
    events = reading.result()
    assert [cast(GroupOpened, event).group_id for event in events] == ["g2", "g3"]
    again = await collect(client, 2, 1)
    assert cast(GroupOpened, again[0]).group_id == "g3"


async def test_an_unknown_path_or_method_gets_an_error_of_the_same_form(api: ServedApi) -> None:
    async with httpx.AsyncClient(base_url=api.url) as http:
        for answer, status in (
            (await http.get("/control/nothing"), 404),
            (await http.post("/control/snapshot"), 405),
        ):
            assert answer.status_code == status
            assert answer.json()["error"]["message"]
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("after", [999, -1])
async def test_a_feed_from_an_unknown_sequence_number_is_reset(
    api: ServedApi, client: ControlClient, after: int
) -> None:
    assert isinstance((await collect(client, after, 1))[0], Reset)


async def test_a_feed_of_another_run_is_reset(api: ServedApi, client: ControlClient) -> None:
    """A killed proxy may have lost events that were read; numbers alone do not show it."""
    api.context.bus.publish(opened("g1"))
    api.context.bus.publish(opened("g2"))
    events = client.events(1, run_id="an earlier run")
    assert isinstance(await anext(events), Reset)
    await events.aclose()  # type: ignore[attr-defined] # it is a generator
    events = client.events(1, run_id="run")
    assert cast(GroupOpened, await anext(events)).group_id == "g2"
    await events.aclose()  # type: ignore[attr-defined] # it is a generator


async def test_consoles_are_counted_while_attached(api: ServedApi, client: ControlClient) -> None:
    await collect(client, 0, 1, console=True)
    for _ in range(200):
        if api.context.bus.state.consoles == 0 and api.context.bus.state.seq >= 2:
            break
        await asyncio.sleep(0.02)
    assert api.context.bus.state.seq == 2
    assert api.context.bus.state.consoles == 0


async def test_commands_reach_the_groups_and_errors_are_returned(
    api: ServedApi, client: ControlClient
) -> None:
    for number in (1, 2):
        for event in group_events(number, at=api.context.clock(), until="AWAITING_RATING"):
            api.context.bus.publish(event)
    args = {"group_id": "g0001", "rating": "best", "order": [1]}
    assert (await client.command("group.rate", args)).message == "rate done"
    expected = {"group_id": "g0001", "rating": "best", "order": (1,)}
    assert api.groups.calls == [("rate", expected)]
    with pytest.raises(ControlError, match="the group is sealed") as caught:
        await client.command("group.abort", {"group_id": "g0002"})
    assert caught.value.status == 409
    with pytest.raises(ControlError, match="no command") as caught:
        await client.command("group.paint", {})
    assert caught.value.status == 400
    with pytest.raises(ControlError, match="not a command of the proxy"):
        await client.command("mock.start", {})
    assert issubclass(CommandError, AjetError)


async def test_only_requests_with_the_token_and_a_known_host_are_served(api: ServedApi) -> None:
    async with api.client("wrong") as client:
        with pytest.raises(ControlError, match="token") as caught:
            await client.snapshot()
        assert caught.value.status == 401
    async with httpx.AsyncClient(base_url=api.url) as http:
        right = {"authorization": "Bearer secret"}
        for more in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
            answer = await http.get("/control/snapshot", headers={**right, **more})
            assert answer.status_code == 403
        port = api.url.rpartition(":")[2]
        for more in ({"origin": api.url}, {"host": f"LOCALHOST:{port}"}, {"host": "[::1]"}):
            answer = await http.get("/control/snapshot", headers={**right, **more})
            assert answer.status_code == 200


async def test_invalid_numbers_and_bodies_are_refused(api: ServedApi) -> None:
    async with httpx.AsyncClient(base_url=api.url) as http:
        http.headers["authorization"] = "Bearer secret"
        for number in ("nan", "inf", "1.5", "9" * 25, "1_0", "\u0661"):
            for path in ("groups?first=", "groups?limit=", "events?after="):
                answer = await http.get(f"/control/{path}{number}")
                assert answer.status_code == 400
                assert "must be a whole number" in answer.text
        for body in (b"[" * 100_000, b"{", b"\xff"):
            answer = await http.post("/control/facts", content=body)
            assert answer.status_code == 400
            assert "is not JSON" in answer.text


async def test_a_repeated_fact_is_stored_once(api: ServedApi, client: ControlClient) -> None:
    begun = MockStarted(mock_id="m", dataset="d", target="t", total=2)
    row = MockRowDone(mock_id="m", row_id="1", query="q", ok=True, seconds=1)
    for _ in range(2):
        await client.post_fact("m:start", begun)
        await client.post_fact("m:1:1", row)
    mock = api.context.bus.state.mock
    assert mock.done == 1
    with pytest.raises(ControlError, match="only the mock user's"):
        await client.post_fact("x", opened("g"))


async def test_a_fact_that_waits_for_the_journal_is_stored_once(
    api: ServedApi, client: ControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def broken(_: int) -> None:
        raise JournalError("the journal cannot be written: the disk is full")

    begun = MockStarted(mock_id="m", dataset="d", target="t", total=2)
    done = MockFinished(mock_id="m", how="done")
    await client.post_fact("m:start", begun)
    with monkeypatch.context() as patched:
        patched.setattr(api.context.journal, "committed", broken)
        with pytest.raises(ControlError, match="disk is full"):
            await client.post_fact("m:end", done)
        before = api.context.bus.state.seq
        with pytest.raises(ControlError, match="disk is full"):
            await client.post_fact("m:end", done)
    await client.post_fact("m:end", done)
    assert api.context.bus.state.seq == before


async def test_rows_and_directives(api: ServedApi, client: ControlClient) -> None:
    row = {"row_id": "1", "query": "What  is it?", "reference": "x", "mock_id": "m"}
    assert await client.register_row(row) == "run"
    assert api.context.rows.match({}, "What is it?") is not None
    assert api.context.rows.match({"x-ajet-row": "1"}, "else") is not None
    assert api.context.rows.match({}, "Who?") is None
    await client.release_row("1")
    assert api.context.rows.match({}, "What is it?") is None
    await client.post_fact("m:start", MockStarted(mock_id="m", dataset="d", target="t", total=2))
    await client.command("mock.pause", {})
    assert await client.directive("m") == "pause"
    assert await client.register_row({"row_id": "2", "query": "z", "mock_id": "m"}) == "pause"
    assert api.context.rows.match({}, "z") is None
    await client.command("mock.resume", {})
    assert await client.directive("m") == "run"
    await client.command("mock.stop", {})
    assert await client.directive("m") == "stop"
    api.context.rows.register(Row(row_id="3", query="y", mock_id="m"))
    await client.post_fact("m:end", MockFinished(mock_id="m", how="stopped"))
    assert api.context.rows.match({}, "y") is None
    reply = await client.command("mock.stop", {})
    assert reply.message == "no mock user is running"


async def test_closed_groups_have_complete_texts(api: ServedApi, client: ControlClient) -> None:
    api.context.bus.publish(opened("g1"))
    events = await client.group_events("g1")
    assert [event.kind for event in events] == ["group_opened"]
    with pytest.raises(ControlError, match="no group"):
        await client.group_events("g9")


async def test_tokens_come_from_a_server_that_logs_them(
    tmp_path: Path, api: ServedApi, client: ControlClient
) -> None:
    (tmp_path / "w").mkdir()
    async with world(tmp_path / "w") as w:
        with pytest.raises(ControlError, match="no server `s`") as caught:
            await client.tokens("e-1", "s")
        assert caught.value.status == 409
        api.context.servers["s"] = w.server
        with pytest.raises(ControlError, match="this server has no token log"):
            await client.tokens("e-1", "s")
        (await w.embedded()).tokens["e-1"] = {
            "episode_uuid": "e-1",
            "state": "live",
            "calls": [{"prompt_tokens": 1, "tokens": [{"id": 7, "text": "<p>", "mask": 0}]}],
            "added_by_a_later_version": 1,
        }
        tokens = await client.tokens("e-1", "s")
        assert (tokens.state, tokens.calls[0].tokens[0].text) == ("live", "<p>")
        with pytest.raises(ControlError, match="has no tokens here"):
            await client.tokens("e-2", "s")
        for odd in ("a/b", "../restore", "a b", "é"):
            with pytest.raises(ControlError):
                await client.tokens(odd, "s")


async def test_a_call_to_a_stopped_proxy_is_reported() -> None:
    async with served(FastAPI()) as url:
        pass
    async with ControlClient(url, "secret") as client:
        with pytest.raises(ControlLost, match="does not answer"):
            await client.snapshot()


async def test_groups_of_the_whole_journal_by_page(api: ServedApi, client: ControlClient) -> None:
    for number in range(7):
        for event in group_events(number, query=f"Q{number}"):
            api.context.bus.publish(event)
    page = await client.history(4, 2)
    assert (page.first, page.total) == (4, 7)
    assert [group.query for group in page.groups] == ["Q4", "Q5"]
    assert page.groups[0] == api.context.bus.state.groups["g0004"]
    assert (await client.history(7, 2)).groups == []


async def test_bodies_for_the_control_api_count_towards_the_bound_on_all(api: ServedApi) -> None:
    small = Settings(proxy=ProxySettings(max_body_mb=1, max_bodies_mb=1))
    right = {"authorization": "Bearer secret"}
    orders = CommandDispatcher(api.context, cast(Any, api.groups), api.groups)
    app = ProxyApp(small, ControlApi(api.context, orders, "secret", frozenset()).app())
    async with (
        served(app, http_config(small.proxy, app)) as url,
        httpx.AsyncClient(base_url=url, headers=right) as client,
    ):
        full = await client.post("/control/rows/over", content=b" " * (2 << 20))
        assert (full.status_code, full.headers["retry-after"]) == (503, "5")
        row = await client.post("/control/rows/over", content=b'{"row_id":"r"}' + b" " * 1000)
        assert row.status_code == 200


NOTES = (
    "plain",
    "line\u2028paragraph\u2029next\x85end",
    "two\nlines\r\nand a\ttab",
    "id: 7\n\nevent: x",
)


class Pieces(httpx.AsyncByteStream):
    """Some bytes, a few at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._data), self._size):
            yield self._data[at : at + self._size]


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_text_with_line_separators_is_one_event(size: int) -> None:
    """U+2028 and similar characters are unescaped in JSON; they end no line of the feed."""
    sent = [
        GroupNoted(seq=at, group_id="g1", note=note, run_id="r") for at, note in enumerate(NOTES, 1)
    ]
    data = b"event: ping\ndata: {}\n\n" + b"".join(
        b"id: %d\nevent: group_noted\ndata: %s\n\n" % (event.seq, encode(event)) for event in sent
    )
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Pieces(data, size)))
    objects: list[object] = []

    async def read() -> None:
        async with ControlClient("http://proxy", "token", transport) as client:
            async for event in client.events(0):
                objects.append(event)

    with pytest.raises(ControlLost):
        await read()
    assert objects == sent


async def test_a_request_over_a_closed_client_is_refused() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200))
    async with ControlClient("http://proxy", "token", transport) as client:
        pass
    with pytest.raises(ControlLost, match="was closed"):
        await client.snapshot()
    with pytest.raises(ControlLost, match="was closed"):
        await anext(client.events(0))


def test_the_log_contains_no_text() -> None:
    result = identifiers(
        {
            "group_id": "ab12",
            "index": 2,
            "note": "a private matter",
            "order": [1, 0],
            "text": "secret " * 1000,
            "done": True,
            "server": None,
        }
    )
    assert result == "group_id=ab12"


def test_a_name_cannot_break_the_log() -> None:
    assert "\n" not in identifiers({"key": "a\nERROR forged", "server": "\x1b[31m"})
    assert "\x1b" not in identifiers({"server": "\x1b[31m"})


COUNT = 40


WHOLE = 5


async def test_older_groups_come_brief_and_their_texts_by_page(
    one: Guarded, owner: ControlClient
) -> None:
    bus = one.context.bus
    for number in range(100, 100 + COUNT):
        for event in group_events(number):
            bus.publish(event)
    everything = await owner.snapshot()
    assert everything == bus.state
    state = await owner.snapshot(whole=WHOLE)
    assert state.groups == brief_groups(bus.state.groups, WHOLE)
    assert state.seq == bus.state.seq
    ids = [group.group_id for group in state.groups.values() if group.brief]
    assert len(ids) >= COUNT - WHOLE
    found = await owner.groups([*ids, "none"])
    assert {group.group_id: group for group in found} == {
        group_id: bus.state.groups[group_id] for group_id in ids
    }


async def test_ended_runs_come_without_curves(one: Guarded, owner: ControlClient) -> None:
    bus = one.context.bus
    for event in (*run_events(1), *run_events(2, ends=False)):
        bus.publish(event)
    state = await owner.snapshot(whole=WHOLE)
    runs = state.engine_runs
    assert [run.brief for run in runs.runs] == [True, False]
    for number, curve in (await owner.curves([1, 77])).items():
        run = runs.numbered(number)
        run.curve = curve
    assert runs == bus.state.engine_runs


async def test_a_large_snapshot_is_compressed_for_clients_that_accept_it(tmp_path: Path) -> None:
    async with guarded(tmp_path) as one, httpx.AsyncClient(base_url=one.url) as http:
        http.headers["authorization"] = "Bearer secret"
        for number in range(100, 100 + COUNT):
            for event in group_events(number):
                one.context.bus.publish(event)
        packed = await http.get("/control/snapshot")
        plain = await http.get("/control/snapshot", headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.json() == plain.json()
        assert packed.num_bytes_downloaded < plain.num_bytes_downloaded / 5
        assert (await http.get("/control/snapshot?whole=x")).status_code == 400
        some = await http.get("/control/snapshot/groups?ids=")
        assert some.json() == {"groups": []}
