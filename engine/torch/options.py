"""Options of the torch backend and their defaults; without torch."""

from dataclasses import dataclass

DEFAULT_RANK = 16
"""Rank of LoRA when neither the command line nor the job names one."""
DEFAULT_CONTEXT = 4096
"""Window in tokens when nothing names one; at most the model's own."""
DEFAULT_SLOTS = 64
"""Number of answers sampled at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOptions:
    """What `ajet-console run engine --backend torch` was started with; empty values are unset."""

    model: str = ""
    """Folder, GGUF file or name of the model; empty uses the job's `ajet.model.path`."""
    device: str = ""
    """`cuda`, `cuda:1`, `mps` or `cpu`; empty uses the fastest one present."""
    dtype: str = ""
    """`bfloat16` or `float32`; empty uses bfloat16 on an NVIDIA card that has it, else
    float32: also on MPS and on the processor."""
    lora_rank: int | None = None
    """None uses the job's, else `DEFAULT_RANK`."""
    full: bool = False
    """Train all weights instead of LoRA."""
    context: int | None = None
    """None uses the job's `ajet.rollout.max_model_len`, else `DEFAULT_CONTEXT`."""
    max_memory: float | None = None
    """Gigabytes (10^9 bytes) of device memory to use at most; None uses what is free."""
