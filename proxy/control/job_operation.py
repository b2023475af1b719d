"""An order in several steps: each is an event, one that waits can be cancelled."""

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
    """The operator has cancelled it."""

    def __init__(self) -> None:
        super().__init__("cancelled")


class JobOperation:
    """Tells how far an order is.

    Args:
        context: Where events go.
        server: Name of the server it is about.
        title: What is done.
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
        """YAML of the job that is sent: no text that is published quotes its secrets."""
        self.steps = [OperationStep(title=one) for one in steps]
        self._began = context.clock()
        self._cancelled = False
        self._breaks = False
        self._task: asyncio.Task[object] | None = None
        self._tell()

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return self.phase != "doing"

    def cancel(self) -> bool:
        """Ask it to end; False when that is asked already.

        A step that only waits ends at once, one that was sent to the server is waited for.
        """
        if self._cancelled or self.over:
            return False
        self._cancelled = True
        if self._breaks and self._task is not None:
            self._task.cancel()
        return True

    async def step(self, title: str, doing: Awaitable[T], *, breaks: bool = False) -> T:
        """Do one step.

        Args:
            title: Which.
            doing: What is done.
            breaks: It only waits: a cancel ends it in the middle.

        Raises:
            WorkCancelled: the operator has cancelled the work; the step may be done all the same.
        """
        self._task, self._breaks = asyncio.current_task(), breaks
        self._mark(title, "doing")
        try:
            result = await doing
        except asyncio.CancelledError:
            self._mark(title, "cancelled" if self._cancelled else "failed")
            if self._cancelled and self._task is not None and self._task.uncancel() == 0:
                raise OperationCancelled from None
            raise
        except Exception as error:  # whatever it is, the step must not go on looking busy
            self._mark(title, "failed", str(error) or type(error).__name__)
            raise
        finally:
            self._task, self._breaks = None, False
        self._mark(title, "done")
        if self._cancelled:
            raise OperationCancelled
        return result

    def skip(self, title: str, why: str) -> None:
        """A step that is not needed."""
        self._mark(title, "skipped", why)

    def end(self, phase: str, said: str) -> None:
        """It is over."""
        self.phase = phase
        self._tell(said)

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
        self._tell()

    def _tell(self, said: str = "") -> None:
        self._context.bus.publish(
            WorkChanged(
                server=self.server,
                work=self.title,
                steps=tuple(self.steps),
                phase=self.phase,
                began=self._began,
                said=hidden(said, self.job),
            )
        )
