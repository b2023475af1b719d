"""Takes one group from its request to its last reward.

QUEUED -> CLAIMING -> GENERATING -> SCORING -> [AWAITING_RATING] -> SUBMITTING -> DONE, or ABORTED
or FAILED with a cause. The answer to the user is independent of these phases.
"""

import asyncio
import logging
from collections import defaultdict, deque

from ajet_swarm.common.tasks import Tasks, run_to_end, timeout_at
from ajet_swarm.protocol.errors import ClaimTimedOut
from core.events import GroupClosed
from core.events.alerts import AlertParams, params_of
from core.events.causes import AllExpired, GroupCause, NoEpisodes, NotAllTaken, NotScored
from core.journal.writer import JournalError
from proxy.alerts import clear_alert, show_alert
from proxy.groups.claim import claim
from proxy.groups.gate import enter_queue, fit_to_capacity
from proxy.groups.generate import (
    generate,
    may_start_again,
    no_answer_error,
    no_answers,
    no_answers_text,
    was_cut,
)
from proxy.groups.run import GroupRun, best_of, shortfall
from proxy.groups.score import score
from proxy.groups.seal import Sealing, sealed
from proxy.groups.seal_policy import Drop, Seal
from proxy.groups.submit import ACCEPTED, release, submit
from proxy.http.errors import ApiError, ProxyStopping
from proxy.rewards.source import observes_requests
from proxy.servers.facts import ROLLING, has_lost_all

log = logging.getLogger(__name__)

HOOK_LIMIT = 10.0
"""Maximum number of seconds that the request hook may delay a request."""
RECENT = 20
"""Groups of a server without a truncated prompt after which the alert about them is cleared."""
ROUNDS = 3
"""Maximum number of rounds: a group starts again when the engine reclaims all its episodes."""


class RunEnded(Exception):
    """The run is over; carries its phase and cause.

    Args:
        phase: DONE, ABORTED or FAILED.
        cause: Cause as text.
        kind: Its kind and parameters, for a cause that code has to distinguish.
    """

    def __init__(self, phase: str, cause: str, kind: GroupCause | None = None) -> None:
        super().__init__(cause)
        self.phase = phase
        self.cause = cause
        self.kind = kind


class Lifecycle:
    """Runs groups through their phases; one object for all groups.

    Args:
        cleanup_tasks: Owner of clean-up that must finish.
        sealing: Decides when a scored group is sealed.
    """

    def __init__(self, cleanup_tasks: Tasks, sealing: Sealing) -> None:
        self._cleanup_tasks = cleanup_tasks
        self._sealing = sealing
        self._recent: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=RECENT))
        """Ids of the newest groups of a server, empty for those whose prompt was not cut."""

    async def walk(self, run: GroupRun) -> None:
        """Run all phases of `run`; no episode stays claimed, not even after an error."""
        run.mark_phase_end("")
        try:
            await self._phases(run)
        except RunEnded as ended:
            await self._finish_uncancelled(run, ended)
        except asyncio.CancelledError:
            stop = run.stop
            # The rewards are on disk: the next start sends the remaining ones. It also waits for
            # the ends of an eval group that are in flight.
            if run.sealed or (stop is None and any(one.ending for one in run.held)):
                run.leave_queue()
                raise
            end = (
                RunEnded(stop.phase, stop.cause)
                if stop
                else RunEnded("ABORTED", "the proxy stopped")
            )
            refusal = stop.refusal if stop else ProxyStopping()
            await self._answer_and_finish(run, end, refusal)
            if stop is None:
                raise
        except Exception as error:  # a fault in one group must not affect the others
            log.exception("group %s failed", run.group_id)
            cause = f"{type(error).__name__}: {error}"
            refusal = ApiError(500, None, "The request could not be completed.")
            await self._answer_and_finish(run, RunEnded("FAILED", cause), refusal)

    async def _answer_and_finish(self, run: GroupRun, end: RunEnded, refusal: ApiError) -> None:
        best = run.best()
        if best is not None and run.final_answer is None and run.waiters:
            run.resolve(best, "provisional")
        run.refuse(refusal)
        await self._finish_uncancelled(run, end)

    async def _finish_uncancelled(self, run: GroupRun, end: RunEnded) -> None:
        """Return held episodes and close the group, even if cancelled meanwhile."""
        run.closing = True
        if run.held or run.returning:
            await run_to_end(self._finish(run, end), self._cleanup_tasks, f"end:{run.group_id}")
        else:
            await self._finish(run, end)

    async def _finish(self, run: GroupRun, end: RunEnded) -> None:
        run.events.flush()
        await run.returned()
        if run.held:
            await release(run, run.held, end.cause)
        run.leave_queue()
        run.mark_phase_end("submit" if run.sealed else run.current_span)
        if run.row is not None and (run.final_answer is None or run.final_answer.index is None):
            # It was not answered: the next attempt must match the row again.
            run.context.rows.again(run.row)
        run.phase = end.phase
        run.context.bus.publish(
            GroupClosed(
                server=run.facts.server.name,
                group_id=run.group_id,
                phase=end.phase,
                cause=end.cause,
                cause_kind=end.kind.kind if end.kind is not None else "",
                cause_params=end.kind.as_json() if end.kind is not None else {},
                latency=run.latency,
            )
        )
        if run.needs_sweep:
            run.facts.server.claimer.releaser.sweep_soon()

    async def _phases(self, run: GroupRun) -> None:
        await self._notify_source(run)
        await self._get_answers(run)
        if run.kind == "eval":
            await self._end_untrained(run)
            raise RunEnded("DONE", run.untrained)
        await self._score(run)
        self._drop_cut(run)
        decision = await self._sealing.decided(run)
        if isinstance(decision, Drop):
            self._drop_group(run, decision)
        else:
            await self._seal_and_send(run, decision)

    # --- before the answers --------------------------------------------------------------------

    async def _notify_source(self, run: GroupRun) -> None:
        source = run.context.rewards
        request = run.request
        if not observes_requests(source):
            clear_alert(run.context.bus, "hook")
            run.n = max(run.n, request.n)
            return
        try:
            async with asyncio.timeout(HOOK_LIMIT):
                report = await source.request(
                    request.request_id, run.task_id, request.query, run.metadata
                )
        except TimeoutError:
            self._raise_hook_alert(run, params_of("hook"))
            return
        if report.error is None:
            clear_alert(run.context.bus, "hook")
        elif source.health().ok:  # a folder that does not load raises another alert
            self._raise_hook_alert(run, params_of("hook", error=report.error.cause))
        ids = {name: run.metadata[name] for name in ("task_id", "dataset_task_id")}
        run.metadata = {**report.metadata, **ids}
        run.n = max(run.n, report.repeat or 0) if run.kind != "eval" else 1
        run.n = max(run.n, request.n)

    async def _get_answers(self, run: GroupRun) -> None:
        for _ in range(ROUNDS):
            try:
                with self._sealing.giving_way.waits(run):
                    await self._claim(run)
            except ClaimTimedOut as error:
                run.refuse(run.overloaded(2))
                cause = f"no episodes in time: {error.cause}"
                raise RunEnded("ABORTED", cause, NoEpisodes(refusal=error.cause)) from None
            run.phase = "GENERATING"
            run.mark_phase_end("claim")
            run.live = self._is_live(run)
            await generate(run)
            run.mark_phase_end("generate")
            if run.usable or not self._may_start_again(run):
                break
            await run.returned()  # an aborted episode may be claimed again, under the same id
        if not run.usable:
            run.refuse(no_answer_error(run))
            failures = no_answers(run)
            raise RunEnded("FAILED", no_answers_text(failures), failures)
        if run.kind == "eval":
            run.resolve(run.usable[0], "only")

    def _is_live(self, run: GroupRun) -> bool:
        """Return whether the first candidate is the answer.

        It is not in the rating mode that holds answers, nor for several choices: those are the best
        ones.
        """
        mode = run.context.bus.state.rating_mode
        return run.context.settings.proxy.answer == "live" and mode != "hold" and run.request.n == 1

    def _may_start_again(self, run: GroupRun) -> bool:
        in_time = run.loop.time() < run.deadline - 1.0
        return run.final_answer is None and in_time and may_start_again(run)

    async def _claim(self, run: GroupRun) -> None:
        run.phase = "CLAIMING"
        if not run.held:  # a new round queues again
            run.leave_queue()
        watcher = run.facts.server.watcher
        try:
            if not watcher.current.is_in(ROLLING):
                async with timeout_at(lambda: run.deadline):
                    await watcher.wait_for(ROLLING)
            if run.facts.recovering:
                await run.facts.recovered(max(run.deadline - run.loop.time(), 0.0))
            await enter_queue(run)
            if run.kind != "eval":
                async with timeout_at(lambda: run.deadline):
                    run.n = max(run.n, await run.facts.repeats())
        except TimeoutError:
            status = watcher.current
            cause = "no turn" if status.is_in(ROLLING) else status.display_state.value
            raise ClaimTimedOut(run.n, 0, cause, run.facts.server.name) from None
        if refusal := fit_to_capacity(run):
            run.refuse(refusal)
            raise RunEnded("ABORTED", refusal.message)
        run.mark_phase_end("queue")
        settings, mode = run.context.settings.rating, run.context.bus.state.rating_mode
        off = mode == "off"
        run.discard_timeout = settings.discard_timeout if off else settings.discard_timeout_rating
        if not run.context.journal.error:
            try:
                await claim(run)
                return
            except JournalError:
                log.error("group %s: the intent cannot be committed", run.group_id)
        # Nothing may be trained on without the journal, but the user still gets an answer.
        self._raise_journal_alert(run, params_of("journal", effect="untrained"))
        run.kind, run.n = "eval", run.request.n
        run.untrained = "not trained on: the journal cannot be written"
        await claim(run, durable=False)

    # --- rewards -------------------------------------------------------------------------------

    async def _score(self, run: GroupRun) -> None:
        run.phase = "SCORING"
        enough = len(run.usable) >= min(2, run.n)
        if enough:
            version = run.context.rewards.version
            await score(run)
            if run.sheet is None and version and run.context.rewards.version not in ("", version):
                await score(run)  # another version was loaded meanwhile
        run.mark_phase_end("score")
        state = run.context.bus.state
        best = run.best()
        assert best is not None
        short = len(run.usable) < run.n
        abort = short and (not enough or run.context.settings.rewards.short_group == "abort")
        if state.rating_mode != "hold" or abort:
            run.resolve(best, self._answer_reason(run))
        if abort:
            raise RunEnded("ABORTED", *shortfall(run))

    def _drop_cut(self, run: GroupRun) -> None:
        """Answer and abort a group whose prompt the engine truncated to its window, unless that is
        allowed: its answers do not belong to its prompt. An alert tells of the newest ones.

        Raises:
            RunEnded: The prompt was cut.
        """
        name, bus = run.facts.server.name, run.context.bus
        cut = any([one.answer is not None and was_cut(one.answer) for one in run.usable])
        recent = self._recent[name]
        recent.append(run.group_id if cut else "")
        if not cut:
            if not any(recent):
                clear_alert(bus, f"cut:{name}")
            return
        sent = run.context.settings.rewards.cut_prompts == "send"
        size = run.facts.server.info.context or 0
        params = params_of("cut", window=size, trained=sent)
        show_alert(bus, f"cut:{name}", params, groups=filter(None, recent))
        if not sent and (best := run.best()) is not None:
            run.resolve(best, self._answer_reason(run))
            window = f"{size} tokens" if size else "the engine's window"
            raise RunEnded("ABORTED", f"prompt cut to {window}: not trained on")

    async def _end_untrained(self, run: GroupRun) -> None:
        """End the episodes of an eval group with the automatic reward, if there is one.

        The trainer never sees it. A helper call is not scored: it is aborted, as is a group from
        which the source abstains.
        """
        if run.request.train or run.request.helper:
            return
        run.phase = "SCORING"
        await score(run)
        run.mark_phase_end("score")
        if run.sheet is not None:
            run.phase = "SUBMITTING"
            await submit(run, self._rewards(run, "auto"))

    def _answer_reason(self, run: GroupRun) -> str:
        if len(run.usable) == 1:
            return "only"
        final = run.sheet is not None and run.context.bus.state.rating_mode == "off"
        return "winner" if final else "provisional"

    def _drop_group(self, run: GroupRun, decision: Drop) -> None:
        if (best := run.best()) is not None:
            run.resolve(best, "provisional")
        run.mark_phase_end("rate")
        for one in run.candidates:
            one.lost = one.lost or has_lost_all(run.facts.server.watcher.current)
        if not decision.unscored:
            raise RunEnded("ABORTED", decision.cause)
        cause = f"{decision.cause}; {run.abstained}" if run.abstained else decision.cause
        raise RunEnded("ABORTED", cause, NotScored())

    # --- sending -------------------------------------------------------------------------------

    async def _seal_and_send(self, run: GroupRun, seal: Seal) -> None:
        rewards = self._rewards(run, seal.source)
        winner = best_of(run.usable, rewards)
        assert winner is not None
        run.phase = "SUBMITTING"
        run.sealed = True
        event = sealed(run, rewards, winner.index, seal.source, unrated=seal.unrated)
        run.resolve(winner, "winner" if len(run.usable) > 1 else "only")
        try:
            if run.facts.server.intent_is_durable:
                await run.context.bus.publish_durable(event)
            else:
                run.context.bus.publish_checked(event)
        except JournalError:
            self._raise_journal_alert(run, params_of("journal", effect="unsent"))
            run.sealed = False
            raise RunEnded("ABORTED", "the journal cannot be written") from None
        outcomes = await submit(run, rewards)
        if run.rewards_taken == len(outcomes):
            raise RunEnded("DONE", *shortfall(run))
        others = {
            outcome: outcomes.count(outcome)
            for outcome in dict.fromkeys(outcomes)
            if outcome not in ACCEPTED
        }
        others_text = ", ".join(f"{count} {outcome}" for outcome, count in others.items())
        if run.rewards_taken or "unknown" in outcomes:
            some = NotAllTaken(taken=run.rewards_taken, of=len(outcomes), others=others)
            raise RunEnded("DONE", f"{some.taken} of {some.of} rewards taken, {others_text}", some)
        if all(outcome == "expired" for outcome in outcomes):
            raise RunEnded("ABORTED", "expired", AllExpired())
        raise RunEnded("FAILED", others_text)

    def _rewards(self, run: GroupRun, source: str) -> dict[int, float]:
        if source == "human":
            return dict(run.votes.rewards)
        assert run.sheet is not None
        return {score.index: score.reward for score in run.sheet.scores}

    def _raise_hook_alert(self, run: GroupRun, failure: AlertParams) -> None:
        show_alert(run.context.bus, "hook", failure, groups=(run.group_id,))

    def _raise_journal_alert(self, run: GroupRun, failure: AlertParams) -> None:
        if not run.context.journal.error:
            return  # the journal works again: no later event would clear the alert
        if "journal" not in run.context.bus.state.alerts:
            show_alert(run.context.bus, "journal", failure)
