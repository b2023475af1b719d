"""Opens and closes the policy beside the state machine; never two at once on the same files."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from engine.interface import CheckpointManager, PolicyBackend
from engine.server.activity import VerboseLog
from engine.server.token_log import TokenLog

T = TypeVar("T")

PolicyFactory = Callable[[bool], Awaitable[PolicyBackend]]
"""Opens the policy; True asks for the base weights. Must not block the loop."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenResult:
    """What opening the policy came to: one of the two is set."""

    policy: PolicyBackend | None = None
    error: str = ""


class PolicyHolder:
    """Holds the policy while the engine is up.

    Args:
        factory: Opens the policy.
        tasks: Owner of what goes on in the background.
        verbose: Where failures are told.
        reset: The first opening goes to the base weights.
    """

    def __init__(
        self, factory: PolicyFactory, tasks: Tasks, verbose: VerboseLog, *, reset: bool = False
    ) -> None:
        self.policy: PolicyBackend | None = None
        self.facts: dict[str, Any] = {"policy": None, "context": None, "step": None}
        """What is known of the policy; outlives it."""
        self.resetting = False
        """Checkpoints are being changed: the policy can not be opened."""
        self.tokens = TokenLog()
        """What finished episodes were made of."""
        self.keeper: CheckpointManager | None = None
        """What is saved of the policy; None when nothing is."""
        self.start_from: str | None = None
        """Name of a checkpoint that the first opening goes back to."""
        self._factory = factory
        self._tasks = tasks
        self._verbose = verbose
        self._reset_first = reset
        self._opening: asyncio.Task[OpenResult] | None = None
        self._release: asyncio.Task[None] | None = None

    @property
    def resumes(self) -> bool:
        """Whether the next opening goes on from the latest saved state."""
        return not self._reset_first and self.start_from is None

    async def open(self) -> OpenResult:
        """Open the policy once the one before is closed.

        Being cancelled does not lose it: `release` closes what the opening comes to.
        """
        await self.released()
        self._opening = self._tasks.spawn(self._open(self._reset_first), "open")
        opened = await asyncio.shield(self._opening)
        if opened.policy is not None:
            self._reset_first = False
            self.policy = opened.policy
            self.note(opened.policy)
        return opened

    async def reset(self) -> OpenResult:
        """Open the policy at its base weights and close it again; it must not be held.

        Goes on to its end when the caller is cancelled; `resetting` is true meanwhile.
        """
        self.resetting = True
        return await asyncio.shield(self._tasks.spawn(self._reset(), "reset"))

    async def keeping(self, work: Callable[[], T]) -> T:
        """Do blocking work on what is saved while the policy is closed, and stays closed.

        Goes on to its end when the caller is cancelled; `resetting` is true meanwhile.

        Raises:
            Exception: whatever `work` raises.
        """
        self.resetting = True
        task: asyncio.Task[Callable[[], T]] = self._tasks.spawn(self._keep(work), "checkpoints")
        done = await asyncio.shield(task)
        return done()

    def replace_keeper(self, keeper: CheckpointManager | None) -> None:
        """Take the checkpoints of another experiment; its step is not known before it is opened."""
        self.keeper = keeper
        self.facts = {**self.facts, "step": None}

    def note(self, policy: PolicyBackend) -> None:
        """Keep what is told about the policy while it is closed."""
        self.facts = {"policy": policy.name, "context": policy.context, "step": policy.step}

    def release(self, work: asyncio.Task[Any] | None) -> None:
        """Let go of the policy now; it is closed in the background, after `work` has ended."""
        self.policy = None
        opening, self._opening = self._opening, None
        if opening is not None or work is not None:
            self._release = self._tasks.spawn(self._close(work, opening, self._release), "release")

    async def released(self, seconds: float | None = None) -> None:
        """Wait until what was released is closed, at most `seconds`."""
        if self._release is not None:
            await asyncio.wait({self._release}, timeout=seconds)

    async def _open(self, reset: bool) -> OpenResult:
        try:
            await self._go_back(reset)
            return OpenResult(policy=await self._factory(reset))
        except AjetError as error:
            reason = str(error)
        except Exception as error:  # a backend's fault must not leave the engine at BOOTING
            log.error("opening the policy", exc_info=error)
            reason = f"The policy could not be opened: {error!r}"
        self._verbose.add("engine", reason, logging.ERROR)
        return OpenResult(error=reason)

    async def _go_back(self, reset: bool) -> None:
        """Once: to the checkpoint the engine was started from; a reset makes it pointless."""
        name, keeper = self.start_from, self.keeper
        if name is not None and keeper is not None and not reset:
            await asyncio.to_thread(keeper.restore, name)
            self._verbose.add("engine", f"the policy goes on from the checkpoint {name}")
        self.start_from = None

    async def _keep(self, work: Callable[[], T]) -> Callable[[], T]:
        """What `work` came to, for whoever asked: its value, or its error raised."""
        try:
            await self.released()
            value = await asyncio.to_thread(work)
            return lambda: value
        except Exception as error:  # noqa: BLE001 - whoever asked gets it, not the log
            return partial(_reraise, error)
        finally:
            self.resetting = False

    async def _reset(self) -> OpenResult:
        try:
            await self.released()
            opened = await self._open(reset=True)
            if opened.policy is not None:
                self.note(opened.policy)
                self._reset_first = False
                await opened.policy.close()
                self._verbose.add("engine", "the policy is back at its base weights")
            return opened
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
        except Exception as error:  # the next start must be possible whatever the backend does
            log.error("closing the policy", exc_info=error)


def _reraise(error: Exception) -> NoReturn:
    raise error
