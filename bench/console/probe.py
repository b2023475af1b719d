"""The console, with a report of the modules imported when its first screen was painted.

    python -m bench.console.probe FILE ARGS

FILE gets one module a line. Nothing else is different from `ajet-console ARGS`.
"""

import sys
from pathlib import Path

from console.app import ConsoleApp
from console.cli import main

HEAVY = ("fastapi", "aiohttp", "openai", "numpy")
"""Packages that must not be imported by then."""


class _OrderedApp(ConsoleApp):
    """Console that reports its imports before any slow work begins."""

    def _begin(self) -> None:
        Path(sys.argv[1]).write_text("\n".join(sorted(sys.modules)))
        super()._begin()


if __name__ == "__main__":
    import console.app

    console.app.ConsoleApp = _OrderedApp  # type: ignore[misc]  # run_console makes what stands there
    sys.exit(main(sys.argv[2:]))
