"""What the command line knows: commands, flags and their help."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ajet_swarm.common.text import did_you_mean
from console.cli.clients import add_clients
from console.cli.engine.flags import add_engine
from console.cli.engine.probe_flags import add_try
from console.cli.flags import PROXY_FLAGS, THEMES
from console.cli.folders.flags import add_folders
from console.cli.journal_flags import add_journal
from console.cli.mock import add_mock
from console.cli.registry import Verbs
from console.cli.rewards.flags import add_reward_test
from console.cli.views import add_looks


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="ajet-console",
        description="Train a language-model policy from the real use of an application, "
        "from one terminal. Without a command: the console.",
        epilog="Example: ajet-console --swarm-url http://gpu-box:10086 --hooks ./my_hooks",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    _home(parser, default=None)
    _console(parser)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", parser_class=_Parser
    )
    _processes(commands)
    add_mock(commands, _command, _reach)
    _watch(commands)
    add_reward_test(commands, _command)
    add_looks(commands, _command, _reach)
    add_clients(commands, _command, _reach)
    add_try(commands, _command, _reach)
    add_folders(commands, _command)
    add_engine(commands, _command, _reach, _swarm, _yes)
    _kept(commands)
    add_journal(commands, _command, _yes)
    Verbs(commands, _command, _reach, _yes).add()
    return parser


class _Parser(argparse.ArgumentParser):
    """Says what is wrong on one line, and where help is."""

    def __init__(self, **given: Any) -> None:
        given.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **given)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2; a list of all valid words is left out where one is close."""
        meant = _meant(message)
        said = message.partition(" (choose from ")[0] if meant else message
        self.exit(2, f"{self.prog}: {said}. {meant}See `{self.prog} --help`\n")

    def parse_args(  # type: ignore[override]  # argparse has overloads for other namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Read a command line; a flag nobody knows is compared with those of its command."""
        given, unknown = self.parse_known_args(args, namespace)
        if unknown:
            verb = _verb_of(self, given)
            meant = [did_you_mean(one.partition("=")[0], _flags(verb)) for one in unknown]
            hint = "".join(f"{one} " for one in meant if one)
            said = " ".join(unknown)
            verb.exit(
                2,
                f"{self.prog}: unrecognized arguments: {said}. {hint}See `{verb.prog} --help`\n",
            )
        return given


def _verb_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> argparse.ArgumentParser:
    """The parser of the command that was given, and of its verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            name = getattr(given, "command" if action.dest == "command" else "verb", None)
            if name in action.choices:
                return _verb_of(action.choices[name], given)
    return parser


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings]


_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


def _meant(message: str) -> str:
    """`Did you mean X?` where argparse refuses a value that is close to a valid one."""
    found = _CHOICE.search(message)
    meant = did_you_mean(found[1], re.split(r"'?, '?", found[2].strip("'"))) if found else ""
    return f"{meant} " if meant else ""


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from core.version import version

        sys.stdout.write(f"ajet-console {version()}\n")
        parser.exit()


def _home(parser: argparse.ArgumentParser, default: object = argparse.SUPPRESS) -> None:
    parser.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        default=default,
        help="folder of settings, journal, logs and checkpoints (else AJET_CONSOLE_HOME)",
    )


def _console(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(target="console.cli.processes:console")
    _proxy_flags(parser, top=True)
    _top_flag(parser, "--attach", metavar="URL", help="attach to a proxy that already runs")
    _top_flag(
        parser,
        "--token-file",
        type=Path,
        metavar="FILE",
        help="control token of the proxy to attach to",
    )
    _top_flag(parser, "--theme", choices=THEMES, help="colours")
    _top_flag(
        parser,
        "--no-engine",
        action="store_true",
        help="do not start the embedded engine or its job",
    )
    _top_flag(parser, "--read-only", action="store_true", help="view only")
    _top_flag(parser, "--keys", action="store_true", help="list every key and what clashes")


def top_name(flag: str) -> str:
    return "console_" + flag.lstrip("-").replace("-", "_")


def _top_flag(parser: argparse.ArgumentParser, flag: str, **given: Any) -> None:
    """A flag of the console itself: commands have their own of the same name."""
    parser.add_argument(flag, dest=top_name(flag), **given)


def _proxy_flags(parser: argparse.ArgumentParser, *, top: bool = False) -> None:
    for flag, more in PROXY_FLAGS.items():
        if top:
            _top_flag(parser, flag, **more)
        else:
            parser.add_argument(flag, **more)


def _command(
    commands: Any, name: str, target: str, about: str, example: str, **more: Any
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about[0].lower() + about[1:],
        description=about,
        epilog=f"Example: ajet-console {example}",
        **more,
    )
    parser.set_defaults(target=target)
    _home(parser)
    parser.add_argument(
        "--read-only", action="store_true", help="refuse to run if this could change something"
    )
    return parser


def _processes(commands: Any) -> None:
    engine = _command(
        commands,
        "engine",
        "console.cli.processes:engine",
        "Run the embedded engine: a swarm server that trains a small policy on this machine's CPU",
        "engine --port 10086",
    )
    engine.add_argument("--host", metavar="ADDRESS", help="address to listen on")
    engine.add_argument("--port", type=int, metavar="N", help="port; 0 takes any free one")
    engine.add_argument(
        "--model",
        choices=("tiny", "smollm2"),
        help="what is trained: the shipped policy, or SmolLM2-135M, which is fetched first "
        "(93 MB, after a yes)",
    )
    engine.add_argument(
        "--yes",
        action="store_true",
        help="fetch the model without asking; needed without a terminal",
    )
    engine.add_argument("--reset", action="store_true", help="go back to the base weights")
    engine.add_argument(
        "--from",
        dest="start_from",
        metavar="NAME",
        help="continue from this checkpoint; see `ajet-console checkpoints`",
    )
    engine.add_argument(
        "--faithful",
        action="store_true",
        help="behave as the real AgentJet server, its faults included: for testing clients",
    )
    engine.add_argument(
        "--strict-context",
        action="store_true",
        help="refuse a prompt over the window instead of dropping its middle",
    )
    engine.add_argument(
        "--allow-unauthenticated",
        action="store_true",
        help="listen where others can reach it, although the swarm protocol has no key",
    )
    proxy = _command(
        commands,
        "proxy",
        "console.cli.processes:proxy",
        "Run the fake vLLM without a console",
        "proxy --swarm-url http://gpu-box:10086 --port 8000",
    )
    _proxy_flags(proxy)
    proxy.add_argument(
        "--api-key",
        metavar="KEY",
        help="the key itself; others on this machine can read it here, prefer --api-key-file",
    )
    proxy.add_argument(
        "--cors-origin",
        action="append",
        metavar="URL",
        help="web page that may use /v1 from a browser; repeat it for several, `*` for any",
    )
    proxy.add_argument(
        "--next-port", action="store_true", help="take the next free port when it is taken"
    )


def _watch(commands: Any) -> None:
    parser = _command(
        commands,
        "status",
        "console.cli.status:status",
        "Show proxy, engines, mock user and what waits for a rating",
        "status --json",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    _swarm(parser)
    _reach(parser)
    parser = _command(
        commands,
        "rewards",
        "console.cli.rewards.command:rewards",
        "Show what scores the answers: its parts over the last groups, its last fault",
        "rewards --last 500",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument(
        "--last", type=int, default=100, metavar="N", help="how many groups it is about; 100"
    )
    _reach(parser)


def _kept(commands: Any) -> None:
    """What the embedded engine keeps: checkpoints and the tokens of episodes."""
    parser = _command(
        commands,
        "checkpoints",
        "console.cli.engine.checkpoints:checkpoints",
        "List, save, restore, prune, export or import what the embedded engine keeps",
        "checkpoints save before-lunch",
    )
    parser.set_defaults(verb="list")
    _kept_flags(parser)
    verbs = parser.add_subparsers(metavar="VERB", parser_class=_Parser)
    for verb, about in (
        ("list", "all of them, newest first; the same as no verb"),
        ("save", "save the policy under a name, now"),
        ("restore", "go back to one, or to `base`; the engine must be OFFLINE"),
        ("prune", "delete all but the newest named ones"),
        ("export", "write one as a safetensors file"),
        ("import", "import a safetensors file and continue from it; the engine must be OFFLINE"),
    ):
        one = verbs.add_parser(verb, help=about, description=about[0].upper() + about[1:])
        one.set_defaults(verb=verb)
        _home(one)
        _kept_flags(one, default=argparse.SUPPRESS)
        if verb in ("save", "restore", "export", "import"):
            one.add_argument("name", metavar="NAME")
        if verb in ("export", "import"):
            one.add_argument("file", type=Path, metavar="FILE")
        if verb == "export":
            one.add_argument("--half", action="store_true", help="float16: half the size")
        if verb == "prune":
            one.add_argument("keep", type=int, metavar="KEEP", help="how many are kept")
    tokens = _command(
        commands,
        "tokens",
        "console.cli.engine.checkpoints:tokens",
        "Show each token of an episode: id, text, loss mask, log-prob when sampled and now",
        "tokens 3f5bc3c9-0f1e-4a52-9d6e-2c8f4d1f9a10",
    )
    tokens.add_argument("episode", metavar="EPISODE", help="uuid of the episode")
    tokens.add_argument("--all", action="store_true", help="the prompt's tokens too")
    _server_flags(tokens)


def _kept_flags(parser: argparse.ArgumentParser, **default: Any) -> None:
    """The flags of `checkpoints` and of its verbs: they are accepted before and after the verb.

    Args:
        parser: Of the command, or of a verb.
        default: For a verb `default=argparse.SUPPRESS`, else it undoes what stands before it.
    """
    parser.add_argument(
        "--all", action="store_true", help="every swarm server, one after the other", **default
    )
    _yes(parser, **default)
    _server_flags(parser, **default)


def _server_flags(parser: argparse.ArgumentParser, **default: Any) -> None:
    parser.add_argument(
        "--server", metavar="NAME", help="which swarm server; else the first", **default
    )
    _swarm(parser, **default)


def _yes(parser: argparse.ArgumentParser, **default: Any) -> None:
    parser.add_argument(
        "--yes", action="store_true", help="do not ask; needed without a terminal", **default
    )


def _swarm(parser: argparse.ArgumentParser, **default: Any) -> None:
    parser.add_argument(
        "--swarm-url",
        action="append",
        metavar="[NAME=]URL",
        help="ask this swarm server itself, without a proxy",
        **default,
    )


def _reach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", metavar="URL", help="proxy to talk to; else the home's own")
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="its control token; else the home's own"
    )
