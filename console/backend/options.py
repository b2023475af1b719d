"""What `ajet-console` was started with; light to import."""

from dataclasses import dataclass
from pathlib import Path

from core.runtime.home import Home
from core.settings import Settings


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """How to start the console."""

    home: Home
    settings: Settings
    attach: str | None = None
    """URL of a proxy that already runs, here or at the other end of a tunnel; starts no child."""
    token_file: Path | None = None
    """Holds the control token of `attach`; the home's own when left out."""
    next_port: bool = True
    """No port was asked for: the proxy may take the next free one."""
    start_engine: bool = True
    """Start the embedded engine's process and, when it is OFFLINE, its default job."""
    read_only: bool = False
    """Look on; nothing can be ordered from this console."""
    swarm_given: bool = False
    """The swarm servers of the settings, or the upstream, were given as flags."""
    hooks_given: bool = False
    """So was the folder of the reward function."""
