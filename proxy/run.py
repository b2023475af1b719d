"""One group while it lives: its candidates, who waits for its answer, and what is known of it.

Only facts and small moves on them; `lifecycle` walks a run through its phases.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.events import AnswerReturned
from core.state import Rating
from proxy.conversation import ChatRequest
from proxy.errors import Refusal, busy
from proxy.rewards.base import ScoreSheet
from proxy.rows import Row
from proxy.seat import Seat
from proxy.sense import Sense
from swarm.answers import ChatAnswer, Claimed


@dataclass(slots=True)
class Candidate:
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
    lost: bool = False
    """The server no longer knows the episode as ours, or may not: never abort it unseen."""
    taken: bool = False
    """The same episode was claimed anew for another candidate of ours since: hands off."""

    @property
    def usable(self) -> bool:
        return self.answer is not None


@dataclass(frozen=True, slots=True)
class Reply:
    """What the user gets: a candidate's completion, or a refusal."""

    index: int | None
    answer: ChatAnswer | None
    why: str
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run was told to end before its time."""

    cause: str
    phase: str
    refusal: Refusal


class Ticket:
    """One listener of a run: a user that waits for its answer."""

    def __init__(self, run: "Run", stream: bool, budget: float) -> None:
        loop = asyncio.get_running_loop()
        self.run = run
        self.stream = stream
        self.began = loop.time()
        self.deadline = self.began + budget
        self.keepalives = 0
        self._reply: asyncio.Future[Reply | None] = loop.create_future()

    @property
    def group_id(self) -> str:
        return self.run.group_id

    @property
    def left(self) -> bool:
        """The user is gone."""
        return self._reply.done() and self._reply.result() is None

    async def next(self, seconds: float) -> Reply | None:
        """The reply, or None: `seconds` have passed without one, or the user has left.

        At the ticket's budget the provisional best is the reply; without any candidate by then it
        is a 503.
        """
        loop = asyncio.get_running_loop()
        left = self.deadline - loop.time()
        if left <= 0 and not self._reply.done():
            self.run.spend_budget(self)
        if not self._reply.done():
            await asyncio.wait((self._reply,), timeout=min(seconds, max(left, 0.0)))
        if self._reply.done():
            return self._reply.result()
        if loop.time() >= self.deadline:
            return await self.next(seconds)
        self.keepalives += 1
        return None

    def leave(self) -> None:
        """The user is gone, or was told off; the last one to leave ends the run."""
        if not self._reply.done():
            self._reply.set_result(None)
            self.run.left(self)

    def give(self, reply: Reply) -> None:
        """Hand the reply over."""
        if not self._reply.done():
            self._reply.set_result(reply)


@dataclass(slots=True, eq=False)
class Run:
    """A group from its request to its last reward."""

    seat: Seat
    sense: Sense
    group_id: str
    request: ChatRequest
    row: Row | None
    n: int
    task_id: str
    metadata: dict[str, Any]
    opened_at: float
    on_alone: "Callable[[Run], None]"
    """Called when the last listener has left before the answer."""
    kind: str = "train"
    untrained: str = "not trained on"
    """What an eval group is closed with."""
    phase: str = "QUEUED"
    candidates: list[Candidate] = field(default_factory=list)
    tickets: set[Ticket] = field(default_factory=set)
    reply: Reply | None = None
    sheet: ScoreSheet | None = None
    """Scores of the usable candidates; None before, and when the source abstained."""
    rating: Rating | None = None
    rated: dict[int, float] = field(default_factory=dict)
    """Rewards by candidate that the rating means."""
    accepted: bool = False
    scored_at: float = 0.0
    discard_timeout: float = 240.0
    first_claim_at: float = 0.0
    sealed: bool = False
    leftovers: bool = False
    """The server may hold an episode that nobody here ends or aborts any more."""
    ended: int = 0
    """Rewards the server took."""
    stop: Stop | None = None
    closing: bool = False
    """The last steps are under way: nothing can stop it any more."""
    task: asyncio.Task[None] | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    latency: dict[str, float] = field(default_factory=dict)
    _lap: float = 0.0

    # --- time ----------------------------------------------------------------------------------

    def lap(self, name: str) -> None:
        """The time since the last lap belongs to `name`."""
        now = asyncio.get_running_loop().time()
        if name and self._lap:
            self.latency[name] = round(self.latency.get(name, 0.0) + now - self._lap, 6)
        self._lap = now

    @property
    def deadline(self) -> float:
        """When the last listener's patience is over, on the loop's clock."""
        now = asyncio.get_running_loop().time()
        return max((ticket.deadline for ticket in self.tickets), default=now)

    @property
    def clock(self) -> float:
        """Unix seconds at which the group must be sealed: its first episode is taken back soon.

        A margin of a tenth, at most 10 s, leaves time for the ends.
        """
        limit = self.discard_timeout
        margin = min(10.0, limit / 10)
        active = min((one.active_at for one in self.usable), default=self.first_claim_at)
        return min(active + limit, self.first_claim_at + 2 * limit) - margin

    # --- candidates ----------------------------------------------------------------------------

    @property
    def usable(self) -> list[Candidate]:
        """Candidates with an answer, by index."""
        return [one for one in self.candidates if one.answer is not None]

    @property
    def held(self) -> list[Candidate]:
        """Candidates whose episode is still ours to end or abort."""
        return [one for one in self.candidates if one.uuid]

    def reset(self, n: int) -> None:
        """`n` empty places."""
        self.n = n
        self.candidates = [Candidate(index) for index in range(n)]

    def take(self, place: Candidate, uuid: str) -> None:
        """An episode was claimed for this place."""
        place.uuid = uuid
        place.attempt += 1
        place.lost = place.taken = False
        self.sense.hold(uuid, place)

    def put_down(self, place: Candidate) -> None:
        """The place's episode was ended or given back."""
        self.sense.drop(place.uuid, place)
        place.uuid, place.claimed = "", None

    def best(self) -> Candidate | None:
        """The usable candidate with the highest automatic reward; unscored the first one."""
        usable = self.usable
        if self.sheet is None or not self.sheet.scores:
            return usable[0] if usable else None
        rewards = {score.index: score.reward for score in self.sheet.scores}
        return best_of(usable, rewards)

    # --- the answer ----------------------------------------------------------------------------

    def join(self, stream: bool) -> Ticket:
        """One listener more."""
        proxy = self.seat.settings.proxy
        ticket = Ticket(self, stream, proxy.stream_budget if stream else proxy.answer_budget)
        self.tickets.add(ticket)
        return ticket

    def left(self, ticket: Ticket) -> None:
        """A listener has gone."""
        self.tickets.discard(ticket)
        if not self.tickets and self.reply is None:
            self.on_alone(self)

    def spend_budget(self, ticket: Ticket) -> None:
        """A listener's patience is over: give it what there is."""
        if (best := self.best()) is not None:
            self.resolve(best, "provisional")
            return
        text = "No answer was ready in time. Please try again later."
        ticket.give(Reply(None, None, "error", busy(2, text)))
        self.tickets.discard(ticket)
        if not self.tickets:
            self.settle(Reply(None, None, "error", busy(2, text)), (ticket,))
            self.on_alone(self)

    def resolve(self, candidate: Candidate, why: str) -> None:
        """The user gets this candidate's answer; the first word holds."""
        self.settle(Reply(candidate.index, candidate.answer, why))

    def refuse(self, refusal: Refusal) -> None:
        """The user gets an error; nothing when it was answered before."""
        self.settle(Reply(None, None, "error", refusal))

    def settle(self, reply: Reply, told: tuple[Ticket, ...] = ()) -> None:
        """Fix the reply and tell everybody; only the first one counts."""
        if self.reply is not None:
            return
        self.reply = reply
        listeners = (*self.tickets, *told)
        began = min((ticket.began for ticket in listeners), default=None)
        if began is not None:
            self.seat.bus.publish(
                AnswerReturned(
                    server=self.sense.server.name,
                    group_id=self.group_id,
                    index=reply.index,
                    why=reply.why,
                    waited=asyncio.get_running_loop().time() - began,
                    keepalives=max(ticket.keepalives for ticket in listeners),
                )
            )
        for ticket in tuple(self.tickets):
            ticket.give(reply)


def best_of(candidates: list[Candidate], rewards: dict[int, float]) -> Candidate | None:
    """Highest reward; a tie goes to the lowest index; those without a reward come last."""
    worst = float("-inf")
    return max(
        candidates, key=lambda one: (rewards.get(one.index, worst), -one.index), default=None
    )
