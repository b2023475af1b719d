"""How long a sync is shown to clients that learn of it by asking."""

import asyncio

import pytest

from engine.server import poll_aid
from engine.server.job import ALL_AGREE, ANY_AGREES, ENOUGH_TASKS, Job
from engine.server.poll_aid import MIN_AGREED_SYNC_SECONDS, MIN_SYNC_SECONDS, PollAid
from tests.support.engine.client import Clock, Driver, driving, wait_for


@pytest.mark.parametrize(
    ("agent", "ago", "method", "seconds"),
    [
        ("python-httpx/0.28.1", 0.3, ENOUGH_TASKS, MIN_SYNC_SECONDS),
        ("", 0.3, ENOUGH_TASKS, MIN_SYNC_SECONDS),
        ("python-httpx/0.28.1", 0.3, ANY_AGREES, MIN_AGREED_SYNC_SECONDS),
        ("python-httpx/0.28.1", 1.1, ALL_AGREE, MIN_AGREED_SYNC_SECONDS),
        ("python-httpx/0.28.1", 9.0, ALL_AGREE, 0.0),
        ("ajet-console", 0.3, ALL_AGREE, 0.0),
    ],
)
def test_updates_are_visible_to_polling_clients(
    agent: str, ago: float, method: str, seconds: float
) -> None:
    clock = Clock()
    watched = PollAid(clock, enabled=True)
    assert watched.sync_seconds(Job(method=method)) == 0.0
    watched.note_poll(agent)
    clock.now += ago
    assert watched.sync_seconds(Job(method=method)) == seconds


def test_the_aid_lasts_longer_than_the_poll_period() -> None:
    """AgentJet's client polls every 1.0 s or 0.33 s, and every 5 s after an agreement."""
    assert MIN_SYNC_SECONDS > 1.0
    assert MIN_AGREED_SYNC_SECONDS > 5.0 + 0.33


async def synced(d: Driver) -> float:
    """Seconds that the sync of one batch was to be seen."""
    await d.group("t")
    loop = asyncio.get_running_loop()
    began = loop.time()
    while d.engine.status != "ENGINE.ROLLING":
        await asyncio.sleep(0.002)
    return loop.time() - began


@pytest.mark.slow
async def test_a_sync_lasts_as_long_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_aid, "MIN_SYNC_SECONDS", 0.3)
    async with driving(show_syncs=True) as d:
        await d.start(batch=1)
        assert await synced(d) < 0.25, "nobody looks"
        assert await d.status() == ("ROLLING", 2)
        assert await synced(d) >= 0.28
        assert await d.status() == ("ROLLING", 3)


@pytest.mark.slow
async def test_a_stop_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_aid, "MIN_SYNC_SECONDS", 60.0)
    async with driving(show_syncs=True) as d:
        await d.start(batch=1)
        assert await d.status() == ("ROLLING", 1)
        await d.group("t")
        await wait_for(lambda: d.bench.step == 1)
        assert await d.status() == ("WEIGHT_SYNCING", 1)
        await d.post("/stop_engine")
        assert await d.status() == ("OFFLINE", 0)
        await d.start(batch=1)
        assert await d.status() == ("ROLLING", 2), "what was trained is kept"


async def test_a_claim_waits_for_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_aid, "MIN_SYNC_SECONDS", 0.2)
    async with driving(show_syncs=True) as d:
        await d.start(batch=1)
        assert await d.status() == ("ROLLING", 1)
        late, *others = [await d.claim() for _ in range(2)]
        await d.chat(late)
        for episode in others:
            await d.chat(episode)
            await d.end(episode, "t", 0.0)
        await d.play("t")
        assert await d.status() == ("ROLLING_POST", 1)
        *claims, ended = await asyncio.gather(d.claim(), d.claim(), d.end(late, "t"))
        assert ended.status_code == 200
        assert [claim["success"] for claim in claims] == [True, True]
        assert await d.status() == ("ROLLING", 2)


async def test_a_claim_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_aid, "MIN_SYNC_SECONDS", 60.0)
    monkeypatch.setattr(poll_aid, "CLAIM_PATIENCE", 0.05)
    async with driving(show_syncs=True) as d:
        await d.start(batch=1)
        assert await d.status() == ("ROLLING", 1)
        await d.group("t")
        own = {"User-Agent": "ajet-console"}
        body = {"client_uuid": "c1", "episode_type": "train", "discard_episode_timeout": 9}
        with monkeypatch.context() as patched:
            patched.setattr(poll_aid, "CLAIM_PATIENCE", 60.0)
            answer = await d.http.post("/claim_episode", json=body, headers=own)
            assert answer.json()["success"] is False, "this program's client waits by itself"
        refused = await d.claim()
        assert refused["success"] is False
        assert "Engine is syncing weights" in refused["fail_cause"]
