"""Episode objects of scripts, and the checks before a claim or an end."""

import json
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ajet_swarm.api.wire import encode
from ajet_swarm.protocol.errors import SwarmError, WrongUse
from ajet_swarm.protocol.models import (
    JSON_ERRORS,
    OpenaiBaseUrlAndApiKey,
    SwarmThrottlePolicy,
    Task,
    WorkflowOutput,
    to_plain,
)
from ajet_swarm.protocol.schemas import EndKind, EndOutcome, WireOutput

ACCEPTED: Final = frozenset({EndKind.ENDED, EndKind.RECORDED, EndKind.UNKNOWN_OUTCOME})
"""Outcomes that raise nothing: the end was accepted, or most likely was."""
LATE: Final = frozenset({EndKind.SYNCING, EndKind.EXPIRED})
"""Outcomes that raise only with `strict`: too late, which is normal at a batch boundary."""
MOST_SECONDS: Final = 1e9
"""Largest number of seconds accepted; a larger one is most likely a mistake."""


@dataclass(slots=True)
class _ClaimedEpisode:
    task: Task | str
    uuid: str
    api: OpenaiBaseUrlAndApiKey
    outcome: EndOutcome | None = field(default=None, init=False)
    """Outcome of the end; None before it is ended."""

    @property
    def base_url(self) -> str:
        """OpenAI base URL of the policy."""
        return self.api.base_url

    @property
    def api_key(self) -> str:
        """API key for that URL."""
        return self.api.api_key

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Mark the episode as being ended; if the end may not have been sent, it is not."""
        self.outcome = EndOutcome(EndKind.UNKNOWN_OUTCOME, "being ended")
        try:
            yield
        except SwarmError:
            raise
        except BaseException:  # the context of the episode gives it back
            self.outcome = None
            raise


@dataclass(slots=True)
class Episode(_ClaimedEpisode):
    """An episode that a blocking client holds."""

    _end: Callable[[Task | str, WorkflowOutput], EndOutcome] = field(repr=False)

    def end(self, output: WorkflowOutput | float) -> EndOutcome:
        """End the episode with its output, or just a reward. See `SwarmClient.end_episode`."""
        workflow_output = as_output(output)
        with self._ending():
            self.outcome = self._end(self.task, workflow_output)
        return self.outcome


@dataclass(slots=True)
class AsyncEpisode(_ClaimedEpisode):
    """An episode that an asyncio client holds."""

    _end: Callable[[Task | str, WorkflowOutput], Awaitable[EndOutcome]] = field(repr=False)

    async def end(self, output: WorkflowOutput | float) -> EndOutcome:
        """End the episode with its output, or just a reward. See `AsyncSwarm.end_episode`."""
        workflow_output = as_output(output)
        with self._ending():
            self.outcome = await self._end(self.task, workflow_output)
        return self.outcome

    def blocking(self, run: Callable[[Coroutine[Any, Any, EndOutcome]], EndOutcome]) -> Episode:
        """Return the same episode for threads; `run` runs its end."""

        def end(task: Task | str, output: WorkflowOutput) -> EndOutcome:
            self.task = task
            return run(self.end(output))

        return Episode(self.task, self.uuid, self.api, end)


def as_output(output: WorkflowOutput | float) -> WorkflowOutput:
    """Return the output, or one that contains the given reward; `wire_output` checks it."""
    return output if isinstance(output, WorkflowOutput) else WorkflowOutput(reward=output)


def check_claim(
    idle: float,
    kind: str,
    policy: SwarmThrottlePolicy | None = None,
    timeout: float | None = None,
    lifetime: float | None = None,
) -> None:
    """Check the arguments of a claim.

    Raises:
        WrongUse: one of them is wrong.
    """
    if kind not in ("train", "eval"):
        raise WrongUse(f"episode_type is {kind!r:.80}", "begin_episode", "Give 'train' or 'eval'")
    if not (policy is None or isinstance(policy, SwarmThrottlePolicy)):
        raise WrongUse(
            f"throttle_policy is a {type(policy).__name__}",
            "begin_episode",
            "Give a SwarmThrottlePolicy(...)",
        )
    try:
        encode(policy.wire if policy is not None else None)
    except JSON_ERRORS as error:
        raise WrongUse(f"throttle_policy is not JSON: {error}", "begin_episode") from error
    for name, value, optional in (
        ("discard_episode_timeout", idle, False),
        ("timeout", timeout, True),
        ("lifetime", lifetime, True),
    ):
        above_0 = isinstance(value, int | float) and 0 < value <= MOST_SECONDS
        if not (above_0 or (value is None and optional)):
            raise WrongUse(f"{name} is {value!r:.80}", "begin_episode", "Give seconds above 0")


def wire_output(task: Any, uuid: str, output: Any) -> tuple[str, WireOutput]:
    """Return the task's id and the output in the form in which they are sent.

    Raises:
        WrongUse: they cannot be sent, or a server would accept the end and discard the episode.
    """
    where = f"episode {uuid}"
    if not isinstance(output, WorkflowOutput):
        text = f"a {type(output).__name__} was given, not a WorkflowOutput"
        raise WrongUse(text, where, "Give WorkflowOutput(reward=...)")
    task_id = _task_id(task, where)
    reward = _reward(output.reward, where)
    for name in ("metadata", "log_metrics"):
        if not isinstance(value := getattr(output, name), dict):
            raise WrongUse(f"`{name}` is a {type(value).__name__}, not a dict", where)
    output.metadata["task_id"] = task_id
    return task_id, WireOutput(
        reward=reward,
        is_success=None if output.is_success is None else bool(output.is_success),
        metadata=_plain(output.metadata, "metadata", where),
        log_metrics=_plain(output.log_metrics, "log_metrics", where),
    )


def _task_id(task: Any, where: str) -> str:
    """Return the id of a task, which names the group."""
    task_id = task if isinstance(task, str) else getattr(task, "task_id", None)
    if isinstance(task_id, int):  # assigned after the task was constructed
        task_id = str(task_id)
    if not isinstance(task_id, str):
        text = f"a {type(task).__name__} was given, not a task"
        raise WrongUse(text, where, "Give a Task(task_id=...), or its id as text")
    if not task_id:
        raise WrongUse("the task has no task_id, which names its group", where)
    try:
        task_id.encode()
    except UnicodeError as error:
        raise WrongUse(f"the task_id is no text that can be sent: {error}", where) from error
    return task_id


def _reward(value: Any, where: str) -> float:
    """Return a reward as one finite number; as in AgentJet, numpy numbers and text are accepted."""
    try:
        reward = float(value)
    except (TypeError, ValueError, OverflowError):
        shown = "one beyond all bounds" if isinstance(value, int) else f"{value!r:.80}"
        raise WrongUse(
            f"a reward must be one finite number, not {shown}",
            where,
            "Sum a list up yourself; abort an episode that has no reward",
        ) from None
    if not math.isfinite(reward):
        raise WrongUse(f"a reward must be one finite number, not {reward}", where)
    return reward


def _plain(values: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    """Return values in their JSON form.

    Raises:
        WrongUse: a value has no JSON form, or contains text that cannot be encoded.
    """
    try:
        plain: dict[str, Any] = to_plain(values)
        encode(plain)
        if name == "log_metrics":  # also without numbers that are not finite
            json.dumps(plain, allow_nan=False)
    except JSON_ERRORS as error:
        raise WrongUse(f"`{name}` has a value that is not JSON: {error}", where) from error
    return plain
