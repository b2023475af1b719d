"""The small interface by which the protocol side knows a policy: sample, train, save.

Nothing in the server imports numpy or knows what kind of model answers; another policy backend
is one class that satisfies `PolicyBackend`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation."""

    tokens: tuple[int, ...]
    """Token ids that the sampler continues, the assistant tag included."""
    truncated: bool = False
    """True when the middle of the conversation was dropped to fit the window."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one answer is drawn."""

    max_tokens: int = 96
    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    seed: int | None = None
    """None draws a fresh one; equal seeds and weights give equal answers."""
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the policy asks for, in the OpenAI form."""

    name: str
    arguments: str
    """JSON text."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer, with what training needs."""

    text: str
    """Decoded answer; never holds control tokens."""
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    """Sampled ids, the end token included when it was sampled."""
    logprobs: tuple[float, ...]
    """Natural log-prob of each sampled id under the sampling distribution at temperature 1."""
    finish_reason: str
    """"stop", "length" or "tool_calls"."""
    truncated: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    step: int = 0
    """Global step of the weights that sampled it."""


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One episode's call, ready to train on."""

    task_id: str
    """Names the GRPO group."""
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    reward: float


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What one GRPO update is done with. Source: measured defaults of the recipe."""

    lr: float = 5e-4
    adam_eps: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.999)
    epochs: int = 2
    clip: float = 0.2
    kl: float = 0.1
    """Weight of the k3 estimate of KL(policy || reference)."""
    damping: float = 0.2
    """Added to the group's standard deviation in the advantage."""
    grad_clip: float = 1.0
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What one update did; every figure is over the batch it trained on."""

    step: int
    """Global step after the update."""
    samples: int
    tokens: int
    groups: int
    dead_groups: int
    """Groups whose rewards were all equal: no signal."""
    reward_mean: float
    reward_std: float
    kl: float
    clip_fraction: float
    entropy: float
    grad_norm: float
    response_tokens: float
    """Mean sampled tokens an answer."""
    seconds: float
    extra: Mapping[str, float] = field(default_factory=dict)


class PolicyBackend(Protocol):
    """A policy to sample from, train and save. Every method is a coroutine or quick."""

    @property
    def name(self) -> str:
        """What to call it, for people: `tiny-0.9m`."""

    @property
    def context(self) -> int:
        """Window in tokens, prompt and answer together."""

    @property
    def step(self) -> int:
        """Number of policy updates in the weights held now."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
    ) -> Prompt:
        """Chat messages (OpenAI form) to token ids that leave room for `max_tokens` (clamped)."""

    async def sample(self, prompt: Prompt, params: SamplingParams) -> Completion:
        """Draw one answer; concurrent calls are batched. Cancelling frees its slot."""

    async def train(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """One update on the batch; weights, optimizer and step are saved before it returns.

        Raises:
            SaveError: the update was done but could not be written; the weights are kept in memory.
        """

    async def reset(self) -> None:
        """Back to the shipped base weights, step 0, fresh optimizer."""

    async def close(self) -> None:
        """Stop the worker; cancels what is being sampled."""


class SaveError(RuntimeError):
    """A checkpoint could not be written; says where and why."""
