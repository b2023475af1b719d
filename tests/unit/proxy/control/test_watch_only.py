"""A watch-only proxy: what it reads, what it refuses, what it publishes."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.schemas import WireOutput
from core.commands import COMMANDS
from core.control_payloads import HardwareFacts
from core.runtime.home import Home
from core.settings import Settings
from core.state import State
from proxy.context import ProxyContext
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient, ControlError
from proxy.control.watch_only import watch_app, watch_only_commands
from proxy.http.server import http_config
from proxy.main import ProxyOptions, _open_context
from proxy.servers.slots import read_details
from tests.support.proxy.until import until
from tests.support.scripted.ajetc_transport import AjetcTransport
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import served

pytestmark = pytest.mark.slow

READS = frozenset(
    {
        "/get_engine_status",
        "/get_current_batch_rollout_pool_information",
        "/get_episode_buffer",
        "/openapi.json",
        "/get_verbose_logs",
        "/get_server_experiment_dir",
        "/replay_latest_llm_call",
    }
)
"""All that may arrive at a server that is watched."""


@dataclass
class Watcher:
    context: ProxyContext
    http: httpx.AsyncClient
    control: ControlClient

    @property
    def state(self) -> State:
        return self.context.bus.state


@contextlib.asynccontextmanager
async def watching(home: Path, **urls: str) -> AsyncIterator[Watcher]:
    settings = msgspec.convert({"swarm_url": urls, "proxy": {"watch_only": True}}, Settings)
    options = ProxyOptions(home=Home.open(home), settings=settings)
    async with _open_context(options, "http://127.0.0.1:0") as (context, groups):
        assert groups is None
        control = ControlApi(context, watch_only_commands(context), "token", frozenset())
        app = watch_app(settings, control.app())
        async with (
            served(app, http_config(settings.proxy, app)) as url,
            httpx.AsyncClient(base_url=url, timeout=60.0) as http,
            ControlClient(url, "token") as client,
        ):
            yield Watcher(context, http, client)
            control.close()


async def test_settings_of_a_server_that_does_not_exist_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedSwarm() as one:
        value = {"swarm_url": {"gpu": one.url}, "servers": {"gpux": {}, "gpu": {}}}
        settings = msgspec.convert({**value, "proxy": {"watch_only": True}}, Settings)
        options = ProxyOptions(home=Home.open(tmp_path), settings=settings)
        async with _open_context(options, "http://127.0.0.1:0"):
            result = [one for one in caplog.messages if "in the settings" in one]
    warning = "`servers.gpux` in the settings: there is no such server. Known: gpu"
    assert result == [warning]


async def claim(swarm: ScriptedSwarm, who: str, count: int = 1) -> list[Any]:
    """Another client that uses that server."""
    async with HttpTransport() as transport:
        client = SwarmWire(swarm.url, transport, who)
        return [await client.claim() for _ in range(count)]


async def test_only_reading_calls_reach_the_server_and_no_client_is_registered(
    tmp_path: Path,
) -> None:
    async with ScriptedSwarm(batch=2, repeat=4) as one, ScriptedSwarm(state="OFFLINE") as two:
        await claim(one, "trainer-a", 3)
        before = one.requests["/claim_episode"]
        async with watching(tmp_path, gpu=one.url, spare=two.url) as w:
            await until(lambda: w.state.servers["gpu"].slots)
            await until(lambda: w.state.servers["spare"].state == "OFFLINE")
            await until(lambda: w.state.servers["gpu"].pool)
            await w.control.server_details("gpu")
            for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/models"):
                answer = await w.http.post(path, json={"model": "m", "messages": []})
                assert answer.status_code == 503, path
                assert "only watches" in answer.json()["error"]["message"]
            for name in COMMANDS:
                with contextlib.suppress(ControlError):
                    await w.control.command(name, {})
            await until(lambda: w.state.engine_runs.running_on("gpu"))
            await w.control.command("run.note", {"number": 1, "note": "theirs"})
            assert w.state.engine_runs.runs[0].note == "theirs"
        assert before == one.requests["/claim_episode"] == 3
        assert set(one.requests) - {"/claim_episode"} <= READS
        assert set(two.requests) <= READS
        assert not one.active_clients
        assert not one.stops
        assert not two.stops
        assert not one.aborts
        assert not one.ends


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/chat/completions", "/v1/nothing", "/sessions/s/v1/completions", "/health"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_watch_only_proxy_serves_no_requests(
    tmp_path: Path, method: str, path: str
) -> None:
    async with ScriptedSwarm() as swarm, watching(tmp_path, gpu=swarm.url) as w:
        answer = await w.http.request(method, path)
        assert answer.status_code == 503
        assert "--watch-only" in answer.json()["error"]["message"]
        assert not swarm.claims


async def test_clients_and_free_slots_are_in_the_state(tmp_path: Path) -> None:
    async with ScriptedSwarm(batch=2, repeat=4) as swarm:
        await claim(swarm, "trainer-a", 3)
        await claim(swarm, "trainer-b", 1)
        async with watching(tmp_path, gpu=swarm.url) as w:
            server = w.state.servers["gpu"]
            await until(lambda: server.slots is not None)
            slots = server.slots
            assert (slots.free, slots.claimed) == (4, 4)
            assert [(one.name, one.running) for one in slots.clients] == [
                ("trainer-a", 3),
                ("trainer-b", 1),
            ]
            assert w.state.watch_only
            again = await w.control.snapshot()
            assert again.watch_only
            assert again.servers["gpu"].slots == slots


async def test_server_details_contain_all_that_overwatch_shows(tmp_path: Path) -> None:
    async with ScriptedSwarm(batch=2, repeat=2) as swarm:
        async with HttpTransport() as transport:
            client = SwarmWire(swarm.url, transport, "trainer-a")
            first = await client.claim()
            second = await client.claim()
            assert not isinstance(first, str)
            assert not isinstance(second, str)
            body = {"messages": [{"role": "user", "content": "hello \x1b[31m"}]}
            await client.chat(first, body)  # type: ignore[arg-type]  # it was claimed
            await client.end(first.episode_uuid, "task-7", WireOutput(reward=0.5))  # type: ignore[union-attr]  # it was claimed
        async with watching(tmp_path, gpu=swarm.url) as w:
            server_details = await w.control.server_details("gpu")
            assert [one.client for one in server_details.episodes] == ["trainer-a"]
            (episode,) = server_details.episodes
            assert episode.idle is not None
            assert episode.limit == 240.0
            (task,) = server_details.tasks
            assert (task.task, task.episodes, task.rewards) == ("task-7", 1, (0.5,))
            assert server_details.folder == "/srv/run"
            assert [line.text for line in server_details.log] == ["hello"]
            assert server_details.clients[0].active
            assert not server_details.missing
            assert "sk-ajet-" not in msgspec.json.encode(server_details).decode()
            with pytest.raises(ControlError, match="no server"):
                await w.control.server_details("nowhere")


async def test_details_that_a_server_does_not_report_are_named(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm, watching(tmp_path, gpu=swarm.url) as w:
        await until(lambda: w.state.servers["gpu"].state == "ROLLING")
        swarm.fail_always("/get_episode_buffer", 500)
        swarm.fail_always("/get_verbose_logs", 404)
        result = await read_details(w.context, "gpu")
        assert result.free is None
        assert result.claimed is None
        assert len(result.missing) == 1
        assert result.missing[0].startswith("episodes: ")
        assert result.folder == "/srv/run"


async def test_the_hardware_of_an_embedded_engine_is_among_its_details(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm, watching(tmp_path, gpu=swarm.url) as w:
        await until(lambda: w.state.servers["gpu"].state == "ROLLING")
        assert (await read_details(w.context, "gpu")).hardware is None
        client = w.context.servers["gpu"].client
        client.transport = engine = AjetcTransport(client.transport, swarm)
        await client.features(again=True)
        facts = HardwareFacts(
            device="cuda:0 H100",
            dtype="bfloat16",
            memory_used=20,
            memory_total=80,
            slots=64,
            tokens_per_second=1234.5,
            look_tokens_per_second=35.0,
            sampling_seconds=3.0,
        )
        engine.hardware = msgspec.to_builtins(facts)
        result = await read_details(w.context, "gpu")
        assert result.hardware == facts
        assert not result.missing


async def test_the_history_of_states_is_kept_over_a_restart(tmp_path: Path) -> None:
    async with ScriptedSwarm(sync_seconds=None) as swarm:
        async with watching(tmp_path, gpu=swarm.url) as w:
            await until(lambda: w.state.servers["gpu"].state == "ROLLING")
            swarm.set_state("WEIGHT_SYNCING")
            await until(lambda: w.state.servers["gpu"].state == "WEIGHT_SYNCING")
            swarm.set_state("ROLLING", 2)
            await until(lambda: w.state.servers["gpu"].step == 2)
        async with watching(tmp_path, gpu=swarm.url) as w:
            spans = [one.state for one in w.state.servers["gpu"].spans]
            assert spans[:3] == ["ROLLING", "WEIGHT_SYNCING", "ROLLING"]
