"""The job: configuration of a training run, a small tree of AgentJet's own keys, as YAML.

AgentJet servers merge it over their defaults; the embedded engine reads the same paths (section 10
of the protocol).
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.lazy_yaml import yaml
from ajet_swarm.protocol.job_schema import CHECKED, Key
from ajet_swarm.protocol.job_secrets import quoted, yaml_problem

Job = dict[str, Any]
"""A tree of plain values with one root, `ajet`."""

MODEL = "ajet.model.path"
BATCH = "ajet.data.train_batch_size"
REPEAT = "ajet.rollout.num_repeat"
TEMPERATURE = "ajet.rollout.temperature"
LEARNING_RATE = "ajet.trainer_common.optim.lr"
EPOCHS = "ajet.trainer_common.ppo_epochs"
KL = "ajet.trainer_common.kl_loss_coef"
GPUS = "ajet.trainer_common.n_gpus_per_node"
NODES = "ajet.trainer_common.nnodes"
STOP_RULE = "ajet.swarm_mode_sample_collection_method"
EXPERIMENT = "ajet.experiment_name"
PROJECT = "ajet.project_name"


class JobError(UsageError):
    """A job is invalid, or its file cannot be used."""


TEMPERATURES: Final = {"smollm2": 0.7}
"""Model -> sampling temperature, for models that are incoherent at 1."""


def default_job(model: str = "tiny", experiment: str = "ajet-console") -> Job:
    """Return the default job of the embedded engine: 4 tasks x 4 repeats per step.

    Args:
        model: `ajet.model.path`; a folder or hub name on AgentJet servers.
        experiment: Experiment name; also the run's folder on the server.
    """
    return {
        "ajet": {
            "project_name": "ajet-console",
            "experiment_name": experiment,
            "experiment_dir": "auto",
            "backbone": "verl",
            "enable_swarm_mode": True,
            "enable_interchange_server": True,
            "swarm_mode_sample_collection_method": "rollout_until_finish_enough_tasks",
            "swarm_mode_sample_collection_max_cached_episodes": 9999,
            "model": {"path": model},
            "data": {"train_batch_size": 4},
            "rollout": {
                "num_repeat": 4,
                "temperature": TEMPERATURES.get(model, 1.0),
                "top_p": 1.0,
                "max_env_worker": 128,
            },
            "trainer_common": {
                "algorithm": {"adv_estimator": "grpo"},
                "optim": {"lr": 5e-4, "weight_decay": 0.0, "grad_clip": 1.0},
                "ppo_epochs": 2,
                "mini_batch_num": 1,
                "use_kl_loss": True,
                "kl_loss_coef": 0.1,
                "kl_loss_type": "low_var_kl",
                "total_training_steps": None,
            },
        }
    }


def hand_job(model: str = "tiny", experiment: str = "ajet-console") -> Job:
    """Return the job for rating by hand: one task per step, so that each rated group is one update,
    and a higher learning rate."""
    job = default_job(model, experiment)
    put(job, BATCH, 1)
    put(job, LEARNING_RATE, 8e-4)
    return job


def dump_job(job: Mapping[str, Any]) -> str:
    """Return the job as YAML, with the keys in their order."""
    return str(yaml.safe_dump(copy.deepcopy(dict(job)), sort_keys=False, allow_unicode=True))


@lru_cache(maxsize=4)
def _parsed(text: str) -> Any:
    """Return the YAML of a text: a form reads the same one several times after each change."""
    return yaml.safe_load(text)


def load_job(text: str, where: str = "job", lines: Mapping[str, int] | None = None) -> Job:
    """Parse a job and check the values of known keys; unknown keys are retained.

    Args:
        text: The YAML.
        where: Name of the text in errors, as a path.
        lines: Dotted path -> line, for errors; from 1.

    Raises:
        JobError: it is not YAML, not a mapping with `ajet`, or has an invalid value; gives the
            place.
    """
    try:
        job = copy.deepcopy(_parsed(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        raise JobError(f"not YAML: {yaml_problem(error)}", place, "Correct the file") from None
    except (ValueError, OverflowError):  # for example, an impossible date
        raise JobError("a date or a number cannot be read", where, "Put it in quotes") from None
    if not isinstance(job, dict) or not isinstance(job.get("ajet"), dict):
        raise JobError(
            "there is no mapping `ajet` at the top",
            where,
            "Put everything under `ajet:`, as in `ajet: {model: {path: ...}}`",
        )
    at = {path: f"{where}:{line}" for path, line in (lines or {}).items()}
    for key in CHECKED:
        if (value := get(job, key.path)) is not None:
            put(job, key.path, _checked(key, value, at.get(key.path, where)))
    for path in (LEARNING_RATE, TEMPERATURE):
        if get(job, path) == 0:
            raise JobError(f"`{path}` is 0: nothing would be learned", at.get(path, where))
    model = get(job, MODEL)
    if model is not None and not (isinstance(model, str) and model.strip()):
        place = at.get(MODEL, where)
        raise JobError(f"`{MODEL}` is {quoted(model)}", place, "Give its path or name")
    return job


def get(job: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """Return the value at a dotted path; `default` when it is missing or null."""
    value: Any = job
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return default if value is None else value


def put(job: Job, path: str, value: Any) -> None:
    """Set the value at a dotted path; missing sections are created."""
    *sections, last = path.split(".")
    for key in sections:
        inner = job.get(key)
        if not isinstance(inner, dict):
            inner = job[key] = {}
        job = inner
    job[last] = value


def _checked(key: Key, value: Any, where: str) -> Any:
    """Return the value of a key, a number converted."""
    if key.choices and value not in key.choices:
        todo = f"Give one of: {', '.join(key.choices)}"
        raise JobError(f"`{key.path}` is {quoted(value)}", where, todo)
    if key.least is None:
        return value
    number = _number(value, key.whole)
    if number is None or not key.least <= number < float("inf"):
        todo = f"Give {'a whole' if key.whole else 'a'} number of at least {key.least:g}"
        raise JobError(f"`{key.path}` is {quoted(value)}", where, todo)
    if number > key.most:
        raise JobError(f"`{key.path}` is {number:g}", where, f"At most {key.most:g}")
    return number


def _number(value: Any, whole: bool) -> float | None:
    """Return a value as a number, None if it is not one; YAML reads `5e-4` as text."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if whole:
        return int(number) if number.is_integer() else None
    return number


class _Missing:
    """Marker of a missing key; null is a value."""

    def __repr__(self) -> str:
        return "not there"


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs; `MISSING` on the side without it."""

    path: str
    before: Any
    after: Any


def flat(job: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted path and value of every leaf; lists and empty mappings are leaves.

    Args:
        job: A tree.
        above: Prefix of all paths, ending with a dot.
    """
    for key, value in job.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{path}.")
        else:
            yield path, value


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the differences of two trees: in the order of `after`, then its missing keys."""
    old, new = dict(flat(before)), dict(flat(after))
    changed = [
        Change(path, old.get(path, MISSING), value)
        for path, value in new.items()
        if path not in old or not same(old[path], value)
    ]
    return [*changed, *(Change(path, old[path], MISSING) for path in old if path not in new)]


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal; 1 equals 1.0 but not true."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)
