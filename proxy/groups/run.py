"""The state of one open group: its candidates, its waiting users, its scores and its rating.

This module holds data and small changes of it; `lifecycle` takes a run through its phases.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ajet_swarm.api.outcomes import ChatAnswer, Claimed
from ajet_swarm.common.text import content_text, one_line
from ajet_swarm.episodes.lane_queue import Lane
from ajet_swarm.episodes.queue import QueueEntry
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind
from core.bus import Bus
from core.commands.refusal import NotNow
from core.events import (
    AnsweredCandidate,
    AnswerReturned,
    CandidatesAnswered,
    ClaimedEpisode,
    EndedEpisode,
    EpisodesClaimed,
    EpisodesEnded,
)
from core.events.causes import TooFewAnswers
from core.state import Rating
from proxy.context import ProxyContext
from proxy.dataset_rows import Row
from proxy.dialects.request import ChatRequest
from proxy.groups.answer import AnswerWaiter, FinalAnswer
from proxy.http.errors import BUSY, AnswerTimedOut, ApiError
from proxy.rewards.source import ScoreSheet
from proxy.servers.facts import ROLLING, ServerFacts

_PHASE_SPANS = {
    "QUEUED": "queue",
    "GENERATING": "generate",
    "SCORING": "score",
    "AWAITING_RATING": "rate",
    "SUBMITTING": "submit",
}


class Candidate(msgspec.Struct):
    """One slot of a group, and the episode that fills it now."""

    index: int
    uuid: str = ""
    claimed: Claimed | None = None
    attempt: int = 0
    answer: ChatAnswer | None = None
    seconds: float = 0.0
    active_at: float = 0.0
    """Unix seconds of the last activity that the server has seen."""
    error: str = ""
    failure: ChatError | None = None
    """The last failure, even if the slot was refilled since."""
    unretried: str = ""
    """Why no fresh episode replaced the failed one; empty if one did."""
    lost: bool = False
    """The server may no longer hold the episode for us: never abort it without checking."""
    superseded: bool = False
    """The episode was claimed again for another of our candidates: neither end nor abort it."""
    ending: bool = False
    """Its end was sent, and the outcome is not known yet: do not abort it."""
    claimed_step: int | None = None
    """Global step, as last read, when the episode was claimed."""
    step: int | None = None
    """Global step of the weights that answered; before that `claimed_step`."""
    later_step: int | None = None
    """See `core.state.weights.WeightVersion`."""
    training_run: int = 0
    """Number of the training run of these weights; 0 if unknown."""

    @property
    def usable(self) -> bool:
        """Whether it has an answer."""
        return self.answer is not None

    @property
    def is_blank(self) -> bool:
        """Whether its answer has neither text nor tool calls."""
        message = {} if self.answer is None else self.answer.message
        return not (message.get("tool_calls") or content_text(message.get("content")).strip())


class Votes(msgspec.Struct):
    """What raters have said about an open group; `rating` changes it."""

    needed: int = 1
    """Number of different raters whose votes the group needs (`rating.overlap`)."""
    ballots: list[Rating] = []
    """The newest vote of each rater, oldest first; at most `needed`."""
    rating: Rating | None = None
    """The vote, or the combination of all votes; None while one is missing."""
    rewards: dict[int, float] = {}
    """Rewards by candidate index that follow from `rating`."""
    settled: Rating | None = None
    """The decisive vote instead of `ballots`; None without one."""
    first_at: float | None = None
    """Unix seconds of the first vote of the current series; None without a vote."""
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of votes so far by rater, else by console, including replaced and undone ones."""
    accepted: bool = False
    """The operator seals the group now."""

    def of(self, rater: str, holder: str) -> Rating | None:
        """Return the vote of a rater; one without a name is known by the console."""
        return next((vote for vote in self.ballots if vote.by(rater, holder)), None)


class EpisodeEvents(msgspec.Struct, eq=False):
    """What happened to the episodes of a run in this iteration of the loop.

    Claims, answers and ends of a group mostly arrive together: one event of each kind has them all,
    which takes the readers of events and the journal a quarter of the time.
    """

    bus: Bus
    server: str
    group_id: str
    pending: list[ClaimedEpisode | AnsweredCandidate | EndedEpisode] = []
    step: int | None = None
    """Global step of the newest claim."""
    training_run: int = 0
    """Number of its training run."""

    def claimed(self, slot: Candidate) -> None:
        """Add the episode that a slot has got."""
        self.add(ClaimedEpisode(slot.index, slot.uuid, slot.attempt))
        self.step, self.training_run = slot.step, slot.training_run

    def add(self, happening: ClaimedEpisode | AnsweredCandidate | EndedEpisode) -> None:
        """Publish this before the iteration of the loop ends, or with the next `flush`."""
        if not self.pending:
            asyncio.get_running_loop().call_soon(self.flush)
        self.pending.append(happening)

    def flush(self, expires_at: float = 0.0, damping: float = 0.0) -> None:
        """Publish what is pending; the arguments are those of `EpisodesClaimed`."""
        if not self.pending:
            return
        pending, self.pending = self.pending, []
        server, group = self.server, self.group_id
        if claimed := tuple([each for each in pending if type(each) is ClaimedEpisode]):
            self.bus.publish(
                EpisodesClaimed(
                    server=server,
                    group_id=group,
                    episodes=claimed,
                    step=self.step,
                    run=self.training_run,
                    expires_at=expires_at,
                    damping=damping,
                )
            )
        if answered := tuple([each for each in pending if type(each) is AnsweredCandidate]):
            self.bus.publish(CandidatesAnswered(server=server, group_id=group, candidates=answered))
        if ended := tuple([each for each in pending if type(each) is EndedEpisode]):
            self.bus.publish(EpisodesEnded(server=server, group_id=group, episodes=ended))


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why a run has to end early."""

    cause: str
    phase: str
    refusal: ApiError


@dataclass(slots=True, eq=False)
class Refill:
    """A request for fresh candidates, carried out by the task of the group itself."""

    outcome: "asyncio.Future[str]"
    """A message for people, or a `NotNow` when no candidate came."""
    fresh: dict[int, ChatAnswer] = field(default_factory=dict)
    """Answers by candidate index."""
    seconds: dict[int, float] = field(default_factory=dict)
    """How long each of them took."""
    causes: list[str] = field(default_factory=list)
    """Why candidates failed."""


class GroupRun(msgspec.Struct, eq=False):
    """A group from its request to its last reward."""

    context: ProxyContext
    facts: ServerFacts
    group_id: str
    request: ChatRequest
    row: Row | None
    n: int
    task_id: str
    metadata: dict[str, Any]
    opened_at: float
    on_abandoned: "Callable[[GroupRun], None]"
    """Called when the last waiter has left before the answer."""
    on_answer: "Callable[[GroupRun], None]"
    """Called when the answer is fixed, before the waiters get it."""
    kind: str = "train"
    untrained: str = "not trained on"
    """The cause with which an eval group is closed."""
    phase: str = "QUEUED"
    candidates: list[Candidate] = []
    usable: list[Candidate] = []
    """Candidates with an answer, by index; see `refresh_usable`."""
    waiters: set[AnswerWaiter] = set()
    lane: Lane = ("", "", "")
    """Fairness key: API key, address, session."""
    newcomer: bool = False
    """It overtakes others of its key and address in every second turn."""
    entry: QueueEntry | None = None
    """Its place in the queue of claims, left when no episode is held any more; None before."""
    generation_announced: bool = False
    """Whether the event of its claims also announced the start of generation."""
    final_answer: FinalAnswer | None = None
    live: bool = False
    """The user gets the first candidate, whichever candidate wins."""
    streamed_candidate: Candidate | None = None
    """The candidate whose deltas the user has begun to read: no other answer may follow them."""
    deltas: list[dict[str, Any]] = []
    """The deltas of the streamed candidate so far."""
    sheet: ScoreSheet | None = None
    """Scores of the usable candidates; None before scoring, and when the source abstained."""
    abstained: str = ""
    """Part and cause of the abstention, if the source abstained."""
    votes: Votes = msgspec.field(default_factory=Votes)
    gives_way: bool = False
    """It has to end now, rated or not, because a user's request waits."""
    spared_until: float = 0.0
    """Unix seconds until which it was spared from that for its rater; 0 if it never was."""
    refill: Refill | None = None
    """The pending request for fresh candidates."""
    scored_at: float = 0.0
    discard_timeout: float = 240.0
    first_claim_at: float = 0.0
    sealed: bool = False
    rescored: str = ""
    """Version of the rewards with which the group was last re-scored automatically."""
    cut_stragglers: bool = False
    """The straggler rule aborted candidates in this round."""
    limit_used: bool = False
    """The straggler rule aborted candidates in any round: `straggler_limit` no longer applies while
    the run has no answer, otherwise a slow model would never finish one."""
    returning: list[asyncio.Task[None]] = []
    """Tasks that return episodes while the group goes on."""
    needs_sweep: bool = False
    """The server may hold an episode that no task here will end or abort."""
    rewards_taken: int = 0
    """Number of rewards that the server has accepted."""
    stop: StopReason | None = None
    closing: bool = False
    """The final steps are under way: the run can no longer be stopped."""
    task: asyncio.Task[None] | None = None
    wake: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    latency: dict[str, float] = {}
    events: "EpisodeEvents" = None  # type: ignore[assignment]  # set in `__post_init__`
    loop: asyncio.AbstractEventLoop = msgspec.field(default_factory=asyncio.get_running_loop)
    """Looked up once: each lookup by asyncio costs a system call."""
    _phase_began: float = 0.0

    def __post_init__(self) -> None:
        self.votes.needed = self.context.settings.rating.overlap
        self.events = EpisodeEvents(self.context.bus, self.facts.server.name, self.group_id)

    # --- time ----------------------------------------------------------------------------------

    def mark_phase_end(self, name: str) -> None:
        """Add the time since the last call to `latency[name]`; the first call starts the clock."""
        now = self.loop.time()
        if name and self._phase_began:
            seconds = self.latency.get(name, 0.0) + now - self._phase_began
            self.latency[name] = int(seconds * 1e6 + 0.5) / 1e6  # `round` costs ten times as much
        self._phase_began = now

    @property
    def current_span(self) -> str:
        """The `latency` key of the time since the last mark; empty after the last phase."""
        if self.phase == "CLAIMING":
            return "claim" if "queue" in self.latency else "queue"
        return _PHASE_SPANS.get(self.phase, "")

    @property
    def deadline(self) -> float:
        """The latest limit of its waiters, on the clock of the loop; one may join later."""
        now = self.loop.time()
        return max([waiter.limit for waiter in self.waiters], default=now)

    @property
    def clock(self) -> float:
        """Unix seconds at which the group must be sealed: the server soon reclaims its first
        episode.

        A margin of a tenth, at most 10 s, leaves time to end the episodes.
        """
        limit = self.discard_timeout
        margin = min(10.0, limit / 10)
        active = min([one.active_at for one in self.usable], default=self.first_claim_at)
        return min(active + limit, self.first_claim_at + 2 * limit) - margin

    # --- candidates ----------------------------------------------------------------------------

    @property
    def streams(self) -> bool:
        """Whether a user reads the first candidate while it is generated.

        Logprobs and token ids do not fit into deltas; a request for them gets a whole answer.
        """
        if not self.live or self.final_answer is not None or self.streamed_candidate is not None:
            return False
        body = self.request.body
        needs_whole = body.get("logprobs") or body.get("return_token_ids")
        return not needs_whole and any(waiter.stream for waiter in self.waiters)

    @property
    def held(self) -> list[Candidate]:
        """Candidates that hold an episode, which has to be ended or aborted."""
        return [one for one in self.candidates if one.uuid]

    def reset(self, n: int) -> None:
        """Start over with `n` empty slots."""
        self.n = n
        self.candidates = [Candidate(index) for index in range(n)]
        self.refresh_usable()

    def refresh_usable(self) -> None:
        """Recompute `usable` after the candidates, or their answers, have changed; let the waiters
        whose deadline has passed call `spend_budget` again."""
        self.usable = [one for one in self.candidates if one.answer is not None]
        now = self.loop.time()
        for waiter in self.waiters:
            if waiter.deadline <= now:
                waiter.wake()

    def record_claim(self, slot: Candidate, uuid: str) -> None:
        """Record that an episode was claimed for this slot."""
        slot.uuid = uuid
        slot.attempt += 1
        slot.lost = slot.superseded = slot.ending = False
        self.facts.hold(uuid, slot)

    def release_slot(self, slot: Candidate) -> None:
        """Record that the episode of the slot was ended or returned."""
        self.facts.drop(slot.uuid, slot)
        slot.uuid, slot.claimed = "", None

    def give_back(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, which returns episodes, while the group goes on.

        A server may acknowledge an abort late, and the user must not wait for that.
        """
        self.returning = [one for one in self.returning if not one.done()]
        self.returning.append(self.facts.spawn(work, f"return:{self.group_id}"))

    async def returned(self) -> None:
        """Wait until the tasks of `give_back` are done."""
        while self.returning:
            await asyncio.wait(self.returning)
            self.returning = [one for one in self.returning if not one.done()]

    def best(self) -> Candidate | None:
        """Return the usable candidate with the highest automatic reward; without scores the first
        with text."""
        usable = self.usable
        if self.sheet is None or not self.sheet.scores:
            return min(usable, key=lambda one: one.is_blank, default=None)
        rewards = {score.index: score.reward for score in self.sheet.scores}
        return best_of(usable, rewards)

    @property
    def weights(self) -> str | None:
        """Versions of the weights that generate its candidates.

        None while it is about to claim; empty while the engine collects nothing, and where nothing
        is trained.
        """
        if self.phase in ("QUEUED", "CLAIMING"):
            soon = self.facts.server.watcher.current.is_in(ROLLING)
            return None if soon and self.facts.server.trains else ""
        return weights_of(self, self.candidates)

    def leave_queue(self) -> None:
        """Let the next group claim: no episode is held any more."""
        if self.entry is not None:
            self.entry.leave()

    # --- the answer ----------------------------------------------------------------------------

    def join(self, stream: bool) -> AnswerWaiter:
        """Add a waiter."""
        proxy = self.context.settings.proxy
        budget = proxy.stream_budget if stream else proxy.answer_budget
        limit = 0.0 if stream else proxy.answer_limit
        waiter = AnswerWaiter(self, stream, budget, self.loop, limit)
        self.waiters.add(waiter)
        if self.final_answer is not None:
            waiter.deliver(self.final_answer)
        return waiter

    def waiter_left(self, waiter: AnswerWaiter) -> None:
        """Remove a waiter."""
        self.waiters.discard(waiter)
        if not self.waiters and self.final_answer is None:
            self.on_abandoned(self)

    def overloaded(self, retry_after: int, message: str = BUSY) -> ApiError:
        """Return the 503 of the server of the group: see `ServerHandle.overloaded`."""
        return self.facts.server.overloaded(self.request.model, retry_after, message)

    def spend_budget(self, waiter: AnswerWaiter) -> float:
        """Give a waiter whose deadline has passed the best answer so far.

        Without any it waits on until its limit, or until the server soon reclaims the episodes. The
        error is then a 504, upon which the SDKs do not repeat the request; it is a 503 for a
        stream, and for a request that holds no episode.
        """
        now, end = self.loop.time(), waiter.limit
        if self.streamed_candidate is None and (best := self.best()) is not None:
            self.resolve(best, "provisional")
            return now
        generates = self.phase == "GENERATING" and not waiter.stream
        if generates and self.facts.server.intent_is_durable:
            end = min(end, now + self.clock - self.context.clock())
        if now < end and waiter.late_error is None:
            return end
        text = "No answer was ready in time. Please try again later."
        late = AnswerTimedOut() if generates else self.overloaded(2, text)
        error = FinalAnswer(None, (), "error", waiter.late_error or late)
        waiter.deliver(error)
        self.waiters.discard(waiter)
        if not self.waiters:
            self.set_final_answer(error, (waiter,))
            self.on_abandoned(self)
        return now

    def resolve(self, candidate: Candidate, why: str) -> None:
        """Give the user the answer of this candidate first; only the first call counts.

        Once deltas of an answer were sent, only that answer can be given.
        """
        if self.final_answer is None and (
            self.streamed_candidate is None or self.streamed_candidate is candidate
        ):
            chosen = _choices(self, candidate)
            answers = tuple([one.answer for one in chosen if one.answer is not None])
            others = tuple([one.index for one in chosen[1:]])
            weights = weights_of(self, chosen)
            reply = FinalAnswer(candidate.index, answers, why, others=others, weights=weights)
            self.set_final_answer(reply)

    def add_delta(self, delta: dict[str, Any]) -> None:
        """Pass on a delta of the streamed candidate."""
        if not self.deltas and self.waiters:
            self.latency["first_piece"] = self._waited(self.waiters)
        self.deltas.append(delta)
        for waiter in self.waiters:
            waiter.wake()

    def refuse(self, refusal: ApiError) -> None:
        """Answer the user with an error, unless there was an answer before."""
        self.set_final_answer(FinalAnswer(None, (), "error", refusal))

    def set_final_answer(self, reply: FinalAnswer, removed: tuple[AnswerWaiter, ...] = ()) -> None:
        """Fix the answer and deliver it to all waiters; only the first call counts."""
        if self.final_answer is not None:
            return
        self.final_answer = reply
        listeners = (*self.waiters, *removed)
        if listeners:
            waited = self._waited(listeners)
            keepalives = max([waiter.keepalives for waiter in listeners])
            self.latency |= {"answered": waited, "keepalives": keepalives}
            self.context.bus.publish(
                AnswerReturned(
                    server=self.facts.server.name,
                    group_id=self.group_id,
                    index=reply.index,
                    why=reply.why,
                    waited=waited,
                    keepalives=keepalives,
                    others=reply.others,
                )
            )
        self.on_answer(self)
        for waiter in tuple(self.waiters):
            waiter.deliver(reply)

    def _waited(self, listeners: Iterable[AnswerWaiter]) -> float:
        """Return the seconds since the first of them began to wait."""
        now = self.loop.time()
        return round(now - min([waiter.started_at for waiter in listeners]), 6)


def ranked(candidates: list[Candidate], rewards: dict[int, float]) -> list[Candidate]:
    """Sort candidates by reward, highest first.

    A tie goes to the lowest index; candidates without a reward come last.
    """
    worst = float("-inf")
    return sorted(candidates, key=lambda one: (-rewards.get(one.index, worst), one.index))


def best_of(candidates: list[Candidate], rewards: dict[int, float]) -> Candidate | None:
    """Return the candidate with the highest reward, of equal ones the first; None without any."""
    worst = float("-inf")
    best, highest = None, worst
    for one in candidates:
        reward = rewards.get(one.index, worst)
        if best is None or reward > highest or (reward == highest and one.index < best.index):
            best, highest = one, reward
    return best


def weights_of(run: GroupRun, candidates: Iterable[Candidate]) -> str:
    """Return the versions of the weights of some candidates; empty where nothing is trained."""
    if not run.facts.server.trains:
        return ""
    state, name = run.context.bus.state, run.facts.server.name
    versions = {}
    for one in candidates:
        key = (one.training_run, one.step, one.later_step)
        if key not in versions:
            version = state.weights(name, one.training_run, one.step)
            if one.later_step is not None:
                version = replace(version, later_step=one.later_step)
            versions[key] = version.text
    return ", ".join(versions.values())


def _choices(run: GroupRun, first: Candidate) -> list[Candidate]:
    """Return as many usable candidates as the request has choices, in the present order."""
    count = run.request.n
    if count == 1:
        return [first]
    rewards = dict(run.votes.rewards)
    if not rewards and run.sheet is not None:
        rewards = {score.index: score.reward for score in run.sheet.scores}
    others = [one for one in run.usable if one is not first]
    return [first, *ranked(others, rewards)][:count]


class OpenGroups(Protocol):
    """The registry of open groups."""

    context: ProxyContext
    runs: dict[str, GroupRun]
    """By id."""


def find_open(groups: OpenGroups, group_id: str) -> GroupRun:
    """Return an open group that can still change.

    Raises:
        NotNow: There is no such group, or it is finished.
    """
    run = groups.runs.get(group_id)
    if run is None or run.closing or run.sealed:
        raise NotNow(f"group {group_id} is already finished")
    return run


def shortfall(run: GroupRun) -> tuple[str, TooFewAnswers | None]:
    """Return how many candidates answered and why the others did not, as text and by kind; empty
    and None if all did."""
    if len(run.usable) >= run.n:
        return "", None
    causes: dict[str, list[str]] = {}
    for one in run.candidates:
        if not one.usable:
            causes.setdefault(_why_failed(one), []).append(str(one.index + 1))
    details = [
        f"candidate{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} {cause}"
        for cause, numbers in causes.items()
    ]
    text = "; ".join([f"short: {len(run.usable)} of {run.n} candidates answered", *details])
    return text, TooFewAnswers(answered=len(run.usable), of=run.n)


def _why_failed(candidate: Candidate) -> str:
    failure = candidate.failure
    if failure is None:
        return "not asked"
    verb = "aborted" if failure.kind is ChatErrorKind.TIMED_OUT else "failed"
    why = one_line(failure.text, 160) or failure.kind.value
    more = f" (not retried: {candidate.unretried})" if candidate.unretried else ""
    return f"{verb}: {why}{more}"
