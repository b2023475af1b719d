"""Options that several commands share; each has a function that adds it to a parser."""

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import UsageError
from console.cli.output import PROCESSES

PROXY_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--swarm-url": {
        "action": "append",
        "metavar": "[NAME=]URL",
        "help": "swarm server, or `embedded`; repeatable (else AJET_SWARM_URL)",
    },
    "--upstream": {
        "metavar": "URL",
        "help": "observe mode: send requests to this OpenAI-compatible server, train nothing",
    },
    "--upstream-model": {
        "metavar": "NAME",
        "help": "the upstream's model; else the first it lists",
    },
    "--upstream-key-file": {"metavar": "FILE", "help": "file with the upstream's API key"},
    "--host": {"metavar": "ADDRESS", "help": "address the fake vLLM listens on"},
    "--port": {
        "type": int,
        "metavar": "N",
        "help": "port of the fake vLLM; 0 takes any free one",
    },
    "--api-key-file": {"metavar": "FILE", "help": "file with the key that /v1 requires"},
    "--hooks": {"metavar": "DIR", "help": "folder with your reward function"},
    "--rewards": {
        "metavar": "FILE",
        "help": "rewards file with gates and weighted parts; else rewards.yaml",
    },
    "--watch-only": {
        "action": "store_true",
        "help": "view only: claim nothing, start nothing, serve no /v1",
    },
    "--tls-cert": {"metavar": "FILE", "help": "serve over TLS with this certificate (PEM)"},
    "--tls-key": {"metavar": "FILE", "help": "the certificate's private key (PEM)"},
}
"""Option of the fake vLLM -> keyword arguments of `add_argument`; for the console and `proxy`."""

BACKEND_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "--backend": {
        "choices": ("numpy", "torch"),
        "help": "numpy: the shipped policy (default); torch: a model of any size on your own card",
    },
    "--model": {
        "metavar": "MODEL",
        "help": "policy to train: `tiny`; with --backend torch a Hugging Face folder, .gguf file, "
        "a model name, or `smollm2` (a download of 93 MB that asks first)",
    },
}
"""Option of the embedded engine -> keyword arguments of `add_argument`; for the console and
`engine`."""

THEMES = ("dark", "light", "ansi")
"""Values of `--theme`."""

TOP_FLAGS = (
    *PROXY_FLAGS,
    *BACKEND_FLAGS,
    "--attach",
    "--token-file",
    "--theme",
    "--no-engine",
    "--read-only",
    "--keys",
)
"""The console's own options: they are refused in front of a command."""

READING = frozenset(
    {
        "status",
        "watch",
        "progress",
        "raters",
        "rewards",
        "replay",
        "doctor",
        "clients",
        "tokens",
        "completion",
        "export",
        "service",
        "mcp",
    }
)
"""Commands that change nothing; all others are refused with --read-only."""
READING_VERBS = {
    "checkpoints": frozenset({"list", "export"}),
    "journal": frozenset({"stats", "check"}),
    "runs": frozenset({"list", "show", "compare"}),
    "token": frozenset({"list"}),
}
"""The verbs that change nothing, of the commands with verbs that do."""


_WITHOUT_DRY_RUN: Mapping[str, frozenset[str]] = {
    "checkpoints": frozenset({"list"}),
    "journal": frozenset({"stats", "check"}),
    "runs": frozenset({"list", "show", "compare"}),
    "token": frozenset({"list"}),
}
"""The verbs that change nothing and write no file, of the commands with verbs that do."""


def changes(command: str, verb: str = "") -> bool:
    """Return whether a command can change something, files included: then it has `--dry-run`."""
    if command in _WITHOUT_DRY_RUN:
        return bool(verb) and verb not in _WITHOUT_DRY_RUN[command]
    return command not in (READING - {"export"}) | {"reward-test", "web"}


def reading_words() -> list[str]:
    """Return the commands that are allowed with `--read-only`, with their verbs."""
    verbs = (f"{command} {verb}" for command, some in READING_VERBS.items() for verb in some)
    return sorted([*READING, *verbs])


def complete_options(parser: argparse.ArgumentParser, command: str, verb: str = "") -> None:
    """Add `--read-only`, `--json`, and `--dry-run` where something is changed.

    An option that the command has already is left as it is.

    Args:
        parser: The parser of a command, or of a verb of it.
        command: Name of the command.
        verb: Name of the verb; empty for the command itself.
    """
    default: dict[str, Any] = {"default": argparse.SUPPRESS} if verb else {}
    known = parser._option_string_actions
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="refuse if this could change the home or a server",
        **default,
    )
    if command not in PROCESSES and "--json" not in known:
        add_json(parser, "print the result as JSON", **default)
    if changes(command, verb) and "--dry-run" not in known:
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="show what would be done, and change nothing",
            **default,
        )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, choice in action.choices.items():
                complete_options(choice, command, name)


def refuse_writing(args: argparse.Namespace) -> None:
    """Refuse a command that could change something when `--read-only` is given.

    Raises:
        UsageError: the command could change something.
    """
    if not (args.console_read_only or getattr(args, "read_only", False)):
        return
    reads = args.command in READING
    if args.command in READING_VERBS:
        reads = args.verb in READING_VERBS[args.command]
    reads = reads or getattr(args, "dry_run", False)
    if args.command is not None and not reads:
        raise UsageError(
            f"`{args.command}` is refused with --read-only: it could change the home or a server",
            todo=f"Allowed with it: {', '.join(reading_words())}",
        )


def add_note(parser: argparse.ArgumentParser, *lines: str) -> None:
    """Add lines below the example in the help of a command."""
    parser.epilog = "\n".join([parser.epilog or "", *lines])


def add_verbs(
    parser: argparse.ArgumentParser, verbs: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Add the verbs of a command, each with `--home`; yield name and parser of each.

    Args:
        parser: The parser of the command.
        verbs: Name and purpose of each verb.
    """
    parsers = parser.add_subparsers(metavar="VERB", parser_class=type(parser))
    for verb, about in verbs:
        subparser = parsers.add_parser(verb, help=about, description=about[0].upper() + about[1:])
        subparser.set_defaults(verb=verb)
        add_home(subparser)
        yield verb, subparser


def add_home(parser: argparse.ArgumentParser, default: object = argparse.SUPPRESS) -> None:
    """Add `--home`; after a command it overrides the one in front of the command."""
    parser.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        default=default,
        help="folder of settings, journal, logs and checkpoints (else AJET_CONSOLE_HOME)",
    )


def add_proxy_access(parser: argparse.ArgumentParser, **default: Any) -> None:
    """Add `--url` and `--token-file`, which choose the proxy."""
    parser.add_argument(
        "--url", metavar="URL", help="proxy to talk to; else the home's own", **default
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="its control token; else the home's own",
        **default,
    )


def add_swarm_url(parser: argparse.ArgumentParser, **default: Any) -> None:
    """Add `--swarm-url`: a swarm server to talk to directly, without a proxy."""
    parser.add_argument(
        "--swarm-url",
        action="append",
        metavar="[NAME=]URL",
        help="talk to this swarm server directly, without a proxy",
        **default,
    )


def add_server(parser: argparse._ActionsContainer, **default: Any) -> None:
    """Add `--server`, which chooses one of several swarm servers."""
    parser.add_argument("--server", metavar="NAME", help="swarm server; else the first", **default)


def add_yes(parser: argparse.ArgumentParser, **default: Any) -> None:
    """Add `--yes`, which skips the confirmation."""
    parser.add_argument(
        "--yes", action="store_true", help="do not ask; required without a terminal", **default
    )


def add_json(parser: argparse.ArgumentParser, about: str = "print JSON", **default: Any) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help=about, **default)
