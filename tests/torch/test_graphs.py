"""`GraphBatch` computes the logits of `GrowingBatch`; it records graphs on a card only."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from engine.torch.loading import TrainingForm, load  # noqa: E402
from engine.torch.options import TorchOptions  # noqa: E402
from engine.torch.sampling.batch import GrowingBatch  # noqa: E402
from engine.torch.sampling.graphs import GraphBatch, usable  # noqa: E402
from tests.torch.models import make_model  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random model."""
    folder = make_model(tmp_path_factory.mktemp("model"))
    return load(TorchOptions(model=str(folder)), TrainingForm(4, 8), None).model


def equal(left: Any, right: Any) -> None:
    """Both batches have the same logits."""
    assert left.logits.shape == right.logits.shape
    tolerance = 0.05 if left.logits.is_cuda else 1e-4
    assert torch.allclose(left.logits, right.logits, atol=tolerance)


def test_rows_join_move_and_leave_alike(model: Any) -> None:
    assert usable(model)
    record = next(model.parameters()).is_cuda
    plain, graph = GrowingBatch(model), GraphBatch(model, 8, 120, record=record)
    both = (plain, graph)
    with torch.no_grad():
        for batch in both:
            batch.join([5, 6, 7], 3)
        equal(*both)
        for token in range(10, 20):
            for batch in both:
                batch.decode([token, token + 1, token + 2])
            equal(*both)
        long = list(range(20, 70))
        for batch in both:
            batch.join(long, 2)  # longer than the block is filled: all rows move
            batch.decode([1, 2, 3, 4, 5])
        equal(*both)
        for batch in both:
            batch.keep([0, 3, 2])
            batch.decode([9, 9, 9])
        equal(*both)
        for token in range(50):
            for batch in both:
                batch.decode([token + 1] * 3)
        equal(*both)
        for batch in both:
            batch.clear()
            batch.join([8, 9], 1)
            batch.decode([4])
        equal(*both)


def test_the_block_is_compacted_before_it_grows(model: Any) -> None:
    graph, plain = GraphBatch(model, 2, 120, record=False), GrowingBatch(model)
    with torch.no_grad():
        for batch in (plain, graph):
            batch.join(list(range(1, 100)), 1)
            batch.join([3, 4], 1)
            batch.decode([5, 6])
            batch.keep([1])
        for token in range(1, 110):
            for batch in (plain, graph):
                batch.decode([token])
        equal(plain, graph)
        assert graph._block.shape[4] == 256
        for token in range(1, 8):
            for batch in (plain, graph):
                batch.decode([token])
        equal(plain, graph)


def test_a_longer_prompt_joins_when_the_block_is_full(model: Any) -> None:
    graph, plain = GraphBatch(model, 2, 120, record=False), GrowingBatch(model)
    with torch.no_grad():
        for batch in (plain, graph):
            batch.join(list(range(1, 100)), 1)
            batch.join([3, 4], 1)
            batch.decode([5, 6])
            batch.keep([1])
        while graph._end < graph._block.shape[4]:
            for batch in (plain, graph):
                batch.decode([7])
        for batch in (plain, graph):
            batch.join(list(range(1, 190)), 1)
            batch.decode([8, 9])
        equal(plain, graph)
