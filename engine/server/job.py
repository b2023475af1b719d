"""A training job: parser of a client's YAML tree into the few values this engine uses.

AgentJet's whole expanded tree is accepted. Model, LoRA and window apply to a policy of the torch
backend alone (`JobSupport`). Names and defaults: protocol section 10.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from ajet_swarm.common.errors import UsageError
from ajet_swarm.protocol.job_secrets import quoted, yaml_problem
from engine.interface import Hyperparameters

MAX_BYTES = 1_000_000
"""A fully expanded tree takes about 29 kB."""

_MAX_DEPTH = 100

ENOUGH_EPISODES = "rollout_until_finish_enough_episodes"
ENOUGH_TASKS = "rollout_until_finish_enough_tasks"
ENOUGH_NON_DUMMY = "rollout_until_finish_enough_non_dummy_tasks"
ANY_AGREES = "rollout_until_any_client_agree_sync_weight"
ALL_AGREE = "rollout_until_all_clients_agree_sync_weight"
METHODS = (ENOUGH_EPISODES, ENOUGH_TASKS, ENOUGH_NON_DUMMY, ANY_AGREES, ALL_AGREE)

_ALGORITHMS = ("grpo", "grpo_vectorized")
_ADVANTAGES = ("damped", "standard")
_KL_FORMS = {"k3": "k3", "k3+": "k3+", "low_var_kl+": "k3+"}
"""VERL's names. AgentJet's default `low_var_kl` counts as unset, like all its defaults."""

_METHOD = "ajet.swarm_mode_sample_collection_method"
_CACHED = "ajet.swarm_mode_sample_collection_max_cached_episodes"
_BATCH = "ajet.data.train_batch_size"
_REPEAT = "ajet.rollout.num_repeat"
_TEMPERATURE = "ajet.rollout.temperature"
_TOP_P = "ajet.rollout.top_p"
_TURN = "ajet.rollout.max_response_length_in_one_turn"
_WORKERS = "ajet.rollout.max_env_worker"
_ALGORITHM = "ajet.trainer_common.algorithm.adv_estimator"
_LR = "ajet.trainer_common.optim.lr"
_EPOCHS = "ajet.trainer_common.ppo_epochs"
_KL = "ajet.trainer_common.kl_loss_coef"
_USE_KL = "ajet.trainer_common.use_kl_loss"
_STEPS = "ajet.trainer_common.total_training_steps"
_SAVE = "ajet.trainer_common.save_freq"
_CLIP = "ajet.trainer_common.optim.grad_clip"
_KL_TYPE = "ajet.trainer_common.kl_loss_type"
_KL_REWARD = "ajet.trainer_common.use_kl_in_reward"
_NAME = "ajet.experiment_name"
_ADVANTAGE = "ajet.embedded.advantage"
_DAMPING = "ajet.embedded.damping"
_MODEL = "ajet.model.path"
_LORA = "ajet.lora.lora_rank"
_ALPHA = "ajet.lora.lora_alpha"
_TARGETS = "ajet.lora.target_modules"
_WINDOW = "ajet.rollout.max_model_len"
_PROMPT = "ajet.data.max_prompt_length"
_RESPONSE = "ajet.data.max_response_length"
_DECAY = "ajet.trainer_common.optim.weight_decay"
_GPUS = "ajet.trainer_common.n_gpus_per_node"
_NODES = "ajet.trainer_common.nnodes"
_PARALLEL = "ajet.rollout.tensor_model_parallel_size"
_ALL_LINEAR = "all-linear"

_NUMPY_MODEL = "tiny"
"""Model of a default job of this program; it names no model of the torch backend."""
_UNNAMED = "read_yaml_name"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_WORKERS = 4096


class JobError(UsageError):
    """An invalid job; the text has the form `key: reason`."""


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
            lines = self._model_notes(support)
            if self.max_model_len is not None and self.max_model_len > context:
                lines.append(
                    f"{_WINDOW}: the window has {context} tokens, not {self.max_model_len}: "
                    "`--context` sets it, up to the model's own"
                )
            if self.max_tokens is not None and self.max_tokens >= context:
                lines.append(
                    f"{_TURN}: an answer has what its prompt leaves of {context} tokens, not "
                    f"{self.max_tokens}"
                )
            return lines + self._gpu_notes()
        lines = []
        if self.model_path and self.model_path != (support.model if support else ""):
            lines.append(f"{_MODEL}: {self.model_path!r} is not loaded here, {policy} is trained")
        if self.lora_rank is not None:
            lines.append(
                f"{_LORA} {self.lora_rank}: LoRA is ignored, the policy's own weights are trained"
            )
        if self.max_tokens is not None and self.max_tokens > context // 2:
            lines.append(
                f"{_TURN}: answers have at most {context // 2} tokens, not {self.max_tokens}: "
                f"{policy} reads {context} tokens, prompt and answer together"
            )
        return lines

    def _model_notes(self, support: JobSupport) -> list[str]:
        """Return lines about the model and LoRA, where the engine's options differ from the job."""
        lines = []
        if support.model and self.model_path not in ("", _NUMPY_MODEL, support.model):
            lines.append(
                f"{_MODEL}: {self.model_path!r} is not loaded, the engine was started with "
                f"--model {support.model}"
            )
        if self.lora_rank is None:
            return lines
        if support.full:
            lines.append(
                f"{_LORA} {self.lora_rank}: LoRA is not used, the engine was started with --full"
            )
        elif support.lora_rank not in (None, self.lora_rank):
            lines.append(
                f"{_LORA} {self.lora_rank}: rank {support.lora_rank} is used, the engine was "
                f"started with --lora {support.lora_rank}"
            )
        return lines

    def _gpu_notes(self) -> list[str]:
        """Return a line about a job for several GPUs."""
        if self.gpus <= 1 and self.tensor_parallel <= 1:
            return []
        if self.gpus > 1:
            return [
                f"{_GPUS}: the job asks for {self.gpus} GPUs, this engine uses one: the same "
                "batch takes longer"
            ]
        return [f"{_PARALLEL} {self.tensor_parallel}: this engine uses one GPU, nothing is split"]


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
    reader = _Reader(_load(text))
    base = Job()
    temperature = reader.number(_TEMPERATURE, unset=0.9, above=0.0, most=5.0)
    if temperature is None:
        temperature = default_temperature
    name = reader.text(_NAME)
    prompt = _whole(reader.optional(_PROMPT, unset=3000, least=1, most=10_000_000))
    if prompt is not None:
        reader.notes.append(
            f"{_PROMPT} {prompt}: prompts are not limited by it, prompt and answer share the window"
        )
    hyper = _hyper(reader, temperature, recipe or Hyperparameters())
    return Job(
        batch_size=reader.integer(_BATCH, most=100_000) or base.batch_size,
        num_repeat=reader.integer(_REPEAT, most=1024) or base.num_repeat,
        method=reader.method(),
        max_env_worker=reader.integer(_WORKERS, most=_MOST_WORKERS, clamp=True)
        or base.max_env_worker,
        max_cached_episodes=reader.integer(_CACHED, most=1_000_000, clamp=True)
        or base.max_cached_episodes,
        temperature=temperature,
        top_p=reader.number(_TOP_P, above=0.0, most=1.0) or base.top_p,
        max_tokens=reader.length(_TURN, unset=4096),
        save_freq=reader.frequency(_SAVE, base.save_freq),
        total_training_steps=reader.integer(_STEPS, most=10**9),
        experiment_name="" if name == _UNNAMED else name,
        hyper=hyper,
        model_path=reader.lenient_text(_MODEL),
        weight_decay=reader.optional(_DECAY, unset=0.01, most=10.0),
        lora_rank=_whole(reader.optional(_LORA, unset=0, most=4096)),
        lora_alpha=_whole(reader.optional(_ALPHA, unset=16, most=65536)),
        lora_targets=reader.names(_TARGETS, unset=_ALL_LINEAR),
        max_model_len=_whole(reader.optional(_WINDOW, unset=18000, least=1, most=10_000_000)),
        max_response_length=_whole(
            reader.optional(_RESPONSE, unset=15000, least=1, most=10_000_000)
        ),
        gpus=_count(reader, _GPUS) * _count(reader, _NODES),
        tensor_parallel=_count(reader, _PARALLEL),
        notes=reader.all_notes(),
    )


def _count(reader: "_Reader", path: str) -> int:
    """Return a number of GPUs or machines; 1 when it is unset or invalid."""
    return _whole(reader.optional(path, least=1, most=100_000)) or 1


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _hyper(reader: "_Reader", temperature: float, base: Hyperparameters) -> Hyperparameters:
    algorithm = reader.text(_ALGORITHM) or _ALGORITHMS[0]
    if algorithm not in _ALGORITHMS:
        raise JobError(
            f"unknown algorithm {algorithm!r}; the embedded engine trains with grpo", _ALGORITHM
        )
    lr = reader.number(_LR, unset=1e-6, above=0.0, most=1.0)
    kl = reader.number(_KL, unset=0.002, least=0.0, most=100.0)
    clip = reader.number(_CLIP, unset=20.0, above=0.0, most=1e6)
    damping = reader.number(_DAMPING, above=0.0, most=100.0)
    if reader.get(_USE_KL) is False:
        kl = 0.0
    kind = reader.lenient_text(_KL_TYPE)
    if kind not in ("", "low_var_kl", *_KL_FORMS):
        reader.notes.append(f"{_KL_TYPE}: {kind!r} is read as {base.kl_form}")
    if reader.get(_KL_REWARD) is True:
        reader.notes.append(f"{_KL_REWARD}: the KL is a part of the loss here, never of the reward")
    return replace(
        base,
        lr=base.lr if lr is None else lr,
        epochs=reader.integer(_EPOCHS, unset=1, most=100) or base.epochs,
        kl=base.kl if kl is None else kl,
        kl_form=_KL_FORMS.get(kind, base.kl_form),
        advantage=_advantage(reader) or base.advantage,
        damping=base.damping if damping is None else damping,
        grad_clip=base.grad_clip if clip is None else clip,
        temperature=temperature,
    )


def _advantage(reader: "_Reader") -> str:
    form = reader.text(_ADVANTAGE)
    if form and form not in _ADVANTAGES:
        raise JobError(f"must be one of {', '.join(_ADVANTAGES)}, found {form!r:.80}", _ADVANTAGE)
    return form


def _load(text: str) -> Mapping[str, Any]:
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise JobError(f"longer than {MAX_BYTES} bytes", "yaml_as_string")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(text, loader)
        tree = yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = yaml_problem(error) if isinstance(error, yaml.YAMLError) else type(error).__name__
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise JobError(f"not YAML: {why}{place}", "yaml_as_string") from None
    if not isinstance(tree, Mapping):
        kind = "nothing" if tree is None else type(tree).__name__
        raise JobError(f"must be a mapping, found {kind}", "yaml_as_string")
    return tree


def _check_depth(text: str, loader: Any) -> None:
    """Refuse deep nesting: the C loader recurses without limit and would crash the process."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise JobError(f"nested deeper than {_MAX_DEPTH} levels", "yaml_as_string")


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

    def text(self, path: str) -> str:
        value = self.get(path)
        if value is None:
            return ""
        if isinstance(value, (Mapping, list)):
            raise JobError(f"must be a name, found {quoted(value)}", path)
        return str(value)

    def lenient_text(self, path: str) -> str:
        """Return the text of an optional key; empty when it is unset or invalid."""
        try:
            return self.text(path)
        except JobError as error:
            self.notes.append(f"{error}: ignored")
            return ""

    def optional(
        self, path: str, *, unset: float | None = None, least: float = 0.0, most: float
    ) -> float | None:
        """Return a number that not every backend uses; None when it is unset or invalid.

        `unset`, AgentJet's own default, counts as unset and is not noted.
        """
        try:
            number = self.number(path, least=least, most=most)
        except JobError as error:
            self.notes.append(f"{error}: ignored")
            return None
        return None if number is not None and unset == number else number

    def names(self, path: str, *, unset: str) -> tuple[str, ...]:
        """Return a list of names, or the names of a text with commas; empty when it is unset."""
        try:
            value = self.get(path)
        except JobError as error:
            self.notes.append(f"{error}: ignored")
            return ()
        parts = value.split(",") if isinstance(value, str) else value
        if parts is None:
            return ()
        if not isinstance(parts, list) or not all(isinstance(one, str) for one in parts):
            self.notes.append(f"{path}: must be names, found {quoted(value)}: ignored")
            return ()
        names = tuple(stripped for one in parts if (stripped := one.strip()))
        return () if names == (unset,) else names

    def length(self, path: str, *, unset: int) -> int | None:
        """Return a number of tokens; None when it is unset or invalid."""
        try:
            return self.integer(path, unset=unset, most=1_000_000, clamp=True)
        except JobError as error:
            self.notes.append(f"{error}: ignored")
            return None

    def frequency(self, path: str, unset: int) -> int:
        """Return a number of updates; 0, meaning never, for values below 1."""
        number = self.number(path, most=1e9, clamp=True)
        return unset if number is None else max(0, int(number))

    def method(self) -> str:
        name = self.text(_METHOD) or ENOUGH_TASKS
        if name not in METHODS:
            self.notes.append(f"{_METHOD}: {name!r} is not known, {ENOUGH_TASKS} is used")
            return ENOUGH_TASKS
        return name

    def number(
        self,
        path: str,
        *,
        unset: float | None = None,
        above: float | None = None,
        least: float | None = None,
        most: float,
        clamp: bool = False,
    ) -> float | None:
        """Return a finite number within its bounds, None when it is unset.

        Args:
            path: Dotted key.
            unset: AgentJet's own default, which counts as unset.
            above: Exclusive lower bound.
            least: Inclusive lower bound.
            most: Inclusive upper bound.
            clamp: Lower a value over `most` to it instead of refusing it.
        """
        value = self.get(path)
        if value is None:
            return None
        number = _finite(value)
        if number is None:
            raise JobError(f"must be a number, found {quoted(value)}", path)
        if above is not None and number <= above:
            raise JobError(f"must be above {above:g}, found {value!r:.80}", path)
        if least is not None and number < least:
            raise JobError(f"must be at least {least:g}, found {value!r:.80}", path)
        if number > most and clamp:
            self.notes.append(f"{path}: {number:g} is lowered to the maximum, {most:g}")
            return most
        if number > most:
            raise JobError(f"must be at most {most:g}, found {value!r:.80}", path)
        if unset is not None and math.isclose(number, unset):
            self._defaults.append(f"{path} {number:g}")
            return None
        return number

    def integer(
        self, path: str, *, unset: int | None = None, most: int, clamp: bool = False
    ) -> int | None:
        """Return an integer from 1 to `most`, None when it is unset."""
        number = self.number(path, unset=unset, least=1.0, most=float(most), clamp=clamp)
        if number is None:
            return None
        if number != int(number):
            raise JobError(f"must be a whole number, found {number!r}", path)
        return int(number)


def _finite(value: object) -> float | None:
    """Return a finite float, also from text: YAML 1.1 reads `1e-6` as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
