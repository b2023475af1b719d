"""The parser of the command line: the console's own options, and a parser for each command.

A command's module is imported when that command is parsed, so that no other one is loaded.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, cast

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import did_you_mean
from console.cli.options import BACKEND_FLAGS, PROXY_FLAGS, THEMES, add_home, complete_options
from console.cli.output import output
from console.cli.registry import GROUPS, Verb


def build_parser(*, lazy: bool = False) -> argparse.ArgumentParser:
    """Build the parser of the whole command line.

    Args:
        lazy: Add the arguments of a command only when it is parsed or its help is printed.
    """
    parser = Parser(
        prog="ajet-console",
        description="Train a language-model policy from the real use of an application, "
        "from one terminal. Without a command: the console.",
        epilog="Example: ajet-console --swarm-url http://gpu-box:10086 --hooks ./my_hooks",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    add_home(parser, default=None)
    _add_console(parser)
    commands = parser.add_subparsers(
        dest="command",
        metavar="COMMAND",
        title="commands",
        parser_class=VerbParser,
        help="one of the following:",
    )
    parsers = _VerbParsers(commands)
    commands.choices = commands._name_parser_map = parsers
    for title, verbs in GROUPS.items():
        listing = parser.add_argument_group(title)
        for verb in verbs:
            parsers.add(verb)
            listing._group_actions.append(_Listed(verb))
            if not lazy:
                parsers[verb.name].load()
    return parser


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error on one line, with a pointer to the help."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Exit with code 2; suggest a similar word instead of listing all valid ones."""
        suggestion = _suggestion(message)
        what = message.partition(" (choose from ")[0] if suggestion else message
        self.refuse(what, suggestion)

    def refuse(self, what: str, suggestion: str = "") -> NoReturn:
        """Exit with code 2 and one line on standard error; with `--json` also with an envelope."""
        hint = f"{suggestion}See `{self.prog} --help`"
        if output().envelope:
            output().verb = self.prog.partition(" ")[2]
            output().close(2, UsageError(what, todo=hint))
        self.exit(2, f"{self.prog}: {what}. {hint}\n")

    def parse_args(  # type: ignore[override]  # argparse has overloads for other namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse a command line; for an unknown option, suggest a similar one of the command."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            verb = _verb_of(self, parsed)
            close = [did_you_mean(argument.partition("=")[0], _flags(verb)) for argument in unknown]
            hint = "".join(f"{suggestion} " for suggestion in close if suggestion)
            words = " ".join(unknown)
            verb.refuse(f"unrecognized arguments: {words}", hint)
        return parsed


class VerbParser(Parser):
    """The parser of a command; the command's module adds the arguments.

    Args:
        verb: The command; None for a verb of a command, which gets its arguments immediately.
    """

    def __init__(self, verb: Verb | None = None, **options: Any) -> None:
        if verb is not None:
            options["description"] = verb.about
            options["epilog"] = f"Example: ajet-console {verb.name} {verb.example}".rstrip()
        super().__init__(**options)
        self._pending = verb

    def load(self) -> None:
        """Import the command's module and let it add its arguments; do nothing the second time."""
        verb, self._pending = self._pending, None
        if verb is None:
            return
        add_home(self)
        self.set_defaults(order_name=verb.command)
        module, _, function = verb.target.partition(":")
        getattr(import_module(module), function)(self)
        complete_options(self, verb.name)

    def parse_known_args(self, *args: Any, **options: Any) -> Any:
        """Load, then parse."""
        self.load()
        return super().parse_known_args(*args, **options)

    def format_help(self) -> str:
        """Load, then write the help."""
        self.load()
        return super().format_help()


class _VerbParsers(dict[str, VerbParser]):
    """The parsers of the commands by name; each is created when it is first looked up.

    Creating all of them takes several times as long as parsing a command line.
    """

    def __init__(self, commands: "argparse._SubParsersAction[VerbParser]") -> None:
        super().__init__()
        self._commands = commands
        self._pending: dict[str, Verb] = {}

    def add(self, verb: Verb) -> None:
        """Add a command, whose parser is not created yet."""
        self._pending[verb.name] = verb

    def __contains__(self, name: object) -> bool:
        return name in self._pending or super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        yield from super().__iter__()
        yield from self._pending

    def __missing__(self, name: str) -> VerbParser:
        verb = self._pending.pop(name, None)
        if verb is None:
            raise KeyError(name)
        return self._commands.add_parser(name, verb=verb)


class _Listed(argparse.Action):
    """A command's entry in the program's help."""

    def __init__(self, verb: Verb) -> None:
        about = verb.about[0].lower() + verb.about[1:]
        super().__init__([], verb.name, help=about.replace("%", "%%"), metavar=verb.name)

    def __call__(self, *_: object) -> None:
        """Do nothing: the entry is only listed, never parsed."""


def _verb_of(parser: Parser, args: argparse.Namespace) -> Parser:
    """Return the parser of the command in `args`, and of its verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            name = getattr(args, "command" if action.dest == "command" else "verb", None)
            if name in action.choices:
                return _verb_of(cast(Parser, action.choices[name]), args)
    return parser


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings]


_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


def _suggestion(message: str) -> str:
    """Return `Did you mean X? ` when argparse refused a value similar to a valid one."""
    match = _CHOICE.search(message)
    close = did_you_mean(match[1], re.split(r"'?, '?", match[2].strip("'"))) if match else ""
    return f"{close} " if close else ""


class _Version(argparse.Action):
    """Action that prints the version; it is determined only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from core.version import version

        sys.stdout.write(f"ajet-console {version()}\n")
        parser.exit()


def _add_console(parser: argparse.ArgumentParser) -> None:
    """Add the options of the console itself."""
    parser.set_defaults(handler=run_console)
    for flag, options in PROXY_FLAGS.items():
        _add_top(parser, flag, **options)
    for flag, options in BACKEND_FLAGS.items():
        _add_top(parser, flag, **options)
    _add_top(parser, "--attach", metavar="URL", help="attach to a running proxy")
    _add_top(
        parser,
        "--token-file",
        type=Path,
        metavar="FILE",
        help="control token of the proxy to attach to",
    )
    _add_top(parser, "--theme", choices=THEMES, help="colours")
    _add_top(
        parser,
        "--no-engine",
        action="store_true",
        help="do not start the embedded engine or its job",
    )
    _add_top(parser, "--read-only", action="store_true", help="view only")
    _add_top(parser, "--keys", action="store_true", help="list all keys and their conflicts")


def run_console(args: argparse.Namespace) -> int:
    """Import the console's module and run it."""
    from console.cli.processes import console

    return console(args)


def top_name(flag: str) -> str:
    """Return the attribute name of a console option; it differs from those of the commands."""
    return "console_" + flag.lstrip("-").replace("-", "_")


def _add_top(parser: argparse.ArgumentParser, flag: str, **options: Any) -> None:
    parser.add_argument(flag, dest=top_name(flag), **options)
