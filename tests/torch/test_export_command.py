"""A policy that the engine trained is exported by command, and loaded by transformers."""

import asyncio
from pathlib import Path

import peft
import pytest
import torch
import transformers

from console.cli import main
from core.runtime.home import Home
from engine.app import create_app
from engine.server.lifecycle import Engine
from engine.storage.experiments import Experiments
from engine.torch.checkpoints import TorchCheckpoints
from engine.torch.opening import torch_policy
from engine.torch.options import TorchOptions
from tests.support.engine.client import Driver, driving
from tests.support.served import served
from tests.torch.models import make_model


async def _train(driver: Driver) -> None:
    await driver.start(batch=1, repeat=2)
    for reward in (0.0, 1.0):
        await driver.play("t", reward)
    await driver.until("ROLLING", 2)


async def test_an_adapter_and_a_merged_model_by_command(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make_model(tmp_path / "base")
    options = TorchOptions(model=str(base), device="cpu", dtype="float32", lora_rank=4)
    experiments = Experiments(tmp_path / "engine", TorchCheckpoints)
    engines: list[Engine] = []
    steps: list[str] = []
    factory = torch_policy(options, experiments, lambda: engines[0].job, steps.append)
    async with driving(factory, experiments=experiments) as driver:
        engines.append(driver.engine)
        await _train(driver)
        assert [step.split()[0] for step in steps] == ["loads", "reads", "reads", "moves", "reads"]
        async with served(create_app(driver.engine)) as url:

            async def export(*argv: str) -> int:
                command = ["checkpoints", "export", *argv, "--swarm-url", url]
                return await asyncio.to_thread(main, command)

            assert await export("latest", str(tmp_path / "adapter")) == 0
            assert await export("1", str(tmp_path / "merged"), "--merge") == 0
        assert (await driver.post("/stop_engine")).json()["success"]
        await driver.until("OFFLINE")
    assert "merging the adapter" in capsys.readouterr().out
    ids = torch.tensor([[97, 98, 99]])
    load = transformers.AutoModelForCausalLM.from_pretrained
    with torch.no_grad():
        adapted = peft.PeftModel.from_pretrained(load(base), tmp_path / "adapter")
        wanted = adapted.eval()(ids).logits
        merged = load(tmp_path / "merged")(ids).logits
        torch.testing.assert_close(merged, wanted, atol=1e-4, rtol=0)
    assert (tmp_path / "engine" / "adapters" / "step-000001" / "README.md").is_file()
