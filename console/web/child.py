"""The process of one console in a browser: the console, attached with the token of a link."""

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from console.backend.options import ConsoleOptions
from console.web.guard import restrict
from core.runtime.home import Home
from core.settings import load

_MOST_DATA = 1 << 29
"""Bytes of data, thread stacks included; a console that has just started has 90 MB."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the console; return its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--attach", required=True)
    parser.add_argument("--theme", required=True)
    parser.add_argument("--cert", default="")
    parser.add_argument("--read-only", action="store_true")
    args = parser.parse_args(arguments)
    home = Home.open(args.folder)
    flags = {"console.theme": args.theme, "proxy.tls_cert": args.cert or None}
    settings = load(home.config, environment={}, flags=flags)
    options = ConsoleOptions(
        home=home,
        settings=settings,
        attach=args.attach,
        token_file=args.folder / "link",
        start_engine=False,
        in_browser=True,
        read_only=args.read_only,
    )
    from console.app import run_console

    _limit_memory()
    restrict(args.folder, [args.cert] if args.cert else [])
    return run_console(options)


def _limit_memory() -> None:
    """Limit the memory, so that a flood of keys ends this console and not the machine."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    with contextlib.suppress(OSError, ValueError):  # macOS refuses some limits
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_DATA, _MOST_DATA))


if __name__ == "__main__":
    sys.exit(main())
