"""Log format of all processes: without secrets, safe to show in a terminal.

Format: `2026-01-31 12:00:00,123 LEVEL name: message`; further lines (a traceback) follow
unchanged.
"""

import logging
import sys
from typing import TextIO

from ajet_swarm.common.secrets import redact
from ajet_swarm.common.text import plain

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_CHATTY = ("asyncio", "httpcore", "httpx", "uvicorn.access", "uvicorn.error")
"""Loggers of libraries whose INFO messages are of no use to an operator."""


class _Formatter(logging.Formatter):
    """Formatter that redacts keys and makes control characters visible, also in tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(redact(super().format(record)))


def setup(level: int | str = "INFO", stream: TextIO | None = None) -> None:
    """Send the log of this process to `stream`; called once, first in a process's main.

    Args:
        level: Minimum level of our own loggers.
        stream: Output; standard error if omitted.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Formatter(FORMAT))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
