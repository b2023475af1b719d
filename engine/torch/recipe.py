"""Hyperparameters of the torch backend for what a job leaves unset.

Those of LoRA are measured on SmolLM2-135M (docs/measured/own-gpu.md).
"""

from typing import Final

from engine.interface import Hyperparameters

LORA_RATE: Final = 7e-4
"""Learning rate of LoRA."""
LORA_KL: Final = 0.05
"""Weight of the KL with LoRA: at 0.02 greedy answers degenerate within ten updates."""
FULL_RATE: Final = 1e-6
"""Learning rate of all weights: AgentJet's own."""
FULL_KL: Final = 0.002
"""Weight of the KL with all weights: AgentJet's own."""


def recipe(full: bool) -> Hyperparameters:
    """Return the hyperparameters; those of the tiny policy would ruin a pretrained model.

    Args:
        full: All weights are trained, instead of LoRA.
    """
    rate, kl = (FULL_RATE, FULL_KL) if full else (LORA_RATE, LORA_KL)
    return Hyperparameters(lr=rate, adam_eps=1e-8, epochs=1, kl=kl)
