"""One group while it lives: its candidates, who waits for its answer, and what is known of it.

Only facts and small moves on them; `lifecycle` walks a run through its phases.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from ajet_swarm.api.outcomes import ChatAnswer, Claimed
from ajet_swarm.claims.shares import Lane
from ajet_swarm.common.tasks import Deadline
from ajet_swarm.common.text import content_text
from ajet_swarm.protocol.errors import ChatError
from core.events import AnswerReturned
from core.state import Rating
from proxy.context import ProxyContext
from proxy.dataset_rows import Row
from proxy.dialects.request import ChatRequest
from proxy.groups.event_batch import EpisodeEventBatch
from proxy.groups.waiter import AnswerWaiter, Delta, FinalAnswer
from proxy.http.errors import BUSY, ApiError
from proxy.rewards.source import ScoreSheet
from proxy.servers.server_facts import ServerFacts

_PHASE_SPANS = {
    "QUEUED": "queue",
    "GENERATING": "generate",
    "SCORING": "score",
    "AWAITING_RATING": "rate",
    "SUBMITTING": "submit",
}

__all__ = [
    "AnswerWaiter",
    "Candidate",
    "Delta",
    "FinalAnswer",
    "Gate",
    "GroupRun",
    "StopReason",
    "best_of",
    "ranked",
]


class Candidate(msgspec.Struct):
    """One place in a group, and the episode that fills it now."""

    index: int
    uuid: str = ""
    claimed: Claimed | None = None
    attempt: int = 0
    answer: ChatAnswer | None = None
    seconds: float = 0.0
    active_at: float = 0.0
    """Unix seconds of the last sign of life the server saw."""
    error: str = ""
    failure: ChatError | None = None
    """The last one, whatever came of the place since."""
    unretried: str = ""
    """Why no fresh episode took the place of the failed one; empty when one did."""
    lost: bool = False
    """The server no longer knows the episode as ours, or may not: never abort it unseen."""
    superseded: bool = False
    """The same episode was claimed anew for another candidate of ours since: hands off."""

    @property
    def usable(self) -> bool:
        return self.answer is not None

    @property
    def is_blank(self) -> bool:
        """Whether its answer has neither text nor tool calls."""
        message = {} if self.answer is None else self.answer.message
        return not (message.get("tool_calls") or content_text(message.get("content")).strip())


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why a run was told to end before its time."""

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


class Gate(Protocol):
    """Bounds the groups that hold episodes, and lets senders take turns."""

    async def enter(
        self, lane: Lane, deadline: Deadline, size: int = 1, newcomer: bool = False
    ) -> None:
        """Wait for a turn.

        Args:
            lane: Whose turn it is: key, address, session.
            deadline: On the loop's clock.
            size: Episodes it wants.
            newcomer: It passes others of its key and address in every second turn.

        Raises:
            TimeoutError: it did not come before the deadline.
        """
        ...

    def claimed(self) -> None:
        """The group has all its episodes: the next one may claim."""
        ...

    def leave(self) -> None:
        """Nothing is held any more."""
        ...


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
    """Called when the last listener has left before the answer."""
    kind: str = "train"
    untrained: str = "not trained on"
    """What an eval group is closed with."""
    phase: str = "QUEUED"
    candidates: list[Candidate] = []
    usable: list[Candidate] = []
    """Candidates with an answer, by index; see `refresh_usable`."""
    waiters: set[AnswerWaiter] = set()
    lane: Lane = ("", "", "")
    """Whom it takes turns with: key, address, session."""
    newcomer: bool = False
    """It passes others of its key and address in every second turn."""
    gate: Gate | None = None
    """Entered before claiming, left when nothing is held any more."""
    entered: bool = False
    generation_announced: bool = False
    """That its generation starts was told with its claims."""
    final_answer: FinalAnswer | None = None
    live: bool = False
    """The user gets the first candidate, whatever wins."""
    streamed_candidate: Candidate | None = None
    """Whose pieces the user has begun to read: no other answer may follow them."""
    deltas: list[dict[str, Any]] = []
    """The lead's deltas so far."""
    sheet: ScoreSheet | None = None
    """Scores of the usable candidates; None before, and when the source abstained."""
    abstained: str = ""
    """Part and cause of the abstention, where the source abstained."""
    rating: Rating | None = None
    votes: int = 0
    """How many there were, replaced and undone ones too."""
    first_rated_at: float | None = None
    """Unix seconds of the first vote since there was none."""
    rated: dict[int, float] = {}
    """Rewards by candidate that the rating means."""
    rated_from: str = ""
    """The console that the rating came from; empty when it did not say."""
    accepted: bool = False
    refill: Refill | None = None
    """Fresh candidates that were ordered and are not there yet."""
    scored_at: float = 0.0
    discard_timeout: float = 240.0
    first_claim_at: float = 0.0
    sealed: bool = False
    rescored: str = ""
    """Version of the rewards by which the group was last scored again on its own accord."""
    cut_stragglers: bool = False
    """The rule for stragglers aborted its candidates in this round."""
    limit_used: bool = False
    """The rule for stragglers aborted its candidates in any round: `straggler_limit` no longer
    applies while the run has no answer, else a slow model would never finish one."""
    returning: list[asyncio.Task[None]] = []
    """Episodes being given back while the group goes on."""
    needs_sweep: bool = False
    """The server may hold an episode that nobody here ends or aborts any more."""
    rewards_taken: int = 0
    """Rewards the server took."""
    stop: StopReason | None = None
    closing: bool = False
    """The last steps are under way: nothing can stop it any more."""
    task: asyncio.Task[None] | None = None
    wake: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    latency: dict[str, float] = {}
    episode_events: EpisodeEventBatch = None  # type: ignore[assignment]  # made once the others are known
    """Of its episodes."""
    loop: asyncio.AbstractEventLoop = msgspec.field(default_factory=asyncio.get_running_loop)
    """Asked for once: asyncio's own look-up costs a call to the system each time."""
    _phase_began: float = 0.0

    def __post_init__(self) -> None:
        name = self.facts.server.name
        self.episode_events = EpisodeEventBatch(self.context.bus, name, self.group_id, self.loop)

    # --- time ----------------------------------------------------------------------------------

    def mark_phase_end(self, name: str) -> None:
        """The time since the last lap belongs to `name`; the first call begins."""
        now = self.loop.time()
        if name and self._phase_began:
            self.latency[name] = round(self.latency.get(name, 0.0) + now - self._phase_began, 6)
        self._phase_began = now

    @property
    def current_span(self) -> str:
        """What the time since the last lap was spent on; empty after the last phase."""
        if self.phase == "CLAIMING":
            return "claim" if "queue" in self.latency else "queue"
        return _PHASE_SPANS.get(self.phase, "")

    @property
    def deadline(self) -> float:
        """When the last listener's patience is over, on the loop's clock; it may be postponed."""
        now = self.loop.time()
        return max([waiter.deadline for waiter in self.waiters], default=now)

    @property
    def clock(self) -> float:
        """Unix seconds at which the group must be sealed: its first episode is taken back soon.

        A margin of a tenth, at most 10 s, leaves time for the ends.
        """
        limit = self.discard_timeout
        margin = min(10.0, limit / 10)
        active = min([one.active_at for one in self.usable], default=self.first_claim_at)
        return min(active + limit, self.first_claim_at + 2 * limit) - margin

    # --- candidates ----------------------------------------------------------------------------

    @property
    def streams(self) -> bool:
        """Whether somebody would read the first candidate as it comes.

        What pieces cannot carry (logprobs, token ids) is told with a whole answer only.
        """
        if not self.live or self.final_answer is not None or self.streamed_candidate is not None:
            return False
        body = self.request.body
        whole = body.get("logprobs") or body.get("return_token_ids")
        return not whole and any(waiter.stream for waiter in self.waiters)

    @property
    def held(self) -> list[Candidate]:
        """Candidates whose episode is still ours to end or abort."""
        return [one for one in self.candidates if one.uuid]

    def reset(self, n: int) -> None:
        """`n` empty places."""
        self.n = n
        self.candidates = [Candidate(index) for index in range(n)]
        self.refresh_usable()

    def refresh_usable(self) -> None:
        """Candidates, or their answers, have changed."""
        self.usable = [one for one in self.candidates if one.answer is not None]

    def take(self, place: Candidate, uuid: str) -> None:
        """An episode was claimed for this place."""
        place.uuid = uuid
        place.attempt += 1
        place.lost = place.superseded = False
        self.facts.hold(uuid, place)

    def release_place(self, place: Candidate) -> None:
        """The place's episode was ended or given back."""
        self.facts.drop(place.uuid, place)
        place.uuid, place.claimed = "", None

    def give_back(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, which gives back episodes, while the group goes on: a server may answer an
        abort late, and the user must not wait for that."""
        self.returning.append(self.facts.spawn(work, f"return:{self.group_id}"))

    async def returned(self) -> None:
        """Wait until the episodes of `give_back` are given back."""
        while self.returning:
            await asyncio.wait(self.returning)
            self.returning = [one for one in self.returning if not one.done()]

    def best(self) -> Candidate | None:
        """The usable candidate with the highest automatic reward; unscored the first with text."""
        usable = self.usable
        if self.sheet is None or not self.sheet.scores:
            return min(usable, key=lambda one: one.is_blank, default=None)
        rewards = {score.index: score.reward for score in self.sheet.scores}
        return best_of(usable, rewards)

    def leave_gate(self) -> None:
        """Nothing is held any more: the next one's turn."""
        if self.gate is not None and self.entered:
            self.entered = False
            self.gate.leave()

    # --- the answer ----------------------------------------------------------------------------

    def join(self, stream: bool) -> AnswerWaiter:
        """One listener more."""
        proxy = self.context.settings.proxy
        budget = proxy.stream_budget if stream else proxy.answer_budget
        waiter = AnswerWaiter(self, stream, budget, self.loop)
        self.waiters.add(waiter)
        if self.final_answer is not None:
            waiter.deliver(self.final_answer)
        return waiter

    def waiter_left(self, waiter: AnswerWaiter) -> None:
        """A listener has gone."""
        self.waiters.discard(waiter)
        if not self.waiters and self.final_answer is None:
            self.on_abandoned(self)

    def overloaded(self, retry_after: int, message: str = BUSY) -> ApiError:
        """A 503 of the group's server: see `ServerSeat.busy`."""
        return self.facts.server.overloaded(self.request.model, retry_after, message)

    def spend_budget(self, waiter: AnswerWaiter) -> None:
        """A listener's patience is over: give it what there is."""
        if self.streamed_candidate is None and (best := self.best()) is not None:
            self.resolve(best, "provisional")
            return
        text = "No answer was ready in time. Please try again later."
        late = FinalAnswer(None, (), "error", waiter.late_error or self.overloaded(2, text))
        waiter.deliver(late)
        self.waiters.discard(waiter)
        if not self.waiters:
            self.set_final_answer(late, (waiter,))
            self.on_abandoned(self)

    def resolve(self, candidate: Candidate, why: str) -> None:
        """The user gets this candidate's answer first; the first word holds.

        Once pieces of an answer were told, only that answer can be given.
        """
        if self.final_answer is None and (
            self.streamed_candidate is None or self.streamed_candidate is candidate
        ):
            chosen = self._choices(candidate)
            answers = tuple([one.answer for one in chosen if one.answer is not None])
            others = tuple([one.index for one in chosen[1:]])
            self.set_final_answer(FinalAnswer(candidate.index, answers, why, others=others))

    def _choices(self, first: Candidate) -> list[Candidate]:
        """As many usable candidates as choices were asked for, by the order known now."""
        wanted = self.request.n
        if wanted == 1:
            return [first]
        rewards = dict(self.rated)
        if not rewards and self.sheet is not None:
            rewards = {score.index: score.reward for score in self.sheet.scores}
        others = [one for one in self.usable if one is not first]
        return [first, *ranked(others, rewards)][:wanted]

    def add_delta(self, delta: dict[str, Any]) -> None:
        """A part of the lead's answer came."""
        if not self.deltas and self.waiters:
            self.latency["first_piece"] = self._waited(self.waiters)
        self.deltas.append(delta)
        for waiter in self.waiters:
            waiter.wake()

    def refuse(self, refusal: ApiError) -> None:
        """The user gets an error; nothing when it was answered before."""
        self.set_final_answer(FinalAnswer(None, (), "error", refusal))

    def set_final_answer(self, reply: FinalAnswer, told: tuple[AnswerWaiter, ...] = ()) -> None:
        """Fix the reply and tell everybody; only the first one counts."""
        if self.final_answer is not None:
            return
        self.final_answer = reply
        listeners = (*self.waiters, *told)
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
        for waiter in tuple(self.waiters):
            waiter.deliver(reply)

    def _waited(self, listeners: Iterable[AnswerWaiter]) -> float:
        """Seconds since the first of them came."""
        now = self.loop.time()
        return round(now - min([waiter.started_at for waiter in listeners]), 6)


def ranked(candidates: list[Candidate], rewards: dict[int, float]) -> list[Candidate]:
    """Highest reward first; a tie goes to the lowest index; those without a reward come last."""
    worst = float("-inf")
    return sorted(candidates, key=lambda one: (-rewards.get(one.index, worst), one.index))


def best_of(candidates: list[Candidate], rewards: dict[int, float]) -> Candidate | None:
    """The first of `ranked`."""
    worst = float("-inf")
    best, most = None, worst
    for one in candidates:
        reward = rewards.get(one.index, worst)
        if best is None or reward > most or (reward == most and one.index < best.index):
            best, most = one, reward
    return best
