"""Takes one group from its request to its last reward.

QUEUED (the request hook) -> CLAIMING (it waits for the engine and its place, then claims) ->
GENERATING -> SCORING -> [AWAITING_RATING] -> SUBMITTING -> DONE, or ABORTED or FAILED with a cause.
The answer to the user is independent of these phases.

The task of a group waits for its raters in `Sealing.decided`. Whenever something changes (a vote,
the engine, the rating mode, a console, a user who waits), `run.wake` is set and `seal.decide` is
asked again with the new `Situation`. It says `Wait` until a time, `Seal` or `Drop`.
"""

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable

from ajet_swarm.common.tasks import Tasks, run_to_end, timeout_at
from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.errors import ChatErrorKind, ClaimTimedOut
from core.dialects.errors import ApiError
from core.events import GroupClosed, RatingAwaited
from core.events.alerts import AlertParams, params_of
from core.events.causes import (
    AllExpired,
    NoAnswers,
    NoEpisodes,
    NotAllTaken,
    NotScored,
    TooFewAnswers,
)
from core.journal.file import JournalError
from proxy.alerts import clear_alert, show_alert
from proxy.groups.claim import (
    ACCEPTED,
    GivingWay,
    capacity_of,
    claim,
    enter_queue,
    fit_to_capacity,
    release,
    submit,
)
from proxy.groups.generate import GONE, generate, may_start_again, was_cut
from proxy.groups.rating import rate_with, waits_for_decision
from proxy.groups.run import Candidate, Run, RunEnded, Slots, ranked
from proxy.groups.score import carry_out, evaluate, record
from proxy.groups.seal import Decision, Drop, Seal, Situation, Wait, decide, sealed, seals_at_once
from proxy.http.errors import ProxyStopping
from proxy.rewards.source import observes_requests
from proxy.servers.facts import ROLLING, ROLLING_POST, has_lost_all
from proxy.upstream.errors import refusal_of

log = logging.getLogger(__name__)

HOOK_LIMIT = 10.0
"""Maximum number of seconds that the request hook may delay a request."""
RECENT = 20
"""Groups of a server without a truncated prompt after which the alert about them is cleared."""
ROUNDS = 3
"""Maximum number of rounds: a group starts again when the engine reclaims all its episodes."""


class Lifecycle:
    """Runs groups through their phases; one object for all groups.

    Args:
        cleanup_tasks: Owner of clean-up that must finish.
        sealing: Decides when a scored group is sealed.
    """

    def __init__(self, cleanup_tasks: Tasks, sealing: "Sealing") -> None:
        self._cleanup_tasks = cleanup_tasks
        self._sealing = sealing
        self._recent: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=RECENT))
        """Ids of the newest groups of a server, empty for those whose prompt was not cut."""

    async def walk(self, run: Run) -> None:
        """Run all phases of `run`; no episode stays claimed, not even after an error."""
        run.clocks.mark("")
        try:
            await self._phases(run)
        except RunEnded as ended:
            await self._end(run, ended)
        except asyncio.CancelledError:
            # The rewards are on disk or queued for it: the next start sends the remaining ones. It
            # also waits for the ends of an eval group that are in flight.
            ending = run.stop is None and any(slot.ending for slot in run.slots.held)
            if run.sealed or ending:
                run.leave_queue()
                raise
            stopped = RunEnded("ABORTED", "the proxy stopped", refusal=ProxyStopping())
            await self._end(run, run.stop or stopped)
            if run.stop is None:
                raise
        except Exception as error:  # a fault in one group must not affect the others
            log.exception("group %s failed", run.group_id)
            refusal = ApiError(500, None, "The request could not be completed.")
            cause = f"{type(error).__name__}: {error}"
            await self._end(run, RunEnded("FAILED", cause, refusal=refusal))

    async def _end(self, run: Run, end: RunEnded) -> None:
        """Answer the user, return held episodes, close the group, even if cancelled meanwhile."""
        if end.refusal is not None:
            if (best := run.best()) is not None and run.answer.waiters:
                run.resolve(best, "provisional")
            run.refuse(end.refusal)
        run.closing = True
        if run.slots.held or run.slots.returning:
            await run_to_end(self._finish(run, end), self._cleanup_tasks, f"end:{run.group_id}")
        else:
            await self._finish(run, end)

    async def _finish(self, run: Run, end: RunEnded) -> None:
        run.events.flush()
        if run.slots.returning:
            await run.slots.returned()
        if run.slots.held:
            await release(run, run.slots.held, end.cause)
        run.leave_queue()
        run.clocks.mark(run.span)
        final, row = run.answer.final, run.task.row
        if row is not None and (final is None or final.index is None):
            run.context.rows.again(row)  # not answered: the next attempt must match the row again
        run.phase = end.phase
        run.context.bus.publish(
            GroupClosed(
                server=run.facts.server.name,
                group_id=run.group_id,
                phase=end.phase,
                cause=end.cause,
                cause_kind=end.kind.kind if end.kind is not None else "",
                cause_params=end.kind.as_json() if end.kind is not None else {},
                latency=run.clocks.latency,
            )
        )

    async def _phases(self, run: Run) -> None:
        await self._notify_source(run)
        await self._get_answers(run)
        if run.task.kind == "eval":
            await self._end_untrained(run)
            raise RunEnded("DONE", run.task.untrained)
        await self._score(run)
        self._drop_cut(run)
        decision = await self._sealing.decided(run)
        run.clocks.mark("rate")
        if isinstance(decision, Drop):
            self._drop_group(run, decision)
        else:
            await self._seal_and_send(run, decision)

    # --- before the answers --------------------------------------------------------------------

    async def _notify_source(self, run: Run) -> None:
        """Let the request hook change the metadata and the number of candidates."""
        bus, source, request, task = run.context.bus, run.context.rewards, run.request, run.task
        run.slots.n = max(run.slots.n, request.n)
        if not observes_requests(source):
            clear_alert(bus, "hook")
            return
        failure: AlertParams | None = None
        try:
            async with asyncio.timeout(HOOK_LIMIT):
                report = await source.request(
                    request.request_id, task.id, request.query, task.metadata
                )
        except TimeoutError:
            failure = params_of("hook")
        else:
            row_id = task.metadata["dataset_task_id"]
            task.metadata = {**report.metadata, "task_id": task.id, "dataset_task_id": row_id}
            repeat = report.repeat or 0
            run.slots.n = request.n if task.kind == "eval" else max(run.slots.n, repeat)
            if report.error is None:
                clear_alert(bus, "hook")
            elif source.health().ok:  # a folder that does not load raises another alert
                failure = params_of("hook", error=report.error.cause)
        if failure is not None:
            show_alert(bus, "hook", failure, groups=(run.group_id,))

    async def _get_answers(self, run: Run) -> None:
        for _ in range(ROUNDS):
            try:
                with self._sealing.giving_way.waits(run):
                    await self._claim(run)
            except ClaimTimedOut as error:
                cause, kind = f"no episodes in time: {error.cause}", NoEpisodes(refusal=error.cause)
                raise RunEnded("ABORTED", cause, kind, run.overloaded(2)) from None
            run.phase = "GENERATING"
            run.clocks.mark("claim")
            # Of several choices the user gets the best ones, and in `hold` what was rated.
            rated = run.context.bus.state.rating_mode == "hold"
            live = run.context.settings.proxy.answer == "live"
            run.answer.live = live and not rated and run.request.n == 1
            await generate(run)
            run.clocks.mark("generate")
            if run.slots.usable:
                break
            in_time = run.clocks.loop.time() < run.deadline - 1.0
            if run.answer.final is not None or not in_time or not may_start_again(run):
                break
            await run.slots.returned()  # an aborted episode may be claimed again, under the same id
        if not run.slots.usable:
            failures = no_answers(run)
            raise RunEnded("FAILED", no_answers_text(failures), failures, no_answer_error(run))
        if run.task.kind == "eval":
            run.resolve(run.slots.usable[0], "only")

    async def _claim(self, run: Run) -> None:
        run.phase = "CLAIMING"
        if not run.slots.held:  # a new round queues again
            run.leave_queue()
        watcher = run.facts.server.watcher
        try:
            if not watcher.current.is_in(ROLLING):
                async with timeout_at(lambda: run.deadline):
                    await watcher.wait_for(ROLLING)
            if run.facts.recovering:
                await run.facts.recovered(max(run.deadline - run.clocks.loop.time(), 0.0))
            await enter_queue(run)
            if run.task.kind != "eval":
                async with timeout_at(lambda: run.deadline):
                    run.slots.n = max(run.slots.n, await run.facts.repeats())
        except TimeoutError:
            status = watcher.current
            cause = "no turn" if status.is_in(ROLLING) else status.display_state.value
            raise ClaimTimedOut(run.slots.n, 0, cause, run.facts.server.name) from None
        if refusal := fit_to_capacity(run):
            raise RunEnded("ABORTED", refusal.message, refusal=refusal)
        run.clocks.mark("queue")
        rating, off = run.context.settings.rating, run.context.bus.state.rating_mode == "off"
        limit = rating.discard_timeout if off else rating.discard_timeout_rating
        run.slots.discard_timeout = limit
        if not run.context.journal.error:
            try:
                await claim(run)
                return
            except JournalError:
                log.error("group %s: the intent cannot be committed", run.group_id)
        # Nothing may be trained on without the journal, but the user still gets an answer.
        self._raise_journal_alert(run, params_of("journal", effect="untrained"))
        run.task.kind, run.slots.n = "eval", run.request.n
        run.task.untrained = "not trained on: the journal cannot be written"
        await claim(run, durable=False)

    # --- rewards -------------------------------------------------------------------------------

    async def _score(self, run: Run) -> None:
        run.phase = "SCORING"
        rewards, answered = run.context.rewards, len(run.slots.usable)
        enough = answered >= min(2, run.slots.n)
        if enough:
            version = rewards.version
            record(run, await evaluate(run))
            if run.scores.sheet is None and version and rewards.version not in ("", version):
                record(run, await evaluate(run))  # another version was loaded meanwhile
        run.clocks.mark("score")
        short = answered < run.slots.n
        abort = short and (not enough or run.context.settings.rewards.short_group == "abort")
        if run.context.bus.state.rating_mode != "hold" or abort:
            self._answer(run)
        if abort:
            raise RunEnded("ABORTED", *shortfall(run.slots))

    def _answer(self, run: Run) -> None:
        """Give the user the best answer."""
        best = run.best()
        assert best is not None
        final = run.scores.sheet is not None and run.context.bus.state.rating_mode == "off"
        only = len(run.slots.usable) == 1
        run.resolve(best, "only" if only else "winner" if final else "provisional")

    def _drop_cut(self, run: Run) -> None:
        """Answer and abort a group whose prompt the engine truncated to its window: its answers do
        not belong to its prompt. An alert tells of the newest ones.

        Raises:
            RunEnded: The prompt was cut.
        """
        name, bus = run.facts.server.name, run.context.bus
        cut = any([slot.answer is not None and was_cut(slot.answer) for slot in run.slots.usable])
        recent = self._recent[name]
        recent.append(run.group_id if cut else "")
        if not cut:
            if not any(recent):
                clear_alert(bus, f"cut:{name}")
            return
        size = run.facts.server.info.context or 0
        params = params_of("cut", window=size)
        show_alert(bus, f"cut:{name}", params, groups=filter(None, recent))
        self._answer(run)
        window = f"{size} tokens" if size else "the engine's window"
        raise RunEnded("ABORTED", f"prompt cut to {window}: not trained on")

    async def _end_untrained(self, run: Run) -> None:
        """End the episodes of an eval group with the automatic reward, if there is one.

        The trainer never sees it. A helper call is not scored: it is aborted, as is a group from
        which the source abstains.
        """
        if run.request.train or run.request.helper:
            return
        run.phase = "SCORING"
        record(run, await evaluate(run))
        run.clocks.mark("score")
        if run.scores.sheet is not None:
            run.phase = "SUBMITTING"
            await submit(run, run.scores.rewards)

    def _drop_group(self, run: Run, decision: Drop) -> None:
        if (best := run.best()) is not None:
            run.resolve(best, "provisional")
        for slot in run.slots.candidates:
            slot.lost = slot.lost or has_lost_all(run.facts.server.watcher.current)
        if not decision.unscored:
            raise RunEnded("ABORTED", decision.cause)
        causes = filter(None, (decision.cause, run.scores.abstained))
        raise RunEnded("ABORTED", "; ".join(causes), NotScored())

    # --- sending -------------------------------------------------------------------------------

    async def _seal_and_send(self, run: Run, seal: Seal) -> None:
        rewards = run.votes.rewards if seal.source == "human" else run.scores.rewards
        server, sheet = run.facts.server, run.scores.sheet
        winner = ranked(run.slots.usable, rewards)[0]
        run.phase = "SUBMITTING"
        run.sealed = True
        event = sealed(
            server.name,
            run.group_id,
            # The reward of a superseded candidate cannot be sent.
            [(slot.index, rewards[slot.index]) for slot in run.slots.usable if not slot.superseded],
            winner.index,
            seal.source,
            server.info.damping,
            sheet.version if sheet is not None else "",
            seal.unrated,
        )
        run.resolve(winner, "winner" if len(run.slots.usable) > 1 else "only")
        try:
            if server.intent_is_durable:
                await run.context.bus.publish_durable(event)
            else:
                run.context.bus.publish_checked(event)
        except JournalError:
            self._raise_journal_alert(run, params_of("journal", effect="unsent"))
            run.sealed = False
            raise RunEnded("ABORTED", "the journal cannot be written") from None
        outcomes = await submit(run, rewards)
        taken = sum([outcome in ACCEPTED for outcome in outcomes])
        if taken == len(outcomes):
            raise RunEnded("DONE", *shortfall(run.slots))
        others = Counter(outcome for outcome in outcomes if outcome not in ACCEPTED)
        others_text = ", ".join(f"{count} {outcome}" for outcome, count in others.items())
        if taken or "unknown" in outcomes:
            some = NotAllTaken(taken=taken, of=len(outcomes), others=dict(others))
            raise RunEnded("DONE", f"{taken} of {some.of} rewards taken, {others_text}", some)
        if all(outcome == "expired" for outcome in outcomes):
            raise RunEnded("ABORTED", "expired", AllExpired())
        raise RunEnded("FAILED", others_text)

    def _raise_journal_alert(self, run: Run, failure: AlertParams) -> None:
        if not run.context.journal.error:
            return  # the journal works again: no later event would clear the alert
        if "journal" not in run.context.bus.state.alerts:
            show_alert(run.context.bus, "journal", failure)


# --- the wait for the operator -------------------------------------------------------------------


class Sealing:
    """Decides when groups are sealed; one object for all groups.

    Args:
        draining: Returns whether new requests are refused.
        closing: Returns whether groups no longer wait for the operator.
        attended_until: Returns until when an operator is assumed to be at a console.

    Attributes:
        giving_way: Which groups end because a user's request waits.
    """

    def __init__(
        self,
        *,
        draining: Callable[[], bool],
        closing: Callable[[], bool],
        attended_until: Callable[[], float],
    ) -> None:
        self._draining = draining
        self._closing = closing
        self._attended_until = attended_until
        self.giving_way = GivingWay()

    async def decided(self, run: Run) -> Seal | Drop:
        """Wait for the operator as long as the rules allow; return what to do with the group."""
        published: tuple[float, str, str, float] | None = None
        try:
            while True:
                run.wake.clear()
                if run.refill is not None:
                    await carry_out(run)
                    published = None
                now = run.context.clock()
                decision = self._decision(run, now)
                if isinstance(decision, Seal | Drop):
                    return decision
                run.phase = "AWAITING_RATING"
                shown = (decision.until, decision.fallback, decision.why, run.votes.kept_until)
                if shown != published:
                    published = shown
                    self._publish_wait(run, decision)
                with (
                    run.facts.window(run.wake),
                    self.giving_way.open(run),
                    contextlib.suppress(TimeoutError),
                ):
                    async with asyncio.timeout(max(decision.wake - now, 0.001)):
                        await run.wake.wait()
        finally:
            run.facts.unscored.pop(run.group_id, None)

    def _decision(self, run: Run, now: float) -> Decision:
        """Return what the rules say now; the votes so far are the rating if they are sent."""
        state = run.context.bus.state
        if seals_at_once(
            mode=state.rating_mode,
            consoles=state.consoles,
            scored=run.scores.sheet is not None,
            voted=bool(run.votes.ballots),
            gone=has_lost_all(run.facts.server.watcher.current),
        ):
            return Seal("auto")
        decision = decide(self._situation(run, now))
        if decision == Seal("human") and run.votes.rating is None:
            rate_with(run, run.votes.ballots)
        return decision

    def _publish_wait(self, run: Run, decision: Wait) -> None:
        run.context.bus.publish(
            RatingAwaited(
                server=run.facts.server.name,
                group_id=run.group_id,
                until=decision.until,
                fallback=decision.fallback,
                why=decision.why,
                overlap=run.votes.needed,
                spared=run.votes.kept_until,
            )
        )

    def _situation(self, run: Run, now: float) -> Situation:
        state, settings = run.context.bus.state, run.context.settings.rating
        status, votes = run.facts.server.watcher.current, run.votes
        return Situation(
            now=now,
            mode=state.rating_mode,
            consoles=state.consoles,
            attended_until=self._attended_until(),
            rolling=status.is_in(ROLLING) and not self._draining(),
            contended=run.facts.contended,
            gone=has_lost_all(status),
            closing=self._closing(),
            scored=run.scores.sheet is not None,
            scored_at=run.scores.at,
            clock=run.slots.clock,
            window=settings.window,
            fallback=settings.fallback,
            rated_at=votes.rating.at if votes.rating is not None else None,
            first_rated_at=votes.first_at,
            skip=_only_skips(run),
            disputed=settings.disagreements == "wait" and waits_for_decision(run),
            voted_at=votes.ballots[-1].at if votes.ballots else None,
            accepted=votes.accepted,
            over_half=self._count_unscored(run),
            gives_way=run.votes.gives_way,
            blocks_update=status.is_in(ROLLING_POST),
        )

    def _count_unscored(self, run: Run) -> bool:
        """Count an unscored group in `ServerFacts.unscored`, unless unscored groups would then hold
        more than half of the pool; return whether they would.

        In a rating mode one is always allowed: the operator needs something to rate where one group
        is the whole pool.
        """
        unscored = run.facts.unscored
        unscored.pop(run.group_id, None)
        if run.scores.sheet is not None or run.votes.ballots:
            return False
        others = sum(unscored.values())
        room = capacity_of(run.facts.server)
        held = len(run.slots.held)
        rates = others == 0 and run.context.bus.state.rating_mode != "off"
        if room is not None and 2 * (others + held) > room and not rates:
            return True
        unscored[run.group_id] = held
        return False


def _only_skips(run: Run) -> bool:
    """Return whether the rating, or each vote on a group that lacks votes, is a skip."""
    votes = [run.votes.rating] if run.votes.rating is not None else run.votes.ballots
    return bool(votes) and all(vote.rating == "skip" for vote in votes)


# --- why candidates have no answer ---------------------------------------------------------------


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
