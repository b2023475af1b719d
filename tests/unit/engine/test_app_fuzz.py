"""The engine fuzzed from its own OpenAPI: no 5xx, no illegal transition, and it still works."""

import asyncio
from typing import Any

import httpx
import pytest

from engine.app import create_app
from engine.server.episode_keys import make_key
from engine.server.lifecycle import Engine
from tests.support.engine.client import Clock, Driver
from tests.support.engine.fake_policy import Bench
from tests.support.fuzz import fuzz
from tests.support.served import client, served

RUNNING = ("BOOTING", "ROLLING", "ROLLING_POST", "WEIGHT_SYNCING")
LEGAL = {
    ("OFFLINE", "BOOTING"),
    *zip(RUNNING, (*RUNNING[1:], "ROLLING"), strict=True),
    *((state, "OFFLINE") for state in RUNNING),
}
JOB = "ajet: {data: {train_batch_size: 1}, rollout: {num_repeat: 2}}"


class Watched(Engine):
    """Keeps its transitions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.passed: list[tuple[str, str]] = []
        super().__init__(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "status" and hasattr(self, "status") and value != self.status:
            before, after = (str(state).removeprefix("ENGINE.") for state in (self.status, value))
            self.passed.append((before, after))
        super().__setattr__(name, value)


def live_key(url: str) -> str:
    """Of a claimed episode, if there can be one now."""
    claim = {"client_uuid": "fuzz", "episode_type": "train", "discard_episode_timeout": 60}
    httpx.post(f"{url}/sync_train_config", json={"yaml_as_string": JOB})
    httpx.post(f"{url}/start_engine")
    key = httpx.post(f"{url}/claim_episode", json=claim).json().get("openai_api_key")
    return key or make_key("nobody", "x")


@pytest.mark.parametrize(
    "examples",
    [pytest.param(3, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.soak)],
)
@pytest.mark.timeout(600)
async def test_no_5xx_from_its_own_openapi(examples: int) -> None:
    bench = Bench()
    engine = Watched(bench.factory)
    app = create_app(engine)
    async with (
        app.router.lifespan_context(app),
        served(app) as url,
        client(url, 60.0) as http,
    ):
        statuses = await asyncio.to_thread(
            fuzz,
            url,
            examples,
            lambda: (
                {},
                {"Authorization": make_key("nobody", "x")},
                {"Authorization": live_key(url)},
            ),
        )
        assert len(statuses) > 20 * examples
        assert set(engine.passed) <= LEGAL
        d = Driver(http, engine, bench, Clock())
        await d.post("/stop_engine")
        await d.start(batch=1, repeat=2)
        _, step = await d.status()
        assert step is not None
        await d.group("t")
        await d.until("ROLLING", step + 1)
