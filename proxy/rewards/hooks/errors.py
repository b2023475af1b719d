"""Errors of a hook call, and whether the call itself is their cause."""

import signal
from dataclasses import dataclass

from proxy.rewards.hooks.protocol import HookFault
from proxy.rewards.part import PartAbstained


class HookError(PartAbstained):
    """A hook could not be loaded or called."""

    def __init__(self, fault: HookFault) -> None:
        self.fault = fault
        super().__init__(fault.cause, fault.traceback, fault.file, fault.line, fault.late)


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
