"""The input and the result of the doctor's checks."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from core.runtime.home import Home
from core.settings import Settings

Level = Literal["ok", "warn", "fail"]
LIMIT = 4.0
"""Time limit of one check, in seconds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    area: str
    """python, terminal, ports, home, server, keys, hooks, judges, plug-ins, card, disk or
    packages."""
    name: str
    level: Level
    text: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The installation to check."""

    home: Home
    """Not opened; it may not exist."""
    settings: Settings | None
    """None when the settings cannot be read."""
    trouble: str = ""
    """Why the settings cannot be read."""
    hooks: Path | None = None
    url: str = ""
    """URL of a proxy to check instead of the home's own."""
    token_file: Path | None = None
    servers: dict[str, str] = field(default_factory=dict)
