"""Registry of all commands of the operator, which are the rows of `core.commands.table`.

It feeds the palette, the HTTP routes of the control API, the command line and the docs; the id of a
key binding is the name of its command. `where` names the process that executes a command: `proxy`
(through `POST /control/commands/NAME`) or `console` (the supervisor of child processes).
"""

from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import did_you_mean
from core.commands.spec import Arg, Command
from core.commands.table import MODES as MODES
from core.commands.table import TABLE


class CommandError(UsageError):
    """A command is unknown or its arguments are invalid."""


TEXT_CAPS: Mapping[str, int] = {
    "rater": 80,
    "holder": 80,
    "seed": 80,
    "guidelines": 80,
    "reason": 400,
    "note": 4_000,
}
"""Maximum number of characters of arguments that all clients receive in the state."""

COMMANDS: Mapping[str, Command] = {command.name: command for command in TABLE}


def validate(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of command `name`, checked and converted; missing ones are left out.

    Raises:
        CommandError: The command is unknown, or an argument is unknown, missing or invalid.
    """
    command = COMMANDS.get(name)
    if command is None:
        raise CommandError(f"there is no command `{name}`", todo=f"Known: {', '.join(COMMANDS)}")
    known = {arg.name: arg for arg in command.args}
    for key in args:
        if key not in known:
            raise CommandError(
                f"`{name}` takes no `{key}`", todo=f"It takes: {', '.join(known) or 'nothing'}"
            )
    checked: dict[str, Any] = {}
    for arg in command.args:
        value = args.get(arg.name)
        if value is None:
            if arg.required:
                raise CommandError(f"`{name}` needs `{arg.name}`", todo=arg.help)
            continue
        checked[arg.name] = _convert(name, arg, value)
        if arg.name == "group_id" and not checked[arg.name].strip():
            raise CommandError(f"`{name}`: the group's id is empty", todo=f"Give: {arg.help}")
    return checked


def _convert(name: str, arg: Arg, value: Any) -> Any:
    try:
        converted = _CONVERTERS[arg.kind](value)
    except (TypeError, ValueError):
        raise CommandError(
            f"`{name}`: `{arg.name}` cannot be {value!r}", todo=f"Give: {arg.help}"
        ) from None
    cap = TEXT_CAPS.get(arg.name)
    if cap is not None and isinstance(converted, str) and len(converted) > cap:
        raise CommandError(
            f"`{name}`: `{arg.name}` has {len(converted)} characters", todo=f"At most {cap}"
        )
    if arg.choices and converted not in arg.choices:
        meant = did_you_mean(str(converted), arg.choices)
        valid = f"Valid: {', '.join(arg.choices)}"
        raise CommandError(
            f"`{name}`: `{arg.name}` cannot be {value!r}",
            todo=" ".join(filter(None, [meant, valid])),
        )
    return converted


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if (word := str(value).lower()) not in words:
        raise ValueError
    return words[word]


def _int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    number = float(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError
    return number


def _list(value: Any) -> list[Any]:
    if isinstance(value, str):
        return value.replace(",", " ").split()
    if not isinstance(value, list | tuple):
        raise TypeError
    return list(value)


def _parts(value: Any) -> list[Any]:
    """Return the elements of a list, or of text with commas."""
    if isinstance(value, str):
        return [part for part in value.split(",") if part.strip()]
    return _list(value)


_CONVERTERS: Mapping[str, Any] = {
    "text": _text,
    "int": _int,
    "float": _float,
    "flag": _flag,
    "ints": lambda value: tuple(_int(item) for item in _list(value)),
    "floats": lambda value: tuple(_float(item) for item in _list(value)),
    "texts": lambda value: tuple(_text(item).strip() for item in _parts(value)),
}
