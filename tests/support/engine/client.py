"""Drives the embedded engine over HTTP in tests, as any client would."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import yaml

from engine.app import create_app
from engine.server.lifecycle import Engine
from engine.server.policy_holder import PolicyFactory
from tests.support.engine import schema_once
from tests.support.engine.fake_policy import Bench

schema_once.generate_once()

METHODS = {
    "episodes": "rollout_until_finish_enough_episodes",
    "tasks": "rollout_until_finish_enough_tasks",
    "non_dummy": "rollout_until_finish_enough_non_dummy_tasks",
    "any": "rollout_until_any_client_agree_sync_weight",
    "all": "rollout_until_all_clients_agree_sync_weight",
}


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Driver:
    """One client of one engine."""

    def __init__(self, http: httpx.AsyncClient, engine: Engine, bench: Bench, clock: Clock) -> None:
        self.http = http
        self.engine = engine
        self.bench = bench
        self.clock = clock

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.http.post(path, json=body)

    async def get(self, path: str) -> Any:
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def sync(
        self, method: str = "tasks", batch: int = 2, repeat: int = 2, **ajet: Any
    ) -> None:
        tree = {
            "data": {"train_batch_size": batch},
            "rollout": {"num_repeat": repeat},
            "swarm_mode_sample_collection_method": METHODS.get(method, method),
            **ajet,
        }
        answer = await self.post("/sync_train_config", yaml_as_string=yaml.dump({"ajet": tree}))
        assert answer.json() == {"success": True}, answer.text

    async def start(self, method: str = "tasks", **job: Any) -> None:
        await self.sync(method, **job)
        answer = (await self.post("/start_engine")).json()
        assert answer["success"], answer

    async def roll(self, **job: Any) -> None:
        """Start a job and wait until the engine is ROLLING, which a slow boot delays."""
        await self.start(**job)
        await self.until("ROLLING")

    async def claim(
        self, client: str = "c1", kind: str = "train", timeout: float = 240.0, task: str = ""
    ) -> dict[str, Any]:
        throttle = {"ratio": 1.5, "current_task_id": task} if task else None
        answer = await self.post(
            "/claim_episode",
            client_uuid=client,
            episode_type=kind,
            discard_episode_timeout=timeout,
            throttle_policy=throttle,
        )
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def chat(
        self, episode: dict[str, Any], text: str = "hello", **body: Any
    ) -> httpx.Response:
        return await self.http.post(
            "/v1/chat/completions",
            headers={"Authorization": f"Bearer {episode['openai_api_key']}"},
            json={"messages": [{"role": "user", "content": text}], **body},
        )

    async def end(
        self, episode: dict[str, Any], task: str, reward: Any = 1.0, client: str = "c1", **body: Any
    ) -> httpx.Response:
        output = {"reward": reward, "metadata": {"task_id": task}}
        return await self.post(
            "/end_episode",
            **{
                "client_uuid": client,
                "episode_uuid": episode["episode_uuid"],
                "task_id": task,
                "workflow_output": output,
                **body,
            },
        )

    async def abort(
        self, episode: dict[str, Any], client: str = "c1", **body: Any
    ) -> httpx.Response:
        return await self.post(
            "/abort_episode",
            client_uuid=client,
            episode_uuid=episode["episode_uuid"],
            task_id="",
            workflow_output={"reward": None, "metadata": {}},
            **body,
        )

    async def play(
        self, name: str, reward: float = 1.0, client: str = "c1", **claim: Any
    ) -> dict[str, Any]:
        """Claim, call, end: one whole episode of task `name`."""
        episode = await self.claim(client, **claim)
        assert episode["success"], episode
        assert (await self.chat(episode)).status_code == 200
        ended = await self.end(episode, name, reward, client)
        assert ended.json() == {"success": True, "failure_reason": ""}, ended.text
        return episode

    async def group(self, task: str, rewards: tuple[float, ...] = (0.0, 1.0)) -> None:
        for reward in rewards:
            await self.play(task, reward)

    async def status(self) -> tuple[str, int | None]:
        facts = await self.get("/get_engine_status")
        return facts["engine_status"].removeprefix("ENGINE."), facts["global_step"]

    async def pool(self) -> Any:
        return await self.get("/get_current_batch_rollout_pool_information")

    async def until(self, status: str, step: int | None = None) -> None:
        async def there() -> bool:
            now = await self.status()
            return now[0] == status and step in (None, now[1])

        await wait_for(there)

    async def logged(self) -> str:
        entries = (await self.get("/get_verbose_logs"))["entries"]
        return "\n".join(entry["message"] for entry in entries)


async def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Until `condition()` holds; it may be a coroutine function."""
    async with asyncio.timeout(seconds):
        while True:
            held = condition()
            if asyncio.iscoroutine(held):
                held = await held
            if held:
                return
            await asyncio.sleep(0.001)


@asynccontextmanager
async def driving(
    factory: PolicyFactory | None = None, **engine_options: Any
) -> AsyncIterator[Driver]:
    """An engine and a client of it, in one process without a socket; by default a fake policy."""
    bench, clock = Bench(), Clock()
    engine = Engine(factory or bench.factory, clock=clock, **engine_options)
    app = create_app(engine, home="/home/of/tests")
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://engine") as http,
    ):
        yield Driver(http, engine, bench, clock)
    assert bench.opened == bench.closed, "the policy was not closed"
