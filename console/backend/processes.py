"""Processes by their ids: whether they live, whom they lead, how they are told to end."""

import contextlib
import os
import signal


def exists(pid: int) -> bool:
    """Whether there is such a process, over or not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_zombie(pid: int) -> bool:
    """Whether the process is over and only waits for its parent to notice."""
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def group_of(pid: int) -> int | None:
    """The process group `pid` leads; None when it leads none, as one started by a script."""
    try:
        return pid if os.getpgid(pid) == pid and pid != os.getpgrp() else None
    except ProcessLookupError:
        return None


def send(pid: int, number: signal.Signals) -> None:
    """Signal one process; one that is gone or not ours is passed over."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(group: int | None, pid: int | None, number: signal.Signals) -> None:
    """Signal a whole process group; without one, the process alone."""
    if group is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    elif pid is not None:
        send(pid, number)
