"""Export from the journal of a home, for the console's screens; blocks on the disk."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from console.export.run import ExportOptions, ExportReport, Report, export
from core.journal.read_only import JournalFile
from core.runtime.home import Home, running
from core.settings import load


def export_home(
    root: Path,
    proxy_url: str,
    options: ExportOptions,
    report: Report,
    cancelled: Callable[[], bool],
) -> ExportReport:
    """Export the journal of a home, with the patterns of its settings.

    Args:
        root: The home.
        proxy_url: Address of the proxy that the console shows.
        options: What is exported.
        report: Called some times per second.
        cancelled: Whether to stop.

    Raises:
        UsageError: The home has no journal, or the console shows a proxy of another home.
        AjetError: The export fails; see `console.export.run.export`.
    """
    home = Home.at(root)
    info = running(home, "proxy")
    if info is not None and proxy_url and info.url.rstrip("/") != proxy_url.rstrip("/"):
        raise UsageError(
            "this console shows a proxy of another home",
            proxy_url,
            "Run `ajet-console export` on the machine of that proxy",
        )
    if not home.journal.exists():
        raise UsageError("there is no journal in this home", str(home.journal))
    options = replace(options, patterns=load(home.config).export.all_patterns)
    journal = JournalFile(home.journal)
    return export(journal, options, report, cancelled)
