"""What a check of the doctor is given and what it returns."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from core.runtime.home import Home
from core.settings import Settings

Level = Literal["ok", "warn", "fail"]
LIMIT = 4.0
"""Seconds any one check may take."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    area: str
    """python, terminal, ports, home, server, keys, hooks, judges, disk or packages."""
    name: str
    level: Level
    text: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """What is looked at."""

    home: Home
    """Not opened: it need not exist."""
    settings: Settings | None
    """None when they cannot be read."""
    trouble: str = ""
    """Why not."""
    hooks: Path | None = None
    url: str = ""
    """A proxy to ask instead of the home's own."""
    token_file: Path | None = None
    servers: dict[str, str] = field(default_factory=dict)
