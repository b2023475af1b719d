"""The control API from outside, through its own client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import httpx
import pytest

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from core.bus import Bus
from core.commands import CommandError
from core.events import (
    AlertRaised,
    AnyEvent,
    GroupOpened,
    MockFinished,
    MockRowDone,
    MockStarted,
    ProxyStarted,
)
from core.journal.file import JournalError
from core.journal.writer import Journal
from core.settings import ProxySettings, Settings
from core.state import reduce
from proxy.context import ProxyContext
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient, ControlError, ControlLost, Reset
from proxy.control.dispatch import CommandDispatcher
from proxy.control.group_commands import GroupCommands
from proxy.dataset_rows import Row, Rows
from proxy.http.app import ProxyApp
from proxy.http.server import http_config
from proxy.rewards.model.source import ComposedSource
from tests.support.proxy.world import world
from tests.support.sample import group_events
from tests.support.scripted.ajetc_transport import AjetcTransport
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
            self.table[command] = self._executor(name)

    def __getattr__(self, name: str) -> Any:
        return self._recorder(name)

    def _executor(self, name: str) -> Any:
        return self._recorder(name)

    def _recorder(self, name: str) -> Any:
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


@asynccontextmanager
async def api(tmp_path: Path) -> AsyncIterator[ServedApi]:
    journal = Journal(tmp_path / "j.db")
    groups = FakeGroupCommands()
    try:
        async with Tasks("test") as tasks:
            bus = Bus(journal, "run")
            rewards = ComposedSource()
            context = ProxyContext(Settings(), journal, bus, {}, rewards, Rows(), tasks, "me")
            orders = CommandDispatcher(context, cast(Any, groups), groups)
            async with served(
                below("/control", ControlApi(context, orders, "secret", frozenset()).app())
            ) as url:
                yield ServedApi(context, groups, url)
    finally:
        journal.close()


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


async def test_snapshot_then_events_give_the_same_state(tmp_path: Path) -> None:
    async with api(tmp_path) as one, one.client() as client:
        one.context.bus.publish(
            ProxyStarted(client_uuid="c", pid=1, url="u", version="v", servers={}, rewards="b")
        )
        one.context.bus.publish(opened("g1"))
        state = await client.snapshot()
        one.context.bus.publish(opened("g2"))
        one.context.bus.publish(AlertRaised(key="k", cause="c"))
        for event in await collect(client, state.seq, 2):
            assert not isinstance(event, Reset)
            reduce(state, event)
        assert state == one.context.bus.state


async def test_live_events_arrive_and_resume_by_seq(tmp_path: Path) -> None:
    async with api(tmp_path) as one, one.client() as client:
        one.context.bus.publish(opened("g1"))
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(collect(client, 1, 2))
            while one.context.bus.followers == 0:
                await asyncio.sleep(0.01)
            one.context.bus.publish(opened("g2"))
            one.context.bus.publish(opened("g3"))
        events = reading.result()
        assert [cast(GroupOpened, event).group_id for event in events] == ["g2", "g3"]
        again = await collect(client, 2, 1)
        assert cast(GroupOpened, again[0]).group_id == "g3"


async def test_an_unknown_path_or_method_gets_an_error_of_the_same_form(tmp_path: Path) -> None:
    async with api(tmp_path) as one, httpx.AsyncClient(base_url=one.url) as http:
        for answer, status in (
            (await http.get("/control/nothing"), 404),
            (await http.post("/control/snapshot"), 405),
        ):
            assert answer.status_code == status
            assert answer.json()["error"]["message"]
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("after", [999, -1])
async def test_a_feed_from_an_unknown_sequence_number_is_reset(tmp_path: Path, after: int) -> None:
    async with api(tmp_path) as one, one.client() as client:
        assert isinstance((await collect(client, after, 1))[0], Reset)


async def test_a_feed_of_another_run_is_reset(tmp_path: Path) -> None:
    """A killed proxy may have lost events that were read; numbers alone do not show it."""
    async with api(tmp_path) as one, one.client() as client:
        one.context.bus.publish(opened("g1"))
        one.context.bus.publish(opened("g2"))
        events = client.events(1, run_id="an earlier run")
        assert isinstance(await anext(events), Reset)
        await events.aclose()  # type: ignore[attr-defined] # it is a generator
        events = client.events(1, run_id="run")
        assert cast(GroupOpened, await anext(events)).group_id == "g2"
        await events.aclose()  # type: ignore[attr-defined] # it is a generator


async def test_consoles_are_counted_while_attached(tmp_path: Path) -> None:
    async with api(tmp_path) as one, one.client() as client:
        await collect(client, 0, 1, console=True)
        for _ in range(200):
            if one.context.bus.state.consoles == 0 and one.context.bus.state.seq >= 2:
                break
            await asyncio.sleep(0.02)
        assert one.context.bus.state.seq == 2
        assert one.context.bus.state.consoles == 0


async def test_commands_reach_the_groups_and_errors_are_returned(tmp_path: Path) -> None:
    async with api(tmp_path) as one, one.client() as client:
        for number in (1, 2):
            for event in group_events(number, at=one.context.clock(), until="AWAITING_RATING"):
                one.context.bus.publish(event)
        args = {"group_id": "g0001", "rating": "best", "order": [1]}
        assert (await client.command("group.rate", args)).message == "rate done"
        expected = {"group_id": "g0001", "rating": "best", "order": (1,)}
        assert one.groups.calls == [("rate", expected)]
        with pytest.raises(ControlError, match="the group is sealed") as caught:
            await client.command("group.abort", {"group_id": "g0002"})
        assert caught.value.status == 409
        with pytest.raises(ControlError, match="no command") as caught:
            await client.command("group.paint", {})
        assert caught.value.status == 400
        with pytest.raises(ControlError, match="not a command of the proxy"):
            await client.command("mock.start", {})
        assert issubclass(CommandError, AjetError)


async def test_only_requests_with_the_token_and_a_known_host_are_served(tmp_path: Path) -> None:
    async with api(tmp_path) as one:
        async with one.client("wrong") as client:
            with pytest.raises(ControlError, match="token") as caught:
                await client.snapshot()
            assert caught.value.status == 401
        async with httpx.AsyncClient(base_url=one.url) as http:
            right = {"authorization": "Bearer secret"}
            for more in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
                answer = await http.get("/control/snapshot", headers={**right, **more})
                assert answer.status_code == 403
            port = one.url.rpartition(":")[2]
            for more in ({"origin": one.url}, {"host": f"LOCALHOST:{port}"}, {"host": "[::1]"}):
                answer = await http.get("/control/snapshot", headers={**right, **more})
                assert answer.status_code == 200


async def test_invalid_numbers_and_bodies_are_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as one, httpx.AsyncClient(base_url=one.url) as http:
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


async def test_a_repeated_fact_is_stored_once(tmp_path: Path) -> None:
    async with api(tmp_path) as one, one.client() as client:
        begun = MockStarted(mock_id="m", dataset="d", target="t", total=2)
        row = MockRowDone(mock_id="m", row_id="1", query="q", ok=True, seconds=1)
        for _ in range(2):
            await client.post_fact("m:start", begun)
            await client.post_fact("m:1:1", row)
        mock = one.context.bus.state.mock
        assert mock is not None
        assert mock.done == 1
        with pytest.raises(ControlError, match="only the mock user's"):
            await client.post_fact("x", opened("g"))


async def test_a_fact_that_waits_for_the_journal_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api(tmp_path) as one, one.client() as client:

        async def broken(_: int) -> None:
            raise JournalError("the journal cannot be written: the disk is full")

        begun = MockStarted(mock_id="m", dataset="d", target="t", total=2)
        done = MockFinished(mock_id="m", how="done")
        await client.post_fact("m:start", begun)
        with monkeypatch.context() as patched:
            patched.setattr(one.context.journal, "committed", broken)
            with pytest.raises(ControlError, match="disk is full"):
                await client.post_fact("m:end", done)
            before = one.context.bus.state.seq
            with pytest.raises(ControlError, match="disk is full"):
                await client.post_fact("m:end", done)
        await client.post_fact("m:end", done)
        assert one.context.bus.state.seq == before


async def test_rows_and_directives(tmp_path: Path) -> None:
    async with api(tmp_path) as one, one.client() as client:
        row = {"row_id": "1", "query": "What  is it?", "reference": "x", "mock_id": "m"}
        assert await client.register_row(row) == "run"
        assert one.context.rows.match({}, "What is it?") is not None
        assert one.context.rows.match({"x-ajet-row": "1"}, "else") is not None
        assert one.context.rows.match({}, "Who?") is None
        await client.release_row("1")
        assert one.context.rows.match({}, "What is it?") is None
        await client.post_fact(
            "m:start", MockStarted(mock_id="m", dataset="d", target="t", total=2)
        )
        await client.command("mock.pause", {})
        assert await client.directive("m") == "pause"
        assert await client.register_row({"row_id": "2", "query": "z", "mock_id": "m"}) == "pause"
        assert one.context.rows.match({}, "z") is None
        await client.command("mock.resume", {})
        assert await client.directive("m") == "run"
        await client.command("mock.stop", {})
        assert await client.directive("m") == "stop"
        one.context.rows.register(Row(row_id="3", query="y", mock_id="m"))
        await client.post_fact("m:end", MockFinished(mock_id="m", how="stopped"))
        assert one.context.rows.match({}, "y") is None
        reply = await client.command("mock.stop", {})
        assert reply.message == "no mock user is running"


async def test_closed_groups_are_read_with_complete_texts(tmp_path: Path) -> None:
    async with api(tmp_path) as one, one.client() as client:
        one.context.bus.publish(opened("g1"))
        events = await client.group_events("g1")
        assert [event.kind for event in events] == ["group_opened"]
        with pytest.raises(ControlError, match="no group"):
            await client.group_events("g9")


async def test_tokens_come_from_a_server_that_logs_them(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    async with world(tmp_path / "w") as made:
        swarm = made.server.client
        stored = AjetcTransport(swarm.transport, made.swarm)
        stored.tokens["e-1"] = {
            "episode_uuid": "e-1",
            "state": "live",
            "calls": [{"prompt_tokens": 1, "tokens": [{"id": 7, "text": "<p>", "mask": 0}]}],
            "added_by_a_later_version": 1,
        }
        async with api(tmp_path) as one, one.client() as client:
            with pytest.raises(ControlError, match="no server `s`") as caught:
                await client.tokens("e-1", "s")
            assert caught.value.status == 409
            one.context.servers["s"] = made.server
            with pytest.raises(ControlError, match="this server has no token log"):
                await client.tokens("e-1", "s")
            swarm.transport = stored
            await swarm.features(again=True)
            tokens = await client.tokens("e-1", "s")
            assert (tokens.state, tokens.calls[0].tokens[0].text) == ("live", "<p>")
            with pytest.raises(ControlError, match="has no tokens here"):
                await client.tokens("e-2", "s")
            for odd in ("a/b", "../restore", "a b", "é"):
                with pytest.raises(ControlError):
                    await client.tokens(odd, "s")


async def test_a_call_to_a_stopped_proxy_is_reported(tmp_path: Path) -> None:
    async with api(tmp_path) as one:
        url = one.url
    async with ControlClient(url, "secret") as client:
        with pytest.raises(ControlLost, match="does not answer"):
            await client.snapshot()


async def test_groups_of_the_whole_journal_by_page(tmp_path: Path) -> None:
    async with api(tmp_path) as d, d.client() as client:
        for number in range(7):
            for event in group_events(number, query=f"Q{number}"):
                d.context.bus.publish(event)
        page = await client.history(4, 2)
        assert (page.first, page.total) == (4, 7)
        assert [group.query for group in page.groups] == ["Q4", "Q5"]
        assert page.groups[0] == d.context.bus.state.groups["g0004"]
        assert (await client.history(7, 2)).groups == []


async def test_bodies_for_the_control_api_count_towards_the_bound_on_all(tmp_path: Path) -> None:
    small = Settings(proxy=ProxySettings(max_body_mb=1, max_bodies_mb=1))
    right = {"authorization": "Bearer secret"}
    async with api(tmp_path) as one:
        orders = CommandDispatcher(one.context, cast(Any, one.groups), one.groups)
        app = ProxyApp(small, ControlApi(one.context, orders, "secret", frozenset()).app())
        async with (
            served(app, http_config(small.proxy, app)) as url,
            httpx.AsyncClient(base_url=url, headers=right) as client,
        ):
            full = await client.post("/control/rows/over", content=b" " * (2 << 20))
            assert (full.status_code, full.headers["retry-after"]) == (503, "5")
            row = await client.post("/control/rows/over", content=b'{"row_id":"r"}' + b" " * 1000)
            assert row.status_code == 200
