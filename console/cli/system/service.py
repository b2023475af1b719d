"""`service`: a systemd user unit that runs the proxy or the embedded engine."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from console.cli.common import existing_home, say

PROCESSES = {
    "proxy": "fake vLLM of ajet-console",
    "engine": "embedded engine of ajet-console",
}
"""Process that a unit can run -> the unit's description."""
STOP_SECONDS = 60
"""Time that the process has to end by itself: open groups are returned, the journal is closed."""

_UNIT = """\
[Unit]
Description={about}
After=network-online.target

[Service]
WorkingDirectory={folder}
ExecStart={command}
Restart=on-failure
RestartSec=2
TimeoutStopSec={seconds}
UMask=0077

[Install]
WantedBy=default.target
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=service)
    parser.add_argument("process", choices=PROCESSES, metavar="PROCESS", help="proxy or engine")
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="arguments of the process, as after `ajet-console PROCESS`",
    )
    parser.epilog = (
        f"{parser.epilog}\n\nTo install the unit:\n"
        "  ajet-console service proxy > ~/.config/systemd/user/ajet-proxy.service\n"
        "  systemctl --user daemon-reload\n"
        "  systemctl --user enable --now ajet-proxy\n"
        "  loginctl enable-linger        # it also runs while you are logged out"
    )


def service(args: argparse.Namespace) -> int:
    """Print the unit.

    Raises:
        UsageError: an argument contains a line break, or keeps the process from starting.
        SystemExit: the process does not take these arguments.
    """
    from console.cli.parser import build_parser

    arguments = [argument for argument in args.arguments if argument != "--"]
    parsed = build_parser(lazy=True).parse_args([args.process, *arguments])
    for option in ("read_only", "dry_run"):
        if getattr(parsed, option, False):
            flag = f"--{option.replace('_', '-')}"
            raise UsageError(f"a unit with {flag} would start nothing", flag, "Leave it out")
    home = str(existing_home(args).root.absolute())
    named = any(argument == "--home" or argument.startswith("--home=") for argument in arguments)
    start = [args.process]
    if args.process == "engine" and not parsed.yes:
        start.append("--yes")  # a service cannot answer whether a model may be downloaded
    command = [*program(), *start, *([] if named else ["--home", home]), *arguments]
    say(
        _UNIT.format(
            about=PROCESSES[args.process],
            folder=str(Path.cwd()).replace("%", "%%"),
            command=" ".join(map(quoted, command)),
            seconds=STOP_SECONDS,
        ).rstrip()
    )
    return 0


def program() -> Sequence[str]:
    """Return the command that runs this program, with absolute paths."""
    beside = Path(sys.executable).absolute().with_name("ajet-console")
    script = str(beside) if beside.is_file() else shutil.which("ajet-console")
    return (script,) if script else (sys.executable, "-m", "console")


def quoted(argument: str) -> str:
    """Return an argument in the syntax of `ExecStart=`, see systemd.service(5), "Command lines".

    Raises:
        UsageError: it contains a line break, which a unit cannot express.
    """
    if "\n" in argument or "\r" in argument:
        raise UsageError("an argument contains a line break", "service", "Use a settings file")
    text = argument.replace("%", "%%").replace("$", "$$").replace("\\", "\\\\")
    if not text or any(c in text for c in " \t'\";\\"):
        text = '"' + text.replace('"', '\\"') + '"'
    return text
