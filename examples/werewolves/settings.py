"""Settings of a run: the server's job, and the section `werewolves`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta

from ajet_swarm import AgentJetJob
from ajet_swarm.common.errors import UsageError
from ajet_swarm.job.tree import flat
from examples.werewolves.game import side_of
from examples.werewolves.prompts import Limits

Role = Literal["werewolf", "seer", "witch", "hunter", "villager"]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section `werewolves`.

    Attributes:
        trainable_targets: Roles that the trained policy plays; a static model plays the others.
        discard_episode_timeout: Seconds after which the server takes an idle episode back.
        days: Of a game, at most.
        deals: Who is what, in so many ways, again and again; 0 deals anew each time.
        answer_tokens: Longest answer that is asked for.
        prompt: Limits of the prompts.
        static_prompt: Limits of those of the static model.
    """

    trainable_targets: Annotated[tuple[Role, ...], Meta(min_length=1)] = ("werewolf", "seer")
    discard_episode_timeout: Annotated[float, Meta(gt=0)] = 240.0
    days: Annotated[int, Meta(ge=1)] = 10
    deals: Annotated[int, Meta(ge=0)] = 0
    answer_tokens: Annotated[int, Meta(ge=1)] = 256
    prompt: Limits = Limits()
    static_prompt: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Settings:
    """One run.

    Attributes:
        job: What the server is started with.
        own: The section of the file.
        idle: Seconds after which the server takes an idle episode back; no game lasts longer.
        patience: Seconds that a start, an update or a pair of free episodes may take.
    """

    job: AgentJetJob
    own: Section
    idle: float
    patience: float = 600.0

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the trained sides; each has its own episode in every game."""
        return tuple(dict.fromkeys(map(side_of, self.own.trainable_targets)))

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
    try:
        own = msgspec.convert(tree.get("werewolves") or {}, Section)
        targets = msgspec.convert(roles.split(","), tuple[Role, ...]) if roles else None
    except msgspec.ValidationError as error:
        raise UsageError(f"werewolves: {error}", str(path)) from error
    own = msgspec.structs.replace(own, trainable_targets=targets or own.trainable_targets)
    wanted = dict(flat({"ajet": tree["ajet"]}))
    if model := os.environ.get("REMOTE_MODEL_PATH"):
        wanted["ajet.model.path"] = model
    if updates is not None:
        wanted["ajet.trainer_common.total_training_steps"] = updates
    settings = Settings(AgentJetJob(overrides=wanted), own, idle or own.discard_episode_timeout)
    if int(settings.job.batch_size) % len(settings.sides):
        size = settings.job.batch_size
        raise UsageError(f"train_batch_size {size} cannot be shared by both sides", str(path))
    return settings
