"""Our own swarm client against the embedded engine, right and `--faithful`, over real sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.errors import AjetError
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind, SwarmError
from ajet_swarm.protocol.schemas import AbortKind, Claimed, EndKind, WireOutput
from engine.app import create_app
from engine.server import lifecycle
from tests.support.engine.client import Driver, driving
from tests.support.served import served

JOB = "ajet: {data: {train_batch_size: 1}, rollout: {num_repeat: 2}}"
ASK = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(params=[False, True], ids=["right", "faithful"])
def faithful(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(lifecycle, "STOP_BLOCKS_SECONDS", 0.05)
    return bool(request.param)


@asynccontextmanager
async def client_of(d: Driver, me: str = "me") -> AsyncIterator[SwarmWire]:
    async with served(create_app(d.engine)) as url, HttpTransport() as transport:
        yield SwarmWire(f"{url}/", transport, me)


async def claimed(client: SwarmWire) -> Claimed:
    answer = await client.claim()
    assert isinstance(answer, Claimed), answer
    return answer


async def test_two_batches(faithful: bool) -> None:
    async with driving(faithful=faithful) as d, client_of(d) as client:
        await client.sync_train_config(JOB)
        await client.start_engine()
        for step in (1, 2):
            await d.until("ROLLING", step)
            for reward in (0.0, 1.0):
                episode = await claimed(client)
                assert (await client.chat(episode, ASK)).message["content"]
                ended = await client.end(episode.episode_uuid, "t", WireOutput(reward=reward))
                assert ended.kind is EndKind.ENDED
        await d.until("ROLLING", 3)
        assert [[one.reward for one in batch] for batch in d.bench.trained] == [[0.0, 1.0]] * 2
        await client.stop_engine()
        assert (await client.status()).engine_status == "ENGINE.OFFLINE"


async def test_a_bad_key_is_reported_as_such(faithful: bool) -> None:
    """Faithful: out of a 200."""
    async with driving(faithful=faithful) as d, client_of(d) as client:
        await d.start()
        episode = msgspec.structs.replace(await claimed(client), api_key="sk-ajet-x")
        with pytest.raises(ChatError) as refused:
            await client.chat(episode, ASK)
        assert refused.value.kind is ChatErrorKind.UNAUTHORIZED


async def test_an_assertion_and_the_connection_it_cuts(faithful: bool) -> None:
    async with driving(faithful=faithful) as d, client_of(d) as client:
        await d.start()
        for _ in range(3):
            with pytest.raises(SwarmError):
                await client.agree_sync_weight()
            assert (await client.status()).engine_status == "ENGINE.ROLLING", "on a new connection"


async def test_another_clients_episode(faithful: bool) -> None:
    async with driving(faithful=faithful) as d, client_of(d) as client:
        await d.start()
        other = await d.claim("other")
        assert await client.can_continue(other["episode_uuid"]) is faithful
        kind = await client.abort(other["episode_uuid"])
        assert (kind is AbortKind.CONFIRMED) is faithful
        assert bool(d.engine.pool.claimed) is not faithful


async def test_a_start_that_fails(faithful: bool) -> None:
    async with driving(faithful=faithful) as d, client_of(d) as client:
        await client.sync_train_config(JOB)
        d.bench.open_error = AjetError("no GPU")
        with pytest.raises(SwarmError, match="no GPU"):
            await client.start_engine()
        stuck = "ENGINE.BOOTING" if faithful else "ENGINE.OFFLINE"
        assert (await client.status()).engine_status == stuck
        await client.stop_engine()
        d.bench.open_error = None
        await client.start_engine()
        assert (await client.status()).engine_status == "ENGINE.ROLLING"


async def test_the_routes_of_a_server_are_detected(faithful: bool) -> None:
    async with driving(faithful=faithful) as d, client_of(d) as client:
        features = await client.features()
        assert ("/register_episode" in features) is faithful
        assert "/ajetc/updates" in features


async def test_a_conversation_over_the_window(faithful: bool) -> None:
    async with driving(faithful=faithful) as d, client_of(d) as client:
        await d.start()
        ask = {"messages": [{"role": "user", "content": "word " * 500}]}
        episode = await claimed(client)
        if not faithful:
            assert (await client.chat(episode, ask)).message["content"]
            return
        with pytest.raises(ChatError) as refused:
            await client.chat(episode, ask)
        assert refused.value.kind is ChatErrorKind.OVERFLOW
