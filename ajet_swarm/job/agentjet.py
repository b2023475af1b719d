"""AgentJet's job object: named arguments over a base YAML, validated, dumped as YAML (section 10
of the protocol)."""

import copy
import logging as logs
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ajet_swarm.common.text import closest
from ajet_swarm.job.schema import (
    DEFAULTS,
    LEARNING_RATE,
    LENGTHS,
    METHOD,
    NODES,
    PATHS,
    RANK,
    REQUIRED,
    SENT,
)
from ajet_swarm.job.tree import (
    Job,
    JobError,
    Notice,
    check_job,
    dump_job,
    flat,
    get,
    lora_problems,
    put,
)

log = logs.getLogger(__name__)

_LORA_MIN_LR: Final = 1e-5


class Config:
    """Access to a job's tree by attribute: `config.ajet.rollout.temperature = 0.7`."""

    def __init__(self, tree: Job) -> None:
        object.__setattr__(self, "_tree", tree)

    def __getattr__(self, name: str) -> Any:
        tree: Job = object.__getattribute__(self, "_tree")
        if name not in tree:
            raise AttributeError(f"there is no `{name}` here; available: {', '.join(tree)}")
        value = tree[name]
        return Config(value) if isinstance(value, dict) else value

    def __setattr__(self, name: str, value: Any) -> None:
        self._tree[name] = value._tree if isinstance(value, Config) else value

    def __dir__(self) -> Iterator[str]:
        yield from (*self._tree, "to_dict")

    def __repr__(self) -> str:
        return f"Config({self._tree!r})"

    def to_dict(self) -> Job:
        """Return a copy of the tree as plain values."""
        return copy.deepcopy(object.__getattribute__(self, "_tree"))


class AgentJetJob:
    """Configuration of a training run, with the named arguments of AgentJet's job.

    Each argument is also an attribute that can be set. An argument that is None keeps the value of
    the base YAML.

    Args:
        ensure_new_experiment: Append a time stamp to the experiment's name.
        base_yaml_config: YAML file, merged over AgentJet's swarm defaults.
        overrides: Dotted path -> value, for settings without an argument:
            `{"ajet.rollout.top_p": 0.9}`.

    Raises:
        JobError: there is no such argument, the file cannot be read, or a value is invalid.
    """

    config: Config

    def __init__(
        self,
        ensure_new_experiment: bool = False,
        base_yaml_config: str | None = None,
        experiment_dir: str | None = None,
        project_name: str | None = None,
        experiment_name: str | None = None,
        logging: str | None = None,
        n_gpu: int | None = None,
        model: str | None = None,
        algorithm: str | None = None,
        num_repeat: int | None = None,
        batch_size: int | None = None,
        swarm_mode: bool | None = None,
        swarm_mode_sample_collection_method: str | None = None,
        max_env_worker: int | None = None,
        backbone: str | None = None,
        max_prompt_length: int | None = None,
        max_response_length: int | None = None,
        max_response_length_in_one_turn: int | None = None,
        max_model_len: int | None = None,
        mini_batch_num: int | None = None,
        lora_rank: int | None = None,
        lora_alpha: int | None = None,
        lora_target_modules: str | None = None,
        lora_load_format: str | None = None,
        layered_summon: bool | None = None,
        gpu_memory_utilization: float | None = None,
        lr: float | None = None,
        ppo_epochs: int | None = None,
        compute_madness_checklist: list[str] | None = None,
        *,
        nnodes: int | None = None,
        tensor_model_parallel_size: int | None = None,
        max_num_seqs: int | None = None,
        use_kl_loss: bool | None = None,
        use_kl_in_reward: bool | None = None,
        kl_penalty_type: str | None = None,
        total_training_steps: int | None = None,
        val_print_to_markdown_file_path: str | None = None,
        train_print_to_markdown_file_path: str | None = None,
        timeline_compare_level: str | None = None,
        ulysses_sequence_parallel_size: int | None = None,
        ppo_max_token_len_per_gpu: int | None = None,
        overrides: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        args = {name: value for name, value in locals().items() if name in PATHS}
        args = {name: value for name, value in args.items() if value is not None}
        if unknown:
            raise _no_argument(next(iter(unknown)))
        _check_lengths_together(args)
        self._logged: set[str] = set()
        self.base_yaml_config = base_yaml_config
        self.ensure_new_experiment = ensure_new_experiment
        self._stamp = time.strftime("%Y%m%d-%H%M%S") if ensure_new_experiment else ""
        self._explicit = {PATHS[name]: value for name, value in args.items()}
        self._explicit |= {_full(path): value for path, value in (overrides or {}).items()}
        self.build_job_from_yaml(base_yaml_config)

    def __getattr__(self, name: str) -> Any:
        if name not in PATHS or "config" not in self.__dict__:
            raise AttributeError(f"a job has no {name!r}")
        return get(self.config._tree, PATHS[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name in PATHS:
            put(self.config._tree, PATHS[name], value)
            self._explicit[PATHS[name]] = value
        else:
            object.__setattr__(self, name, value)

    @property
    def config_as_dict(self) -> Job:
        """A copy of the job's tree."""
        return self.config.to_dict()

    def build_job_from_yaml(self, yaml_path: str | None) -> Job:
        """Rebuild this job: arguments take precedence over the file, the file over the defaults.

        Args:
            yaml_path: The file; None for the defaults alone.

        Returns:
            A copy of the job's tree.

        Raises:
            JobError: the file cannot be read or is not a job; this job is unchanged.
        """
        tree = _default_tree()
        from_file = self._read(yaml_path) if yaml_path is not None else {}
        for path, value in [*flat(from_file), *self._explicit.items()]:
            if value != {}:
                put(tree, path, value)
        if self._stamp:
            name = PATHS["experiment_name"]
            put(tree, name, f"{get(tree, name)}_{self._stamp}")
        self.config = Config(self._validated(tree, yaml_path or "job"))
        self.base_yaml_config = yaml_path
        self._from_file = frozenset(path for path, _ in flat(from_file))
        return self.config.to_dict()

    def log_notices(self, notices: Iterable[Notice], where: str, *, lines: bool = False) -> None:
        """Log notices about this job, each once.

        Args:
            notices: Result of `check_job`.
            where: Name of the job in the log: a path.
            lines: Log the line of each notice, too.
        """
        for notice in notices:
            subject = notice.text.partition(": is ")[0]  # the suggestion depends on the other keys
            if subject not in self._logged:
                self._logged.add(subject)
                place = f"{where}:{notice.line}" if lines and notice.line else where
                log.warning("%s: %s", place, notice.text)

    def _read(self, yaml_path: str) -> Job:
        """Return the job in a file.

        Raises:
            JobError: the file cannot be read, or is not a job.
        """
        try:
            text = Path(yaml_path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise JobError(f"cannot be read: {error}", yaml_path, "Give a YAML file") from error
        checked = check_job(text, yaml_path)
        self.log_notices(checked.notices, yaml_path, lines=True)
        return checked.job

    def _validated(self, tree: Job, where: str) -> Job:
        """Return the tree with numbers converted, and with TCP between several nodes.

        Raises:
            JobError: a value is invalid.
        """
        checked = check_job(dump_job(tree), where)
        self.log_notices(checked.notices, where)
        job = checked.job
        if get(job, PATHS["backbone"]) == "trinity":
            raise JobError("the backbone `trinity` does not support swarms", where, "Use `verl`")
        for _, problem in lora_problems(job):
            raise JobError(problem, where)
        if get(job, RANK) and (lr := get(job, LEARNING_RATE)) <= _LORA_MIN_LR:
            todo = "LoRA needs an lr above 1e-5"
            raise JobError(f"lora_rank is set and lr is {lr:g}", where, todo)
        method, nodes = get(job, METHOD), get(job, NODES, 1)
        if nodes > 1 and method != "tcp":  # a server refuses a job with Unix sockets
            if METHOD in self._explicit:
                raise JobError(
                    f"nnodes is above 1 and {METHOD} is {method!r:.80}", where, "Use tcp"
                )
            put(job, METHOD, "tcp")
        return job

    def to_yaml(self) -> str:
        """Return the job as it is sent: without defaults that every server has itself.

        Raises:
            JobError: a value is invalid.
        """
        tree = self._validated(self.config.to_dict(), "job")
        kept, defaults = {*SENT, *self._explicit, *self._from_file}, dict(flat(_default_tree()))
        sent: Job = {}
        for path, value in flat(tree):
            if path in kept or path not in defaults or defaults[path] != value:
                put(sent, path, value)
        return dump_job(sent)

    def dump_job_as_yaml(self, yaml_path: str) -> str:
        """Write the job to a file, creating missing folders; return the path.

        Raises:
            JobError: the file cannot be written.
        """
        try:
            Path(yaml_path).parent.mkdir(parents=True, exist_ok=True)
            Path(yaml_path).write_text(self.to_yaml(), encoding="utf-8")
        except OSError as error:
            raise JobError(f"cannot be written: {error}", yaml_path) from error
        return yaml_path


def _default_tree() -> Job:
    tree: Job = {}
    for path, value in {**DEFAULTS, **REQUIRED}.items():
        put(tree, path, copy.deepcopy(value))
    return tree


def _full(path: str) -> str:
    return path if path.startswith("ajet.") else f"ajet.{path}"


def _no_argument(name: str) -> JobError:
    similar = closest(name, PATHS)
    suggestion = f": is `{similar[0]}` meant?" if similar else ""
    return JobError(
        f"there is no argument `{name:.80}`{suggestion}",
        "AgentJetJob",
        "Set other keys in a YAML file and name it with base_yaml_config=, or use overrides=",
    )


def _check_lengths_together(args: Mapping[str, Any]) -> None:
    lengths = [name for name, path in PATHS.items() if path in LENGTHS]
    missing = [name for name in lengths if name not in args]
    if missing and len(missing) < len(lengths):
        raise JobError(
            f"of the four lengths {', '.join(missing)} is missing",
            "AgentJetJob",
            f"Give all of {', '.join(lengths)}, or none",
        )
