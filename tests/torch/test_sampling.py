"""Penalties and bounds of the torch sampler: those of transformers, and those of numpy."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from engine.interface import SamplingParams
from engine.policy import sampler as numpy_sampler
from engine.policy.penalties import changed_logits, new_penalties
from engine.torch.sampling.sampler import choose

VOCAB = 50


@pytest.fixture
def logits() -> Any:
    """Random logits of three rows."""
    return torch.randn((3, VOCAB), generator=torch.Generator().manual_seed(1)) * 3


def after(logits: Any, prompt: list[int], answer: list[int], **fields: float) -> Any:
    """The logits when the first and the last row have penalties."""
    rows = []
    for active in (True, False, True):
        params = SamplingParams(**fields) if active else SamplingParams()  # type: ignore[arg-type]
        made = new_penalties(params, prompt, 20)
        for token in answer if made is not None else ():
            made.add(token)
        rows.append(made)
    return changed_logits(logits, rows, torch.from_numpy, torch.where)


def test_repetition_is_that_of_transformers(logits: Any) -> None:
    prompt, answer = [3, 4, 4, 9], [5, 3, 5]
    mine = after(logits, prompt, answer, repetition_penalty=1.7)
    ids = torch.tensor([prompt + answer] * 3)
    processor = transformers.RepetitionPenaltyLogitsProcessor(penalty=1.7)
    theirs = processor(ids, logits.clone())
    torch.testing.assert_close(mine[[0, 2]], theirs[[0, 2]])
    torch.testing.assert_close(mine[1], logits[1])


def test_presence_and_frequency_follow_vllms_formula(logits: Any) -> None:
    answer = [5, 3, 5, 5]
    mine = after(logits, [1, 2], answer, presence_penalty=0.5, frequency_penalty=-0.25)
    counts = torch.bincount(torch.tensor(answer), minlength=VOCAB)
    torch.testing.assert_close(mine[0], logits[0] + 0.25 * counts - 0.5 * (counts > 0))
    torch.testing.assert_close(mine[1], logits[1])


@pytest.mark.parametrize("top_k", [0, 1, 7, VOCAB, 500])
@pytest.mark.parametrize("min_p", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_bounds_keep_what_the_processors_of_transformers_keep(
    logits: Any, top_k: int, min_p: float, top_p: float
) -> None:
    kept = logits.clone()
    if min_p:
        kept = transformers.MinPLogitsWarper(min_p)(None, kept)
    if top_k:
        kept = transformers.TopKLogitsWarper(top_k)(None, kept)
    if top_p < 1:
        kept = transformers.TopPLogitsWarper(top_p)(None, kept)
    expected = {row: set(torch.isfinite(kept[row]).nonzero()[:, 0].tolist()) for row in range(3)}
    seen: dict[int, set[int]] = {row: set() for row in range(3)}
    for draw in np.linspace(0, 0.9999, 2_000):
        ids, _ = choose(
            logits,
            torch.ones(3),
            torch.full((3,), top_p) if top_p < 1 else None,
            torch.full((3,), float(draw)),
            top_k=torch.tensor([top_k] * 3) if top_k else None,
            min_p=torch.full((3,), min_p) if min_p else None,
        )
        for row, token in enumerate(ids.tolist()):
            seen[row].add(token)
    for row in range(3):
        missed = expected[row] - seen[row]
        probabilities = torch.softmax(kept[row], dim=-1)
        assert seen[row] <= expected[row]
        assert all(probabilities[token] < 1e-3 for token in missed)


def test_numpy_and_torch_choose_alike(logits: Any) -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        uniform = generator.random(3).astype(np.float32)
        heat = np.array([1.0, 0.7, 0.0], np.float32)
        mass = np.array([0.9, 1.0, 0.5], np.float32)
        top_k, min_p = np.array([0, 5, 3]), np.array([0.01, 0.0, 0.02], np.float32)
        changed = after(logits, [1, 2], [3, 4, 4], presence_penalty=1.0, repetition_penalty=1.3)
        mine, values = choose(
            logits,
            *map(torch.from_numpy, (heat, mass, uniform)),
            changed=changed,
            top_k=torch.from_numpy(top_k),
            min_p=torch.from_numpy(min_p),
        )
        theirs, others = numpy_sampler.choose(
            logits.numpy(), heat, mass, uniform, changed=changed.numpy(), top_k=top_k, min_p=min_p
        )
        assert mine.tolist() == theirs.tolist()
        np.testing.assert_allclose(values.numpy(), others, atol=1e-5)
