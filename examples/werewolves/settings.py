"""Settings of a run: the server's job, and the section `werewolves`."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ajet_swarm import AgentJetJob
from ajet_swarm.common.errors import UsageError
from examples.werewolves.game import ROLES, side_of
from examples.werewolves.prompts import Limits

_FIELDS = {
    "trainable_targets": list,
    "discard_episode_timeout": (int, float),
    "days": int,
    "deals": int,
    "answer_tokens": int,
    "prompt": dict,
    "static_prompt": dict,
}
_PROMPT = {"digest": int, "speech": int, "rules": bool}


@dataclass(frozen=True, slots=True)
class Settings:
    """One run.

    Attributes:
        job: What the server is started with.
        trainable: Roles that the trained policy plays; a static model plays the others.
        idle: Seconds after which the server takes an idle episode back; no game lasts longer.
        days: Of a game, at most.
        deals: Who is what, in so many ways, again and again; 0 deals anew each time.
        answer_tokens: Longest answer that is asked for.
        limits: Of the prompts.
        static_limits: Of those of the static model.
        patience: Seconds that a start, an update or a pair of free episodes may take.
    """

    job: AgentJetJob
    trainable: tuple[str, ...]
    idle: float
    days: int
    deals: int
    answer_tokens: int
    limits: Limits
    static_limits: Limits
    patience: float = 600.0

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the trained sides; each has its own episode in every game."""
        return tuple(dict.fromkeys(map(side_of, self.trainable)))

    @property
    def seeds(self) -> int:
        """Return the number of deals of a batch; each is a task of every side."""
        return max(1, int(self.job.batch_size) // len(self.sides))

    @property
    def games(self) -> int:
        """Return the number of concurrent games."""
        return max(1, int(self.job.max_env_worker) // len(self.sides))


def load(
    path: Path, updates: int | None = None, roles: str = "", idle: float | None = None
) -> Settings:
    """Read a file; arguments take precedence over it, and REMOTE_MODEL_PATH over its model.

    Raises:
        UsageError: it cannot be meant; says which key.
    """
    try:
        tree = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"cannot be read: {' '.join(str(error).split())}", str(path)) from error
    if not isinstance(tree, dict) or not isinstance(tree.get("ajet"), dict):
        raise UsageError("has no section `ajet`", str(path))
    own = _section(tree.get("werewolves"), _FIELDS, f"{path}: werewolves")
    prompt, static = (
        Limits(**_section(own.get(name), _PROMPT, f"{path}: werewolves.{name}"))
        for name in ("prompt", "static_prompt")
    )
    targets = roles.split(",") if roles else own.get("trainable_targets", ["werewolf", "seer"])
    unknown = [one for one in targets if one not in ROLES]
    if unknown or not targets:
        raise UsageError(
            f"no such role: {unknown}", str(path), f"Of {', '.join(dict.fromkeys(ROLES))}"
        )
    settings = Settings(
        job=_job(tree["ajet"], updates),
        trainable=tuple(targets),
        idle=float(idle or own.get("discard_episode_timeout", 240)),
        days=own.get("days", 10),
        deals=own.get("deals", 0),
        answer_tokens=own.get("answer_tokens", 256),
        limits=prompt,
        static_limits=static,
    )
    if int(settings.job.batch_size) % len(settings.sides):
        raise UsageError(
            f"train_batch_size {settings.job.batch_size} cannot be shared by both sides", str(path)
        )
    return settings


def _job(tree: Mapping[str, Any], updates: int | None) -> AgentJetJob:
    wanted = dict(_flat(tree, "ajet"))
    if model := os.environ.get("REMOTE_MODEL_PATH"):
        wanted["ajet.model.path"] = model
    if updates is not None:
        wanted["ajet.trainer_common.total_training_steps"] = updates
    return AgentJetJob(overrides=wanted)


def _section(values: Any, kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError("is no mapping", where)
    for key, value in values.items():
        if key not in kinds:
            raise UsageError(f"unknown key {key!r}", where, f"One of {', '.join(kinds)}")
        sane = isinstance(value, kinds[key]) and (value is True or value is False) == (
            kinds[key] is bool
        )
        if not sane or (isinstance(value, int | float) and value < 0):
            raise UsageError(f"`{key}` is {value!r:.80}", where)
    return values


def _flat(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}.{key}")
        else:
            yield f"{above}.{key}", value
