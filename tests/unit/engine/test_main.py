"""The process: options, port, run file, signals; the server is a real one here."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from ajet_swarm.common.errors import UsageError
from core.runtime.home import AlreadyRunning, Home, RunInfo, running
from core.runtime.sockets import PortInUse, bind
from engine.interface import Hyperparameters, PolicyBackend
from engine.main import EngineOptions, make_engine, run
from engine.policy.checkpoint_manager import TinyCheckpoints
from engine.server.job import Job, JobSupport, parse_job
from engine.server.policy_holder import PolicyFactory
from engine.storage.experiments import Experiments
from engine.torch.names import slug
from engine.torch.options import TorchOptions
from engine.torch.recipe import recipe
from tests.support.engine.fake_policy import Bench

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

SCRIPT = """
import asyncio, sys
from pathlib import Path
from core.runtime.home import Home
from engine.main import EngineOptions, run
from tests.support.engine.fake_policy import Bench

bench = Bench()
async def factory(reset):
    bench.sample_gate = asyncio.Event()
    return await bench.factory(reset)

sys.exit(run(EngineOptions(home=Home.open(Path(sys.argv[1])), port=0), factory))
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def await_run(home: Home, seconds: float = 90) -> RunInfo:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (info := running(home, "engine")) is not None:
            return info
        time.sleep(0.01)
    raise AssertionError("the engine did not come up")


@pytest.fixture
def process(home: Home) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(home.root)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as child:
        yield child
        child.kill()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_a_call_is_in_flight(
    home: Home, process: subprocess.Popen[str], number: signal.Signals
) -> None:
    info = await_run(home)
    assert (info.pid, info.host) == (process.pid, "127.0.0.1")
    assert info.url == f"http://127.0.0.1:{info.port}"
    answers: list[httpx.Response] = []
    with httpx.Client(base_url=info.url, timeout=60) as http:
        http.post("/sync_train_config", json={"yaml_as_string": "{}"})
        assert http.post("/start_engine", json={}).json()["success"] is True
        body = {"client_uuid": "c", "episode_type": "train", "discard_episode_timeout": 60}
        claimed = http.post("/claim_episode", json=body).json()
        assert claimed["openai_base_url"] == f"{info.url}/v1"

        def call() -> None:
            answers.append(
                httpx.post(
                    f"{claimed['openai_base_url']}/chat/completions",
                    headers={"Authorization": f"Bearer {claimed['openai_api_key']}"},
                    json={"messages": [{"role": "user", "content": "x"}]},
                    timeout=60,
                )
            )

        caller = threading.Thread(target=call)
        caller.start()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pool = http.get("/get_current_batch_rollout_pool_information").json()
            if [
                details["llm_call_count"] for details in pool["running_episode_details"].values()
            ] == ["1"]:
                break
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(timeout=90) == 0
        caller.join(timeout=60)
    assert [answer.status_code for answer in answers] == [404]
    assert running(home, "engine") is None
    assert not (home.run / "engine.json").exists()
    assert process.stderr is not None
    log = process.stderr.read()
    assert f"listening on {info.url}/v1" in log
    assert f"stopping on {number.name}" in log
    assert "Traceback" not in log
    assert "Warning" not in log


@pytest.mark.process
def test_real_clients_over_a_real_socket(home: Home) -> None:
    """In this process, so that a test can read the policy of the answers."""
    import openai  # half a second, and each worker collects all tests

    bench = Bench()
    ended: list[int] = []

    async def factory(reset: bool) -> PolicyBackend:
        return await bench.factory(reset)

    async def use(url: str) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            await http.post("/sync_train_config", json={"yaml_as_string": "{}"})
            await http.post("/start_engine", json={})
            body: dict[str, Any] = {
                "client_uuid": "c",
                "episode_type": "train",
                "discard_episode_timeout": 60,
            }
            claimed = (await http.post("/claim_episode", json=body)).json()
            async with openai.AsyncOpenAI(
                api_key=claimed["openai_api_key"],
                base_url=claimed["openai_base_url"],
                max_retries=0,
            ) as client:
                ask: dict[str, Any] = {
                    "model": "m",
                    "messages": [{"role": "user", "content": "hi"}],
                }
                whole = await client.chat.completions.create(**ask)
                assert whole.choices[0].message.content
                text, used = "", None
                async for chunk in await client.chat.completions.create(**ask, stream=True):
                    text += chunk.choices[0].delta.content or ""
                    used = chunk.usage or used
                assert len(text.split()) == 3
                assert used is not None
                assert used.completion_tokens == 3
                await http.post("/stop_engine")
                with pytest.raises(openai.NotFoundError):
                    await client.chat.completions.create(**ask)

    def client() -> None:
        try:
            asyncio.run(use(await_run(home).url))
            ended.append(0)
        finally:
            if running(home, "engine") is not None:
                os.kill(os.getpid(), signal.SIGTERM)

    worker = threading.Thread(target=client)
    worker.start()
    assert run(EngineOptions(home=home, port=0), factory) == 0
    worker.join()
    assert ended == [0]
    assert (bench.opened, bench.closed) == (1, 1)


def test_a_routable_bind_is_refused(home: Home) -> None:
    with pytest.raises(UsageError, match="carries no key") as refused:
        run(EngineOptions(home=home, host="0.0.0.0", port=0))
    assert "--allow-unauthenticated" in refused.value.todo
    assert running(home, "engine") is None


@pytest.mark.process
def test_one_engine_a_home(home: Home, process: subprocess.Popen[str]) -> None:
    info = await_run(home)
    with pytest.raises(AlreadyRunning, match=re.escape(info.url)):
        run(EngineOptions(home=home, port=0))


def test_a_taken_port_names_its_holder(home: Home) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(PortInUse, match="taken") as refused:
            run(EngineOptions(home=home, port=port))
        assert refused.value.where == f"127.0.0.1:{port}"
        assert f"(pid {os.getpid()})" in refused.value.what
        assert "`engine.port`" in refused.value.todo
    assert running(home, "engine") is None


@pytest.mark.parametrize("host", ["not a host", "a" * 300])
def test_no_address(host: str) -> None:
    with pytest.raises(UsageError, match="not an address"):
        bind(host, 0)


def test_options_reach_the_engine(home: Home) -> None:
    plain = make_engine(EngineOptions(home=home))
    assert (plain.faithful, plain.strict_context, plain.policy_holder.start_from) == (
        False,
        False,
        None,
    )
    assert plain.policy_holder.checkpoints is not None
    options = EngineOptions(home=home, faithful=True, strict_context=True, start_from="friday")
    other = make_engine(options, Bench().factory)
    assert (other.faithful, other.strict_context) == (True, True)
    assert (other.policy_holder.start_from, other.policy_holder.checkpoints) == ("friday", None)
    assert other.experiments is not None
    assert other.experiments.folder == home.engine


async def test_the_torch_backend_has_its_own_folder_and_refuses_long_prompts(home: Home) -> None:
    torch = TorchOptions(model="org/name", lora_rank=8)
    engine = make_engine(EngineOptions(home=home, model="org/name", torch=torch), Bench().factory)
    assert engine.experiments is not None
    assert engine.experiments.folder == home.engine / "torch" / slug("org/name")
    assert engine.strict_context
    assert engine.job_support == JobSupport(loads_models=True, model="org/name", lora_rank=8)
    assert engine.temperature == 1.0
    assert engine.recipe == recipe(full=False)
    plain = make_engine(EngineOptions(home=home), Bench().factory)
    assert plain.job_support == JobSupport(model="tiny")
    assert plain.recipe == Hyperparameters()
    small = EngineOptions(home=home, model="smollm2", torch=TorchOptions(model="/m/small.gguf"))
    engine_of_small = make_engine(small, Bench().factory)
    assert engine_of_small.job_support.model == "smollm2"
    assert engine_of_small.temperature == 0.7
    full = EngineOptions(home=home, torch=TorchOptions(model="org/name", full=True))
    assert make_engine(full, Bench().factory).recipe.lr < engine.recipe.lr


async def test_the_torch_policy_is_opened_with_its_options_and_the_present_job(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, ...]] = []
    bench = Bench()

    def torch_policy(
        options: TorchOptions,
        experiments: Experiments,
        job: Callable[[], Job | None],
        report: Callable[[str], None],
    ) -> PolicyFactory:
        async def open_policy(reset: bool) -> PolicyBackend:
            report("reads the weights, 1.2 GB")
            present = job()
            assert present is not None
            calls.append((options, experiments.folder, present.batch_size, reset))
            return await bench.factory(reset)

        return open_policy

    class Checkpoints(TinyCheckpoints):
        """Stands for those of the torch backend."""

    module = ModuleType("engine.torch.checkpoints")
    module.TorchCheckpoints = Checkpoints  # type: ignore[attr-defined]  # a stand-in
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("engine.torch.opening.torch_policy", torch_policy)
    options = TorchOptions(model="org/name")
    engine = make_engine(EngineOptions(home=home, model="org/name", torch=options))
    assert isinstance(engine.policy_holder.checkpoints, Checkpoints)
    async with engine:
        engine.configure(parse_job("ajet: {data: {train_batch_size: 7}}"))
        await engine.start()
        lines = [(line["tag"], line["message"]) for line in engine.verbose.recent()]
    assert ("boot", "reads the weights, 1.2 GB") in lines
    root = home.engine / "torch" / slug("org/name")
    assert calls == [(options, root, 7, False)]
