"""`GraphBatch` computes the logits of `GrowingBatch`; it records graphs on a card only."""

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.torch.loading import TrainingForm, load
from engine.torch.memory import GRAPHS
from engine.torch.options import TorchOptions
from engine.torch.sampling.batch import GrowingBatch
from engine.torch.sampling.graphs import GraphBatch, usable
from tests.torch.models import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random model."""
    folder = make_model(tmp_path_factory.mktemp("model"))
    return load(TorchOptions(model=str(folder)), TrainingForm(4, 8), None).model


class Both:
    """A `GrowingBatch` and a `GraphBatch`, which get the same rows."""

    def __init__(self, model: Any, slots: int, graphs: int = 0) -> None:
        self.graph = GraphBatch(model, slots, 120, graphs)
        self.batches: tuple[Any, ...] = (GrowingBatch(model), self.graph)

    def join(self, prompt: Sequence[int], count: int) -> None:
        """Add rows."""
        for batch in self.batches:
            batch.join(list(prompt), count)

    def decode(self, *tokens: int) -> None:
        """Append a token to each row."""
        for batch in self.batches:
            batch.decode(tokens)

    def keep(self, *index: int) -> None:
        """Keep rows."""
        for batch in self.batches:
            batch.keep(index)

    def clear(self) -> None:
        """Drop all rows."""
        for batch in self.batches:
            batch.clear()

    def check(self) -> None:
        """Both have the same logits."""
        plain, graph = (batch.logits for batch in self.batches)
        assert plain.shape == graph.shape
        assert torch.allclose(plain, graph, atol=0.05 if plain.is_cuda else 1e-4)


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    """As when sampling."""
    with torch.no_grad():
        yield


def test_rows_join_move_and_leave_alike(model: Any) -> None:
    assert usable(model)
    both = Both(model, 8, GRAPHS if next(model.parameters()).is_cuda else 0)
    both.join([5, 6, 7], 3)
    both.check()
    for token in range(10, 20):
        both.decode(token, token + 1, token + 2)
        both.check()
    both.join(range(20, 70), 2)  # longer than the block is filled: all rows move
    both.decode(1, 2, 3, 4, 5)
    both.check()
    both.keep(0, 3, 2)
    both.decode(9, 9, 9)
    both.check()
    for token in range(50):
        both.decode(*[token + 1] * 3)
    both.check()
    both.clear()
    both.join([8, 9], 1)
    both.decode(4)
    both.check()


@pytest.fixture
def half_empty(model: Any) -> Both:
    """Two batches of two rows, whose longer row left."""
    both = Both(model, 2)
    both.join(range(1, 100), 1)
    both.join([3, 4], 1)
    both.decode(5, 6)
    both.keep(1)
    return both


def test_the_block_is_compacted_before_it_grows(half_empty: Both) -> None:
    for token in range(1, 110):
        half_empty.decode(token)
    half_empty.check()
    assert half_empty.graph._block.shape[4] == 256
    for token in range(1, 8):
        half_empty.decode(token)
    half_empty.check()


def test_a_longer_prompt_joins_when_the_block_is_full(half_empty: Both) -> None:
    while half_empty.graph._end < half_empty.graph._block.shape[4]:
        half_empty.decode(7)
    half_empty.join(range(1, 190), 1)
    half_empty.decode(8, 9)
    half_empty.check()


class FakeCard:
    """The parts of `torch.cuda` that record graphs; a replay runs the step again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorded: list[tuple[Any, int, int]] = []
        """Pool, rows and places of each recording."""
        self.pools = 0
        step, last = GraphBatch._step, SimpleNamespace()

        def noted(batch: GraphBatch, rows: int, width: int) -> None:
            last.run = lambda: step(batch, rows, width)
            last.shape = rows, width
            step(batch, rows, width)

        def new_pool() -> int:
            self.pools += 1
            return self.pools

        @contextlib.contextmanager
        def graph(graph: Any, pool: Any) -> Iterator[None]:
            yield
            self.recorded.append((pool, *last.shape))
            graph.replay = last.run

        stream = SimpleNamespace(wait_stream=lambda other: None)
        monkeypatch.setattr(GraphBatch, "_step", noted)
        for name, fake in {
            "Stream": lambda: stream,
            "current_stream": lambda: stream,
            "stream": contextlib.nullcontext,
            "CUDAGraph": SimpleNamespace,
            "graph": graph,
            "graph_pool_handle": new_pool,
            "empty_cache": lambda: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, fake)


def test_all_graphs_share_a_pool_that_the_largest_step_makes(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, both = FakeCard(monkeypatch), Both(model, 8, 2)
    both.join([5, 6, 7], 3)
    for token in range(10, 14):
        both.decode(token, token, token)
        both.check()
    assert card.recorded == [(1, 8, 256), (1, 4, 256)]
    both.keep(1)
    both.decode(9)
    both.check()
    assert card.recorded[2:] == [(1, 1, 256)]
    assert list(both.graph._graphs) == [(4, 256), (1, 256)], "the one unused for longest left"
    both.join([8, 9], 7)
    both.decode(*range(1, 9))
    both.check()
    assert both.graph.logits.data_ptr() == both.graph._out.data_ptr()
    assert card.recorded[3:] == [(1, 8, 256)]


def test_a_new_block_has_a_new_pool(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    card, both = FakeCard(monkeypatch), Both(model, 2, 1)
    both.join([5, 6, 7], 1)
    both.decode(8)
    both.graph.release()
    assert both.graph._out is None
    both.clear()
    both.join([5, 6, 7], 2)
    both.decode(8, 9)
    both.check()
    assert card.recorded == [(1, 2, 256), (1, 1, 256), (2, 2, 256)]
