"""Errors of a hook call, and whether the call itself is their cause."""

import signal
from dataclasses import dataclass

from ajet_swarm.common.errors import AjetError
from proxy.rewards.hooks.protocol import HookFault
from proxy.rewards.source import Abstention


class HookError(AjetError):
    """A hook could not be loaded or called."""

    def __init__(self, fault: HookFault) -> None:
        self.fault = fault
        where = f"{fault.file}:{fault.line}" if fault.file and fault.line else fault.file
        super().__init__(fault.cause, where=where)

    @property
    def abstention(self) -> Abstention:
        """The same fault as an abstention of the reward source."""
        fault = self.fault
        return Abstention(
            "hook", fault.cause, fault.traceback, fault.file, fault.line, late=fault.late
        )


class CrashError(HookError):
    """The process ended before or during the call, perhaps because of another call."""

    def __init__(self, fault: HookFault, victim: bool) -> None:
        self.victim = victim
        """Whether another call is known to have ended the process."""
        super().__init__(fault)


@dataclass(frozen=True, slots=True)
class Crashed:
    """Result of a call whose process ended, possibly because of this call."""

    fault: HookFault
    victim: bool


def describe_exit(code: int) -> str:
    """Return how a process ended, from its return code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ": perhaps the system ran out of memory" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"
