"""The options `ajet-console` was started with; cheap to import."""

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
    """URL of a proxy that already runs, local or through a tunnel; no child is started then."""
    token_file: Path | None = None
    """File with the control token of `attach`; the home's own token file when None."""
    next_port: bool = True
    """No port was requested: the proxy may take the next free one."""
    start_engine: bool = True
    """Start the embedded engine's process and, when it is OFFLINE, its default job."""
    in_browser: bool = False
    """A browser shows it: it has no files of its own, so nothing is exported from it."""
    read_only: bool = False
    """Only observe: refuse every command from this console."""
    proxy_flags: frozenset[str] = frozenset()
    """Options of the proxy that were given on the command line, as `--rewards`."""
