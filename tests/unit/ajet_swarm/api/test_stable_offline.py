"""The wait between a stop and the next start."""

import asyncio

import pytest

from ajet_swarm.api import watcher
from ajet_swarm.api.watcher import (
    QUIET,
    QUIET_EMBEDDED,
    Watcher,
    answers_as_embedded,
    quiet_seconds,
    wait_stable_offline,
)
from ajet_swarm.protocol.errors import Unreachable
from tests.unit.ajet_swarm.helpers import GONE, Clock, ScriptedClient, status


@pytest.fixture
def scripted() -> ScriptedClient:
    return ScriptedClient()


@pytest.fixture
def watch(scripted: ScriptedClient) -> Watcher:
    return Watcher(scripted, Clock())


@pytest.mark.parametrize(
    ("embedded", "quiet", "seconds"),
    [
        (False, None, QUIET),
        (True, None, QUIET_EMBEDDED),
        (False, 0.1, 0.1),
        (True, 0.1, 0.1),
        (True, 60.0, QUIET_EMBEDDED),
    ],
)
def test_the_embedded_engine_never_waits_longer_than_a_server_with_a_trainer(
    embedded: bool, quiet: float | None, seconds: float
) -> None:
    assert quiet_seconds(embedded, quiet) == seconds


async def test_a_server_without_a_response_does_not_count_as_embedded(
    scripted: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_response(*, again: bool = False) -> frozenset[str]:
        raise Unreachable("refused", "http://x")

    monkeypatch.setattr(scripted, "features", no_response)
    assert not await answers_as_embedded(scripted)


async def test_the_wait_has_a_limit_beyond_the_quiet_seconds(
    scripted: ScriptedClient, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "OFF_LIMIT", 0.0)
    scripted.next_status = status("ROLLING", 1)
    await watch.poll()
    with pytest.raises(TimeoutError):
        await wait_stable_offline(watch, 0.0)


async def test_an_offline_of_the_first_reading_is_stable_without_quiet_seconds(
    scripted: ScriptedClient, watch: Watcher
) -> None:
    scripted.next_status = status("OFFLINE", 0)
    await watch.poll()
    assert (await wait_stable_offline(watch, 0.0)).step == 0


async def test_a_server_that_is_gone_ends_the_wait(
    scripted: ScriptedClient, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "OFF_LIMIT", 0.0)
    scripted.next_status = GONE
    for _ in range(2):
        await watch.poll()
    with pytest.raises(Unreachable):
        await asyncio.wait_for(wait_stable_offline(watch, 0.05), 60)
