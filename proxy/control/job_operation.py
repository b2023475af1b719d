"""An operation in several steps: each step is published, and waiting steps can be cancelled."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.protocol.job_secrets import hidden
from core.events import OperationStep, WorkChanged
from proxy.context import ProxyContext

T = TypeVar("T")


class OperationCancelled(AjetError):
    """The operator has cancelled the operation."""

    def __init__(self) -> None:
        super().__init__("cancelled")


class JobOperation:
    """Runs the steps of an operation and publishes its progress.

    Args:
        context: The proxy's shared parts.
        server: Name of the server.
        title: Title of the operation.
        steps: Titles of the steps, in order.
    """

    def __init__(
        self, context: ProxyContext, server: str, title: str, steps: tuple[str, ...]
    ) -> None:
        self._context = context
        self.server = server
        self.title = title
        self.phase = "doing"
        self.job = ""
        """YAML of the job that is sent; its secrets are removed from every published text."""
        self.steps = [OperationStep(title=one) for one in steps]
        self._began = context.clock()
        self._cancelled = False
        self._interruptible = False
        self._task: asyncio.Task[object] | None = None
        self._publish()

    @property
    def ended(self) -> bool:
        """Whether the operation has ended."""
        return self.phase != "doing"

    def cancel(self) -> bool:
        """Request cancellation; return False if that was requested before.

        A step that only waits is interrupted; a request to the server is completed first.
        """
        if self._cancelled or self.ended:
            return False
        self._cancelled = True
        if self._interruptible and self._task is not None:
            self._task.cancel()
        return True

    async def step(self, title: str, work: Awaitable[T], *, interruptible: bool = False) -> T:
        """Run one step.

        Args:
            title: Title of the step.
            work: The work of the step.
            interruptible: Whether a cancellation may interrupt it: it only waits.

        Raises:
            OperationCancelled: the operator has cancelled the operation; the step may be complete.
        """
        self._task, self._interruptible = asyncio.current_task(), interruptible
        self._mark(title, "doing")
        try:
            result = await work
        except asyncio.CancelledError:
            self._mark(title, "cancelled" if self._cancelled else "failed")
            if self._cancelled and self._task is not None and self._task.uncancel() == 0:
                raise OperationCancelled from None
            raise
        except Exception as error:  # after any failure the step must no longer be shown as running
            self._mark(title, "failed", str(error) or type(error).__name__)
            raise
        finally:
            self._task, self._interruptible = None, False
        self._mark(title, "done")
        if self._cancelled:
            raise OperationCancelled
        return result

    def skip(self, title: str, why: str) -> None:
        """Mark a step as not needed."""
        self._mark(title, "skipped", why)

    def end(self, phase: str, summary: str) -> None:
        """End the operation."""
        self.phase = phase
        self._publish(summary)

    def _mark(self, title: str, phase: str, detail: str = "") -> None:
        now = self._context.clock()
        for index, one in enumerate(self.steps):
            if one.title == title:
                self.steps[index] = msgspec.structs.replace(
                    one,
                    phase=phase,
                    began=one.began or now,
                    ended=0.0 if phase == "doing" else now,
                    detail=hidden(detail, self.job),
                )
        self._publish()

    def _publish(self, summary: str = "") -> None:
        self._context.bus.publish(
            WorkChanged(
                server=self.server,
                work=self.title,
                steps=tuple(self.steps),
                phase=self.phase,
                began=self._began,
                said=hidden(summary, self.job),
            )
        )
