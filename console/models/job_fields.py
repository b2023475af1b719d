"""Fields of the job form. Importing this module does not load the protocol package."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ajet_swarm.common.errors import UsageError


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the form."""

    name: str
    path: str
    label: str
    kind: str
    """text, int, float or rule."""
    about: str
    """Its effect, for the line below the form."""


FIELDS: Final[Sequence[Field]] = (
    Field(
        "model",
        "ajet.model.path",
        "Model",
        "text",
        "The model to train: a folder or name on the server",
    ),
    Field(
        "gpus",
        "ajet.trainer_common.n_gpus_per_node",
        "GPUs",
        "int",
        "GPUs of each node of an AgentJet server; 8 are assumed if empty",
    ),
    Field("nodes", "ajet.trainer_common.nnodes", "Nodes", "int", "Machines of the server; else 1"),
    Field("batch", "ajet.data.train_batch_size", "Tasks a step", "int", "Tasks per update"),
    Field(
        "repeats",
        "ajet.rollout.num_repeat",
        "Repeats",
        "int",
        "Episodes per task: the candidates of a group",
    ),
    Field(
        "lr", "ajet.trainer_common.optim.lr", "Learning rate", "float", "Size of an update's step"
    ),
    Field(
        "epochs",
        "ajet.trainer_common.ppo_epochs",
        "Epochs",
        "int",
        "Passes over a batch in one update",
    ),
    Field(
        "kl",
        "ajet.trainer_common.kl_loss_coef",
        "KL",
        "float",
        "Pull towards the reference policy; 0 for none",
    ),
    Field(
        "temperature",
        "ajet.rollout.temperature",
        "Temperature",
        "float",
        "Spread of the sampled answers",
    ),
    Field(
        "rule",
        "ajet.swarm_mode_sample_collection_method",
        "A batch is full",
        "rule",
        "When the update begins",
    ),
    Field(
        "prompt",
        "ajet.data.max_prompt_length",
        "Prompt",
        "int",
        "Most tokens of a prompt; empty: server default",
    ),
    Field(
        "response",
        "ajet.data.max_response_length",
        "Response",
        "int",
        "Most tokens of all answers of an episode",
    ),
    Field(
        "turn",
        "ajet.rollout.max_response_length_in_one_turn",
        "One turn",
        "int",
        "Most tokens of one answer",
    ),
    Field(
        "window",
        "ajet.rollout.max_model_len",
        "Window",
        "int",
        "Tokens in the context window; prompt + response",
    ),
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


class FieldError(UsageError):
    """Error of one field; `field` is its name."""

    def __init__(self, field: Field, what: str, todo: str) -> None:
        self.field = field.name
        super().__init__(what, field.label, todo)


def field_of(path: str) -> Field | None:
    """Return the field that shows a key, if there is one."""
    return next((field for field in FIELDS if field.path == path), None)
