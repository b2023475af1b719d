"""Models of a claim: throttle policy, request and response of `/claim_episode`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.model_methods import Model


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
        return {
            "ratio": self.ratio,
            "expected_batch_size": self.expected_batch_size,
            "expected_num_repeat": self.expected_num_repeat,
            "current_task_id": self.current_task_id,
        }


@dataclass(slots=True, init=False)
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

    def __init__(
        self,
        *,
        client_uuid: str,
        episode_type: str,
        discard_episode_timeout: float,
        throttle_policy: SwarmThrottlePolicy | Mapping[str, Any] | None = None,
        **ignored: Any,
    ) -> None:
        self.client_uuid = _checked(self, "client_uuid", client_uuid, str)
        self.episode_type = _checked(self, "episode_type", episode_type, str)
        self.discard_episode_timeout = _number(
            self, "discard_episode_timeout", discard_episode_timeout
        )
        self.throttle_policy = _policy(throttle_policy)
        self._ignore(ignored)


@dataclass(slots=True, init=False)
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

    def __init__(
        self,
        *,
        success: bool,
        client_uuid: str,
        episode_uuid: str,
        openai_base_url: str = "",
        openai_api_key: str = "",
        fail_cause: str = "",
        **ignored: Any,
    ) -> None:
        self.success = _checked(self, "success", success, bool)
        self.client_uuid = _checked(self, "client_uuid", client_uuid, str)
        self.episode_uuid = _checked(self, "episode_uuid", episode_uuid, str)
        self.openai_base_url = _checked(self, "openai_base_url", openai_base_url, str)
        self.openai_api_key = _checked(self, "openai_api_key", openai_api_key, str)
        self.fail_cause = _checked(self, "fail_cause", fail_cause, str)
        self._ignore(ignored)

    def __repr__(self) -> str:  # a key must not get into logs
        return f"ClaimEpisodeResponse({self.success}, {self.episode_uuid}, {self.fail_cause!r})"


def _checked(model: Model, name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        actual = type(value).__name__
        raise SwarmError(f"`{name}` is a {actual}, not a {kind.__name__}", type(model).__name__)
    return value


def _number(model: Model, name: str, value: Any) -> float:
    """Return a number, also from text, as pydantic does."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise SwarmError(f"`{name}` is {value!r:.80}, not a number", type(model).__name__) from None


def _policy(policy: SwarmThrottlePolicy | Mapping[str, Any] | None) -> SwarmThrottlePolicy | None:
    if policy is None or isinstance(policy, SwarmThrottlePolicy):
        return policy
    names = [one.name for one in fields(SwarmThrottlePolicy)]
    try:
        return SwarmThrottlePolicy(**{name: policy[name] for name in names if name in policy})
    except TypeError as error:
        raise SwarmError(f"`throttle_policy`: {error}", "ClaimEpisodeRequest") from None
