"""Objects of scripts: tasks, outputs, claims, with the methods of AgentJet's pydantic models."""

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self, TypeVar, dataclass_transform, get_origin

import msgspec

from ajet_swarm.protocol.errors import SwarmError, WrongUse

log = logging.getLogger(__name__)

Fields = dict[str, Any]

M = TypeVar("M", bound="Model")

_WARNED: set[tuple[str, str]] = set()
"""Class and field of each warning about an ignored field."""


class Model:
    """Base of dataclasses with pydantic's methods for copies, dicts and JSON.

    Raises:
        WrongUse: a field that is declared as text, truth value, list or dict has another type.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for declared in fields(self):  # type: ignore[arg-type]  # each of them is a dataclass
            kind: Any = get_origin(declared.type) or declared.type
            value = getattr(self, declared.name)
            if kind in (str, bool, list, dict) and not isinstance(value, kind):
                raise WrongUse(
                    f"`{declared.name}` is a {type(value).__name__}, not a {kind.__name__}",
                    self._place(),
                )

    def _place(self) -> str:
        """Return the name of this object in errors."""
        return type(self).__name__

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """Return an instance made from a dict; return an instance unchanged.

        Raises:
            SwarmError: it is neither, or a field is missing or has the wrong type.
        """
        if isinstance(obj, cls):
            return obj
        if not isinstance(obj, Mapping):
            raise SwarmError(f"a {type(obj).__name__} is not a {cls.__name__}", cls.__name__)
        needed = [
            field.name
            for field in fields(cls)  # type: ignore[arg-type]  # each of them is a dataclass
            if field.default is MISSING and field.default_factory is MISSING
        ]
        if missing := [name for name in needed if name not in obj]:
            raise SwarmError(f"`{'`, `'.join(missing)}` is missing", cls.__name__)
        return cls(**{str(name): value for name, value in obj.items()})

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> Self:
        """Return an instance made from JSON.

        Raises:
            SwarmError: it is not JSON, or as of `model_validate`.
        """
        try:
            obj = msgspec.json.decode(json_data)
        except JSON_ERRORS as error:
            raise SwarmError(f"not JSON: {error}", cls.__name__) from error
        return cls.model_validate(obj)

    def model_dump(self) -> Fields:
        """Return the fields as a dict."""
        values: Fields = asdict(self)  # type: ignore[call-overload]  # subclasses are dataclasses
        return values

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the fields as JSON.

        Raises:
            SwarmError: a value has no JSON form.
        """
        return to_json(self.model_dump(), type(self).__name__, indent)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields replaced."""
        duplicate = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            setattr(duplicate, name, value)
        return duplicate

    def copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """See `model_copy`."""
        return self.model_copy(update=update, deep=deep)

    def dict(self) -> Fields:
        """See `model_dump`."""
        return self.model_dump()


@dataclass_transform(field_specifiers=(field,))
def model(*, kw_only: bool = False) -> Callable[[type[M]], type[M]]:
    """Return a decorator that makes a dataclass whose constructor is as lenient as AgentJet's.

    An unknown field is ignored, with one warning; None for a list or a dict means an empty one.

    Args:
        kw_only: All fields are keyword arguments.
    """

    def decorate(plain: type[M]) -> type[M]:
        made = dataclass(slots=True, kw_only=kw_only)(plain)
        parts = fields(made)  # type: ignore[arg-type]  # it is a dataclass by now
        names = [part.name for part in parts]
        empty = {part.name for part in parts if part.default_factory is not MISSING}
        strict: Any = made.__init__

        def lenient(self: M, *args: Any, **values: Any) -> None:
            for name in [name for name in values if name not in names]:
                del values[name]
                if (made.__name__, name) not in _WARNED:
                    _WARNED.add((made.__name__, name))
                    known = ", ".join(names)
                    log.warning("a %s has no `%s`: ignored. It has %s", made.__name__, name, known)
            for name in empty & values.keys():
                if values[name] is None:
                    del values[name]
            strict(self, *args, **values)

        made.__init__ = lenient  # type: ignore[method-assign, assignment]  # with any argument
        return made

    return decorate


class ServerRecord(msgspec.Struct, frozen=True):
    """Base of records from a server; fields are attributes, and keys as of a dict."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.__struct_fields__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or `default` if there is none of this name."""
        return getattr(self, name) if name in self.__struct_fields__ else default

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return self.__struct_fields__

    def items(self) -> list[tuple[str, Any]]:
        """Return names and values of the fields."""
        return [(name, self[name]) for name in self]

    def model_dump(self) -> dict[str, Any]:
        """Return the fields as a dict."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the fields as JSON."""
        return to_json(self.model_dump(), type(self).__name__, indent)


def to_json(values: Mapping[str, Any], where: str, indent: int | None = None) -> str:
    """Return a dict as JSON.

    Raises:
        SwarmError: a value has no JSON form.
    """
    try:
        data = msgspec.json.encode(to_plain(values))
        return (data if indent is None else msgspec.json.format(data, indent=indent)).decode()
    except JSON_ERRORS as error:
        raise SwarmError(f"a value is not JSON: {error}", where) from error


def to_plain(value: Any) -> Any:
    """Return a value as dicts, lists, text and numbers; convert numpy values and models.

    Raises:
        TypeError, ValueError, RecursionError, msgspec.MsgspecError: a part of it has no JSON form
            (`JSON_ERRORS`).
    """
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_convert)


JSON_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""Errors of `to_plain`, and of encoding its result."""


def _convert(value: Any) -> Any:
    for name in ("tolist", "model_dump"):
        if callable(method := getattr(value, name, None)):
            return method()
    raise TypeError(f"a {type(value).__name__} has no JSON form")


# --- tasks and outputs ----------------------------------------------------------------------------


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


# --- claims ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmThrottlePolicy:
    """This client's share of a batch.

    Attributes:
        ratio: A new task waits while the batch holds `expected_batch_size` x `ratio` tasks that
            are this client's alone. 0.4 is four tasks in ten; the default never binds.
        expected_batch_size: Tasks of a batch.
        expected_num_repeat: Episodes of a task.
        current_task_id: The task the episode is for.
    """

    ratio: float = 1.5
    expected_batch_size: int
    expected_num_repeat: int
    current_task_id: str

    def __post_init__(self) -> None:
        wrong = ""
        if not self.current_task_id:
            wrong = "current_task_id is empty"
        elif self.expected_batch_size < 1 or self.expected_num_repeat < 1:
            wrong = "expected_batch_size and expected_num_repeat are at least 1"
        elif not self.ratio > 0:
            wrong = f"ratio is {self.ratio}, not above 0"
        if wrong:
            raise SwarmError(wrong, "throttle policy")

    @property
    def wire(self) -> dict[str, Any]:
        """The fields as a claim sends them."""
        return asdict(self)


@model(kw_only=True)
class ClaimEpisodeRequest(Model):
    """The body of a claim; unknown fields are ignored, with a warning.

    Attributes:
        client_uuid: `SwarmClient.client_uuid`.
        episode_type: `train` or `eval`.
        discard_episode_timeout: Seconds without a call after which the server takes the episode
            back.
        throttle_policy: This client's share of a batch, or a dict of its fields.

    Raises:
        SwarmError: a field has the wrong type.
    """

    client_uuid: str
    episode_type: str
    discard_episode_timeout: float
    throttle_policy: SwarmThrottlePolicy | None = None

    def __post_init__(self) -> None:
        Model.__post_init__(self)
        try:  # text with a number counts as one, as in pydantic
            self.discard_episode_timeout = float(self.discard_episode_timeout)
        except (TypeError, ValueError, OverflowError):
            value = self.discard_episode_timeout
            raise SwarmError(
                f"`discard_episode_timeout` is {value!r:.80}, not a number", self._place()
            ) from None
        policy: Any = self.throttle_policy
        if isinstance(policy, Mapping):
            names = [field.name for field in fields(SwarmThrottlePolicy)]
            known = {name: policy[name] for name in names if name in policy}
            try:
                self.throttle_policy = SwarmThrottlePolicy(**known)
            except TypeError as error:
                raise SwarmError(f"`throttle_policy`: {error}", self._place()) from None


@model(kw_only=True)
class ClaimEpisodeResponse(Model):
    """The answer to a claim.

    Attributes:
        success: False when the server has no episode to give; `fail_cause` says why.
        client_uuid: The client that claimed it.
        episode_uuid: The episode; empty without success.
        openai_base_url: OpenAI base URL of its model, with the server's own view of its address.
        openai_api_key: The key for those calls.
        fail_cause: The server's reason for a refusal.

    Raises:
        SwarmError: a field has the wrong type.
    """

    success: bool
    client_uuid: str
    episode_uuid: str
    openai_base_url: str = ""
    openai_api_key: str = ""
    fail_cause: str = ""

    def __repr__(self) -> str:  # a key must not get into logs
        return f"ClaimEpisodeResponse({self.success}, {self.episode_uuid}, {self.fail_cause!r})"
