"""What goes wrong with a call of a hook, and whose doing it is."""

import signal
from dataclasses import dataclass

from ajet_swarm.common.errors import AjetError
from proxy.rewards.hooks.protocol import Trouble
from proxy.rewards.source import Abstention


class HookError(AjetError):
    """A hook could not be loaded or called."""

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        where = f"{trouble.file}:{trouble.line}" if trouble.file and trouble.line else trouble.file
        super().__init__(trouble.cause, where=where)

    @property
    def abstention(self) -> Abstention:
        """The same, as the answer of a reward source."""
        trouble = self.trouble
        return Abstention(
            "hook", trouble.cause, trouble.traceback, trouble.file, trouble.line, late=trouble.late
        )


class FallenError(HookError):
    """The process ended with the call in it, or before the call, and not surely by its doing."""

    def __init__(self, trouble: Trouble, victim: bool) -> None:
        self.victim = victim
        """Whether another call is known to have ended it."""
        super().__init__(trouble)


@dataclass(frozen=True, slots=True)
class Fell:
    """In place of an answer: the process ended, perhaps by this call."""

    trouble: Trouble
    victim: bool


def how(code: int) -> str:
    """How a process ended, by its return code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ": perhaps the system ran out of memory" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"
