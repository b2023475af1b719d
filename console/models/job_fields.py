"""Fields of the job form. Importing this module loads no YAML."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ajet_swarm.common.errors import UsageError
from ajet_swarm.job import schema


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the form."""

    name: str
    path: str
    label: str
    about: str
    """Its effect."""

    @property
    def kind(self) -> str:
        """`text`, `int`, `float` or `rule`."""
        key = schema.KEYS[self.path]
        if key.least is None:
            return "rule" if key.choices else "text"
        return "int" if key.whole else "float"

    @property
    def range(self) -> str:
        """Its accepted values and AgentJet's default, in words."""
        key = schema.KEYS[self.path]
        most = "" if math.isinf(key.most) else f" to {key.most:g}"
        words = [f"{key.least:g}{most or ' or more'}"] if key.least is not None else []
        if key.path in schema.DEFAULTS and self.kind != "rule":
            words.append(f"AgentJet's default is {key.default}")
        return "; ".join(words)


FIELDS: Final[Sequence[Field]] = (
    Field("model", schema.MODEL, "Model", "The model to train: a folder or name on the server"),
    Field(
        "gpus",
        schema.GPUS,
        "GPUs",
        "GPUs of each node of an AgentJet server; 8 are assumed if empty",
    ),
    Field("nodes", schema.NODES, "Nodes", "Machines of the server; else 1"),
    Field("batch", schema.BATCH, "Tasks a step", "Tasks per update"),
    Field("repeats", schema.REPEAT, "Repeats", "Episodes per task: the candidates of a group"),
    Field("lr", schema.LEARNING_RATE, "Learning rate", "Size of an update's step"),
    Field("epochs", schema.EPOCHS, "Epochs", "Passes over a batch in one update"),
    Field("kl", schema.KL, "KL", "Pull towards the reference policy; 0 for none"),
    Field("temperature", schema.TEMPERATURE, "Temperature", "Spread of the sampled answers"),
    Field("rule", schema.STOP_RULE, "A batch is full", "When the update begins"),
    Field("prompt", schema.PROMPT, "Prompt", "Most tokens of a prompt; empty: server default"),
    Field("response", schema.RESPONSE, "Response", "Most tokens of all answers of an episode"),
    Field("turn", schema.TURN, "One turn", "Most tokens of one answer"),
    Field("window", schema.WINDOW, "Window", "Tokens in the context window; prompt + response"),
)
BY_NAME: Final[Mapping[str, Field]] = {field.name: field for field in FIELDS}
RULES: Final[Mapping[str, str]] = {
    "tasks": "rollout_until_finish_enough_tasks",
    "episodes": "rollout_until_finish_enough_episodes",
    "non-dummy tasks": "rollout_until_finish_enough_non_dummy_tasks",
    "any client agrees": "rollout_until_any_client_agree_sync_weight",
    "all clients agree": "rollout_until_all_clients_agree_sync_weight",
}
"""Short names of the stop rules."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Values for some fields of a job, for one purpose."""

    key: str
    name: str
    about: str
    """What it is good for."""
    values: Mapping[str, str]
    """Field -> value; empty for the whole job that the proxy makes for the server."""


PRESETS: Final = {
    "hand": Preset("h", "Rating", "you rate: a vote or two make an update", {}),
    "fast": Preset(
        "f",
        "Fast",
        "an effect soon: 2 tasks an update, which makes it unsteady",
        {"batch": "2", "repeats": "4", "epochs": "2"},
    ),
    "careful": Preset(
        "c",
        "Careful",
        "a policy in use: 16 tasks of 8 answers an update, in one pass",
        {"batch": "16", "repeats": "8", "epochs": "1"},
    ),
}
"""They leave model, learning rate and KL as they are, whose good values depend on the model."""


class FieldError(UsageError):
    """Error of one field; `field` is its name."""

    def __init__(self, field: Field, what: str, todo: str) -> None:
        self.field = field.name
        super().__init__(what, field.label, todo)


def field_of(path: str) -> Field | None:
    """Return the field that shows a key, if there is one."""
    return next((field for field in FIELDS if field.path == path), None)
