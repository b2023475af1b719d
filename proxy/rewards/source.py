"""What every source of rewards takes and gives back.

A sheet is whole or nothing: scores for all answers of a group, or one abstention that says why
there are none. A reward is never made up to fill a gap.
"""

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ajet_swarm.common.tasks import with_timeout
from core.events import CandidateScore, Part
from core.scoring.advantage import usable

__all__ = [
    "Abstention",
    "Answer",
    "GroupContext",
    "Listener",
    "Part",
    "RequestReport",
    "RewardSource",
    "Score",
    "ScoreSheet",
    "SourceHealth",
    "extra_seconds_of",
]

Listener = Callable[["SourceHealth"], None]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One candidate's answer, as the upstream gave it."""

    index: int
    """Position of the candidate in its group, from 0."""
    message: Mapping[str, Any]
    """The assistant message: `role`, `content` (may be None), perhaps `tool_calls`."""
    finish_reason: str
    episode_uuid: str
    seconds: float
    completion: Mapping[str, Any]
    """The whole chat completion."""


class GroupContext(msgspec.Struct, frozen=True):
    """All that a source may look at to score one group."""

    group_id: str
    request_id: str
    task_id: str
    query: str
    """Text of the last user message."""
    messages: Sequence[Mapping[str, Any]]
    metadata: Mapping[str, Any]
    reference: str | None
    """The dataset's own answer, where there is one. It never enters a prompt."""
    answers: tuple[Answer, ...]
    tools: Sequence[Any] = ()
    """The tools that the request offers, as it names them."""


Score = CandidateScore
"""The reward of one answer and what it is made of: as it is told, so as it is computed."""


@dataclass(frozen=True, slots=True)
class Abstention:
    """Why there is no reward."""

    part: str
    """Which source or part abstained: `hook`, `builtin`, `judge`."""
    cause: str
    """One line for a person."""
    traceback: str = ""
    """Cut to the frames of the code the operator wrote; empty when no exception was involved."""
    file: str = ""
    line: int = 0
    """1-based; 0 when there is no such place."""
    fell: bool = False
    """What had loaded ended since: a process fell."""
    late: bool = False
    """The rewards took longer than their limit."""


class ScoreSheet(msgspec.Struct, frozen=True):
    """Scores for all answers, or an abstention and no scores at all."""

    scores: tuple[Score, ...]
    abstention: Abstention | None
    version: str
    """Version of the source that did the work."""
    seconds: float


class RequestReport(msgspec.Struct, frozen=True):
    """What came of telling a source about a new request."""

    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The task's metadata, with what the hook changed in it."""
    repeat: int | None = None
    """Candidates the hook asks for (it returned a positive integer); None when it does not say."""
    error: Abstention | None = None
    """Why the hook failed; the request goes on without it."""


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """Whether the newest code of a source is the one that scores."""

    ok: bool
    error: Abstention | None
    """Why not; None while the newest is only getting ready."""
    version: str
    """The version that serves. Not empty while `ok` is False: an older version still scores after
    a broken save. Empty: nothing serves, every group abstains."""
    level: str = "error"
    """How bad it is: a warning where it may well pass by itself."""
    waits: str = ""
    """Name of the part that the newest code waits for, while it does."""


class RewardSource(Protocol):
    """Gives rewards to whole groups."""

    @property
    def name(self) -> str:
        """`builtin`, `hook`, or the file of the model."""
        ...

    @property
    def version(self) -> str:
        """Hash of the content that makes the reward; empty while nothing serves."""
        ...

    async def start(self) -> None:
        """Make ready; returns soon even when getting ready takes longer."""
        ...

    async def close(self) -> None:
        """Give back every process and file."""
        ...

    async def request(
        self, request_id: str, task_id: str, query: str, metadata: Mapping[str, Any]
    ) -> RequestReport:
        """Tell of a new request, before any episode is claimed; never raises."""
        ...

    async def score(self, ctx: GroupContext) -> ScoreSheet:
        """Score one group; never raises except `CancelledError`, failures are abstentions."""
        ...

    def health(self) -> SourceHealth:
        """The state now."""
        ...

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the loop at every change of health or version.

        Returns:
            A function that takes the listener away again.
        """
        ...


def observes_requests(source: object) -> bool:
    """Whether a source wants to know of new requests; all do that do not say."""
    return bool(getattr(source, "told", True))


def score_at_once(source: object, context: GroupContext) -> ScoreSheet | None:
    """What a source says of a group without waiting for anything; None where it has to."""
    score = getattr(source, "score_at_once", None)
    found: ScoreSheet | None = score(context) if score is not None else None
    return found


def extra_seconds_of(source: object) -> float:
    """Seconds that a source, or a part, may need for a group beyond the time limit."""
    return float(getattr(source, "spare", 0.0))


log = logging.getLogger(__name__)


class HealthNotifier:
    """The newest health of one source and its listeners."""

    def __init__(self, health: SourceHealth) -> None:
        self._health = health
        self._listeners: list[Listener] = []

    @property
    def now(self) -> SourceHealth:
        return self._health

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; the function returned takes it away."""
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def post(self, health: SourceHealth) -> None:
        """Take over `health` and tell everyone, when it is different from the last."""
        if health == self._health:
            return
        self._health = health
        self.tell()

    def tell(self) -> None:
        """Tell everyone: what a listener looks at besides health has changed."""
        health = self._health
        for listener in tuple(self._listeners):
            try:
                listener(health)
            except Exception:  # a listener's defect must not stop the reload that told it
                log.exception("a listener of reward health failed")


log = logging.getLogger(__name__)

SLACK = 2.0
"""Seconds a source gets beyond the limit that it keeps itself."""


async def request_scores(
    source: RewardSource, context: GroupContext, limit: float
) -> ScoreSheet | Abstention:
    """What the source says of a group; never raises for what it does.

    Args:
        source: Who scores.
        context: The group.
        limit: Seconds that the source keeps itself; it gets some slack, and what it needs to spare.
    """
    limit += SLACK + extra_seconds_of(source)
    try:
        sheet = score_at_once(source, context)
        if sheet is None:
            sheet = await with_timeout(limit, source.score(context))
    except TimeoutError:
        return Abstention(source.name, f"no rewards within {limit:g} s", late=True)
    except Exception as error:  # a source is the operator's code: its fault is an abstention
        log.exception("the reward source failed on group %s", context.group_id)
        cause = f"{type(error).__name__}: {error}"
        return Abstention(source.name, cause, traceback.format_exc())
    return sheet.abstention or _fault(sheet, context) or sheet


def _fault(sheet: ScoreSheet, context: GroupContext) -> Abstention | None:
    """A sheet must hold one finite reward for each answer."""
    wanted = [answer.index for answer in context.answers]
    if sorted([score.index for score in sheet.scores]) != wanted:
        return Abstention("source", f"{len(sheet.scores)} rewards for {len(wanted)} answers")
    for one in sheet.scores:
        if not usable(one.reward):
            return Abstention("source", f"reward {one.index} is {one.reward}")
    return None
