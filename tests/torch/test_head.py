"""Log-probs by the output layer: the frozen form against torch's own gradient."""

from typing import Any

import pytest
import torch

from engine.torch.head import OutputHead

VOCAB, HIDDEN, COUNT = 50, 8, 40


@pytest.fixture
def layer() -> Any:
    """An output layer."""
    torch.manual_seed(0)
    return torch.nn.Linear(HIDDEN, VOCAB)


def head_of(layer: Any) -> OutputHead:
    """The head; 16 targets are a part."""
    return OutputHead(layer, VOCAB, 0)


def inputs() -> tuple[Any, Any, Any]:
    """States, targets and the weights of a sum of log-probs."""
    generator = torch.Generator().manual_seed(1)
    states = torch.randn((COUNT, HIDDEN), generator=generator)
    targets = torch.randint(VOCAB, (COUNT,), generator=generator)
    return states, targets, torch.randn(COUNT, generator=generator)


def run(head: OutputHead) -> tuple[Any, Any, Any]:
    """Log-probs, entropy and the gradient by the states of a weighted sum."""
    states, targets, weights = inputs()
    logprobs, entropy = head.logprobs(states.requires_grad_(), targets)
    logprobs.backward(weights)
    return logprobs.detach(), entropy.detach(), states.grad


def test_a_frozen_layer_has_the_gradient_of_torch(layer: Any) -> None:
    trained = run(head_of(layer))
    assert layer.weight.grad is not None
    layer.requires_grad_(False)
    frozen = run(head_of(layer))
    for one, other in zip(frozen, trained, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("trained", [False, True])
def test_an_impossible_id_leaves_the_entropy_finite(layer: Any, trained: bool) -> None:
    with torch.no_grad():
        layer.bias[COUNT:] = -torch.inf
    layer.requires_grad_(trained)
    states = torch.zeros((2, HIDDEN), requires_grad=True)
    _, entropy = head_of(layer).logprobs(states, torch.tensor([0, 1]))
    assert 0 < float(entropy) < 2 * torch.log(torch.tensor(float(COUNT)))


def test_values_without_a_gradient_equal_those_with_one(layer: Any) -> None:
    states, targets, _ = inputs()
    with torch.no_grad():
        values, _ = head_of(layer).logprobs(states, targets)
    assert torch.equal(values, run(head_of(layer))[0])
