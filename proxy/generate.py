"""Claims the episodes of a run and asks each for its candidate."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from core.events import (
    CandidateAnswered,
    CandidateFailed,
    ClaimIntended,
    ClaimsReturned,
    EpisodeClaimed,
    GenerationStarted,
)
from proxy.run import Candidate, Run
from proxy.sense import ROLLING
from proxy.submit import release
from swarm.answers import ChatAnswer, Claimed
from swarm.errors import ChatError, ChatErrorKind

log = logging.getLogger(__name__)

REFILL_WAIT = 10.0
"""Seconds a group that holds episodes waits for a fresh one; more would starve the others."""
GONE = frozenset({ChatErrorKind.LOST_EPISODE.value, ChatErrorKind.UNREACHABLE.value})
RETRIED = frozenset(ChatErrorKind) - {ChatErrorKind.UNAUTHORIZED}


async def claim(run: Run, *, durable: bool = True) -> None:
    """Claim all `run.n` episodes, or none.

    Args:
        run: Its candidates are made anew.
        durable: Commit the intent first. Without it (the journal is broken) nothing of the run is
            trained on, and the next start finds what is left of it at the server.

    Raises:
        ClaimTimedOut: not before the run's deadline; nothing is held.
        JournalError: the intent could not be committed; nothing was claimed.
    """
    run.reset(run.n)
    server = run.sense.server

    async def intend() -> None:
        event = ClaimIntended(
            server=server.name,
            group_id=run.group_id,
            n=run.n,
            discard_timeout=run.discard_timeout,
        )
        if durable:
            await run.seat.bus.publish_durable(event)
        else:
            run.seat.bus.publish(event)

    claimed = await server.desk.claim_group(
        run.n,
        episode_type=run.kind,
        discard_timeout=run.discard_timeout,
        deadline=run.deadline,
        on_intent=intend,
        on_claimed=lambda uuid: _took(run, uuid),
        on_returned=lambda uuids, cause: _gave_back(run, uuids, cause),
    )
    by_uuid = {one.episode_uuid: one for one in claimed}
    for candidate in run.candidates:
        candidate.claimed = by_uuid[candidate.uuid]
        candidate.active_at = candidate.claimed.at
    run.first_claim_at = min(one.at for one in claimed)


def _took(run: Run, uuid: str, place: Candidate | None = None) -> None:
    if place is None:
        place = next(one for one in run.candidates if not one.uuid)
    run.take(place, uuid)
    run.seat.bus.publish(
        EpisodeClaimed(
            server=run.sense.server.name,
            group_id=run.group_id,
            index=place.index,
            episode_uuid=uuid,
            step=run.sense.server.watcher.current.step,
            attempt=place.attempt,
        )
    )


def _gave_back(run: Run, uuids: Sequence[str], cause: str) -> None:
    for candidate in run.candidates:
        if candidate.uuid in uuids:
            run.put_down(candidate)
            candidate.attempt = 0
    run.seat.bus.publish(
        ClaimsReturned(
            server=run.sense.server.name,
            group_id=run.group_id,
            episode_uuids=tuple(uuids),
            cause=cause,
        )
    )


async def generate(run: Run) -> None:
    """Ask all candidates at once and wait until each has answered or failed for good.

    Bounded by the stream budget from now, and by the clock of the candidates that have answered:
    they are idle meanwhile. What takes longer is a failed candidate.
    """
    limit = run.seat.settings.proxy.stream_budget
    run.seat.bus.publish(
        GenerationStarted(
            server=run.sense.server.name,
            group_id=run.group_id,
            n=run.n,
            expires_at=run.seat.clock() + run.discard_timeout,
            damping=run.sense.damping,
        )
    )
    body = run.request.encoded()
    headers = {"X-Request-Id": run.request.request_id}
    loop = asyncio.get_running_loop()
    scope = asyncio.timeout_at(loop.time() + limit)
    effort = _Effort(run, body, headers, scope, limit)
    try:
        async with scope, asyncio.TaskGroup() as group:
            for candidate in run.candidates:
                group.create_task(effort.fill(candidate))
    except TimeoutError:
        await effort.cut_off()


class _Effort:
    """Gets the candidates of one run."""

    def __init__(
        self, run: Run, body: bytes, headers: dict[str, str], scope: asyncio.Timeout, limit: float
    ) -> None:
        self.run = run
        self.body = body
        self.headers = headers
        self.scope = scope
        self.limit = limit
        self.overflows = 0

    async def fill(self, candidate: Candidate) -> None:
        """One candidate: an episode, its answer; a fresh episode when it fails."""
        retries = self.run.seat.settings.rewards.retries
        while True:
            failure = await self._ask(candidate)
            if failure is None:
                return
            again = candidate.attempt <= retries and self._may_retry(failure)
            self._failed(candidate, failure, again)
            await release(self.run, [candidate], failure.text)
            if not again or not await self._refill(candidate):
                return

    async def _ask(self, candidate: Candidate) -> ChatError | None:
        run = self.run
        loop = asyncio.get_running_loop()
        assert candidate.claimed is not None
        began = loop.time()
        try:
            answer = await run.sense.server.client.chat(
                candidate.claimed, self.body, self.headers, self.limit
            )
        except ChatError as error:
            return error
        candidate.active_at = run.seat.clock()
        if is_empty(answer):
            return ChatError(ChatErrorKind.UPSTREAM, "an empty answer")
        candidate.answer = answer
        candidate.seconds = loop.time() - began
        candidate.error = ""
        self._mind_the_clock()
        usage = answer.usage
        told = answer.parsed.get("ajetc")
        run.seat.bus.publish(
            CandidateAnswered(
                server=run.sense.server.name,
                group_id=run.group_id,
                index=candidate.index,
                episode_uuid=candidate.uuid,
                message=answer.message,
                finish_reason=answer.finish_reason,
                seconds=round(candidate.seconds, 4),
                prompt_tokens=_count(usage, "prompt_tokens"),
                completion_tokens=_count(usage, "completion_tokens"),
                truncated=bool(told.get("truncated")) if isinstance(told, dict) else False,
            )
        )
        return None

    @property
    def deadline(self) -> float:
        """On the loop's clock."""
        when = self.scope.when()
        assert when is not None
        return when

    def _mind_the_clock(self) -> None:
        left = self.run.clock - self.run.seat.clock()
        end = asyncio.get_running_loop().time() + left
        if end < self.deadline and not self.scope.expired():
            self.scope.reschedule(end)

    async def cut_off(self) -> None:
        """Time is up: those that have not answered will not."""
        late = [one for one in self.run.candidates if one.uuid and not one.usable]
        for candidate in late:
            failure = ChatError(ChatErrorKind.TIMED_OUT, "too late for its group")
            self._failed(candidate, failure, False)
        await release(self.run, late, "too late")

    def _may_retry(self, failure: ChatError) -> bool:
        if failure.kind is ChatErrorKind.OVERFLOW:
            # One may be a fault of its episode; a second one means that the prompt is too long.
            self.overflows += 1
            if self.overflows > 1 or self.run.n == 1:
                return False
        rolling = self.run.sense.server.watcher.current.is_in(ROLLING)
        in_time = asyncio.get_running_loop().time() < self.deadline - 1.0
        return failure.kind in RETRIED and rolling and in_time

    def _failed(self, candidate: Candidate, failure: ChatError, again: bool) -> None:
        candidate.error = failure.kind.value
        # A call that was lost on the way may still be running: its episode is ours all the same.
        candidate.lost = candidate.lost or failure.kind is ChatErrorKind.LOST_EPISODE
        self.run.seat.bus.publish(
            CandidateFailed(
                server=self.run.sense.server.name,
                group_id=self.run.group_id,
                index=candidate.index,
                episode_uuid=candidate.uuid,
                cause=f"{failure.kind.value}: {failure.text}"
                if failure.text
                else failure.kind.value,
                retried=again,
            )
        )

    async def _refill(self, candidate: Candidate) -> bool:
        run = self.run
        claimed: Claimed | None = await run.sense.server.desk.refill(
            episode_type=run.kind,
            discard_timeout=run.discard_timeout,
            deadline=min(self.deadline, asyncio.get_running_loop().time() + REFILL_WAIT),
            on_claimed=lambda uuid: _took(run, uuid, candidate),
            on_returned=lambda uuids, cause: _gave_back(run, uuids, cause),
        )
        if claimed is None:
            return False
        candidate.claimed = claimed
        candidate.active_at = claimed.at
        return True


def is_empty(answer: ChatAnswer) -> bool:
    """Neither text nor reasoning nor a tool call: nothing that a user could be given."""
    message = answer.message
    if message.get("tool_calls"):
        return False
    texts = (message.get(name) for name in ("content", "reasoning", "reasoning_content"))
    return not any(text.strip() if isinstance(text, str) else text for text in texts)


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) else 0


def may_go_again(run: Run) -> bool:
    """Whether a run without any answer lost episodes to the engine, not by its own fault."""
    return any(one.error in GONE for one in run.candidates)
