"""Parts of the state: the job a server was sent last, the work that is done on its engine."""

import msgspec

from core.events.jobs import WorkStep


class SentJob(msgspec.Struct, kw_only=True):
    """The job a server took from here last."""

    yaml: str
    at: float = 0.0
    how: str = ""


class Work(msgspec.Struct, kw_only=True):
    """An order in several steps, while it is done and after; the newest of a server."""

    title: str
    steps: tuple[WorkStep, ...] = ()
    phase: str = "doing"
    began: float = 0.0
    ended: float = 0.0
    said: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.phase != "doing"

    @property
    def now(self) -> WorkStep | None:
        """The step that is being done."""
        return next((one for one in self.steps if one.phase == "doing"), None)
