"""What verbs take: the parts of a command line, and the options that several verbs share.

A verb is a function with its options beside it:

    @takes(PROXY, SERVER, argument("episode", "uuid of the episode"), flag("--all", "..."))
    def tokens(args: Args) -> int:

`console.cli.tree` makes the command from them; `--home`, `--read-only`, `--json` and `--dry-run`
come with each.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, Union

import click

from ajet_swarm.common.text import did_you_mean


class Args(SimpleNamespace):
    """The values of a command line, by the name of the option or argument."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class OneOf(NamedTuple):
    """Options that exclude each other."""

    params: tuple[click.Parameter, ...]
    required: bool


Part = Union[click.Parameter, OneOf, "Parts", Callable[[str], "Part"]]
"""A parameter, or several; a function gets the name of the verb's command in `core.commands`."""
Parts = Sequence[Part]
Handler = Callable[[Args], int]


class Word(click.Choice[str]):
    """A choice whose error suggests a similar value."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        known = did_you_mean(str(value), self.choices) or f"Choose from {', '.join(self.choices)}"
        return f"there is no `{value}`. {known}"


class Range(click.FloatRange):
    """A number within limits; a text such as `nan` is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        return number if number == number else self.fail(f"{value} is not a number", param, ctx)


def option(name: str, about: str, **more: Any) -> click.Option:
    """Return an option with a value: `--port N`; `choices` are its values, `dest` its attribute."""
    flag_name, _, metavar = name.partition(" ")
    names = [flag_name, *filter(None, [more.pop("dest", None)])]
    return click.Option(names, metavar=metavar or None, help=about, **_typed(more))


def flag(name: str, about: str, **more: Any) -> click.Option:
    """Return an option without a value."""
    names = [name, *filter(None, [more.pop("dest", None)])]
    return click.Option(names, is_flag=True, help=about, **more)


def argument(name: str, about: str | None = None, **more: Any) -> click.Argument:
    """Return a positional argument."""
    if more.get("nargs") == -1 or not more.get("required", True):
        more["metavar"] = f"[{more.get('metavar') or name.upper()}]"
    if more.get("nargs") == -1:
        more["metavar"] += "..."
    return click.Argument([name], help=about, **_typed(more))


def _typed(more: dict[str, Any]) -> dict[str, Any]:
    if choices := more.pop("choices", None):
        more["type"] = Word(choices)
    elif more.get("type") is Path:
        more["type"] = click.Path(path_type=Path)
    return more


def one_of(*params: click.Parameter, required: bool = False) -> OneOf:
    """Return options of which at most one may be given, and one must be when `required`."""
    return OneOf(params, required)


def takes(
    *parts: Part, notes: Sequence[str] = (), remainder: bool = False
) -> Callable[[Handler], Handler]:
    """Declare what a verb takes.

    Args:
        parts: Its options and arguments.
        notes: Lines below the example in its help.
        remainder: Pass the words after the first argument on, options included.
    """

    def declared(run: Handler) -> Handler:
        run.__dict__.update(parts=parts, notes=notes, remainder=remainder)
        return run

    return declared


def flat(parts: Parts, command: str) -> Iterator[click.Parameter | OneOf]:
    """Yield single parameters, and options that exclude each other."""
    for part in parts:
        if isinstance(part, click.Parameter | OneOf):
            yield part
        elif callable(part):
            yield from flat((part(command),), command)
        else:
            yield from flat(part, command)


HOME = option(
    "--home DIR",
    "folder of settings, journal, logs and checkpoints (else AJET_CONSOLE_HOME)",
    type=Path,
)
READ_ONLY = flag("--read-only", "refuse if this could change the home or a server")
JSON = flag("--json", "print the result as JSON")
DRY_RUN = flag("--dry-run", "show what would be done, and change nothing")
PROXY = (
    option("--url URL", "proxy to talk to; else the home's own"),
    option("--token-file FILE", "its control token; else the home's own", type=Path),
)
"""The proxy to talk to."""
SWARM_URL = option(
    "--swarm-url [NAME=]URL", "talk to this swarm server directly, without a proxy", multiple=True
)
SERVER = option("--server NAME", "swarm server; else the first")
SERVERS = one_of(SERVER, flag("--all", "every swarm server"))
RATER = option("--rater NAME", "name of the rater")
REASON = option("--reason TEXT", "why")
YES = flag("--yes", "do not ask; required without a terminal")
WHERE = option(
    "--where FILTER", "only groups that match; the syntax is that of the console's filter line"
)
COLUMNS = option(
    "--columns PART=COLUMN,...",
    "columns with unusual names: query=text,reference=label; the parts are query, reference, id, "
    "system, messages, turns, persona, goal, opening, weight, metadata",
)
THEME = option("--theme", "colours", choices=("dark", "light", "ansi"))
BACKEND = (
    option(
        "--backend",
        "numpy: the shipped policy (default); torch: a model of any size on your own card",
        choices=("numpy", "torch"),
    ),
    option(
        "--model MODEL",
        "policy to train: `tiny`; with --backend torch a Hugging Face folder, .gguf file, a model "
        "name, or `smollm2` (a download of 93 MB that asks first)",
    ),
)
"""Options of the embedded engine, for the console and `engine`."""
SERVING = (
    option(
        "--swarm-url [NAME=]URL",
        "swarm server, or `embedded`; repeatable (else AJET_SWARM_URL)",
        multiple=True,
    ),
    option(
        "--upstream URL",
        "observe mode: send requests to this OpenAI-compatible server, train nothing",
    ),
    option("--upstream-model NAME", "the upstream's model; else the first it lists"),
    option("--upstream-key-file FILE", "file with the upstream's API key"),
    option("--host ADDRESS", "address the fake vLLM listens on"),
    option("--port N", "port of the fake vLLM; 0 takes any free one", type=int),
    option("--api-key-file FILE", "file with the key that /v1 requires"),
    option("--hooks DIR", "folder with your reward function"),
    option("--rewards FILE", "rewards file with gates and weighted parts; else rewards.yaml"),
    flag("--watch-only", "view only: claim nothing, start nothing, serve no /v1"),
    option("--tls-cert FILE", "serve over TLS with this certificate (PEM)"),
    option("--tls-key FILE", "the certificate's private key (PEM)"),
)
"""Options of the fake vLLM, for the console and `proxy`."""


def given(args: Args, parts: Parts) -> list[str]:
    """Return those of some options that have a value: `--swarm-url`."""
    params = [
        param
        for part in flat(parts, "")
        for param in (part.params if isinstance(part, OneOf) else (part,))
    ]
    values = {param.opts[0]: getattr(args, param.name or "") for param in params}
    return [name for name, value in values.items() if value not in (None, False, ())]
