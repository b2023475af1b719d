"""`run service` and `completion`: a unit for systemd, completion for shells."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from click.shell_completion import get_completion_class, shell_complete

from ajet_swarm.common.errors import UsageError
from console.cli.common import existing_home
from console.cli.options import Args, argument, takes
from console.cli.output import say
from console.cli.tree import NAME, build, parse

PROCESSES = {"proxy": "fake vLLM of ajet-console", "engine": "embedded engine of ajet-console"}
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


@takes(
    argument("process", "proxy or engine", choices=tuple(PROCESSES), metavar="PROCESS"),
    argument(
        "arguments",
        "arguments of the process, as after `ajet-console PROCESS`",
        nargs=-1,
        metavar="...",
    ),
    notes=(
        "To install the unit:",
        "  ajet-console run service proxy > ~/.config/systemd/user/ajet-proxy.service",
        "  systemctl --user daemon-reload",
        "  systemctl --user enable --now ajet-proxy",
        "  loginctl enable-linger        # it also runs while you are logged out",
    ),
    remainder=True,
)
def service(args: Args) -> int:
    """Print the unit.

    Raises:
        UsageError: an argument contains a line break, or keeps the process from starting.
        click.UsageError: the process does not take these arguments.
    """
    arguments = [word for word in args.arguments if word != "--"]
    parsed = parse(["run", args.process, *arguments])
    if parsed.dry_run:
        raise UsageError("a unit with --dry-run would start nothing", "--dry-run", "Leave it out")
    home = str(existing_home(args).root.absolute())
    named = any(argument == "--home" or argument.startswith("--home=") for argument in arguments)
    start = ["run", args.process]
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


# --- completion ----------------------------------------------------------------------------------

SHELLS = {
    "bash": 'eval "$(ajet-console completion bash)"    in ~/.bashrc',
    "zsh": 'eval "$(ajet-console completion zsh)"     in ~/.zshrc, after compinit',
    "fish": "ajet-console completion fish | source     in ~/.config/fish/config.fish",
}
"""Shell -> the line that loads its script, and the file for that line."""
VARIABLE = "_AJET_CONSOLE_COMPLETE"
"""Variable with which the script asks for completions."""


@takes(
    argument("shell", ", ".join(SHELLS), choices=tuple(SHELLS), metavar="SHELL"),
    notes=("To load it in every new shell:", *(f"  {line}" for line in SHELLS.values())),
)
def completion(args: Args) -> int:
    """Print the script of the shell."""
    shell = get_completion_class(args.shell)
    assert shell is not None
    say(shell(build(), {}, NAME, VARIABLE).source().strip())
    return 0


def complete() -> int:
    """Answer a shell that asks for completions."""
    return shell_complete(build(), {}, NAME, VARIABLE, os.environ[VARIABLE])
