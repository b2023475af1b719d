"""Hyperparameters of the torch backend for what a job leaves unset; not measured."""

from typing import Final

from engine.interface import Hyperparameters

LORA_RATE: Final = 5e-5
"""Learning rate of LoRA; AgentJet asks for more than 1e-5."""
FULL_RATE: Final = 1e-6
"""Learning rate of all weights: AgentJet's own."""


def recipe(full: bool) -> Hyperparameters:
    """Return AgentJet's values for a pretrained model; those of the small policies would ruin it.

    Args:
        full: All weights are trained, instead of LoRA.
    """
    rate = FULL_RATE if full else LORA_RATE
    return Hyperparameters(lr=rate, adam_eps=1e-8, epochs=1, kl=0.002)
