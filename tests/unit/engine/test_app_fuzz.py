"""The engine fuzzed from its own OpenAPI: no 5xx, no illegal transition, and it still works."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings

from core.runtime.sockets import bind
from engine.app import create_app
from engine.server.episode_keys import make_key
from engine.server.lifecycle import Engine
from tests.support.engine.fake_policy import Bench

LEGAL = {
    ("OFFLINE", "BOOTING"),
    ("BOOTING", "ROLLING"),
    ("ROLLING", "ROLLING_POST"),
    ("ROLLING_POST", "WEIGHT_SYNCING"),
    ("WEIGHT_SYNCING", "ROLLING"),
    *((state, "OFFLINE") for state in ("BOOTING", "ROLLING", "ROLLING_POST", "WEIGHT_SYNCING")),
}
JOB = "ajet: {data: {train_batch_size: 1}, rollout: {num_repeat: 2}}"


class Watched(Engine):
    """Keeps its transitions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.passed: list[tuple[str, str]] = []
        super().__init__(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "status" and hasattr(self, "status") and value != self.status:
            step = tuple(str(one).removeprefix("ENGINE.") for one in (self.status, value))
            self.passed.append((step[0], step[1]))
        super().__setattr__(name, value)


@pytest.fixture
def fuzzed() -> Iterator[tuple[str, Watched]]:
    """A server in a thread of its own."""
    engine = Watched(Bench().factory)
    with bind("127.0.0.1", 0) as sock:
        config = uvicorn.Config(
            create_app(engine), log_config=None, lifespan="on", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        deadline = time.monotonic() + 60
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}", engine
        finally:
            server.should_exit = True
            thread.join(timeout=60)


def work_once(url: str) -> None:
    """A whole batch: the engine is as good as new."""
    with httpx.Client(base_url=url) as http:
        http.post("/stop_engine")
        http.post("/sync_train_config", json={"yaml_as_string": JOB})
        assert http.post("/start_engine").json()["success"] is True
        before = http.get("/get_engine_status").json()["global_step"]
        for reward in (0.0, 1.0):
            claim = {"client_uuid": "c", "episode_type": "train", "discard_episode_timeout": 60}
            episode = http.post("/claim_episode", json=claim).json()
            assert episode["success"] is True, episode
            answer = http.post(
                "/v1/chat/completions",
                headers={"Authorization": episode["openai_api_key"]},
                json={"messages": [{"role": "user", "content": "hi"}]},
            )
            assert answer.status_code == 200
            end = {
                "client_uuid": "c",
                "episode_uuid": episode["episode_uuid"],
                "task_id": "t",
                "workflow_output": {"reward": reward, "metadata": {"task_id": "t"}},
            }
            assert http.post("/end_episode", json=end).json()["success"] is True
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            status = http.get("/get_engine_status").json()
            if status["global_step"] == before + 1:
                break
        assert status["engine_status"] == "ENGINE.ROLLING"


def call_each(url: str, examples: int) -> int:
    """Everything the OpenAPI offers, with bodies that fit its schemas and bodies that do not."""
    import schemathesis  # a quarter of a second, and each worker collects all tests
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    values: list[Any] = list(schema.get_all_operations())
    assert len(values) > 20
    return sum(_call(url, result.ok(), examples) for result in values)


def _call(url: str, operation: Any, examples: int) -> int:
    from schemathesis.checks import not_a_server_error

    keys = [{}, {"Authorization": make_key("nobody", "x")}, {"Authorization": _live_key(url)}]
    made = 0

    @settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(operation.as_strategy())
    def check(case: Any) -> None:
        nonlocal made
        for headers in keys if case.path.startswith("/v1/") else keys[:1]:
            made += 1
            case.call_and_validate(headers=headers, checks=[not_a_server_error])

    check()
    return made


def _live_key(url: str) -> str:
    """Of a claimed episode, if there can be one now."""
    claim = {"client_uuid": "fuzz", "episode_type": "train", "discard_episode_timeout": 60}
    httpx.post(f"{url}/sync_train_config", json={"yaml_as_string": JOB})
    httpx.post(f"{url}/start_engine")
    key = httpx.post(f"{url}/claim_episode", json=claim).json().get("openai_api_key")
    return key or make_key("nobody", "x")


def sound(fuzzed: tuple[str, Watched], examples: int) -> None:
    url, engine = fuzzed
    assert call_each(url, examples) > 20 * examples
    assert set(engine.passed) <= LEGAL
    work_once(url)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_5xx_from_its_own_openapi(fuzzed: tuple[str, Watched]) -> None:
    sound(fuzzed, 3)


@pytest.mark.soak
def test_no_5xx_from_its_own_openapi_at_length(fuzzed: tuple[str, Watched]) -> None:
    sound(fuzzed, 300)
