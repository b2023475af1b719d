"""The small interface by which the protocol side knows a policy: sample, train, save.

Nothing in the server imports numpy or knows what kind of model answers; another policy backend
is one class that satisfies `PolicyBackend`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ajet_swarm.common.errors import AjetError


class UnknownTokenError(ValueError):
    """A prompt contains a token id outside the policy's vocabulary."""


class SaveError(RuntimeError):
    """A checkpoint could not be written; the message gives the file and the reason."""


class WeightsError(AjetError):
    """Weights on disk cannot be used."""


class CheckpointError(WeightsError):
    """A request about a checkpoint is invalid: its name, its number or its file."""


class NoCheckpointError(WeightsError):
    """No checkpoint has the given name."""


LATEST = "latest"
"""Name of the checkpoint that every update replaces."""


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
    stop_reason: str | None = None
    """The stop text that ended it; None when it ended by itself."""


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One sequence of an episode, ready to train on: a call, or several that extend each other.

    The sequence is `prompt_tokens + tokens`; later turns' context lies inside `tokens`, masked.
    """

    task_id: str
    """Names the GRPO group."""
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """One for each of `tokens`; those of masked positions are ignored, whatever they are."""
    reward: float
    mask: tuple[bool, ...] | None = None
    """One for each of `tokens`: False is context, without loss. None means all were sampled."""
    episode: str = ""
    """Names the episode, which may be several samples but is one reward of its group. Empty: this
    sample alone."""


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What one GRPO update is done with. Source: measured defaults of the recipe."""

    lr: float = 5e-4
    adam_eps: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epochs: int = 2
    clip: float = 0.2
    dual_clip: float = 3.0
    """Ratio beyond which a bad answer is pushed down no further."""
    kl: float = 0.1
    """Weight of the k3 estimate of KL(policy || reference)."""
    kl_form: str = "k3+"
    """`k3` as a loss, or `k3+` with the gradient of the true KL; see `objective`."""
    advantage: str = "damped"
    """`damped`, or the field's `standard`; see `objective.advantages`."""
    damping: float = 0.2
    """Added to the group's standard deviation in the damped advantage."""
    frozen: int = 0
    """Parts nearest the input that stay as shipped: the tokens, then block after block; 0 trains
    everything."""
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

    def spell(self, tokens: Sequence[int]) -> list[str]:
        """What each token reads as, for people; control tokens by a name of theirs."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`; control tokens are nothing."""

    async def sample(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Draw one answer; concurrent calls are batched. Cancelling frees its slot.

        Args:
            prompt: From `render`.
            params: How to draw.
            on_text: Called on the caller's event loop with each new piece of the text as it is
                drawn, never after this call has ended. Pieces hold whole characters, nothing that
                a stop text or a tool call would take back, and together are `Completion.text`.
        """

    async def logprobs(self, prompt_tokens: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Natural log-prob of each of `tokens` after those before it, by the weights held now."""

    async def train(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """One update on the batch; weights, optimizer and step are saved before it returns.

        Raises:
            SaveError: the update was done but could not be written; the weights are kept in memory.
        """

    async def checkpoint(self, name: str) -> None:
        """Save the state held now under a name, beside what `train` saves; replaces an older one.

        Raises:
            SaveError: it could not be written; nothing that was saved is lost.
            AjetError: the name cannot be used, or the policy keeps nothing.
        """

    async def reset(self) -> None:
        """Back to the shipped base weights, step 0, fresh optimizer."""

    async def close(self) -> None:
        """Stop the worker; cancels what is being sampled."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is known of a checkpoint without reading its weights."""

    name: str
    step: int
    """Global step of its weights; -1 when it is damaged."""
    bytes: int
    at: float
    """When it was saved, seconds since 1970."""
    base: str
    """Names the weights it was trained from."""
    kept: bool
    """Made by the engine for itself: prune leaves it alone."""
    damaged: bool = False


class CheckpointManager(Protocol):
    """What is saved of a policy. Methods block; those marked so want the policy closed.

    All raise AjetError for what can not be done, SaveError for what can not be written.
    """

    def check_name(self, name: str) -> None:
        """Raise CheckpointError unless a checkpoint can be saved under this name."""

    def listed(self) -> Sequence[Checkpoint]:
        """All checkpoints, newest first."""

    def prune(self, keep: int) -> Sequence[str]:
        """Delete all but the newest `keep` named ones; returns their names."""

    def step(self) -> int:
        """Global step that the next opening begins at."""

    def save(self, name: str) -> None:
        """Keep the saved policy under a name too; wants it closed."""

    def restore(self, name: str) -> None:
        """Make a checkpoint, or `base`, the one to go on from; wants the policy closed."""

    def export(self, name: str, half: bool = False) -> bytes:
        """Weights as safetensors, float16 when `half`."""

    def take(self, name: str, data: bytes) -> None:
        """Keep weights in the safetensors form under a name; wants the policy closed."""


class ExperimentStore(Protocol):
    """The saved state of every experiment, and the choice of the experiment to train."""

    @property
    def folder(self) -> Path:
        """Folder of the chosen experiment."""

    def choose(self, name: str) -> bool:
        """Choose the experiment to train; return False when it was chosen already."""

    def saved_step(self, name: str) -> int:
        """Return the saved global step of an experiment, 0 when nothing is saved. Reads files."""

    def keeper(self) -> CheckpointManager | None:
        """Return the checkpoints of the chosen experiment; None when nothing is ever saved."""


class Decoder(Protocol):
    """What a tokenizer is asked for."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Bytes of `ids`; tags are nothing."""


class TextCodec(Decoder, Protocol):
    """How a policy reads and writes text."""

    @property
    def name(self) -> str:
        """What to call the policy, for people."""

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Hyperparameters that no job sets and that differ from the usual ones."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        context: int,
    ) -> Prompt:
        """Chat messages to a prompt that leaves room in `context` tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`; tags are nothing."""

    def spell(self, ids: Sequence[int]) -> list[str]:
        """What each id reads as, tags by name."""
