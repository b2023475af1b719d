"""Calls the model for each claimed episode: retries, the streamed candidate, stragglers.

Decides when candidates without an answer are late, and how they are handled.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ajet_swarm.api.chat import ChatAnswer
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import run_all
from ajet_swarm.common.text import content_text, one_line
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind
from core.dialects.errors import ApiError
from core.events import AnsweredCandidate, CandidateFailed
from core.events.causes import NoAnswers, TooFewAnswers
from proxy.groups.claim import REFILL_WAIT, refill_slot, release
from proxy.groups.run import Candidate, Run, Slots
from proxy.groups.stragglers import StragglerRule
from proxy.http.errors import overloaded
from proxy.servers.facts import ROLLING, has_lost_all
from proxy.upstream.errors import refusal_of

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


# --- no answer -----------------------------------------------------------------------------------


def no_answers(run: Run) -> NoAnswers:
    """Return why the candidates failed, and why they were not retried."""
    slots = run.slots.candidates
    return NoAnswers(
        errors=tuple(dict.fromkeys(slot.error or "no answer" for slot in slots)),
        unretried=tuple(dict.fromkeys(slot.unretried for slot in slots if slot.unretried)),
    )


def no_answers_text(failures: NoAnswers) -> str:
    """Return the cause of a group without answers as text."""
    more = f"; not retried: {', '.join(failures.unretried)}" if failures.unretried else ""
    return f"no candidate gave an answer: {', '.join(failures.errors)}{more}"


def shortfall(slots: Slots) -> tuple[str, TooFewAnswers | None]:
    """Return how many candidates answered and why the others did not, as text and by kind; empty
    and None if all did."""
    answered = len(slots.usable)
    if answered >= slots.n:
        return "", None
    causes: dict[str, list[str]] = {}
    for slot in slots.candidates:
        if slot.answer is None:
            causes.setdefault(_why_failed(slot), []).append(str(slot.index + 1))
    details = [
        f"candidate{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} {cause}"
        for cause, numbers in causes.items()
    ]
    text = "; ".join([f"short: {answered} of {slots.n} candidates answered", *details])
    return text, TooFewAnswers(answered=answered, of=slots.n)


def _why_failed(slot: Candidate) -> str:
    failure = slot.failure
    if failure is None:
        return "not asked"
    verb = "aborted" if failure.kind is ChatErrorKind.TIMED_OUT else "failed"
    why = one_line(failure.text, 160) or failure.kind.value
    more = f" (not retried: {slot.unretried})" if slot.unretried else ""
    return f"{verb}: {why}{more}"


def no_answer_error(run: Run) -> ApiError:
    """Return the error for the user when no candidate gave an answer."""
    if (refusal := refusal_of(slot.failure for slot in run.slots.candidates)) is not None:
        return refusal
    errors = {slot.error for slot in run.slots.candidates}
    if errors == {ChatErrorKind.OVERFLOW.value}:
        text = (
            "This model's maximum context length is exceeded by your prompt. "
            "Please reduce the length of the input prompt."
        )
        return ApiError(400, None, text, param="input_tokens")
    if errors == {ChatErrorKind.OVERSIZED.value}:
        text = "The answers of the model are larger than the request allows."
        return ApiError(502, None, text, repeatable=False)
    if errors & GONE:
        return run.overloaded(5)
    return run.overloaded(
        5, f"None of the {run.slots.n} candidates gave an answer. Please try again later."
    )
