"""Registry of all commands of the operator, which are the rows of `core.commands.table`.

It feeds the palette, the HTTP routes of the control API, the command line and the docs; the id of a
key binding is the name of its command. `where` names the process that executes a command: `proxy`
(through `POST /control/commands/NAME`) or `console` (the supervisor of child processes).
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

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


_NUMBER = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
_TYPES: Mapping[str, Any] = {
    "text": str,
    "int": int,
    "float": _NUMBER,
    "flag": bool,
    "ints": tuple[int, ...],
    "floats": tuple[_NUMBER, ...],
    "texts": tuple[str, ...],
}
_FLAGS = {"yes": True, "on": True, "no": False, "off": False}


def _convert(name: str, arg: Arg, value: Any) -> Any:
    given = value
    if isinstance(value, str):  # of a command line
        if arg.kind == "texts":
            value = [text.strip() for text in value.split(",") if text.strip()]
        elif arg.kind in ("ints", "floats"):
            value = value.replace(",", " ").split()
        elif arg.kind == "flag":
            value = _FLAGS.get(value.lower(), value)
    try:
        converted = msgspec.convert(value, _TYPES[arg.kind], strict=False)
    except msgspec.ValidationError:
        what = f"`{name}`: `{arg.name}` cannot be {given!r}"
        raise CommandError(what, todo=f"Give: {arg.help}") from None
    cap = TEXT_CAPS.get(arg.name)
    if cap is not None and isinstance(converted, str) and len(converted) > cap:
        what = f"`{name}`: `{arg.name}` has {len(converted)} characters"
        raise CommandError(what, todo=f"At most {cap}")
    if arg.choices and converted not in arg.choices:
        meant = did_you_mean(str(converted), arg.choices)
        valid = f"Valid: {', '.join(arg.choices)}"
        what = f"`{name}`: `{arg.name}` cannot be {given!r}"
        raise CommandError(what, todo=" ".join(filter(None, [meant, valid])))
    return converted
