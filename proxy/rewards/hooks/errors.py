"""Errors of a hook call, and whether the call itself is their cause."""

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
        """The same fault as an abstention of the reward source."""
        trouble = self.trouble
        return Abstention(
            "hook", trouble.cause, trouble.traceback, trouble.file, trouble.line, late=trouble.late
        )


class FallenError(HookError):
    """The process ended during the call or before it, not certainly because of it."""

    def __init__(self, trouble: Trouble, victim: bool) -> None:
        self.victim = victim
        """Whether another call is known to have ended the process."""
        super().__init__(trouble)


@dataclass(frozen=True, slots=True)
class Fell:
    """Result of a call whose process ended, possibly because of this call."""

    trouble: Trouble
    victim: bool


def how(code: int) -> str:
    """Return how a process ended, from its return code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ": perhaps the system ran out of memory" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"
