"""A training job: parser of a client's YAML tree into the few values this engine uses.

AgentJet's whole expanded tree is accepted. `_NUMBERS` has the bounds of each number; values that
equal AgentJet's own defaults count as unset, because an operator has not chosen them. Model, LoRA
and window apply to a policy of the torch backend alone (`JobSupport`). Names and defaults:
protocol section 10.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from ajet_swarm.job.schema import (
    BATCH,
    DEFAULTS,
    EPOCHS,
    EXPERIMENT,
    GPUS,
    KL,
    LEARNING_RATE,
    MODEL,
    NODES,
    PROMPT,
    RANK,
    REPEAT,
    RESPONSE,
    STOP_RULE,
    STOP_RULES,
    TEMPERATURE,
    TURN,
    WINDOW,
)
from ajet_swarm.job.tree import JobError, parse
from ajet_swarm.protocol.job_secrets import quoted
from engine.interface import Hyperparameters

ENOUGH_EPISODES, ENOUGH_TASKS, ENOUGH_NON_DUMMY, ANY_AGREES, ALL_AGREE = STOP_RULES

_ALGORITHMS = ("grpo", "grpo_vectorized")
_ADVANTAGES = ("damped", "standard")
_KL_FORMS = {"k3": "k3", "k3+": "k3+", "low_var_kl+": "k3+"}
"""VERL's names. AgentJet's default `low_var_kl` counts as unset, like all its defaults."""

_STEPS = "ajet.trainer_common.total_training_steps"
_PARALLEL = "ajet.rollout.tensor_model_parallel_size"
_ALGORITHM = "ajet.trainer_common.algorithm.adv_estimator"
_ADVANTAGE = "ajet.embedded.advantage"
_KL_TYPE = "ajet.trainer_common.kl_loss_type"
_USE_KL = "ajet.trainer_common.use_kl_loss"
_KL_REWARD = "ajet.trainer_common.use_kl_in_reward"
_TARGETS = "ajet.lora.target_modules"

_NUMPY_MODEL = "tiny"
"""Model of a default job of this program; it names no model of the torch backend."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class _Number(NamedTuple):
    """A number of a job."""

    path: str
    most: float
    least: float = 1
    """Inclusive; exclusive with `positive`."""
    positive: bool = False
    whole: bool = True
    clamp: bool = False
    """Lower a value over `most` to it instead of refusing it."""
    lenient: bool = False
    """Ignore an invalid value with a note: not every backend uses it."""
    own: str = ""
    """Whether AgentJet's default counts as unset: `noted`, `quiet`, or empty for no."""


_HYPER: Final = {
    "temperature": _Number(TEMPERATURE, 5, 0, positive=True, whole=False, own="noted"),
    "lr": _Number(LEARNING_RATE, 1, 0, positive=True, whole=False, own="noted"),
    "kl": _Number(KL, 100, 0, whole=False, own="noted"),
    "grad_clip": _Number(
        "ajet.trainer_common.optim.grad_clip", 1e6, 0, positive=True, whole=False, own="noted"
    ),
    "damping": _Number("ajet.embedded.damping", 100, 0, positive=True, whole=False),
    "epochs": _Number(EPOCHS, 100, own="noted"),
}
"""Field of `Hyperparameters` -> its number."""
_NUMBERS: Final = {
    "batch_size": _Number(BATCH, 100_000),
    "num_repeat": _Number(REPEAT, 1024),
    "max_env_worker": _Number("ajet.rollout.max_env_worker", 4096, clamp=True),
    "max_cached_episodes": _Number(
        "ajet.swarm_mode_sample_collection_max_cached_episodes", 1_000_000, clamp=True
    ),
    "top_p": _Number("ajet.rollout.top_p", 1, 0, positive=True, whole=False),
    "max_tokens": _Number(TURN, 1_000_000, clamp=True, lenient=True, own="noted"),
    "save_freq": _Number("ajet.trainer_common.save_freq", 1e9, -math.inf, whole=False, clamp=True),
    "total_training_steps": _Number(_STEPS, 10**9),
    "weight_decay": _Number(
        "ajet.trainer_common.optim.weight_decay", 10, 0, whole=False, lenient=True, own="quiet"
    ),
    "lora_rank": _Number(RANK, 4096, 0, lenient=True, own="quiet"),
    "lora_alpha": _Number("ajet.lora.lora_alpha", 65536, 0, lenient=True, own="quiet"),
    "max_model_len": _Number(WINDOW, 10_000_000, lenient=True, own="quiet"),
    "max_response_length": _Number(RESPONSE, 10_000_000, lenient=True, own="quiet"),
    "gpus": _Number(GPUS, 100_000, lenient=True),
    "tensor_parallel": _Number(_PARALLEL, 100_000, lenient=True),
}
"""Field of `Job` -> its number."""
_NODES: Final = _Number(NODES, 100_000, lenient=True)
_PROMPT: Final = _Number(PROMPT, 10_000_000, lenient=True, own="quiet")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSupport:
    """What the running backend does with the values of a job that not every backend uses."""

    loads_models: bool = False
    """Whether it trains models of any size, with LoRA or in full."""
    model: str = ""
    """Model that the engine was started with; empty with `loads_models` trains that of the job."""
    lora_rank: int | None = None
    """Rank of LoRA that the engine was started with; None uses that of the job."""
    full: bool = False
    """Whether all weights are trained instead of LoRA."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is trained, and when a batch is full."""

    batch_size: int = 4
    """Tasks per batch (B)."""
    num_repeat: int = 4
    """Episodes per task (R)."""
    method: str = ENOUGH_TASKS
    max_env_worker: int = 128
    max_cached_episodes: int = 9999
    temperature: float = 1.0
    """Sampling temperature of train episodes."""
    top_p: float = 1.0
    max_tokens: int | None = None
    """Maximum answer length in tokens; None uses the default of the backend."""
    save_freq: int = 20
    """Updates between two named checkpoints, 0 for none; every update is saved in any case."""
    total_training_steps: int | None = None
    experiment_name: str = ""
    hyper: Hyperparameters = field(default_factory=Hyperparameters)
    model_path: str = ""
    """Model that the job requests; see `JobSupport`."""
    weight_decay: float | None = None
    lora_rank: int | None = None
    """Requested rank of LoRA; None when unset."""
    lora_alpha: int | None = None
    lora_targets: tuple[str, ...] = ()
    """Names of the modules that LoRA trains; empty is every linear layer."""
    max_model_len: int | None = None
    """Requested window in tokens, prompt and answer together; None when unset."""
    max_response_length: int | None = None
    """Maximum tokens of all answers of an episode together; None when unset."""
    gpus: int = 1
    """Number of GPUs that the job asks for; 1 when unset."""
    tensor_parallel: int = 1
    """Number of GPUs over which the job splits the model for sampling; 1 when unset."""
    notes: tuple[str, ...] = ()
    """Log lines about values that were not applied as written."""

    @property
    def slots(self) -> int:
        """Number of episodes open at the same time (protocol section 7)."""
        return min(self.batch_size, math.ceil(self.max_env_worker / self.num_repeat)) * (
            self.num_repeat
        )

    def checkpoint_name(self, step: int) -> str:
        """Return the name of the checkpoint after `step` updates."""
        run = _UNSAFE.sub("-", self.experiment_name).strip("-.")[:48]
        return f"{run}-step-{step:06d}" if run else f"step-{step:06d}"

    def already_trained(self, step: int) -> str:
        """Return why a policy at `step` needs no training by this job; empty when steps remain."""
        total = self.total_training_steps
        if total is None or step < total:
            return ""
        return (
            f"{_STEPS}: {total} steps are asked for and the policy has {step} already. "
            "Ask for more, or reset the policy."
        )

    def override_notes(
        self, policy: str, context: int, support: JobSupport | None = None
    ) -> list[str]:
        """Return log lines about requested values that do not apply to this policy.

        Args:
            policy: Name of the policy.
            context: Its window in tokens.
            support: What the running backend uses; None for the numpy backend.
        """
        if support is not None and support.loads_models:
            return list(self._notes_of_torch(context, support))
        return list(self._notes_of_numpy(policy, context, support))

    def _notes_of_numpy(
        self, policy: str, context: int, support: JobSupport | None
    ) -> Iterator[str]:
        if self.model_path and self.model_path != (support.model if support else ""):
            yield f"{MODEL}: {self.model_path!r} is not loaded here, {policy} is trained"
        if self.lora_rank is not None:
            rank = f"{RANK} {self.lora_rank}"
            yield f"{rank}: LoRA is ignored, the policy's own weights are trained"
        if self.max_tokens is not None and self.max_tokens > context // 2:
            yield (
                f"{TURN}: answers have at most {context // 2} tokens, not {self.max_tokens}: "
                f"{policy} reads {context} tokens, prompt and answer together"
            )

    def _notes_of_torch(self, context: int, support: JobSupport) -> Iterator[str]:
        started, rank = "the engine was started with", f"{RANK} {self.lora_rank}"
        if support.model and self.model_path not in ("", _NUMPY_MODEL, support.model):
            yield (f"{MODEL}: {self.model_path!r} is not loaded, {started} --model {support.model}")
        if self.lora_rank is not None and support.full:
            yield f"{rank}: LoRA is not used, {started} --full"
        elif self.lora_rank is not None and support.lora_rank not in (None, self.lora_rank):
            yield f"{rank}: rank {support.lora_rank} is used, {started} --lora {support.lora_rank}"
        if self.max_model_len is not None and self.max_model_len > context:
            yield (
                f"{WINDOW}: the window has {context} tokens, not {self.max_model_len}: "
                "`--context` sets it, up to the model's own"
            )
        if self.max_tokens is not None and self.max_tokens >= context:
            yield (
                f"{TURN}: an answer has what its prompt leaves of {context} tokens, not "
                f"{self.max_tokens}"
            )
        if self.gpus > 1:
            yield (
                f"{GPUS}: the job asks for {self.gpus} GPUs, this engine uses one: the same batch "
                "takes longer"
            )
        elif self.tensor_parallel > 1:
            yield (
                f"{_PARALLEL} {self.tensor_parallel}: this engine uses one GPU, nothing is split"
            )


def parse_job(
    text: str, default_temperature: float = 1.0, recipe: Hyperparameters | None = None
) -> Job:
    """Parse and validate a job.

    Args:
        text: YAML, a mapping at the top.
        default_temperature: For a job that sets none.
        recipe: Hyperparameters that the job does not set; those of the tiny policy by default.

    Raises:
        JobError: broken YAML or an invalid value; names the key.
    """
    tree, _ = parse(text, "yaml_as_string", strict=False)
    if not isinstance(tree, Mapping):
        kind = "nothing" if tree is None else type(tree).__name__
        raise JobError(f"must be a mapping, found {kind}", "yaml_as_string")
    reader = _Reader(tree)
    if prompt := reader.number(_PROMPT):
        reader.notes.append(
            f"{PROMPT} {prompt}: prompts are not limited by it, prompt and answer share the window"
        )
    base = replace(recipe or Hyperparameters(), temperature=default_temperature)
    hyper = replace(base, **{**reader.numbers(_HYPER), **_forms(reader, base)})
    numbers = reader.numbers(_NUMBERS)
    numbers["gpus"] = numbers.get("gpus", 1) * (reader.number(_NODES) or 1)
    numbers["save_freq"] = max(0, int(numbers.get("save_freq", 20)))
    method = reader.text(STOP_RULE) or ENOUGH_TASKS
    if method not in STOP_RULES:
        reader.notes.append(f"{STOP_RULE}: {method!r} is not known, {ENOUGH_TASKS} is used")
        method = ENOUGH_TASKS
    name = reader.text(EXPERIMENT)
    return Job(
        **numbers,
        method=method,
        temperature=hyper.temperature,
        experiment_name="" if name == DEFAULTS[EXPERIMENT] else name,
        hyper=hyper,
        model_path=reader.text(MODEL, lenient=True),
        lora_targets=reader.names(_TARGETS),
        notes=reader.all_notes(),
    )


def _forms(reader: "_Reader", base: Hyperparameters) -> dict[str, Any]:
    """Return the fields of `Hyperparameters` that are no numbers, and a KL of 0 without a loss."""
    algorithm, advantage = reader.text(_ALGORITHM), reader.text(_ADVANTAGE)
    if algorithm not in ("", *_ALGORITHMS):
        what = f"unknown algorithm {algorithm!r}; the embedded engine trains with grpo"
        raise JobError(what, _ALGORITHM)
    if advantage not in ("", *_ADVANTAGES):
        what = f"must be one of {', '.join(_ADVANTAGES)}, found {advantage!r:.80}"
        raise JobError(what, _ADVANTAGE)
    kind = reader.text(_KL_TYPE, lenient=True)
    if kind not in ("", "low_var_kl", *_KL_FORMS):
        reader.notes.append(f"{_KL_TYPE}: {kind!r} is read as {base.kl_form}")
    if reader.get(_KL_REWARD) is True:
        reader.notes.append(f"{_KL_REWARD}: the KL is a part of the loss here, never of the reward")
    forms = {
        "advantage": advantage or base.advantage,
        "kl_form": _KL_FORMS.get(kind, base.kl_form),
    }
    return forms | ({"kl": 0.0} if reader.get(_USE_KL) is False else {})


class _Reader:
    """Typed access to the tree by dotted path; None for an unset key."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self.tree = tree
        self.notes: list[str] = []
        self._defaults: list[str] = []

    def all_notes(self) -> tuple[str, ...]:
        """Return the notes; all values that equal AgentJet's defaults share one line."""
        if not self._defaults:
            return tuple(self.notes)
        defaults = ", ".join(self._defaults)
        line = f"AgentJet's own defaults, the embedded recipe is used instead: {defaults}"
        return (line, *self.notes)

    def get(self, path: str) -> Any:
        node: Any = self.tree
        parents: list[str] = []
        for part in path.split("."):
            if node is None:
                return None
            if not isinstance(node, Mapping):
                raise JobError(f"must be a mapping, found {quoted(node)}", ".".join(parents))
            node = node.get(part)
            parents.append(part)
        return node

    def text(self, path: str, *, lenient: bool = False) -> str:
        """Return a text; empty when it is unset or, if `lenient`, invalid."""
        value = self.get(path)
        if not isinstance(value, Mapping | list):
            return "" if value is None else str(value)
        error = JobError(f"must be a name, found {quoted(value)}", path)
        if not lenient:
            raise error
        self.notes.append(f"{error}: ignored")
        return ""

    def names(self, path: str) -> tuple[str, ...]:
        """Return a list of names, or the names of a text with commas; empty when it is unset."""
        value = self.get(path)
        parts = value.split(",") if isinstance(value, str) else value or []
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            self.notes.append(f"{path}: must be names, found {quoted(value)}: ignored")
            return ()
        names = tuple(stripped for part in parts if (stripped := part.strip()))
        return () if names == (DEFAULTS[path],) else names

    def numbers(self, table: Mapping[str, _Number]) -> dict[str, Any]:
        """Return the numbers of a table that are set, by their names in it."""
        values = {name: self.number(number) for name, number in table.items()}
        return {name: value for name, value in values.items() if value is not None}

    def number(self, number: _Number) -> float | int | None:
        """Return a number within its bounds, None when it is unset."""
        try:
            return self._number(number)
        except JobError as error:
            if not number.lenient:
                raise
            self.notes.append(f"{error}: ignored")
            return None

    def _number(self, number: _Number) -> float | int | None:
        path = number.path
        if (found := self.get(path)) is None:
            return None
        value = _finite(found)
        if value is None:
            raise JobError(f"must be a number, found {quoted(found)}", path)
        if value < number.least or (number.positive and value == number.least):
            bound = "above" if number.positive else "at least"
            raise JobError(f"must be {bound} {number.least:g}, found {found!r:.80}", path)
        if value > number.most and number.clamp:
            self.notes.append(f"{path}: {value:g} is lowered to the maximum, {number.most:g}")
            value = float(number.most)
        if value > number.most:
            raise JobError(f"must be at most {number.most:g}, found {found!r:.80}", path)
        if number.own and math.isclose(value, DEFAULTS[path]):
            if number.own == "noted":
                self._defaults.append(f"{path} {value:g}")
            return None
        if number.whole and not value.is_integer():
            raise JobError(f"must be a whole number, found {value!r}", path)
        return int(value) if number.whole else value


def _finite(value: object) -> float | None:
    """Return a finite float, also from text: YAML 1.1 reads `1e-6` as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
