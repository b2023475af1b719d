"""Models of a claim: throttle policy, request and response of `/claim_episode`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.model_methods import Model, model


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
