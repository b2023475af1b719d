"""The verbs of the command line with their parameters, for tests that look at all of them."""

from collections.abc import Iterator

import click

from console.cli.tree import NAME, Tree, VerbCommand, build


def verbs() -> dict[str, VerbCommand]:
    """Return each verb by its whole name: `runs list`."""
    return {name: command for name, command in _walk() if isinstance(command, VerbCommand)}


def groups() -> dict[str, Tree]:
    """Return each group of verbs by its name."""
    return {name: command for name, command in _walk() if isinstance(command, Tree)}


def _walk() -> Iterator[tuple[str, click.Command]]:
    tree = build()
    top = click.Context(tree, info_name=NAME)
    for name in tree.list_commands(top):
        command = tree.get_command(top, name)
        assert command is not None
        yield name, command
        if isinstance(command, Tree):
            context = click.Context(command, info_name=name, parent=top)
            for verb in command.list_commands(context):
                inner = command.get_command(context, verb)
                assert inner is not None
                yield f"{name} {verb}", inner


def params(command: click.Command) -> list[click.Parameter]:
    """Return the options and arguments of a verb."""
    return command.get_params(click.Context(command))


def flags(command: click.Command) -> set[str]:
    """Return the options of a verb."""
    return {flag for param in params(command) for flag in param.opts if flag.startswith("-")}


def smallest_line(name: str, command: VerbCommand) -> list[str]:
    """Return a command line of a verb with nothing but what must be given."""
    words = name.split()
    needed = [param for param in params(command) if param.required]
    needed += [group.params[0] for group in command.one_of if group.required]
    for param in needed:
        value = param.type.choices[0] if isinstance(param.type, click.Choice) else "1"
        takes_value = not getattr(param, "is_flag", False)
        words += [*param.opts, value][isinstance(param, click.Argument) :][: 1 + takes_value]
    return words
