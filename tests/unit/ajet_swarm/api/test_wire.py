"""The client against the scripted server: every quirk of the survive list on its way."""

import socket

import pytest

from ajet_swarm.api.wire import SwarmWire, _base_url
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import SwarmError, Unreachable
from ajet_swarm.protocol.schemas import AbortKind, EngineState, WireOutput
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import HELLO, answered, claimed

JOB = "ajet: {model: {path: m}}"

# -- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "localhost:10086", "ftp://host", "http://", "http://[::1"])
async def test_an_invalid_address_is_an_error(transport: HttpTransport, url: str) -> None:
    with pytest.raises(SwarmError, match="address"):
        SwarmWire(url, transport, "me")


@pytest.mark.parametrize(
    ("url", "result", "base"),
    [
        ("http://gpu:1/", "http://localhost:10086/v1", "http://gpu:1/v1"),
        ("http://gpu:1", "http://10.0.0.1:10086//v1/", "http://gpu:1/v1"),
        ("https://gpu/ajet/", "http://localhost:10086/v1", "https://gpu/ajet/v1"),
        ("http://gpu:1", "", "http://gpu:1/v1"),
        ("http://gpu:1", "http://[::1", "http://gpu:1/v1"),
    ],
)
async def test_a_reported_base_url_is_mapped_to_our_server_address(
    transport: HttpTransport, url: str, result: str, base: str
) -> None:
    assert _base_url(SwarmWire(url, transport, "me").url, result) == base


async def test_a_trailing_slash_is_harmless(
    server: ScriptedSwarm, transport: HttpTransport
) -> None:
    client = SwarmWire(server.url + "/", transport, "me")
    assert (await client.status()).state is EngineState.ROLLING
    episode = await claimed(client)
    assert episode.base_url == server.url + "/v1"
    assert (await client.chat(episode, HELLO)).text.startswith("answer 0")


# -- telling ------------------------------------------------------------------------------------


async def test_status_reads_the_known_fields(client: SwarmWire, server: ScriptedSwarm) -> None:
    status = await client.status()
    assert (status.state, status.global_step) == (EngineState.ROLLING, 1)
    server.set_state("MYSTERY.NEW")
    status = await client.status()
    assert (status.state, status.engine_status) == (EngineState.UNKNOWN, "MYSTERY.NEW")


async def test_status_of_another_kind_of_server_is_an_error(
    client: SwarmWire, server: ScriptedSwarm
) -> None:
    server.fail_next("/get_engine_status", 500)
    with pytest.raises(SwarmError, match="500"):
        await client.status()
    assert (await client.status()).state is EngineState.ROLLING


async def test_status_of_an_unreachable_server_is_an_error(transport: HttpTransport) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        client = SwarmWire(f"http://127.0.0.1:{held.getsockname()[1]}", transport, "me")
        with pytest.raises(Unreachable):
            await client.status()


async def test_pool(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await answered(client)
    await client.end(episode.episode_uuid, "t1", WireOutput(reward=0.5))
    held = await claimed(client)
    pool = await client.pool()
    assert pool is not None
    assert (pool.repeat, pool.completed_episodes, pool.completed_task_target) == (4, 1, 4)
    assert pool.completed_tasks_rewards == {"t1": [0.5]}
    assert pool.running_episode_details is not None
    running = pool.running_episode_details[held.episode_uuid]
    assert (running.client_uuid, running.limit, running.calls) == ("me", 240.0, 0)
    assert running.idle is not None
    assert running.idle < 60
    assert not pool.stale
    assert [c.client_uuid for c in pool.active_clients] == ["me"]


async def test_a_pool_with_only_default_values_counts_as_unread(
    client: SwarmWire, server: ScriptedSwarm
) -> None:
    server.pool_default = True
    assert await client.pool() is None
    server.pool_default = False
    server.fail_next("/get_current_batch_rollout_pool_information", 500)
    assert await client.pool() is None


async def test_counters_of_a_stopped_run_are_marked_stale(
    client: SwarmWire, server: ScriptedSwarm
) -> None:
    await client.stop_engine()
    pool = await client.pool()
    assert pool is not None
    assert pool.stale


async def test_the_small_routes(client: SwarmWire, server: ScriptedSwarm) -> None:
    assert await client.experiment_dir() == "/srv/run"
    assert [line.message for line in await client.verbose_logs()] == ["hello"]
    assert "/v1/chat/completions" in await client.features()
    assert await client.features() == await client.features()
    assert server.requests["/openapi.json"] == 1
    await client.features(again=True)
    assert server.requests["/openapi.json"] == 2


async def test_routes_an_older_server_lacks(client: SwarmWire, server: ScriptedSwarm) -> None:
    server.fail_always("/get_verbose_logs", 404)
    server.fail_always("/get_server_experiment_dir", 404)
    assert await client.verbose_logs() == []
    assert await client.experiment_dir() is None


# -- the engine ---------------------------------------------------------------------------------


async def test_start_and_stop(client: SwarmWire, server: ScriptedSwarm) -> None:
    await client.stop_engine()
    with pytest.raises(SwarmError, match="No training config found"):
        await client.start_engine()
    sent = await client.sync_train_config(JOB)
    assert server.config == sent
    assert await client.start_engine() == 4242
    with pytest.raises(SwarmError, match="not offline"):
        await client.sync_train_config(JOB)
    await server.until(lambda: server.state == "ROLLING")
    with pytest.raises(SwarmError, match="already started"):
        await client.start_engine()


async def test_a_failed_start_reports_the_reason(client: SwarmWire, server: ScriptedSwarm) -> None:
    await client.stop_engine()
    server.config_error = "disk full"
    with pytest.raises(SwarmError, match="disk full"):
        await client.sync_train_config(JOB)
    server.config_error = ""
    await client.sync_train_config(JOB)
    server.start_error = "could not parse the job"
    with pytest.raises(SwarmError, match="could not parse the job"):
        await client.start_engine()
    assert (await client.status()).state is EngineState.BOOTING
    await client.stop_engine()
    assert (await client.status()).state is EngineState.OFFLINE


async def test_agreeing_to_sync(client: SwarmWire, server: ScriptedSwarm) -> None:
    with pytest.raises(SwarmError, match="500"):
        await client.agree_sync_weight()
    server.method = "rollout_until_all_clients_agree_sync_weight"
    assert not await client.agree_sync_weight()
    episode = await answered(client)
    await client.end(episode.episode_uuid, "t", WireOutput(reward=1))
    pool = await client.pool()
    assert pool is not None
    assert pool.agree_to_sync
    assert await client.agree_sync_weight()
    await server.until(lambda: server.step == 2)


async def test_a_batch_cycle(client: SwarmWire, server: ScriptedSwarm) -> None:
    """Only tasks with all their repeats count; then the engine waits, syncs and rolls on."""
    server.batch, server.sync_seconds = 1, None
    odd = [await answered(client) for _ in range(3)]
    for episode in odd:
        await client.end(episode.episode_uuid, "short", WireOutput(reward=1))
    full = [await answered(client) for _ in range(4)]
    straggler = await claimed(client)
    for n, episode in enumerate(full):
        await client.end(episode.episode_uuid, "full", WireOutput(reward=n))
    assert (await client.status()).state is EngineState.ROLLING_POST
    assert await client.abort(straggler.episode_uuid) is AbortKind.CONFIRMED
    assert (await client.status()).state is EngineState.WEIGHT_SYNCING
    assert await client.buffer() == []
    server.finish_sync()
    status = await client.status()
    assert (status.state, status.global_step) == (EngineState.ROLLING, 2)
    assert server.batches == [{"short": [1, 1, 1], "full": [0, 1, 2, 3]}]
