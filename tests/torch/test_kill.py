"""A process that dies in an update or while saving it: the next one continues at the last step."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.interface import Completion, Hyperparameters, SamplingParams, TrainSample
from engine.torch.loading import TrainingForm, load
from engine.torch.options import TorchOptions
from engine.torch.policy import TorchPolicy
from engine.torch.store import TorchStore
from tests.torch.models import make_model

HYPER = Hyperparameters(lr=0.05, epochs=2, kl=0.01, adam_eps=1e-8)


def opened(model: Path, home: Path, rank: int) -> TorchPolicy:
    """The policy of a home."""
    options = TorchOptions(model=str(model), device="cpu")
    return TorchPolicy(load(options, TrainingForm(rank, 8), None), TorchStore(home), "random")


async def answers_of(policy: TorchPolicy, temperature: float) -> list[Completion]:
    """Four answers."""
    prompt = policy.render([{"role": "user", "content": "abc"}], None, 16)
    params = [SamplingParams(max_tokens=16, seed=i, temperature=temperature) for i in range(4)]
    return list(await asyncio.gather(*(policy.sample(prompt, param) for param in params)))


async def train(policy: TorchPolicy) -> None:
    """One update."""
    answers = await answers_of(policy, 1.0)
    await policy.train(
        [
            TrainSample("t", answer.prompt_tokens, answer.tokens, answer.logprobs, float(i % 2))
            for i, answer in enumerate(answers)
        ],
        HYPER,
    )


async def die(model: Path, home: Path, rank: int, point: str) -> None:
    """Train once, print the greedy answer, and be killed at a point of the second update."""
    policy = opened(model, home, rank)
    await train(policy)
    print((await answers_of(policy, 0.0))[0].tokens, flush=True)

    def kill(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if point == "update":
        policy._learner.publish = kill  # type: ignore[method-assign]
    else:
        os.replace = kill
    await train(policy)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("point", ["update", "save"])
@pytest.mark.parametrize("rank", [0, 4])
def test_a_killed_update_leaves_the_last_step(tmp_path: Path, rank: int, point: str) -> None:
    model, home = make_model(tmp_path / "model"), tmp_path / "home"
    arguments = [str(model), str(home), str(rank), point]
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.torch.test_kill", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr

    async def check() -> None:
        policy = opened(model, home, rank)
        assert policy.step == 1
        assert str((await answers_of(policy, 0.0))[0].tokens) == child.stdout.strip()
        await train(policy)
        assert policy.step == 2
        await policy.close()

    asyncio.run(check())


if __name__ == "__main__":
    asyncio.run(die(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
