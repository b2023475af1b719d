"""Interface between the protocol side and a policy: sample, train, save.

The server imports neither numpy nor a policy module; another kind of policy needs one class that
satisfies `PolicyBackend`.
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


class PolicyClosedError(AjetError):
    """The policy was closed before the work finished."""


class NoSnapshotError(AjetError):
    """No snapshot has the given name."""


LATEST = "latest"
"""Name of the checkpoint that every update replaces."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A sequence of policy updates in which every global step occurs once."""

    id: str
    start: str = ""
    """Checkpoint whose weights it began with; empty for the shipped weights, or if unknown."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation."""

    tokens: tuple[int, ...]
    """Token ids to continue, including the opening tag of the answer."""
    truncated: bool = False
    """True when the middle of the conversation was dropped to fit the window."""
    length: int = 0
    """Number of ids of the whole conversation if it is truncated; 0 if they were not counted."""
    tools: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)
    """Tools in the OpenAI form that the answer may call, where the policy reads calls by them."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Parameters for sampling one answer."""

    max_tokens: int = 96
    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    seed: int | None = None
    """None uses a fresh one; equal seeds and weights give equal answers."""
    stop: tuple[str, ...] = ()
    presence_penalty: float = 0.0
    """Subtracted from the logit of each id that the answer already has; 0 is off."""
    frequency_penalty: float = 0.0
    """Subtracted once for each time that the answer has the id; 0 is off."""
    repetition_penalty: float = 1.0
    """Divides the positive logits of ids in the prompt or the answer, multiplies the negative ones;
    1 is off."""
    top_k: int = 0
    """Number of likeliest ids to keep; 0 and -1 keep all."""
    min_p: float = 0.0
    """Ids less likely than this share of the likeliest one are dropped; 0 keeps all."""

    @property
    def penalizes(self) -> bool:
        """True when a penalty changes logits."""
        return (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) != (0, 0, 1)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by the policy, in the OpenAI form."""

    name: str
    arguments: str
    """JSON text."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer with the data that training needs."""

    text: str
    """Decoded answer without control tokens."""
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    """Sampled ids, including the end token if it was sampled."""
    logprobs: tuple[float, ...]
    """Natural log-prob of each sampled id under the distribution at temperature 1."""
    finish_reason: str
    """"stop", "length" or "tool_calls"."""
    truncated: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    step: int = 0
    """Global step of the weights that sampled it."""
    stop_reason: str | None = None
    """Stop text that ended the answer; None when none did."""


@dataclass(frozen=True, slots=True)
class TrainSample:
    """One training sequence of an episode: one call, or several that extend each other.

    The sequence is `prompt_tokens + tokens`; the context of later turns is part of `tokens`,
    masked.
    """

    task_id: str
    """Id of the GRPO group."""
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """One for each of `tokens`; values at masked positions are ignored."""
    reward: float
    mask: tuple[bool, ...] | None = None
    """One for each of `tokens`: False marks context without loss. None: all were sampled."""
    episode: str = ""
    """Id of the episode. An episode may have several samples but counts as one reward of its group;
    empty means that this sample is the whole episode."""

    @property
    def sampled(self) -> tuple[bool, ...]:
        """Whether each of `tokens` was sampled."""
        return (True,) * len(self.tokens) if self.mask is None else self.mask

    @property
    def sampled_logprobs(self) -> list[float]:
        """Log-probs of the sampled tokens."""
        pairs = zip(self.logprobs, self.sampled, strict=True)
        return [logprob for logprob, sampled in pairs if sampled]


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Hyperparameters of one GRPO update; the defaults are measured (docs/measured/learning.md)."""

    lr: float = 5e-4
    adam_eps: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epochs: int = 2
    clip: float = 0.2
    dual_clip: float = 3.0
    """Ratio beyond which a bad answer's probability is not lowered further."""
    kl: float = 0.1
    """Weight of the k3 estimate of KL(policy || reference)."""
    kl_form: str = "k3+"
    """`k3` as a loss, or `k3+` with the gradient of the true KL; see `objective`."""
    advantage: str = "damped"
    """`damped`, or `standard` as in other GRPO trainers; see `objective.advantages`."""
    damping: float = 0.2
    """Added to the group's standard deviation in the damped advantage."""
    frozen: int = 0
    """Layers nearest the input that are not trained: the embedding, then block after block; 0
    trains everything."""
    grad_clip: float = 1.0
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Figures of one update, over the batch it trained on."""

    step: int
    """Global step after the update."""
    samples: int
    tokens: int
    groups: int
    dead_groups: int
    """Groups with equal rewards, which give no signal."""
    reward_mean: float
    reward_std: float
    kl: float
    clip_fraction: float
    entropy: float
    grad_norm: float
    response_tokens: float
    """Mean number of sampled tokens per answer."""
    seconds: float
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WeightSnapshot:
    """A copy of a policy's weights, by its name."""

    name: str
    step: int
    """Number of policy updates in the weights."""


class WeightSnapshots(Protocol):
    """Copies of a policy's weights to sample from while training goes on.

    The newest two are kept, until the policy is closed.
    """

    async def take(self) -> WeightSnapshot:
        """Copy the present weights; return the existing snapshot if they are copied already.

        Raises:
            PolicyClosedError: the policy was closed meanwhile.
        """

    async def sample(
        self, name: str, prompt: Prompt, params: Sequence[SamplingParams]
    ) -> list[Completion]:
        """Sample one answer for each of `params`; calls are answered one after the other.
        Cancelling frees the sampler.

        Args:
            name: The snapshot.
            prompt: From `PolicyBackend.render`.
            params: Sampling parameters of each answer.

        Raises:
            NoSnapshotError: it is unknown, or was dropped.
            PolicyClosedError: the policy was closed meanwhile.
        """


@dataclass(frozen=True, slots=True)
class NoSnapshots:
    """In place of `WeightSnapshots`: the policy takes none."""

    reason: str
    """One sentence."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a policy runs on, and how fast."""

    device: str
    """For people, for example `cuda:0 NVIDIA H100 80GB HBM3`."""
    dtype: str
    """Of the weights, for example `bfloat16`."""
    memory_used: int
    """Bytes that the policy occupies on the device."""
    memory_total: int
    """Bytes of the device."""
    memory_estimate: int | None
    """Bytes estimated before the policy was loaded; None without an estimate."""
    slots: int
    """Number of answers that are sampled at the same time, at most."""
    tokens_per_second: float | None
    """Sampling speed of all answers together, over the last batch; None before any. Answers of
    snapshots are not among them."""
    look_tokens_per_second: float | None
    """Speed at which a look samples a snapshot now, its pauses included; None without one."""
    sampling_seconds: float
    """Time spent sampling since the last update, or since the policy was loaded."""
    update_seconds: float | None
    """Duration of the last update, without `sync_seconds`; None before any."""
    sync_seconds: float | None
    """Time that the last update took to publish its weights to the sampler and to save them; None
    before any."""


class PolicyBackend(Protocol):
    """A policy to sample from, train and save. Methods are coroutines or return at once."""

    @property
    def name(self) -> str:
        """Display name, for example `tiny-0.9m`."""

    @property
    def context(self) -> int:
        """Window in tokens, prompt and answer together."""

    @property
    def step(self) -> int:
        """Number of policy updates in the current weights."""

    @property
    def run(self) -> TrainingRun:
        """The training run of the current weights; a reset or a restored checkpoint begins
        another."""

    @property
    def snapshots(self) -> WeightSnapshots | NoSnapshots:
        """Copies of the weights to sample from, or why there are none."""

    @property
    def hardware(self) -> Hardware | None:
        """What the policy runs on, and how fast; None when it does not measure that."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
    ) -> Prompt:
        """Convert chat messages (OpenAI form) to a prompt that leaves room for `max_tokens`
        (clamped)."""

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Return the display text of each token; control tokens have names."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of `tokens`; control tokens decode to nothing."""

    async def sample(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Sample one answer; concurrent calls are batched. Cancelling frees the slot.

        Args:
            prompt: From `render`.
            params: Sampling parameters.
            on_text: Called on the caller's event loop with each new piece of text, never after this
                call has ended. Pieces contain whole characters, nothing that a stop text or a tool
                call would remove, and together equal `Completion.text`.
        """

    async def logprobs(self, prompt_tokens: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the natural log-prob of each of `tokens` after those before it, by the current
        weights."""

    async def train(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """Run one update on the batch; weights, optimizer and step are saved before it returns.

        Raises:
            SaveError: the update ran but could not be written; the weights stay in memory.
        """

    async def checkpoint(self, name: str) -> None:
        """Save the current state under a name, beside what `train` saves; replaces an older one.

        Raises:
            SaveError: it could not be written; everything saved before is intact.
            AjetError: the name is invalid, or the policy saves nothing.
        """

    async def reset(self) -> None:
        """Restore the shipped base weights, step 0 and a fresh optimizer."""

    async def close(self) -> None:
        """Stop the worker and cancel the answers being sampled."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Description of a checkpoint, read without its weights."""

    name: str
    step: int
    """Global step of its weights; -1 when it is damaged."""
    bytes: int
    at: float
    """Time of the save, seconds since 1970."""
    base: str
    """Digest of the base weights it was trained from."""
    internal: bool
    """Whether the engine made it for its own use; `prune` never deletes it."""
    damaged: bool = False


class CheckpointManager(Protocol):
    """Saved states of a policy. Methods block; some require the policy to be closed.

    All raise AjetError for an invalid request and SaveError for a failed write.
    """

    def check_name(self, name: str) -> None:
        """Raise CheckpointError unless a checkpoint can be saved under this name."""

    def list_all(self) -> Sequence[Checkpoint]:
        """Return all checkpoints, newest first."""

    def prune(self, keep: int) -> Sequence[str]:
        """Delete all but the newest `keep` named ones; return the deleted names."""

    def step(self) -> int:
        """Return the global step from which the next opening continues."""

    def save(self, name: str) -> None:
        """Copy the saved policy to a name; requires it to be closed."""

    def restore(self, name: str) -> None:
        """Continue from a checkpoint, or from `base`; requires the policy to be closed."""

    def export(self, name: str, half: bool = False) -> bytes:
        """Return the weights as safetensors, in float16 when `half`."""

    def import_weights(self, name: str, data: bytes) -> None:
        """Save safetensors weights under a name; requires the policy to be closed."""

    def model(self) -> Mapping[str, Any] | None:
        """Return the description of the base model and of the trained tensors, as JSON; None for a
        policy whose base weights come with the program.

        Raises:
            NoCheckpointError: no policy was opened yet.
        """


class ExperimentStore(Protocol):
    """Saved states of all experiments, and the choice of the one to train."""

    @property
    def folder(self) -> Path:
        """Folder of the selected experiment."""

    def choose(self, name: str) -> bool:
        """Select the experiment to train; return False when it was selected already."""

    def saved_step(self, name: str) -> int:
        """Return the saved global step of an experiment, 0 when nothing is saved. Reads files."""

    def checkpoints(self) -> CheckpointManager | None:
        """Return the checkpoints of the selected experiment; None when nothing is ever saved."""


class Decoder(Protocol):
    """Decoding part of a tokenizer."""

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of `ids`; control tokens are empty."""
