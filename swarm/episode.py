"""One episode in the hands of a script, and what is checked before it is claimed or ended."""

import math
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from swarm.answers import EndKind, EndOutcome
from swarm.errors import SwarmError
from swarm.schemas import WorkflowOutput as WireOutput
from swarm.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput

LOST: Final = frozenset(
    {
        EndKind.NOT_FOUND,
        EndKind.NOT_CLAIMED,
        EndKind.OTHER_CLIENT,
        EndKind.NOT_ROLLING,
        EndKind.UNREACHABLE,
        EndKind.ERROR,
    }
)
"""Outcomes that raise."""
LATE: Final = frozenset({EndKind.SYNCING, EndKind.EXPIRED})
"""Outcomes that raise only when asked to: too late, as happens at every boundary."""


class AsyncEnds(Protocol):
    """Who ends episodes."""

    async def end_episode(
        self, task: Task | str, episode_uuid: str, workflow_output: WorkflowOutput
    ) -> EndOutcome: ...


class Ends(Protocol):
    """The same, waiting."""

    def end_episode(
        self, task: Task | str, episode_uuid: str, workflow_output: WorkflowOutput
    ) -> EndOutcome: ...


@dataclass(slots=True)
class _Held:
    task: Task | str
    uuid: str
    api: OpenaiBaseUrlAndApiKey
    outcome: EndOutcome | None = None
    """What became of its end; None before."""

    @property
    def base_url(self) -> str:
        """Where an OpenAI client calls the policy."""
        return self.api.base_url

    @property
    def api_key(self) -> str:
        """With which key."""
        return self.api.api_key


class AsyncEpisode(_Held):
    """An episode that is ours."""

    __slots__ = ("_client",)

    def __init__(
        self, client: AsyncEnds, task: Task | str, uuid: str, api: OpenaiBaseUrlAndApiKey
    ) -> None:
        super().__init__(task, uuid, api)
        self._client = client

    async def end(self, output: WorkflowOutput | float) -> EndOutcome:
        """End it with its output, or just a reward. See `AsyncSwarm.end_episode`."""
        self.outcome = EndOutcome(EndKind.UNKNOWN_OUTCOME, "being ended")
        self.outcome = await self._client.end_episode(self.task, self.uuid, as_output(output))
        return self.outcome


class Episode(_Held):
    """An episode that is ours."""

    __slots__ = ("_client",)

    def __init__(
        self, client: Ends, task: Task | str, uuid: str, api: OpenaiBaseUrlAndApiKey
    ) -> None:
        super().__init__(task, uuid, api)
        self._client = client

    def end(self, output: WorkflowOutput | float) -> EndOutcome:
        """End it with its output, or just a reward. See `SwarmClient.end_episode`."""
        self.outcome = EndOutcome(EndKind.UNKNOWN_OUTCOME, "being ended")
        self.outcome = self._client.end_episode(self.task, self.uuid, as_output(output))
        return self.outcome


def as_output(given: WorkflowOutput | float) -> WorkflowOutput:
    """An output, or one with just this reward."""
    if isinstance(given, WorkflowOutput):
        return given
    return WorkflowOutput(reward=float(given) if isinstance(given, int) else given)


def check_claim(
    idle: float, kind: str, timeout: float | None = None, lifetime: float | None = None
) -> None:
    """Raise what is wrong with a claim before it is sent."""
    if kind not in ("train", "eval"):
        raise SwarmError(f"episode_type is {kind!r}", "begin_episode", "Give 'train' or 'eval'")
    for name, value in (
        ("discard_episode_timeout", idle),
        ("timeout", timeout),
        ("lifetime", lifetime),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise SwarmError(f"{name} is {value}", "begin_episode", "Give seconds above 0")


def wire_output(task: Task | str, uuid: str, output: WorkflowOutput) -> tuple[str, WireOutput]:
    """The task's id and what is sent.

    Raises:
        SwarmError: a server would say yes and drop it.
    """
    task_id = task if isinstance(task, str) else task.task_id
    reward: Any = output.reward
    if not isinstance(reward, int | float):
        try:  # numpy's numbers, say
            reward = float(reward)
        except (TypeError, ValueError):
            raise SwarmError(
                f"a reward must be one finite number, not {reward!r:.80}",
                f"episode {uuid}",
                "Sum a list up yourself; abort an episode that has no reward",
            ) from None
    if not math.isfinite(reward):
        raise SwarmError(f"a reward must be one finite number, not {reward}", f"episode {uuid}")
    if not task_id:
        raise SwarmError("the task has no task_id, which names its group", f"episode {uuid}")
    output.metadata["task_id"] = task_id
    return task_id, WireOutput(
        reward=float(reward),
        is_success=None if output.is_success is None else bool(output.is_success),
        metadata=_plain(output.metadata, "metadata", uuid),
        log_metrics=_plain(output.log_metrics, "log_metrics", uuid),
    )


def _plain(given: dict[str, Any], name: str, uuid: str) -> dict[str, Any]:
    """As JSON has it: numpy's values and models as plain ones.

    Raises:
        SwarmError: something in it has no such form.
    """

    def other(value: Any) -> Any:
        for way in ("tolist", "model_dump"):
            if callable(turn := getattr(value, way, None)):
                return turn()
        raise TypeError(f"a {type(value).__name__} cannot be sent")

    try:
        plain: dict[str, Any] = msgspec.to_builtins(given, str_keys=True, enc_hook=other)
        if name == "log_metrics" and not all(map(_finite, plain.values())):
            raise ValueError("a number that is not finite")
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise SwarmError(f"`{name}` has a value that is no JSON: {error}", f"episode {uuid}") from (
            error
        )
    return plain


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
