"""Opening and closing of the policy, outside the state machine; never two open at once on the same
files."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from engine import memory
from engine.interface import CheckpointManager, NoSnapshots, PolicyBackend
from engine.server.activity import VerboseLog
from engine.server.token_log import TokenLog

T = TypeVar("T")

PolicyFactory = Callable[[bool], Awaitable[PolicyBackend]]
"""Opens the policy; True requests the base weights. Must not block the event loop."""

log = logging.getLogger(__name__)

_INFO = ("policy", "context", "step", "run", "run_start")


@dataclass(frozen=True, slots=True)
class OpenResult:
    """Result of opening the policy: either the policy or an error text."""

    policy: PolicyBackend | None = None
    error: str = ""


class PolicyHolder:
    """Owner of the policy while the engine is up.

    Args:
        factory: Opens the policy.
        tasks: Owner of the background tasks.
        verbose: Log for failures.
        reset: The first opening uses the base weights.
    """

    def __init__(
        self, factory: PolicyFactory, tasks: Tasks, verbose: VerboseLog, *, reset: bool = False
    ) -> None:
        self.policy: PolicyBackend | None = None
        self.info: dict[str, Any] = {**dict.fromkeys(_INFO), "snapshots": False}
        """Name, window, step and training run of the policy, and whether it takes snapshots; still
        set after it is closed."""
        self.resetting = False
        """True while checkpoints change: the policy cannot be opened."""
        self.token_log = TokenLog()
        """Tokens of finished episodes."""
        self.checkpoints: CheckpointManager | None = None
        """Saved states of the policy; None when nothing is saved."""
        self.start_from: str | None = None
        """Checkpoint that the first opening restores."""
        self._factory = factory
        self._tasks = tasks
        self._verbose = verbose
        self._reset_first = reset
        self._opening: asyncio.Task[OpenResult] | None = None
        self._releasing: asyncio.Task[None] | None = None

    @property
    def resumes(self) -> bool:
        """Return whether the next opening continues from the latest saved state."""
        return not self._reset_first and self.start_from is None

    async def open(self) -> OpenResult:
        """Open the policy once the previous one is closed.

        A cancelled call leaks nothing: `release` closes the policy when the opening finishes.
        """
        await self.wait_released()
        self._opening = self._tasks.spawn(self._open(self._reset_first), "open")
        result = await asyncio.shield(self._opening)
        if result.policy is not None:
            self._reset_first = False
            self.policy = result.policy
            self.update_info(result.policy)
        return result

    async def reset(self) -> OpenResult:
        """Restore the base weights on disk by opening and closing the policy; it must not be open.

        Completes even when the caller is cancelled; `resetting` is true meanwhile.
        """
        self.resetting = True
        return await asyncio.shield(self._tasks.spawn(self._reset(), "reset"))

    async def change_saved(self, work: Callable[[], T]) -> T:
        """Run blocking work on the saved states; the policy must be closed and stays closed.

        Completes even when the caller is cancelled; `resetting` is true meanwhile.

        Raises:
            Exception: any error of `work`.
        """
        self.resetting = True
        task: asyncio.Task[Callable[[], T]] = self._tasks.spawn(
            self._change_saved(work), "checkpoints"
        )
        done = await asyncio.shield(task)
        return done()

    def set_checkpoints(self, checkpoints: CheckpointManager | None) -> None:
        """Switch to the checkpoints of another experiment; its step and training run are unknown
        until it is opened."""
        self.checkpoints = checkpoints
        self.step_back(None)

    def step_back(self, step: int | None) -> None:
        """Note that other weights are saved, of this step; their training run is unknown until they
        are opened."""
        self.info = {**self.info, "step": step, "run": None, "run_start": None}

    def update_info(self, policy: PolicyBackend) -> None:
        """Update the description of the policy."""
        self.info = {
            "policy": policy.name,
            "context": policy.context,
            "step": policy.step,
            "run": policy.run.id,
            "run_start": policy.run.start,
            "snapshots": not isinstance(policy.snapshots, NoSnapshots),
        }

    def release(self, work: asyncio.Task[Any] | None) -> None:
        """Drop the policy; it is closed in the background, after `work` has ended."""
        self.policy = None
        opening, self._opening = self._opening, None
        if opening is not None or work is not None:
            self._releasing = self._tasks.spawn(
                self._close(work, opening, self._releasing), "release"
            )

    async def wait_released(self, seconds: float | None = None) -> None:
        """Wait until the released policy is closed, at most `seconds`."""
        if self._releasing is not None:
            await asyncio.wait({self._releasing}, timeout=seconds)

    async def _open(self, reset: bool) -> OpenResult:
        try:
            await self._restore_start(reset)
            return OpenResult(policy=await self._factory(reset))
        except AjetError as error:
            reason = str(error)
        except Exception as error:  # no policy error may leave the engine in BOOTING
            log.error("opening the policy", exc_info=error)
            reason = f"The policy could not be opened: {error!r}"
        self._verbose.add("engine", reason, logging.ERROR)
        return OpenResult(error=reason)

    async def _restore_start(self, reset: bool) -> None:
        """Restore the checkpoint the engine was started from, once; a reset makes that obsolete."""
        name, checkpoints = self.start_from, self.checkpoints
        if name is not None and checkpoints is not None and not reset:
            await asyncio.to_thread(checkpoints.restore, name)
            self._verbose.add("engine", f"the policy continues from the checkpoint {name}")
        self.start_from = None

    async def _change_saved(self, work: Callable[[], T]) -> Callable[[], T]:
        """Run `work`; return a function that returns its value or raises its error."""
        try:
            await self.wait_released()
            value = await asyncio.to_thread(work)
            return lambda: value
        except Exception as error:  # noqa: BLE001 - the caller gets it, not the log
            return partial(_reraise, error)
        finally:
            self.resetting = False

    async def _reset(self) -> OpenResult:
        try:
            await self.wait_released()
            result = await self._open(reset=True)
            if result.policy is not None:
                self.update_info(result.policy)
                self._reset_first = False
                await result.policy.close()
                self._verbose.add("engine", "the policy is back at its base weights")
            return result
        finally:
            self.resetting = False

    async def _close(
        self,
        work: asyncio.Task[Any] | None,
        opening: asyncio.Task[OpenResult] | None,
        before: asyncio.Task[None] | None,
    ) -> None:
        await asyncio.wait([task for task in (work, opening, before) if task is not None])
        if opening is None or opening.cancelled():
            return
        policy = opening.result().policy
        if policy is None:
            return
        try:
            await policy.close()
        except Exception as error:  # the next start must stay possible
            log.error("closing the policy", exc_info=error)
        del work, opening, before, policy
        await asyncio.to_thread(memory.release)


def _reraise(error: Exception) -> NoReturn:
    raise error
