"""Objects of scripts: tasks, outputs of episodes, address and key of an episode's model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.model_methods import Model, model


@model()
class Task(Model):
    """A task for an episode. As in AgentJet, unknown fields are ignored, with a warning.

    Attributes:
        main_query: The question or instruction.
        init_messages: Chat messages to begin with; empty if the query is all.
        task_id: Name of the GRPO group on the server; required for an end.
        env_type: Kind of environment, for agents with several.
        metadata: Any other data, such as a reference answer or the row of the dataset.

    Raises:
        SwarmError: a field has the wrong type.
    """

    main_query: str = ""
    init_messages: list[dict[str, Any]] = field(default_factory=list)
    task_id: str = ""
    env_type: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task_id = str(self.task_id)
        Model.__post_init__(self)

    def _place(self) -> str:
        return f"task {self.task_id[:80]}"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return a task with the fields in `values`; ignore other keys.

        Raises:
            SwarmError: a field has the wrong type.
        """
        return cls(
            **{field.name: values[field.name] for field in fields(cls) if field.name in values}
        )


@model()
class WorkflowOutput(Model):
    """The output of an episode; unknown fields are ignored, as of a `Task`.

    Attributes:
        is_success: Whether the task is solved, for the server's statistics.
        metadata: Data to store with the sample; `task_id` is added when it is sent.
        reward: One finite number. An end with a list or None is refused, since a server would
            accept it and discard the episode.
        log_metrics: Name -> a number, a list of numbers or a dict.
    """

    reward: float | list[float] | None = None
    is_success: bool | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    log_metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class WorkflowTask:
    """State of a task in one episode, as AgentJet's own workflows receive it."""

    env_type: str = ""
    task_id: str = ""
    task_thread_index: int = 0
    task_batch_index: int = 0
    task_tag: str = ""
    episode_uuid: str = ""
    observation_window: dict[str, Any] = field(default_factory=dict)
    llm_inference_fn: Any = None
    tokenizer: Any = None
    task: Task = field(default_factory=Task)
    gym_env: Any = None


@dataclass(frozen=True, slots=True)
class OpenaiBaseUrlAndApiKey:
    """Address and API key of an episode's model, for any OpenAI client."""

    base_url: str = ""
    api_key: str = ""
    episode_uuid: str = ""
    model: str = "reserved_field"
    """Any name works: the server always serves the trained policy."""

    def as_raw_openai_sdk_client(self, **options: Any) -> Any:
        """Return an `openai.AsyncOpenAI` for this episode, as AgentJet does.

        Args:
            options: Its other arguments, such as `timeout`.

        Raises:
            SwarmError: the package is not installed.
        """
        try:
            from openai import AsyncOpenAI
        except ImportError as error:
            raise SwarmError(
                "the package `openai` is not installed", "episode", "pip install openai"
            ) from error
        return AsyncOpenAI(base_url=self.base_url, api_key=self.api_key, **options)

    def __repr__(self) -> str:  # a key must not get into logs
        return f"OpenaiBaseUrlAndApiKey({self.base_url}, episode {self.episode_uuid})"
