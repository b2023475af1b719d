"""What a process writes to its log: one format, without secrets, safe to show.

Format: `2026-01-31 12:00:00,123 LEVEL name: message`; further lines (a traceback) follow as they
are.
"""

import logging
import sys
from typing import TextIO

from ajet_swarm.common.text import plain, redact

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_CHATTY = ("asyncio", "httpcore", "httpx", "uvicorn.access", "uvicorn.error")
"""Loggers of libraries that tell at INFO what is of no use to an operator."""


class _Formatter(logging.Formatter):
    """Redacts keys and makes control characters visible, in tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(redact(super().format(record)))


def setup(level: int | str = "INFO", stream: TextIO | None = None) -> None:
    """Send the log of this process to `stream`; called once, first thing in a process's main.

    Args:
        level: Least level that is written, of our own loggers.
        stream: Standard error when left out.
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
