"""`completion`: the script with which a shell completes the commands and their options."""

import os

from click.shell_completion import get_completion_class, shell_complete

from console.cli.common import say
from console.cli.options import Args, argument, takes
from console.cli.tree import NAME, build

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
