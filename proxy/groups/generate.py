"""Calls the model for each claimed episode: retries, the streamed candidate, stragglers."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ajet_swarm.api.chat import ChatAnswer
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import run_all
from ajet_swarm.common.text import content_text
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind
from core.events import AnsweredCandidate, CandidateFailed
from proxy.groups.claim import REFILL_WAIT, refill_slot, release
from proxy.groups.run import Candidate, Run
from proxy.http.errors import overloaded
from proxy.servers.facts import ROLLING, ROLLING_POST, has_lost_all

log = logging.getLogger(__name__)

MAYBE_GONE = frozenset({ChatErrorKind.LOST_EPISODE, ChatErrorKind.BROKEN})
"""Failures after which we may no longer hold the episode."""
GONE = frozenset({ChatErrorKind.UNREACHABLE.value, *(kind.value for kind in MAYBE_GONE)})
RETRIED = frozenset(ChatErrorKind) - {
    ChatErrorKind.UNAUTHORIZED,
    ChatErrorKind.REFUSED,
    ChatErrorKind.LIMITED,
    ChatErrorKind.OVERSIZED,
}
_RETRIED_IN_NEW_ROUND = RETRIED - {ChatErrorKind.OVERFLOW, ChatErrorKind.TIMED_OUT}
LATE = ChatError(ChatErrorKind.TIMED_OUT, "late: a fresh episode takes its place")
TOO_LATE, NO_TIME = "too late for its group", "no time is left"
AGAIN = "its group claims fresh episodes"
_UNFINISHED = frozenset({"", "abort", "error"})
"""Finish reasons of a completion that broke off."""
LAST_TRY = 1.0
"""Seconds before the end in which no new attempt starts."""
LEAST, MOST = 2 << 20, 64 << 20
"""Bytes that an answer may always take, and never exceed."""
TOKEN, LOGPROB = 64, 200
"""Bytes of a token, and of each of its most likely alternatives."""
MARGIN = 4
UNKNOWN_WINDOW = 1 << 15
"""Tokens of the answer if neither the request nor the server limits them."""
_LIMITS = frozenset({"max_completion_tokens", "max_tokens", "top_logprobs", "prompt_logprobs"})


async def generate(run: Run) -> None:
    """Call the model for all candidates at once and wait until each has answered or failed for
    good.

    Bounded by the stream budget from now, by the clock of the candidates that have answered (they
    are idle meanwhile) and by the straggler rule. A candidate that takes longer has failed.
    """
    limit = run.context.settings.proxy.stream_budget
    run.slots.cut_stragglers = False
    scope = asyncio.timeout(limit)
    calls = _CandidateCalls(run, scope, limit)
    try:
        async with scope:
            await calls.fill_all()
    except TimeoutError:
        calls.cut_off()
    finally:
        run.events.flush()
    if times := [slot.seconds for slot in run.slots.usable]:
        run.clocks.latency["slowest"] = round(max(times), 6)


class _CandidateCalls:
    """The model calls of one run."""

    def __init__(self, run: Run, scope: asyncio.Timeout, limit: float) -> None:
        self.run = run
        self._body: bytes | None = None
        """The encoded body, if several candidates share it."""
        self.scope = scope
        self.limit = limit
        self.overflows = 0
        self._pending: dict[int, asyncio.Task[None]] = {}
        """By candidate index, the task of its pending call."""
        self._given_up: dict[int, ChatError] = {}
        """Of these, the ones whose answer is no longer awaited, and why."""
        self._deadline_shortened = False
        self._hedged = False
        self._too_late = TOO_LATE
        """Why candidates without an answer are returned at the end."""
        self._stragglers = StragglerRule(run, self._cut, self._hedge)

    async def fill_all(self) -> None:
        """Run all candidates concurrently."""
        remove = self.run.facts.server.watcher.add_listener(self._on_status)
        try:
            if len(self.run.slots.candidates) == 1:
                await self._fill(self.run.slots.candidates[0])
            else:
                if not self.run.request.seeds:
                    self._body = self.run.request.encoded()
                await run_all(*(self._fill(candidate) for candidate in self.run.slots.candidates))
        finally:
            remove()
            self._stragglers.close()

    async def _fill(self, candidate: Candidate) -> None:
        """Get the answer of one candidate: an episode, its call, a fresh episode if it fails."""
        while (failure := await self._call(candidate)) is not None:
            unretried = self._why_final(candidate, failure)
            self._failed(candidate, failure, unretried)
            if unretried:
                self.run.slots.give_back(release(self.run, [candidate], failure.text))
                break
            await release(self.run, [candidate], failure.text)
            if not await refill_slot(self.run, candidate, self.deadline):
                none_free = f"no episode was free in {REFILL_WAIT:g} s"
                candidate.unretried = self._why_no_refill() or none_free
                break
        else:
            return
        self._stragglers.settled(failed=True)

    async def _call(self, candidate: Candidate) -> ChatError | None:
        run, on_delta = self.run, None
        body: Mapping[str, Any] | bytes = run.request.body
        if candidate.index == 0 and run.streams:
            on_delta = partial(self._streamed, candidate)
        else:
            body = self._body or run.request.encoded(candidate.index)
        self._stragglers.restart()
        task = asyncio.current_task()
        assert task is not None
        self._pending[candidate.index] = task
        try:
            await ask(run, candidate, body, self.limit, on_delta)
        except ChatError as error:
            return error
        except asyncio.CancelledError:
            failure = self._given_up.pop(candidate.index, None)
            if failure is None or task.uncancel():
                raise
            return failure
        finally:
            del self._pending[candidate.index]
        self._answered(candidate)
        return None

    def _streamed(self, candidate: Candidate, delta: dict[str, Any]) -> None:
        self._stragglers.restart()
        self.run.add_delta(candidate, delta)

    def _answered(self, candidate: Candidate) -> None:
        run = self.run
        candidate.error = candidate.unretried = ""
        now = run.clocks.loop.time()
        for waiter in run.answer.waiters:
            if waiter.deadline <= now:  # it takes the best answer so far
                waiter.wake()
        run.facts.answer_seconds.append(candidate.seconds)
        last = len(run.slots.usable) == run.slots.n
        if not (last or self._deadline_shortened):
            self._deadline_shortened = True  # the server reclaims the first answered episode first
            end = now + run.slots.clock - run.context.clock()
            if end < self.deadline and not self.scope.expired():
                self.scope.reschedule(end)
        run.events.add(answered_candidate(candidate))
        if run.answer.live and (candidate.index == 0 or run.slots.candidates[0].error):
            run.events.flush()
            run.resolve(candidate, "live")
        if not last:
            self._stragglers.settled()

    # --- time ----------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """On the clock of the loop."""
        when = self.scope.when()
        assert when is not None
        return when

    def _cut(self, why: str) -> None:
        """End the time of the candidates that have not answered: see `cut_off`."""
        run = self.run
        if not self.scope.expired():
            run.slots.cut_stragglers = run.slots.limit_used = True
            self._too_late = why
            self.scope.reschedule(run.clocks.loop.time())

    def _hedge(self) -> bool:
        """Start fresh episodes in place of the late ones; False if disabled or already done."""
        rule = self.run.context.settings.proxy.straggler
        if rule != "replace" or self._hedged or self._why_no_refill():
            return False
        self._hedged = True
        self._give_up(LATE)
        return True

    def _on_status(self, status: ServerStatus) -> None:
        """Handle a change of the server: pending calls may never be answered."""
        if has_lost_all(status):
            self._give_up(ChatError(ChatErrorKind.LOST_EPISODE, f"the engine is {status.raw}"))
        elif status.down:
            self._give_up(ChatError(ChatErrorKind.UNREACHABLE, status.error))
        else:
            self._stragglers.check()

    def _give_up(self, why: ChatError) -> None:
        """Stop waiting for the pending calls."""
        for index, task in tuple(self._pending.items()):
            is_read = why is LATE and index == self.run.answer.streamed
            if not is_read and index not in self._given_up:
                self._given_up[index] = why
                task.cancel()

    def cut_off(self) -> None:
        """Fail every candidate that has not answered and return its episode: the time is up."""
        run, unretried = self.run, self._why_no_refill()
        if unretried == NO_TIME and self._too_late != TOO_LATE:
            unretried = "its group goes on without it" if run.slots.usable else AGAIN
        failure = ChatError(ChatErrorKind.TIMED_OUT, self._too_late)
        missing = [slot for slot in run.slots.candidates if not (slot.answer or slot.unretried)]
        late = [slot for slot in missing if slot.uuid]
        for slot in missing:
            slot.unretried = unretried  # those without an episode waited for a fresh one
        for slot in late:
            self._failed(slot, failure, unretried)
        run.slots.give_back(release(run, late, self._too_late))

    # --- failures ------------------------------------------------------------------------------

    def _why_final(self, candidate: Candidate, failure: ChatError) -> str:
        """Return why no fresh episode can replace a candidate with this failure; empty if one
        can."""
        retries = self.run.context.settings.rewards.retries
        if failure is not LATE and candidate.attempt > retries:
            several = f"all {retries} retries are used up"
            return {0: "retries are off", 1: "the retry is used up"}.get(retries, several)
        if failure.kind is ChatErrorKind.OVERFLOW:
            # One overflow may be a fault of its episode; after a second one the prompt is too long.
            self.overflows += 1
            if self.overflows > 1 or self.run.slots.n == 1:
                return "a fresh episode cannot shorten the prompt"
        if failure.kind not in RETRIED:
            return "a fresh episode would get the same answer"
        return self._why_no_refill()

    def _why_no_refill(self) -> str:
        """Return why no fresh episode can be used now; empty if one can."""
        status = self.run.facts.server.watcher.current
        if not status.is_in(ROLLING):
            return f"the engine is {status.display_state.value}"
        return "" if self.run.clocks.loop.time() < self.deadline - LAST_TRY else NO_TIME

    def _failed(self, candidate: Candidate, failure: ChatError, unretried: str) -> None:
        """Record a failure; `unretried` says why no fresh episode follows, empty if one does."""
        run = self.run
        failure.__cause__ = failure.__context__ = None  # their frames hold what had arrived
        candidate.error, candidate.failure = failure.kind.value, failure.with_traceback(None)
        candidate.unretried = unretried
        run.events.flush()
        # A call that was lost in transit may still be running, but we still hold its episode.
        candidate.lost = candidate.lost or failure.kind in MAYBE_GONE
        run.context.bus.publish(
            CandidateFailed(
                server=run.facts.server.name,
                group_id=run.group_id,
                index=candidate.index,
                episode_uuid=candidate.uuid,
                cause=": ".join(filter(None, (failure.kind.value, failure.text))),
                failure=failure.kind.value,
                failure_text=failure.text,
                retried=not unretried,
                unretried=unretried,
            )
        )
        if candidate.index == run.answer.streamed:  # the user has read part of its answer
            run.refuse(overloaded(1, "The answer broke off. Please try again."))
        elif run.answer.live and candidate.index == 0 and run.slots.usable:
            run.resolve(run.slots.usable[0], "live")


async def ask(
    run: Run,
    slot: Candidate,
    body: Mapping[str, Any] | bytes,
    seconds: float,
    on_delta: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Call the model for one slot, and set its answer.

    Args:
        run: The group.
        slot: It holds an episode.
        body: The request.
        seconds: Timeout of the call.
        on_delta: Called with each delta of the answer, which is then streamed.

    Raises:
        ChatError: The call failed, or its completion is not an answer.
    """
    assert slot.claimed is not None
    began = run.clocks.loop.time()
    headers = {"X-Request-Id": run.request.request_id}
    most = largest_answer(run.request.body, run.facts.server.window)
    answer = await run.facts.server.client.chat(
        slot.claimed, body, headers=headers, timeout=seconds, most=most, on_delta=on_delta
    )
    slot.active_at = run.context.clock()
    if fault := incomplete(answer):
        raise ChatError(ChatErrorKind.UPSTREAM, fault)
    slot.seconds = run.clocks.loop.time() - began
    run.slots.set_answer(slot, answer)
    note_weights(run, slot, answer)


def incomplete(answer: ChatAnswer) -> str:
    """Return why a completion is not an answer; empty if it is one.

    A completion without text, reasoning and tool calls is an answer if it has a finish reason: the
    model stopped at once, or a limit stopped it. Content that is neither text nor null is a server
    error.
    """
    message = answer.message
    if answer.finish_reason not in _UNFINISHED and isinstance(message.get("content"), str):
        return ""
    if message.get("tool_calls") or message.get("reasoning") or message.get("reasoning_content"):
        return ""
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        return "its content is not text"
    if answer.finish_reason in _UNFINISHED and not content_text(content).strip():
        return "an empty answer without a finish reason"
    return ""


def answered_candidate(candidate: Candidate) -> AnsweredCandidate:
    """Return the event data of its answer."""
    answer = candidate.answer
    assert answer is not None
    prompt_tokens = answer.usage.get("prompt_tokens")
    completion_tokens = answer.usage.get("completion_tokens")
    return AnsweredCandidate(
        index=candidate.index,
        message=answer.message,
        finish_reason=answer.finish_reason,
        seconds=round(candidate.seconds, 4),
        prompt_tokens=prompt_tokens if isinstance(prompt_tokens, int) else 0,
        completion_tokens=completion_tokens if isinstance(completion_tokens, int) else 0,
        truncated="ajetc" in answer.parsed and was_cut(answer),
        step=None if candidate.step == candidate.claimed_step else candidate.step,
        later_step=candidate.later_step,
    )


def may_start_again(run: Run) -> bool:
    """Return whether a run without any answer may claim fresh episodes: its failure is not its own
    fault.

    The engine dropped them, the straggler rule aborted them, or the failures could not be retried
    because the engine was no longer rolling.
    """
    retries = run.context.settings.rewards.retries
    return run.slots.cut_stragglers or any(
        slot.error in GONE
        or (
            slot.failure is not None
            and slot.failure.kind in _RETRIED_IN_NEW_ROUND
            and slot.attempt <= retries
        )
        for slot in run.slots.candidates
    )


# --- an answer -----------------------------------------------------------------------------------


def largest_answer(body: Mapping[str, Any], window: int | None) -> int:
    """Return the largest number of bytes of an answer.

    Args:
        body: The chat request.
        window: Context window of the model in tokens; None if unknown.
    """
    tokens = window = window or UNKNOWN_WINDOW
    alternatives = 0
    if not _LIMITS.isdisjoint(body):
        tokens = _number(body, "max_completion_tokens") or _number(body, "max_tokens") or window
        alternatives = _number(body, "top_logprobs")
        if of_prompt := _number(body, "prompt_logprobs"):
            tokens, alternatives = tokens + window, max(alternatives, of_prompt)
    return min(max(tokens * (TOKEN + LOGPROB * alternatives) * MARGIN, LEAST), MOST)


def _number(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def note_weights(run: Run, slot: Candidate, answer: ChatAnswer) -> None:
    """Correct the step of a slot by the server's own report, or record that the step changed.

    A reading of the step may be as old as the period of the watcher, so an episode may have been
    granted under the next step already. The embedded engine reports the number of updates in its
    weights; the global step counts the update that is being collected for.
    """
    info = answer.parsed.get("ajetc")
    updates = info.get("step") if isinstance(info, dict) else None
    if isinstance(updates, int) and not isinstance(updates, bool):
        slot.step, slot.later_step = updates + 1, None
        return
    now = run.facts.server.watcher.current.step
    slot.later_step = now if slot.step is not None and now != slot.step else None


def was_cut(answer: ChatAnswer) -> bool:
    """Return whether the engine dropped the middle of the prompt; only the embedded engine reports
    it."""
    info = answer.parsed.get("ajetc")
    return bool(info.get("truncated")) if isinstance(info, dict) else False


# --- stragglers ----------------------------------------------------------------------------------

CONTENTION_CHECK = 1.0
"""Seconds between two checks whether other requests wait for the episode of a late candidate."""


SLACK = 2.0
"""A candidate is late at the earliest after this many times the usual answer time of its server."""


class StragglerRule:
    """Watches one run while it generates.

    Candidates are late `straggler_after` seconds after the others of their group were settled
    (answered, or failed for good), or `straggler_limit` seconds after their call began. In
    ROLLING_POST late candidates are returned: the batch of all users waits for them. In any other
    state the user is answered, if there is an answer, and late candidates may go on until another
    request waits for their episodes.

    A group without an answer is aborted by the limit in ROLLING too, and claims fresh episodes, if
    the usual time of an answer is known and its user waits long enough for another try. The limit
    does so once for each run, in any state: a slow answer looks the same as a silent runner, and
    must not be aborted each time. From then on, and once the limit has passed without an answer,
    the limit applies to candidates that are late after an answer of the group. A comment that keeps
    a stream open does not count as activity: servers send it for a silent runner, too.

    Args:
        run: The group.
        cut: Returns all candidates that have not answered, with the reason.
        hedge: Starts fresh episodes in place of the late candidates; False if that is not possible.
    """

    def __init__(self, run: Run, cut: Callable[[str], object], hedge: Callable[[], bool]) -> None:
        self._run = run
        self._settings = run.context.settings.proxy
        self._cut: Callable[[str], object] = cut
        self._hedge: Callable[[], bool] = hedge
        self._failed = 0
        """Candidates that failed for good."""
        self._active_at = run.clocks.loop.time()
        """When a call began or a delta of an answer arrived, on the clock of the loop."""
        self._settled_at: float | None = None
        """When enough candidates were settled."""
        self._timer: asyncio.TimerHandle | None = None
        limit = self._settings.straggler_limit
        if limit and not run.slots.limit_used:  # the usual answer time is read when this has passed
            self._schedule(self._active_at + limit)

    @property
    def _limit(self) -> float:
        """Seconds after which a candidate is late, independent of the others; 0 for never."""
        limit = self._settings.straggler_limit
        return limit and max(limit, SLACK * self._run.facts.usual_seconds)

    def restart(self) -> None:
        """Count from now: a call began, or a delta of its answer arrived."""
        self._active_at = self._run.clocks.loop.time()

    def settled(self, failed: bool = False) -> None:
        """Record that a candidate answered, or failed for good."""
        run, usable = self._run, len(self._run.slots.usable)
        self._failed += failed
        if run.slots.limit_used or self._timer is None:
            self.restart()  # the limit passed while there was no answer
        counts = self._settled_at is None and self._settings.straggler_after and usable
        behind = bool(counts) and usable + self._failed == run.slots.n - 1
        if behind:
            self._settled_at = run.clocks.loop.time()
        if behind or self._timer is None:
            self._schedule()

    def close(self) -> None:
        """Stop the rule; drop its callbacks, which would form a reference cycle with the caller."""
        self._cancel()
        self._cut = self._hedge = _unused

    def _schedule(self, when: float | None = None) -> None:
        """Check at a time on the clock of the loop; by default when the candidates are late."""
        self._cancel()
        if (when := self._due()[0] if when is None else when) is not None:
            self._timer = self._run.clocks.loop.call_at(when, self.check)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> tuple[float | None, bool]:
        """Return when the remaining candidates are late, on the clock of the loop (None for never),
        and whether that counts from the time at which the others were settled."""
        late_at = None
        if (self._run.slots.usable or not self._run.slots.limit_used) and (limit := self._limit):
            late_at = self._active_at + limit
        if self._settled_at is not None:
            active_at, settled_at = self._active_at, self._settled_at
            behind_at = active_at if active_at > settled_at else settled_at
            behind_at += self._settings.straggler_after
            if late_at is None or behind_at <= late_at:
                return behind_at, True
        return late_at, False

    def _why(self, behind: bool) -> str:
        """Return why the remaining candidates are late."""
        if not behind:
            return f"no answer in {self._limit:.3g} s"
        count = len(self._run.slots.usable)
        others = f"the other {count}" if count > 1 else "the other one"
        return f"no answer {self._settings.straggler_after:.3g} s after {others}"

    def check(self) -> None:
        """Act if the candidates are late; call this when the engine has changed its state."""
        run = self._run
        self._cancel()
        if len(run.slots.usable) + self._failed >= run.slots.n:
            return
        due, behind = self._due()
        if due is not None and due > run.clocks.loop.time():
            self._schedule(due)
        elif due is not None:
            self._act(self._why(behind))

    def _act(self, why: str) -> None:
        run = self._run
        if run.facts.server.watcher.current.is_in(ROLLING_POST):
            self._cut(f"{why}, the batch waits for it")
        elif not run.slots.usable:
            if self._may_start_again():
                self._cut(why)
        elif self._hedge():
            self.restart()
            self._schedule()
        elif self._settings.straggler == "cut":
            self._cut(why)
        elif run.context.bus.state.rating_mode == "hold":
            self._cut(f"{why}, the operator cannot rate before")
        else:
            best = run.best()
            assert best is not None
            run.resolve(best, "provisional")
            if run.facts.contended:
                self._cut(f"{why}, other requests wait for its episode")
            else:
                self._schedule(run.clocks.loop.time() + CONTENTION_CHECK)

    def _may_start_again(self) -> bool:
        """Return whether a run without an answer can claim fresh episodes, and has time for their
        answers.

        It cannot while nothing is known of its server's answers: all may be slow.
        """
        run = self._run
        rolling = run.facts.server.watcher.current.is_in(ROLLING)
        left = run.deadline - run.clocks.loop.time()
        known = bool(run.facts.usual_seconds)
        return known and rolling and run.answer.streamed is None and left > self._limit


def _unused(*_: object) -> bool:
    return False
