"""Tokens per second of the sampler, against `generate` of transformers."""

from typing import Any

import torch

from bench.bars import Verdicts
from bench.own_gpu.models import make
from bench.own_gpu.work import PROMPT, sampler_of, seconds
from engine.interface import Prompt, SamplingParams
from engine.policy.answer import Request

ANSWER, REFERENCE = 256, 64
"""Tokens of our answers, and of those of `generate`, which are slower and of constant speed."""


def run(size: str, verdicts: Verdicts) -> None:
    """Measure 16 and 64 candidates."""
    loaded = make(size, 1024)
    sampler = sampler_of(loaded)
    prompt = tuple(range(1, PROMPT + 1))
    for count in (16, 64):
        params = SamplingParams(max_tokens=ANSWER, temperature=1.0)

        def ours(params: SamplingParams = params, count: int = count) -> None:
            for _ in range(count):
                sampler.add(Request(Prompt(prompt), params))
            while sampler.live or sampler.waiting:
                sampler.step(0)

        ids = torch.tensor([prompt] * count, device=loaded.device)

        def theirs(ids: Any = ids) -> None:
            loaded.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                max_new_tokens=REFERENCE,
                min_new_tokens=REFERENCE,
                pad_token_id=0,
            )

        first = seconds(ours)
        mine = count * ANSWER / min(seconds(ours) for _ in range(2))
        with torch.no_grad():
            other = count * REFERENCE / min(seconds(theirs) for _ in range(2))
        print(
            f"  {size}, {count} candidates: {mine:.0f} tokens/s (first run"
            f" {count * ANSWER / first:.0f}), generate {other:.0f}",
            flush=True,
        )
        verdicts.at_least(f"speed-{size}-{count}", mine / other, 0.9, "of generate")
    sampler.clear()
