"""`completion`: the script with which a shell completes the commands and their options."""

import argparse
import os

from console.cli.common import say
from console.cli.parser import VerbParser

SHELLS = {
    "bash": 'eval "$(ajet-console completion bash)"    in ~/.bashrc',
    "zsh": 'eval "$(ajet-console completion zsh)"     in ~/.zshrc, after compinit',
    "fish": "ajet-console completion fish | source     in ~/.config/fish/config.fish",
}
"""Shell -> the line that loads its script, and the file for that line."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=completion)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    lines = "\n".join(f"  {line}" for line in SHELLS.values())
    parser.epilog = f"{parser.epilog}\n\nTo load it in every new shell:\n{lines}"


def completion(args: argparse.Namespace) -> int:
    """Print the script of the shell."""
    from argcomplete.shell_integration import shellcode

    say(shellcode(["ajet-console"], shell=args.shell).strip())
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, and end the process.

    argcomplete reads the names and the arguments of all parsers before it parses: the parsers of
    all commands are created, and that of the command in the line gets its arguments.
    """
    import argcomplete

    words = os.environ["COMP_LINE"].split()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name in tuple(action.choices):
                verb = action.choices[name]
                if name in words and isinstance(verb, VerbParser):
                    verb.load()
    argcomplete.autocomplete(parser)
