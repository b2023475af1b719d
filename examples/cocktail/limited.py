"""Run a program written by a model with limits on time, memory and disk, in its own folder."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

SECONDS: Final = 5.0
CPU_SECONDS: Final = 2
MEMORY_KB: Final = 400_000
FILE_BLOCKS: Final = 2_000
"""Maximum size of a file, in blocks of 512 bytes."""
OUTPUT: Final = 100_000


def run(argv: Sequence[str], folder: Path, stdin: str = "", seconds: float = SECONDS) -> str | None:
    """Return its output; None when it fails or exceeds a limit.

    This keeps accidents in bounds, not attacks: it may read what you may read and use the network.

    Args:
        argv: The program.
        folder: Its working folder and home.
        stdin: What it reads.
        seconds: How long it may take, whatever it does meanwhile.
    """
    # A shell sets the limits: no Python must run in the new process between fork and exec.
    limits = f"ulimit -t {CPU_SECONDS}; ulimit -v {MEMORY_KB} 2>/dev/null; ulimit -f {FILE_BLOCKS}"
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            ["/bin/sh", "-c", f'{limits}; exec "$@"', "limited", *argv],
            cwd=folder,
            env={"PATH": os.defpath, "HOME": str(folder), "LC_ALL": "C"},
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what it starts ends with it
        )
        try:
            child.communicate(stdin.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            _end_escaped(child.pid, str(folder))
        out.seek(0)
        return out.read(OUTPUT).decode(errors="replace") if child.returncode == 0 else None


def _end_escaped(first: int, home: str) -> None:
    """Kill its processes that left its group: younger ones whose HOME is its folder."""
    for pid in psutil.pids():
        if pid > first:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.environ().get("HOME") == home:
                    process.kill()
