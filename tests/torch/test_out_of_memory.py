"""A full memory while sampling: all answers continue in a smaller batch, as if nothing happened."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.interface import Prompt, SamplingParams
from engine.policy.answer import AnswerFailedError, Request
from engine.torch.loading import Loaded, TrainingForm, load
from engine.torch.options import TorchOptions
from engine.torch.sampling.batch import GrowingBatch
from engine.torch.sampling.graphs import GraphBatch
from engine.torch.sampling.sampler import TorchSampler
from engine.torch.text import ModelText
from tests.torch.models import make_model


class FullBatch(GrowingBatch):
    """Has memory for a number of ids of all rows together."""

    def __init__(self, model: Any, most: int = 10**9) -> None:
        super().__init__(model)
        self.most = most
        self.sizes: list[int] = []
        """Arguments of `resize`."""
        self.error: Exception = torch.OutOfMemoryError("CUDA out of memory. Tried to\nallocate")

    def join(self, prompt: Sequence[int], count: int) -> None:
        """Raise when the rows do not fit."""
        rows = 0 if self._mask is None else self._mask.shape[0]
        width = 0 if self._mask is None else self._mask.shape[1]
        self._need((rows + count) * max(width, len(prompt)))
        super().join(prompt, count)

    def decode(self, tokens: Sequence[int]) -> None:
        """Raise when the next token of each row does not fit."""
        self._need(len(tokens) * (self._mask.shape[1] + 1))
        super().decode(tokens)

    def resize(self, slots: int) -> None:
        self.sizes.append(slots)
        super().resize(slots)

    def _need(self, ids: int) -> None:
        if ids > self.most:
            raise self.error


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """A random model."""
    folder: Path = make_model(tmp_path_factory.mktemp("model"))
    return load(TorchOptions(model=str(folder), device="cpu"), TrainingForm(4, 8), None)


def sampler_of(loaded: Loaded, batch: Any, slots: int = 8) -> TorchSampler:
    """A sampler of the model."""
    return TorchSampler(batch, ModelText(loaded.tokenizer), frozenset({0}), 120, slots)


def requests(count: int = 6, length: int = 10) -> list[Request]:
    """Requests with seeds, penalties and readers; the first two have the same prompt."""
    return [
        Request(
            Prompt(tuple(range(20 + max(1, i), 20 + max(1, i) + length))),
            SamplingParams(max_tokens=12 + i, seed=i, frequency_penalty=0.5 * (i % 2)),
            on_text=print,
        )
        for i in range(count)
    ]


def drained(
    sampler: TorchSampler, asked: list[Request]
) -> tuple[list[Any], list[str], list[Request]]:
    """Answers and pieces in the order of the requests, and the requests that failed."""
    for request in asked:
        sampler.add(request)
    done: dict[Request, Any] = {}
    pieces: dict[Request, str] = dict.fromkeys(asked, "")
    failed: list[Request] = []
    reasons: list[str] = []
    for _ in range(2_000):
        try:
            finished = sampler.step(3)
        except AnswerFailedError as error:
            failed.append(error.request)
            reasons.append(str(error))
            continue
        for request, piece in sampler.take_pieces():
            pieces[request] += piece
        done |= {done.request: done.completion for done in finished}
        if not (sampler.live or sampler.waiting):
            break
    assert all("too small for this answer alone" in reason for reason in reasons)
    answers = [done[request] for request in asked if request in done]
    return answers, [pieces[request] for request in asked], failed


@pytest.mark.parametrize("most", [60, 45, 28])
def test_no_answer_is_lost_or_changed(
    loaded: Loaded, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole, texts, _ = drained(sampler_of(loaded, GrowingBatch(loaded.model)), requests())
    batch = FullBatch(loaded.model, most)
    sampler = sampler_of(loaded, batch)
    with caplog.at_level(logging.WARNING, logger="engine.torch.sampling.sampler"):
        answers, pieces, failed = drained(sampler, requests())
    assert not failed
    assert [answer.tokens for answer in answers] == [answer.tokens for answer in whole]
    for mine, theirs in zip(answers, whole, strict=True):
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    assert pieces == texts == [answer.text for answer in whole]
    assert batch.sizes == [4, 2, 1][: len(batch.sizes)]
    assert sampler.slots == batch.sizes[-1]
    assert len(caplog.records) == len(batch.sizes)
    assert "From now on 4 are sampled at the same time instead of 8" in caplog.text
    assert "Tried to (" not in caplog.text


def test_a_request_that_does_not_fit_alone_fails_alone(loaded: Loaded) -> None:
    long = Request(Prompt(tuple(range(1, 80))), SamplingParams(max_tokens=5, seed=1))
    asked = [*requests(3), long, *requests(2)]
    sampler = sampler_of(loaded, FullBatch(loaded.model, 60))
    answers, _pieces, failed = drained(sampler, asked)
    assert failed == [long]
    assert len(answers) == 5
    assert sampler.slots == 1


def test_an_answer_that_grows_too_long_fails_in_the_middle(loaded: Loaded) -> None:
    asked = requests(1, 10)
    answers, pieces, failed = drained(sampler_of(loaded, FullBatch(loaded.model, 15), 1), asked)
    assert (answers, failed) == ([], asked)
    assert len(pieces[0]) == 6


def test_interrupted_answers_end_before_an_update(loaded: Loaded) -> None:
    batch = FullBatch(loaded.model)
    sampler = sampler_of(loaded, batch)
    for request in requests(4):
        sampler.add(request)
    sampler.step(0)
    batch.most = 30
    sampler.step(0)
    late = requests(1)[0]
    sampler.add(late)
    assert sampler.live == 4, "they are not waiting: their weights must not change"
    finished = []
    while sampler.live:
        finished += sampler.step(0, admit=False)
    assert len(finished) == 4
    assert sampler.waiting == 1
    assert sampler.clear() == [late]


def test_an_interrupted_request_can_be_cancelled(loaded: Loaded) -> None:
    batch = FullBatch(loaded.model)
    sampler = sampler_of(loaded, batch)
    asked = requests(4)
    for request in asked:
        sampler.add(request)
    sampler.step(0)
    batch.most = 0
    sampler.step(0)
    batch.most = 10**9
    for request in asked:
        request.cancelled = True
    assert sampler.step(0) == []
    assert (sampler.live, sampler.waiting) == (0, 0)


def test_slots_grow_again_after_updates_and_more_slowly_each_time(loaded: Loaded) -> None:
    batch = FullBatch(loaded.model, 45)
    sampler = sampler_of(loaded, batch)
    drained(sampler, requests())
    assert batch.sizes == [4, 2, 1]
    batch.most = 10**9
    for updates, slots in ((7, 1), (1, 2), (7, 2), (1, 4), (7, 4), (1, 8), (9, 8)):
        for _ in range(updates):
            sampler.grow()
        assert sampler.slots == slots
    assert batch.sizes == [4, 2, 1, 2, 4, 8]
    answers, _, failed = drained(sampler, requests())
    assert (len(answers), failed) == (6, [])
    batch.most = 40
    drained(sampler, requests())
    assert sampler.slots < 8
    sampler.grow()
    assert sampler.slots < 8


def test_the_full_memory_of_other_devices_is_recognised(loaded: Loaded) -> None:
    batch = FullBatch(loaded.model, 45)
    batch.error = RuntimeError("MPS backend out of memory (allocated: 1 GB)")
    answers, _, failed = drained(sampler_of(loaded, batch), requests())
    assert (len(answers), failed) == (6, [])
    batch = FullBatch(loaded.model, 45)
    batch.error = RuntimeError("shapes do not match")
    with pytest.raises(RuntimeError, match="shapes"):
        drained(sampler_of(loaded, batch), requests())


def test_the_block_of_a_graph_batch_shrinks(loaded: Loaded) -> None:
    batch = GraphBatch(loaded.model, 8, 120, 0)
    with torch.no_grad():
        batch.join([5, 6, 7], 3)
        assert batch._block.shape[2] == 8
        batch.resize(2)
        batch.join([5, 6, 7], 2)
        batch.decode([8, 9])
    assert batch._block.shape[2] == 2
    assert batch.logits.shape[0] == 2
