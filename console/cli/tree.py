"""The command line as a tree of click commands, made from `console.cli.registry`.

To parse a command line gives its `Args`, which name the verb and its function; nothing is run. A
verb's module is imported when the verb is parsed or its help is printed.
"""

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click
from click.core import ParameterSource

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import did_you_mean
from console.cli.options import (
    BACKEND,
    DRY_RUN,
    HOME,
    JSON,
    READ_ONLY,
    SERVING,
    THEME,
    Args,
    Handler,
    OneOf,
    flag,
    flat,
    option,
)
from console.cli.registry import SECTIONS, Area, Verb, present_name, reading_words

NAME = "ajet-console"
_NUMBER = re.compile(r"-\.?\d[\d.e+-]*")
_ALSO_BEFORE = frozenset({"home", "read_only", "theme"})
"""Options of the console that a verb takes in front of it as well."""


class Tree(click.Group):
    """Verbs and groups of verbs, which are made when they are needed.

    Options in front of a verb of a group are taken as if they stood behind it.

    Args:
        name: Its word.
        about: One sentence.
        entries: Its verbs and groups of verbs, by the title above them in its help.
        default: The verb that runs when none is named.
    """

    def __init__(
        self,
        name: str,
        about: str,
        entries: "dict[str, Sequence[Verb | Area]]",
        default: str = "",
        **more: Any,
    ) -> None:
        super().__init__(name, help=about, no_args_is_help=False, **more)
        self._sections = entries
        self._entries = {entry.name: entry for group in entries.values() for entry in group}
        self.default = default

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        if isinstance(entry, Area):
            return Tree(entry.name, f"{entry.about}.", {"verbs": entry.verbs}, entry.default)
        if entry is None:
            return None
        above = ctx.command_path.partition(" ")[2]
        return VerbCommand(f"{above} {entry.name}".strip(), entry)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (not args[0].startswith("-") or args[0] == "--help")
        if ctx.parent is not None and not named and not ctx.resilient_parsing:
            verb = next((word for word in args if word in self._entries), "")
            if not (verb or self.default):
                ctx.fail(self._unknown(""))
            args = [verb or self.default, *(word for word in args if word != verb)]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._entries and not ctx.resilient_parsing:
            ctx.fail(self._unknown(args[0]))
        return super().resolve_command(ctx, args)

    def _unknown(self, word: str) -> str:
        """Say what to give instead of a word that is no verb."""
        hint = did_you_mean(word, self._entries) or f"Choose from {', '.join(self._entries)}"
        now = present_name(word if self.name == NAME else str(self.name))
        if now and (self.name == NAME or hint.startswith("Choose")):
            return f"now: {now}"
        return f"there is no verb `{word}`. {hint}"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in self._sections.items():
            with formatter.section(title):
                rows = [(entry.name, entry.about[0].lower() + entry.about[1:]) for entry in entries]
                formatter.write_dl(rows, col_max=24)


class VerbCommand(click.Command):
    """One verb.

    Args:
        words: Its whole name: `runs list`.
        verb: The verb.
    """

    def __init__(self, words: str, verb: Verb) -> None:
        super().__init__(verb.name, help=f"{verb.about}.")
        self._words, self._verb = words, verb
        self._run: Handler | None = None
        self.one_of: list[OneOf] = []

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Import the verb's module; return what the verb takes."""
        if self._run is None:
            module, _, function = self._verb.target.partition(":")
            run = getattr(import_module(f"console.cli.{module}"), function)
            for part in flat(run.parts, self._verb.command):
                if isinstance(part, OneOf):
                    self.one_of.append(part)
                    self.params += part.params
                else:
                    self.params.append(part)
            self.params += [HOME, READ_ONLY]
            self.params += [JSON] * self._verb.json + [DRY_RUN] * self._verb.dry_run
            self.context_settings = {"max_content_width": 100}
            self._run = run
        return super().get_params(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = self._one_value_each(self.get_params(ctx), args)
        ctx.allow_interspersed_args = not getattr(self._run, "remainder", False)
        rest = super().parse_args(ctx, args)
        for group in self.one_of:
            names = [param.opts[0] for param in group.params if _given(ctx, param)]
            if len(names) > 1:
                ctx.fail(f"{' and '.join(names)} exclude each other")
            if group.required and not names and not ctx.resilient_parsing:
                ctx.fail(f"give one of {', '.join(param.opts[0] for param in group.params)}")
        return rest

    @staticmethod
    def _one_value_each(params: Sequence[click.Parameter], args: Sequence[str]) -> list[str]:
        """Repeat an option of several values: `--scores 1 -2` as `--scores=1 --scores=-2`."""
        options = [param for param in params if isinstance(param, click.Option)]
        several = {
            name for param in options if str(param.metavar).endswith("...") for name in param.opts
        }
        result, option = list[str](), ""
        for word in args:
            if word in several:
                option = word
            elif option and (word[:1] != "-" or _NUMBER.fullmatch(word)):
                result.append(f"{option}={word}")
            else:
                option = ""
                result.append(word)
        return result

    def invoke(self, ctx: click.Context) -> Args:
        """Return the values, with those of the options in front of the verb.

        Raises:
            UsageError: the verb is refused with `--read-only`.
        """
        top, verb = ctx.find_root(), self._verb
        args = Args(handler=self._run, words=self._words, order_name=verb.command, **ctx.params)
        for param in top.command.params:
            name = param.name or ""
            if not _given(top, param):
                continue
            if name not in _ALSO_BEFORE or name not in ctx.params:
                top.fail(
                    f"give {param.opts[0]} after `{self._words}`: before the command it is an "
                    "option of the console itself"
                )
            setattr(args, name, getattr(args, name) or top.params[name])
        if args.read_only and not (verb.reads or (verb.dry_run and args.dry_run)):
            raise UsageError(
                f"`{self._words}` is refused with --read-only: it could change the home or a "
                "server",
                todo=f"Allowed with it: {', '.join(reading_words())}",
            )
        return args

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write(f"Example: {NAME} {self._words} {self._verb.example}".rstrip() + "\n")
        for note in getattr(self._run, "notes", ()):
            formatter.write(f"{note}\n") if note.startswith(" ") else formatter.write_text(note)


def _given(ctx: click.Context, param: click.Parameter) -> bool:
    return ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from core.version import version

        click.echo(f"{NAME} {version()}")
        ctx.exit()


CONSOLE = (
    *SERVING,
    *BACKEND,
    option("--attach URL", "attach to a running proxy"),
    option("--token-file FILE", "control token of the proxy to attach to", type=HOME.type),
    THEME,
    flag("--no-engine", "do not start the embedded engine or its job"),
    flag("--read-only", "view only"),
    flag("--keys", "list all keys and their conflicts"),
)
"""Options of the console, which runs where no verb is named."""


def build() -> Tree:
    """Return the whole command line."""
    version = flag("--version", "print the version and exit", is_eager=True, expose_value=False)
    version.callback = _print_version
    tree = Tree(
        NAME,
        "Train a language-model policy from the real use of an application, from one terminal. "
        "Without a command: the console.",
        dict(SECTIONS),
        params=[version, HOME, *CONSOLE],
        invoke_without_command=True,
        context_settings={"max_content_width": 100},
        epilog=f"Example: {NAME} --swarm-url http://gpu-box:10086 --hooks ./my_hooks",
        subcommand_metavar="[COMMAND]",
    )
    tree.callback = lambda **values: Args(handler=run_console, words="", **values)
    return tree


def run_console(args: Args) -> int:
    """Import the console's module and run it."""
    from console.cli.processes import console

    return console(args)


def parse(words: Sequence[str]) -> Args:
    """Parse a command line.

    Raises:
        click.UsageError: it is wrong.
        click.exceptions.Exit: a help or the version was printed.
        UsageError: the verb is refused with `--read-only`.
    """
    tree = build()
    with tree.make_context(NAME, list(words)) as ctx:
        args: Args = tree.invoke(ctx)
        return args
