"""What a script hands around: tasks, what came of an episode, where an episode is served."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.model_methods import Model


@dataclass(slots=True, init=False)
class Task(Model):
    """What an episode is about. As with AgentJet's, fields it does not have are ignored (and named
    in the log).

    Attributes:
        main_query: What is asked.
        init_messages: Chat messages to begin with; empty when the query is all.
        task_id: Names the GRPO group on the server; an end needs one.
        env_type: Kind of world, for agents that have several.
        metadata: Anything else: a reference answer, the row it came from.

    Raises:
        SwarmError: a field is of another kind.
    """

    main_query: str = ""
    init_messages: list[dict[str, Any]] = field(default_factory=list)
    task_id: str = ""
    env_type: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        main_query: str = "",
        init_messages: list[dict[str, Any]] | None = None,
        task_id: str = "",
        env_type: str = "",
        metadata: dict[str, Any] | None = None,
        **ignored: Any,
    ) -> None:
        self.main_query = main_query
        self.init_messages = [] if init_messages is None else init_messages
        self.task_id = task_id
        self.env_type = env_type
        self.metadata = {} if metadata is None else metadata
        self._ignore(ignored)
        self.__post_init__()

    def __post_init__(self) -> None:
        self.task_id = str(self.task_id)
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                told = type(getattr(self, name)).__name__
                raise SwarmError(
                    f"`{name}` is a {told}, not a {kind.__name__}", f"task {self.task_id[:80]}"
                )

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """A task from its fields; others are ignored.

        Raises:
            SwarmError: a field is of another kind.
        """
        return cls(**{one.name: given[one.name] for one in fields(cls) if one.name in given})


_KINDS: dict[str, type] = {
    "main_query": str,
    "init_messages": list,
    "env_type": str,
    "metadata": dict,
}


@dataclass(slots=True, init=False)
class WorkflowOutput(Model):
    """What came of an episode; `metadata["task_id"]` is filled in when it is sent. Fields it does
    not have are ignored, as with a `Task`.

    Attributes:
        is_success: Whether it is solved, for the server's figures.
        metadata: Anything to keep with the sample.
        reward: One finite number; a list or None is refused when the episode is ended, since a
            server says yes to them and drops the episode.
        log_metrics: Names to a number, a list of numbers or a dict.
    """

    reward: float | list[float] | None = None
    is_success: bool | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    log_metrics: dict[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        reward: float | list[float] | None = None,
        is_success: bool | None = None,
        metadata: dict[str, Any] | None = None,
        log_metrics: dict[str, Any] | None = None,
        **ignored: Any,
    ) -> None:
        self.reward = reward
        self.is_success = is_success
        self.metadata = {} if metadata is None else metadata
        self.log_metrics = {} if log_metrics is None else log_metrics
        self._ignore(ignored)


@dataclass(slots=True)
class WorkflowTask:
    """A task on its way through one episode, as AgentJet's own workflows take it."""

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
    """Where an episode's model is called: any OpenAI client takes the first two."""

    base_url: str = ""
    api_key: str = ""
    episode_uuid: str = ""
    model: str = "reserved_field"
    """Any name will do: the server serves the policy that is trained."""

    def as_raw_openai_sdk_client(self, **given: Any) -> Any:
        """An `openai.AsyncOpenAI` for this episode, as AgentJet's gives.

        Args:
            given: More of its arguments, such as `timeout`.

        Raises:
            SwarmError: the package is not installed.
        """
        try:
            from openai import AsyncOpenAI
        except ImportError as error:
            raise SwarmError(
                "the package `openai` is not installed", "episode", "pip install openai"
            ) from error
        return AsyncOpenAI(base_url=self.base_url, api_key=self.api_key, **given)

    def __repr__(self) -> str:  # a key must not get into logs
        return f"OpenaiBaseUrlAndApiKey({self.base_url}, episode {self.episode_uuid})"
