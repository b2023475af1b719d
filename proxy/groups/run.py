"""One open group: `Run`, which consists of parts.

| part | what it has, and the changes of it |
|---|---|
| `request` | what the client asked for |
| `task` | what the group is for the trainer: dataset row, id, metadata, kind of episode |
| `slots` | the candidates and the episodes that they hold |
| `answer` | the users who wait, and what they get (`proxy.groups.answer`) |
| `scores` | the automatic rewards |
| `votes` | what raters say, and what ends the wait for them |
| `clocks` | how long each phase took |

`lifecycle` takes a run through its phases.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from ajet_swarm.api.chat import ChatAnswer
from ajet_swarm.common.text import content_text
from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.episodes.queue import Origin, QueueEntry
from ajet_swarm.protocol.errors import ChatError
from ajet_swarm.protocol.schemas import Claimed
from core.bus import Bus
from core.commands.spec import NotNow
from core.dialects.errors import ApiError
from core.events import (
    AnsweredCandidate,
    AnswerReturned,
    CandidatesAnswered,
    ClaimedEpisode,
    EndedEpisode,
    EpisodesClaimed,
    EpisodesEnded,
)
from core.events.causes import GroupCause
from core.state import Rating
from proxy.context import ProxyContext
from proxy.dataset_rows import Row
from proxy.dialects.request import ChatRequest
from proxy.groups.answer import AnswerWaiter, FinalAnswer, GroupAnswer
from proxy.http.errors import BUSY, AnswerTimedOut
from proxy.rewards.source import ScoreSheet
from proxy.servers.facts import ROLLING, ServerFacts

_PHASE_SPANS = {
    "QUEUED": "queue",
    "GENERATING": "generate",
    "SCORING": "score",
    "AWAITING_RATING": "rate",
    "SUBMITTING": "submit",
}


class GroupTask(msgspec.Struct):
    """What a group is for the trainer."""

    id: str
    metadata: dict[str, Any]
    row: Row | None = None
    kind: str = "train"
    """train, eval or observe."""
    untrained: str = "not trained on"
    """The cause with which an eval group is closed."""


# --- the candidates ------------------------------------------------------------------------------


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
    holding: Holding | None = None
    """The claim of the episode."""
    claimed_step: int | None = None
    """Global step, as last read, when the episode was claimed."""
    step: int | None = None
    """Global step of the weights that answered; before that `claimed_step`."""
    later_step: int | None = None
    """See `core.state.server.WeightVersion`."""
    training_run: int = 0
    """Number of the training run of these weights; 0 if unknown."""

    @property
    def superseded(self) -> bool:
        """Whether the server has granted the episode to this proxy again."""
        return self.holding is not None and self.holding.superseded

    @property
    def ending(self) -> bool:
        """Whether its end was begun."""
        return self.holding is not None and self.holding.left_by == "end"

    @property
    def is_blank(self) -> bool:
        """Whether its answer has neither text nor tool calls."""
        message = {} if self.answer is None else self.answer.message
        return not (message.get("tool_calls") or content_text(message.get("content")).strip())


class Slots(msgspec.Struct, eq=False):
    """The candidates of a run, and the episodes that they hold."""

    facts: ServerFacts
    n: int
    candidates: list[Candidate] = []
    usable: list[Candidate] = []
    """Those with an answer, by index."""
    discard_timeout: float = 240.0
    first_claim_at: float = 0.0
    cut_stragglers: bool = False
    """The straggler rule aborted candidates in this round."""
    limit_used: bool = False
    """The straggler rule aborted candidates in any round: `straggler_limit` no longer applies while
    the run has no answer, otherwise a slow model would never finish one."""
    returning: list[asyncio.Task[None]] = []
    """Tasks that return episodes while the group goes on."""

    @property
    def held(self) -> list[Candidate]:
        """Candidates that hold an episode, which has to be ended or aborted."""
        return [slot for slot in self.candidates if slot.uuid]

    @property
    def clock(self) -> float:
        """Unix seconds at which the group must be sealed: the server soon reclaims its first
        episode.

        A margin of a tenth, at most 10 s, leaves time to end the episodes.
        """
        limit = self.discard_timeout
        active = min([slot.active_at for slot in self.usable], default=self.first_claim_at)
        return min(active + limit, self.first_claim_at + 2 * limit) - min(10.0, limit / 10)

    def reset(self) -> None:
        """Start over with `n` empty slots."""
        self.candidates, self.usable = [Candidate(index) for index in range(self.n)], []

    def set_answer(self, slot: Candidate, answer: ChatAnswer | None) -> None:
        """Set or remove the answer of a slot."""
        slot.answer = answer
        self.usable = [other for other in self.candidates if other.answer is not None]

    def record_claim(self, slot: Candidate, uuid: str) -> None:
        """Record that an episode was claimed for this slot."""
        slot.uuid = uuid
        slot.attempt += 1
        slot.lost = False
        slot.holding = self.facts.server.claimer.ends.holdings.by_uuid[uuid]

    def release(self, slot: Candidate) -> None:
        """Record that the episode of the slot was ended or returned."""
        slot.uuid, slot.claimed, slot.holding = "", None, None

    def give_back(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, which returns episodes, while the group goes on.

        A server may acknowledge an abort late, and the user must not wait for that.
        """
        self.returning = [task for task in self.returning if not task.done()]
        self.returning.append(self.facts.spawn(work, "return"))

    async def returned(self) -> None:
        """Wait until the tasks of `give_back` are done."""
        while self.returning:
            await asyncio.wait(self.returning)
            self.returning = [task for task in self.returning if not task.done()]


class EpisodeEvents(msgspec.Struct, eq=False):
    """What happened to the episodes of a run in this iteration of the loop.

    Claims, answers and ends of a group mostly arrive together: one event of each kind has them all,
    which takes the readers of events and the journal a quarter of the time.
    """

    bus: Bus
    server: str
    group_id: str
    claims: list[ClaimedEpisode] = []
    answers: list[AnsweredCandidate] = []
    ends: list[EndedEpisode] = []
    step: int | None = None
    """Global step of the newest claim."""
    training_run: int = 0
    """Number of its training run."""

    def add(self, happening: ClaimedEpisode | AnsweredCandidate | EndedEpisode) -> None:
        """Publish this before the iteration of the loop ends, or with the next `flush`."""
        if not (self.claims or self.answers or self.ends):
            asyncio.get_running_loop().call_soon(self.flush)
        match happening:
            case ClaimedEpisode():
                self.claims.append(happening)
            case AnsweredCandidate():
                self.answers.append(happening)
            case EndedEpisode():
                self.ends.append(happening)

    def flush(self, expires_at: float = 0.0, damping: float = 0.0) -> None:
        """Publish what is pending; the arguments are those of `EpisodesClaimed`."""
        server, group = self.server, self.group_id
        claims, self.claims = tuple(self.claims), []
        answers, self.answers = tuple(self.answers), []
        ends, self.ends = tuple(self.ends), []
        if claims:
            self.bus.publish(
                EpisodesClaimed(
                    server=server,
                    group_id=group,
                    episodes=claims,
                    step=self.step,
                    run=self.training_run,
                    expires_at=expires_at,
                    damping=damping,
                )
            )
        if answers:
            self.bus.publish(CandidatesAnswered(server=server, group_id=group, candidates=answers))
        if ends:
            self.bus.publish(EpisodesEnded(server=server, group_id=group, episodes=ends))


# --- rewards, votes, times -----------------------------------------------------------------------


class Scores(msgspec.Struct):
    """The automatic rewards of a group."""

    sheet: ScoreSheet | None = None
    """Scores of the usable candidates; None before scoring, and when the source abstained."""
    rewards: dict[int, float] = {}
    """Its rewards by candidate index."""
    abstained: str = ""
    """Part and cause of the abstention, if the source abstained."""
    at: float = 0.0
    """Unix seconds of the scoring, or of the abstention."""
    tried: str = ""
    """Version of the rewards with which the group was last scored again automatically."""


class Votes(msgspec.Struct):
    """What raters have said about an open group, and what ends the wait for them."""

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
    gives_way: bool = False
    """The group has to end now, rated or not, because a user's request waits."""
    kept_until: float = 0.0
    """Unix seconds until which its rater keeps it from giving way; 0 if he never did."""

    def of(self, rater: str, holder: str) -> Rating | None:
        """Return the vote of a rater; one without a name is known by the console."""
        return next((vote for vote in self.ballots if vote.by(rater, holder)), None)


class Clocks(msgspec.Struct, eq=False):
    """How long the phases of a run took, and its user waited."""

    loop: asyncio.AbstractEventLoop = msgspec.field(default_factory=asyncio.get_running_loop)
    latency: dict[str, float] = {}
    """Seconds by the name of the span."""
    began: float = 0.0
    """When the present span began, on the clock of the loop."""

    def mark(self, name: str) -> None:
        """End the span of that name, if one has begun, and begin the next one."""
        now = self.loop.time()
        if name and self.began:
            seconds = self.latency.get(name, 0.0) + now - self.began
            self.latency[name] = int(seconds * 1e6 + 0.5) / 1e6  # microseconds
        self.began = now


class RunEnded(Exception):
    """The end of a run.

    Args:
        phase: DONE, ABORTED or FAILED.
        cause: Cause as text.
        kind: Its kind and parameters, for a cause that code has to distinguish.
        refusal: What a user without an answer gets; None if there is an answer.
    """

    def __init__(
        self,
        phase: str,
        cause: str,
        kind: GroupCause | None = None,
        refusal: ApiError | None = None,
    ) -> None:
        super().__init__(cause)
        self.phase = phase
        self.cause = cause
        self.kind = kind
        self.refusal = refusal


@dataclass(slots=True, eq=False)
class Refill:
    """A request for fresh candidates, carried out by the task of the group itself."""

    outcome: "asyncio.Future[str]"
    """A message for people, or a `NotNow` when no candidate came."""
    causes: list[str]
    """Why candidates failed."""


# --- the group -----------------------------------------------------------------------------------


class Run(msgspec.Struct, eq=False):
    """A group from its request to its last reward."""

    context: ProxyContext
    facts: ServerFacts
    group_id: str
    opened_at: float
    request: ChatRequest
    task: GroupTask
    slots: Slots
    origin: Origin
    """Fairness key: API key, address, session."""
    may_overtake: bool
    """It overtakes others of its key and address in every second place."""
    on_abandoned: "Callable[[Run], None]"
    """Called when the last waiter has left before the answer."""
    on_answer: "Callable[[Run], None]"
    """Called when the answer is fixed, before the waiters get it."""
    events: EpisodeEvents
    votes: Votes
    answer: GroupAnswer = msgspec.field(default_factory=GroupAnswer)
    scores: Scores = msgspec.field(default_factory=Scores)
    clocks: Clocks = msgspec.field(default_factory=Clocks)
    phase: str = "QUEUED"
    entry: QueueEntry | None = None
    """Its place in the queue of claims, left when no episode is held any more; None before."""
    refill: Refill | None = None
    """The pending request for fresh candidates."""
    sealed: bool = False
    stop: RunEnded | None = None
    """Why it has to end early."""
    closing: bool = False
    """The final steps are under way: the run can no longer be stopped."""
    work: asyncio.Task[None] | None = None
    """The task that takes it through its phases."""
    wake: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when the group has to be looked at again: see `seal`."""

    @property
    def span(self) -> str:
        """The name in `clocks.latency` of what takes place now; empty after the last phase."""
        if self.phase == "CLAIMING":
            return "claim" if "queue" in self.clocks.latency else "queue"
        return _PHASE_SPANS.get(self.phase, "")

    def overloaded(self, retry_after: int, message: str = BUSY) -> ApiError:
        """Return the 503 of the server of the group: see `ServerHandle.overloaded`."""
        return self.facts.server.overloaded(self.request.model, retry_after, message)

    def leave_queue(self) -> None:
        """Let the next group claim: no episode is held any more."""
        if self.entry is not None:
            self.entry.leave()

    # --- the answer ----------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """The latest limit of its waiters, on the clock of the loop; one may join later."""
        return max(
            [waiter.limit for waiter in self.answer.waiters], default=self.clocks.loop.time()
        )

    @property
    def streams(self) -> bool:
        """Whether a user reads the first candidate while it is generated.

        Logprobs and token ids do not fit into deltas; a request for them gets a whole answer.
        """
        answer, body = self.answer, self.request.body
        if not answer.live or answer.final is not None or answer.streamed is not None:
            return False
        needs_whole = body.get("logprobs") or body.get("return_token_ids")
        return not needs_whole and any(waiter.stream for waiter in answer.waiters)

    @property
    def deltas(self) -> Sequence[dict[str, Any]]:
        """The deltas of the streamed candidate so far."""
        return self.answer.deltas

    @property
    def weights(self) -> str | None:
        """Versions of the weights that generate its candidates.

        None while it is about to claim; empty while the engine collects nothing, and where nothing
        is trained.
        """
        if self.phase in ("QUEUED", "CLAIMING"):
            soon = self.facts.server.watcher.current.is_in(ROLLING)
            return None if soon and self.facts.server.trains else ""
        return self._weights_of(self.slots.candidates)

    def _weights_of(self, candidates: Iterable[Candidate]) -> str:
        """Return the versions of the weights of some candidates; empty where nothing is trained."""
        if not self.facts.server.trains:
            return ""
        state, name = self.context.bus.state, self.facts.server.name
        versions = {}
        for slot in candidates:
            key = (slot.training_run, slot.step, slot.later_step)
            if key not in versions:
                version = state.weights(name, slot.training_run, slot.step)
                if slot.later_step is not None:
                    version = replace(version, later_step=slot.later_step)
                versions[key] = version.text
        return ", ".join(versions.values())

    def join(self, stream: bool) -> AnswerWaiter:
        """Add a waiter."""
        proxy = self.context.settings.proxy
        budget = proxy.stream_budget if stream else proxy.answer_budget
        limit = 0.0 if stream else proxy.answer_limit
        waiter = AnswerWaiter(self, stream, budget, self.clocks.loop, limit)
        self.answer.waiters.add(waiter)
        if self.answer.final is not None:
            waiter.deliver(self.answer.final)
        return waiter

    def waiter_left(self, waiter: AnswerWaiter) -> None:
        """Remove a waiter."""
        self.answer.waiters.discard(waiter)
        if not self.answer.waiters and self.answer.final is None:
            self.on_abandoned(self)

    def spend_budget(self, waiter: AnswerWaiter) -> float:
        """Give a waiter whose deadline has passed the best answer so far.

        Without any it waits on until its limit, or until the server soon reclaims the episodes. The
        error is then a 504, upon which the SDKs do not repeat the request; it is a 503 for a
        stream, and for a request that holds no episode.
        """
        now, end = self.clocks.loop.time(), waiter.limit
        if self.answer.streamed is None and (best := self.best()) is not None:
            self.resolve(best, "provisional")
            return now
        generates = self.phase == "GENERATING" and not waiter.stream
        if generates and self.facts.server.intent_is_durable:
            end = min(end, now + self.slots.clock - self.context.clock())
        if now < end and waiter.late_error is None:
            return end
        text = "No answer was ready in time. Please try again later."
        late = AnswerTimedOut() if generates else self.overloaded(2, text)
        error = FinalAnswer(None, (), "error", waiter.late_error or late)
        waiter.deliver(error)
        self.answer.waiters.discard(waiter)
        if not self.answer.waiters:
            self._fix(error, (waiter,))
            self.on_abandoned(self)
        return now

    def best(self) -> Candidate | None:
        """Return the usable candidate with the highest reward, by the vote if there is one; without
        rewards the first with text."""
        rewards = self.votes.rewards or self.scores.rewards
        if not rewards:
            return min(self.slots.usable, key=lambda slot: slot.is_blank, default=None)
        best = ranked(self.slots.usable, rewards)
        return best[0] if best else None

    def resolve(self, candidate: Candidate, why: str) -> None:
        """Give the user the answer of this candidate first; only the first call counts.

        Once deltas of an answer were sent, only that answer can be given.
        """
        if self.answer.final is None and self.answer.streamed in (None, candidate.index):
            chosen = [candidate]
            if (count := self.request.n) > 1:
                others = [slot for slot in self.slots.usable if slot is not candidate]
                rewards = self.votes.rewards or self.scores.rewards
                chosen = [candidate, *ranked(others, rewards)][:count]
            answers = tuple([slot.answer for slot in chosen if slot.answer is not None])
            indices = tuple([slot.index for slot in chosen[1:]])
            weights = self._weights_of(chosen)
            self._fix(FinalAnswer(candidate.index, answers, why, others=indices, weights=weights))

    def refuse(self, refusal: ApiError) -> None:
        """Answer the user with an error, unless there was an answer before."""
        self._fix(FinalAnswer(None, (), "error", refusal))

    def add_delta(self, candidate: Candidate, delta: dict[str, Any]) -> None:
        """Pass on a delta of the candidate that the user reads while it is generated."""
        if self.answer.final is not None:
            return
        self.answer.streamed = candidate.index
        if not self.answer.deltas and self.answer.waiters:
            self.clocks.latency["first_piece"] = self._waited(self.answer.waiters)
        self.answer.deltas.append(delta)
        for waiter in self.answer.waiters:
            waiter.wake()

    def _fix(self, reply: FinalAnswer, removed: tuple[AnswerWaiter, ...] = ()) -> None:
        """Fix the answer and deliver it to all waiters; only the first call counts."""
        if self.answer.final is not None:
            return
        self.answer.final = reply
        listeners = (*self.answer.waiters, *removed)
        if listeners:
            waited = self._waited(listeners)
            keepalives = max([waiter.keepalives for waiter in listeners])
            self.clocks.latency |= {"answered": waited, "keepalives": keepalives}
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
        for waiter in tuple(self.answer.waiters):
            waiter.deliver(reply)

    def _waited(self, listeners: Iterable[AnswerWaiter]) -> float:
        """Return the seconds since the first of them began to wait."""
        return round(self.clocks.loop.time() - min([waiter.started_at for waiter in listeners]), 6)


def ranked(candidates: Iterable[Candidate], rewards: dict[int, float]) -> list[Candidate]:
    """Sort candidates by reward, highest first.

    A tie goes to the lowest index; candidates without a reward come last.
    """
    worst = float("-inf")
    return sorted(candidates, key=lambda slot: (-rewards.get(slot.index, worst), slot.index))


def find_open(runs: Mapping[str, Run], group_id: str) -> Run:
    """Return the open group of that id, which can still change.

    Raises:
        NotNow: There is no such group, or it is finished.
    """
    run = runs.get(group_id)
    if run is None or run.closing or run.sealed:
        raise NotNow(f"group {group_id} is already finished")
    return run
