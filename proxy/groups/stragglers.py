"""Decides when candidates without an answer are late, and how they are handled."""

import asyncio
from collections.abc import Callable

from proxy.groups.run import Run
from proxy.servers.facts import ROLLING, ROLLING_POST

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
