"""A GGUF file is opened, computes what its numbers say, and is trained."""

from pathlib import Path

import numpy as np
import pytest

from engine.interface import SamplingParams, TrainSample
from engine.torch.loading import TrainingForm, load
from engine.torch.options import TorchOptions
from engine.torch.policy import TorchPolicy
from engine.torch.recipe import recipe
from engine.torch.store import TorchStore
from tests.torch import small_gguf

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>"
    "\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def opened(path: Path, home: Path) -> TorchPolicy:
    """The policy of a file."""
    options = TorchOptions(model=str(path), device="cpu", dtype="float32", context=128)
    return TorchPolicy(load(options, TrainingForm(4, 8), None), TorchStore(home), "small")


async def test_the_log_probs_are_those_of_the_numbers_in_the_file(tmp_path: Path) -> None:
    more = {"tokenizer.chat_template": TEMPLATE}
    small = small_gguf.make(tmp_path / "small.gguf", **more)
    policy = opened(small.path, tmp_path / "home")
    ids = [int(token) for token in np.random.default_rng(1).integers(3, 259, 11)]
    logits = small_gguf.logits(small, ids)
    wanted = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    try:
        result = await policy.logprobs(ids[:1], ids[1:])
    finally:
        await policy.close()
    assert float(logits.std()) > 0.5
    assert result == pytest.approx(wanted[np.arange(10), ids[1:]].tolist(), abs=1e-3)


async def test_it_is_trained_and_continues_from_what_was_saved(tmp_path: Path) -> None:
    more = {"tokenizer.chat_template": TEMPLATE}
    small = small_gguf.make(tmp_path / "small.gguf", **more)
    policy = opened(small.path, tmp_path / "home")
    prompt = policy.render([{"role": "user", "content": "hello"}], None, 8)
    assert policy.decode(prompt.tokens).endswith("user\nhello\nassistant\n")
    answers = [await policy.sample(prompt, SamplingParams(8, seed=seed)) for seed in (1, 2)]
    samples = [
        TrainSample("t", answer.prompt_tokens, answer.tokens, answer.logprobs, float(i))
        for i, answer in enumerate(answers)
    ]
    await policy.train(samples, recipe(full=False))
    trained = await policy.logprobs(answers[0].prompt_tokens, answers[0].tokens)
    await policy.close()
    again = opened(small.path, tmp_path / "home")
    assert again.step == 1
    continued = await again.logprobs(answers[0].prompt_tokens, answers[0].tokens)
    assert continued == pytest.approx(trained, abs=1e-5)
    assert max(abs(a - b) for a, b in zip(trained, answers[0].logprobs, strict=True)) > 1e-5
    await again.close()
