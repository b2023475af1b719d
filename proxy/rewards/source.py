"""The interface of reward sources: their input, their result, their health.

A score sheet is complete or empty: it has a score for every answer of a group, or one abstention
that gives the reason why there are none. No reward is ever made up.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from core.events import CandidateScore
from core.scoring.advantage import usable

Listener = Callable[["SourceHealth"], None]
log = logging.getLogger(__name__)

SLACK = 2.0
"""Seconds that a source gets beyond the time limit, which it enforces itself."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One candidate's answer as the upstream returned it."""

    index: int
    """Position of the candidate in its group, from 0."""
    message: Mapping[str, Any]
    """The assistant message: `role`, `content` (may be None), optionally `tool_calls`."""
    finish_reason: str
    episode_uuid: str
    seconds: float
    completion: Mapping[str, Any]
    """The whole chat completion."""


class GroupContext(msgspec.Struct, frozen=True):
    """Everything a source may use to score one group."""

    group_id: str
    request_id: str
    task_id: str
    query: str
    """Text of the last user message."""
    messages: Sequence[Mapping[str, Any]]
    metadata: Mapping[str, Any]
    reference: str | None
    """The dataset's own answer, if it has one. It never enters a prompt."""
    answers: tuple[Answer, ...]
    tools: Sequence[Any] = ()
    """The tools that the request offers, in the form the request has them."""


Score = CandidateScore
"""The reward of one answer with its parts: computed in the form in which it is published."""


class Abstention(msgspec.Struct, frozen=True):
    """The reason why a group has no reward."""

    part: str
    """Name of the source or part that abstained: `hook`, `builtin`, `judge`."""
    cause: str
    """One line for the operator."""
    traceback: str = ""
    """Cut to the frames of the operator's code; empty when no exception was involved."""
    file: str = ""
    line: int = 0
    """1-based; 0 when no place in a file is known."""
    crashed: bool = False
    """The source had loaded and its process has ended since."""
    late: bool = False
    """The source exceeded the time limit."""
    inapplicable: bool = False
    """No part of the reward applies to the group; nothing is wrong."""


class ScoreSheet(msgspec.Struct, frozen=True):
    """Scores for all answers, or an abstention and no scores."""

    scores: tuple[Score, ...]
    abstention: Abstention | None
    version: str
    """Version of the source that scored the group."""
    seconds: float


class RequestReport(msgspec.Struct, frozen=True):
    """Result of notifying a source of a new request."""

    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The task's metadata, with the changes that the hook made."""
    repeat: int | None = None
    """Number of candidates the hook requests (a positive integer); None when it requests none."""
    error: Abstention | None = None
    """Why the hook failed; the request proceeds without it."""


class SourceHealth(msgspec.Struct, frozen=True):
    """Whether the newest code of a source is the code that scores."""

    ok: bool
    error: Abstention | None
    """Why it is not; None while the newest code is still starting."""
    version: str
    """The version that scores. It may be set while `ok` is False: after a save that does not load,
    the previous version keeps scoring. Empty: no version scores, and every group abstains."""
    level: str = "error"
    """Level of the alert: `warning` for a fault that may pass by itself."""
    waiting_for: str = ""
    """Name of the part that the newest code is waiting for; empty when it waits for none."""


class Service(Protocol):
    """What runs between `start` and `close` and has a health: a source, or a part that waits."""

    async def start(self) -> None:
        """Start; return soon even if it takes longer until it can score."""
        ...

    async def close(self) -> None:
        """Release every process, connection and file."""
        ...

    def health(self) -> SourceHealth:
        """Return the present health; a part's `version` covers all but settings and code."""
        ...

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the loop at every change of health or version.

        Returns:
            A function that removes the listener.
        """
        ...


@runtime_checkable
class ObservesRequests(Protocol):
    """A source or a slow part that is notified of requests before any episode is claimed."""

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        """Notify it of a new request; never raises."""
        ...


class RewardSource(Service, ObservesRequests, Protocol):
    """A source of rewards for whole groups."""

    @property
    def name(self) -> str:
        """`builtin`, `hook`, or the path of the model file."""
        ...

    @property
    def version(self) -> str:
        """Hash of everything that determines the rewards; empty while no version scores."""
        ...

    async def score(self, ctx: GroupContext) -> ScoreSheet:
        """Score one group. A failure is an abstention; only `CancelledError` is raised."""
        ...


def observes_requests(source: object) -> bool:
    """Return whether a source must be notified of new requests; True unless it declares False."""
    return bool(getattr(source, "observes_requests", True))


def extra_seconds_of(source: object) -> float:
    """Return the seconds beyond the time limit that a source or part may need for a group."""
    return float(getattr(source, "extra_seconds", 0.0))


class Reporting:
    """Base of a source or part with a health: it holds the health and reports each change."""

    def __init__(self, health: SourceHealth) -> None:
        self._health = health
        self._listeners: list[Listener] = []

    def health(self) -> SourceHealth:
        """Return the health last reported; see `SourceHealth`."""
        return self._health

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` at every change; return a function that removes it."""
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def _report(self, health: SourceHealth) -> None:
        """Set the health, and notify the listeners if it differs from the last one."""
        if health != self._health:
            self._health = health
            self._notify()

    def _notify(self) -> None:
        """Notify the listeners, also when something besides the health has changed."""
        for listener in tuple(self._listeners):
            try:
                listener(self._health)
            except Exception:  # a fault of a listener must not stop the reload that called it
                log.exception("a listener of reward health failed")


async def request_scores(
    source: RewardSource, context: GroupContext, limit: float
) -> ScoreSheet | Abstention:
    """Return the scores of a group, or an abstention; no failure of the source raises.

    Args:
        source: The source that scores.
        context: The group.
        limit: Time limit in seconds that the source enforces itself. Here the source is cancelled
            after that limit plus `SLACK` plus its own extra seconds.
    """
    limit += SLACK + extra_seconds_of(source)
    try:
        async with asyncio.timeout(limit):
            sheet = await source.score(context)
    except TimeoutError:
        return Abstention(source.name, f"no rewards within {limit:g} s", late=True)
    except Exception as error:  # a source runs the operator's code: a fault is an abstention
        log.exception("the reward source failed on group %s", context.group_id)
        cause = f"{type(error).__name__}: {error}"
        return Abstention(source.name, cause, traceback.format_exc())
    return sheet.abstention or _fault(sheet, context) or sheet


def _fault(sheet: ScoreSheet, context: GroupContext) -> Abstention | None:
    """Return an abstention unless the sheet has one finite reward for each answer."""
    expected = [answer.index for answer in context.answers]
    scored = [score.index for score in sheet.scores]
    if scored != expected and sorted(scored) != expected:
        return Abstention("source", f"{len(sheet.scores)} rewards for {len(expected)} answers")
    for score in sheet.scores:
        if not usable(score.reward):
            return Abstention("source", f"reward {score.index} is {score.reward}")
    return None
