"""`python -m bench.own_gpu [speed] [update] [memory] [learning]`: the torch backend on one device.

Without a name, all parts. `learning` needs the GGUF file of SmolLM2: --gguf FILE. The comparison
of updates needs TRL; without it the part prints our figure alone.
"""

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from tempfile import mkdtemp
from typing import Any

import torch

from bench.own_gpu.models import make
from engine.interface import Hyperparameters, Prompt, SamplingParams, TrainSample
from engine.policy.answer import Request
from engine.torch.learner import Optimizer, TorchLearner
from engine.torch.loading import Loaded, TrainingForm, load
from engine.torch.options import TorchOptions
from engine.torch.policy import TorchPolicy, new_batch
from engine.torch.sampler import TorchSampler
from engine.torch.text import ModelText

PROMPT, ANSWER = 128, 256
SAMPLES, LENGTH = 32, 512
KL = 0.04
_lines: list[str] = []


def main() -> int:
    """Run the chosen parts; return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="speed, update, memory, learning")
    parser.add_argument("--sizes", default="0.5B,1.5B", help="0.5B, 1.5B, tiny; with commas")
    parser.add_argument("--gguf", default="", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--seeds", type=int, default=3, help="runs of `learning`")
    args = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(f"device {device}, torch {torch.__version__}", flush=True)
    parts = args.parts or ["speed", "update", "memory", "learning"]
    for size in args.sizes.split(","):
        for name, run in (("speed", speed), ("update", update), ("memory", memory)):
            if name in parts:
                began = time.perf_counter()
                run(size)
                print(f"  {name} {size}: {time.perf_counter() - began:.0f} s", flush=True)
                gc.collect()
                _empty()
    if "learning" in parts and args.gguf:
        learning(args.gguf, args.seeds)
    print("\n".join(_lines))
    return int(any(line.startswith("FAIL") for line in _lines))


def verdict(good: bool, name: str, figure: str, bar: str) -> None:
    """Note one line of the result."""
    _lines.append(f"{'PASS' if good else 'FAIL'} {name} {figure} {bar}")
    print(" ", _lines[-1], flush=True)


def speed(size: str) -> None:
    """Tokens per second of 16 and 64 candidates, against `generate` of transformers."""
    loaded = make(size, 1024)
    sampler = _sampler(loaded)
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
                max_new_tokens=ANSWER,
                min_new_tokens=ANSWER,
                pad_token_id=0,
            )

        first = _seconds(ours)
        times = [_seconds(ours) for _ in range(2)]
        with torch.no_grad():
            theirs_times = [_seconds(theirs) for _ in range(2)]
        tokens = count * ANSWER
        mine, other = tokens / min(times), tokens / min(theirs_times)
        print(f"  {size}, {count} candidates: first {tokens / first:.0f} tokens/s", flush=True)
        verdict(
            mine >= 0.9 * other,
            f"speed-{size}-{count}",
            f"{mine:.0f}/{other:.0f}={mine / other:.2f}",
            ">=0.9",
        )
    sampler.clear()


def update(size: str) -> None:
    """Seconds of an update of 32 samples of 512 tokens, against TRL."""
    loaded = make(size, 1024)
    learner = _learner(loaded)
    samples = _samples(LENGTH)
    hyper = Hyperparameters(epochs=1, kl=KL, kl_form="k3", adam_eps=1e-8, lr=1e-5)
    times = [_seconds(partial(learner.update, samples, hyper, 1)) for _ in range(3)]
    mine = statistics.median(times[1:])
    memory_plan = loaded.memory
    print(
        f"  {size}: update {mine:.3f} s, micro-batches of {learner.budget} ids,"
        f" activations computed again: {memory_plan.checkpointing}",
        flush=True,
    )
    model = loaded.model
    del learner
    gc.collect()
    _empty()
    try:
        other = _trl(model, loaded.tokenizer, samples)
    except ImportError as error:
        print(f"  TRL is not installed: {error}")
        return
    verdict(mine <= other, f"update-{size}", f"{mine:.3f}/{other:.3f}", "<=1")


def _trl(model: Any, tokenizer: Any, samples: list[TrainSample]) -> float:
    """Return the seconds of TRL for the same update: reference, loss, gradient, step."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokenizer.pad_token = tokenizer.eos_token
    config = GRPOConfig(
        output_dir=mkdtemp(prefix="own-gpu-trl-"),
        per_device_train_batch_size=SAMPLES,
        num_generations=8,
        beta=KL,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=False,
        loss_type="dapo",
        learning_rate=1e-5,
        report_to=[],
    )
    trainer = GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * SAMPLES}),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.create_optimizer()
    device = next(model.parameters()).device
    prompts = torch.tensor([one.prompt_tokens for one in samples], device=device)
    answers = torch.tensor([one.tokens for one in samples], device=device)
    inputs: dict[str, Any] = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": answers,
        "completion_mask": torch.ones_like(answers),
        "advantages": torch.tensor([one.reward - 0.5 for one in samples], device=device),
        "num_items_in_batch": torch.tensor(answers.numel(), device=device),
    }
    ids = torch.cat([prompts, answers], dim=1)

    def step() -> None:
        model.train()
        with torch.no_grad(), model.disable_adapter():
            logps, *_ = trainer._get_per_token_logps_and_entropies(
                model, ids, torch.ones_like(ids), answers.shape[1]
            )
        loss = trainer.compute_loss(model, {**inputs, "ref_per_token_logps": logps})
        trainer.accelerator.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()

    return statistics.median([_seconds(step) for _ in range(3)][1:])


def memory(size: str) -> None:
    """Peak memory at the planned load, against the estimate."""
    if not torch.cuda.is_available():
        return
    _empty()
    before = torch.cuda.memory_reserved()
    # A bound, so that the plan fills the memory quickly.
    loaded = make(size, 1024)
    tight = replace(loaded.memory, budget=16 * 1024)
    each = (loaded.memory.activations - _logits(loaded)) / loaded.memory.budget
    tight = replace(tight, activations=int(each * tight.budget) + _logits(loaded))
    loaded = replace(loaded, memory=tight)
    torch.cuda.reset_peak_memory_stats()
    sampler, learner = _sampler(loaded), _learner(loaded)
    for _ in range(tight.slots):
        sampler.add(Request(Prompt(tuple(range(1, 769))), SamplingParams(max_tokens=255)))
    while sampler.live or sampler.waiting:
        sampler.step(0)
    sampling = torch.cuda.max_memory_allocated() - before
    hyper = Hyperparameters(epochs=1, kl=KL, adam_eps=1e-8, lr=1e-5)
    torch.cuda.reset_peak_memory_stats()
    learner.update(_samples(1024), hyper, 1)
    peak = max(sampling, torch.cuda.max_memory_allocated() - before)
    used = peak + 600_000_000
    print(
        f"  {size}: weights {tight.weights / 1e9:.2f}, optimizer {tight.optimizer / 1e9:.2f},"
        f" cache {tight.cache / 1e9:.2f}, activations {tight.activations / 1e9:.2f} GB estimated;"
        f" peak while sampling {sampling / 1e9:.2f}, in the update {peak / 1e9:.2f} GB",
        flush=True,
    )
    ratio = used / tight.total
    verdict(0.85 <= ratio <= 1.15, f"memory-{size}", f"{ratio:.2f}", "0.85..1.15")


def _logits(loaded: Loaded) -> int:
    from engine.torch.memory import LOGIT_BYTES

    return LOGIT_BYTES


def learning(gguf: str, seeds: int) -> None:
    """Enthusiasm (share of answers with an exclamation mark) before and after 15 updates."""
    for seed in range(seeds):
        curve = asyncio.run(_learn(gguf, seed))
        reached = next((i for i, value in enumerate(curve) if value >= 0.5), None)
        print("  curve", " ".join(f"{value:.2f}" for value in curve), flush=True)
        verdict(reached is not None, f"learning-seed-{seed}", f"{max(curve):.2f}", ">=0.5")


QUESTIONS = (
    "What is the capital of Japan?",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "What is a computer?",
    "Name a fruit.",
    "What does a baker do?",
    "How far is the moon?",
    "Tell me about cats.",
)


async def _learn(gguf: str, seed: int) -> list[float]:
    loaded = load(TorchOptions(model=gguf, context=256), TrainingForm(), None)
    policy = TorchPolicy(loaded, None, "smollm2")
    hyper = Hyperparameters(lr=5e-4, epochs=2, kl=0.1, adam_eps=1e-8)
    curve = []
    number = 1000 * seed
    for _ in range(16):
        calls, tasks = [], []
        for question in QUESTIONS:
            prompt = policy.render([{"role": "user", "content": question}], None, 40)
            for _ in range(4):
                number += 1
                params = SamplingParams(max_tokens=40, temperature=0.7, seed=number)
                calls.append(policy.sample(prompt, params))
                tasks.append(question)
        answers = await asyncio.gather(*calls)
        rewards = [enthusiasm(one.text) for one in answers]
        curve.append(statistics.mean(rewards))
        samples = [
            TrainSample(task, one.prompt_tokens, one.tokens, one.logprobs, reward)
            for task, one, reward in zip(tasks, answers, rewards, strict=True)
        ]
        stats = await policy.train(samples, hyper)
        print(
            f"    step {stats.step} reward {curve[-1]:.2f} kl {stats.kl:.3f} gap"
            f" {stats.extra['sampler_gap']:.4f} {stats.seconds:.2f} s  {answers[0].text[:60]!r}",
            flush=True,
        )
    await policy.close()
    return curve


def enthusiasm(text: str) -> float:
    """Share of an answer's sentences that end in an exclamation mark."""
    marks = [one for one in text if one in ".!?"]
    return sum(one == "!" for one in marks) / len(marks) if marks else 0.0


def _sampler(loaded: Loaded) -> TorchSampler:
    batch = new_batch(loaded)
    text = ModelText(loaded.tokenizer)
    return TorchSampler(batch, text, loaded.ends, loaded.context, loaded.memory.slots)


def _learner(loaded: Loaded) -> TorchLearner:
    flat = torch.cat([one.detach().float().reshape(-1) for one in loaded.trained])
    optimizer = Optimizer(flat, torch.zeros_like(flat), torch.zeros_like(flat))
    return TorchLearner(loaded.model, loaded.trained, optimizer, loaded.memory)


def _samples(length: int) -> list[TrainSample]:
    prompt = tuple(range(1, PROMPT + 1))
    count = length - PROMPT
    return [
        TrainSample(
            f"t{i // 8}",
            prompt,
            tuple((i + j) % 900 + 1 for j in range(count)),
            (-1.0,) * count,
            float(i % 2),
        )
        for i in range(SAMPLES)
    ]


def _seconds(work: Callable[[], object]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _empty() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    raise SystemExit(main())
