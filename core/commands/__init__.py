"""Registry of all commands of the operator.

It feeds the palette, the HTTP routes of the control API, the command line and the docs; the id of a
key binding is the name of its command. `where` names the process that executes a command: `proxy`
(through `POST /control/commands/NAME`) or `console` (the supervisor of child processes).
"""

from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import did_you_mean
from core.commands.engine import JOBS, START, TRY
from core.commands.groups import AGAIN, ALL_OPEN, GROUP, RATE
from core.commands.journal import JOURNAL
from core.commands.progress import PROGRESS
from core.commands.rewards import REWARDS, TRIALS
from core.commands.runs import RUNS
from core.commands.spec import Arg, Command


class CommandError(UsageError):
    """A command is unknown or its arguments are invalid."""


_SERVER = Arg("server", "text", "Name of the swarm server; the first one by default", False)
MODES = ("off", "answer_first", "hold")
TEXT_CAPS: Mapping[str, int] = {
    "rater": 80,
    "holder": 80,
    "seed": 80,
    "guidelines": 80,
    "reason": 400,
    "note": 4_000,
}
"""Maximum number of characters of arguments that all clients receive in the state."""

_ALL = (
    *RATE,
    Command(
        "group.unrate",
        "Group: Undo the rating",
        "Undo a vote before it is sent",
        args=(
            GROUP,
            Arg("rater", "text", "Who rates", False),
            Arg("holder", "text", "Console of the vote, as in a lease", False),
        ),
        role="rater",
    ),
    Command(
        "group.accept",
        "Group: Accept the automatic reward",
        "Finish the group now, with its rating if it has one, else with the automatic reward",
        args=(
            GROUP,
            Arg("override", "flag", "Also if votes of different raters are missing", False),
        ),
        role="rater",
    ),
    Command(
        "group.abort",
        "Group: Abort",
        "Give all episodes of the group back; none of them is trained on",
        args=(GROUP, Arg("reason", "text", "Reason", False)),
        danger=True,
    ),
    *AGAIN,
    Command(
        "group.mark",
        "Group: Mark",
        "Set or clear the mark",
        args=(GROUP, Arg("marked", "flag", "True sets it (the default), false clears it", False)),
        role="rater",
    ),
    Command(
        "group.note",
        "Group: Note",
        "Write a note on the group",
        args=(GROUP, Arg("note", "text", "The note; empty clears it")),
        role="rater",
    ),
    Command(
        "rating.mode",
        "Rating: Switch the mode",
        "off, answer_first (the user is answered, you rate later) or hold (the user waits for you)",
        args=(Arg("mode", "text", "The mode", choices=MODES),),
    ),
    *ALL_OPEN,
    START,
    Command(
        "engine.stop",
        "Engine: Stop",
        "Stop the engine; claimed episodes are lost, for every client of the server",
        args=(_SERVER,),
        danger=True,
    ),
    Command(
        "engine.resume",
        "Engine: Resume",
        "Start the engine again with its present job, from its saved policy",
        args=(_SERVER,),
    ),
    Command(
        "engine.save",
        "Engine: Save a checkpoint",
        "Save the present policy under a name; an older checkpoint of that name is replaced",
        args=(_SERVER, Arg("name", "text", "Its name: letters, digits, dot, _ and -")),
    ),
    Command(
        "engine.restore",
        "Engine: Restore a checkpoint",
        "Continue from a checkpoint; a running engine is stopped and resumed",
        args=(_SERVER, Arg("name", "text", "Name of the checkpoint, or base")),
        danger=True,
    ),
    Command(
        "engine.prune",
        "Engine: Prune checkpoints",
        "Delete all but the newest named checkpoints",
        args=(_SERVER, Arg("keep", "int", "Number of named checkpoints to keep")),
        danger=True,
    ),
    Command(
        "engine.reset",
        "Engine: Reset to base",
        "Base weights, step 0, a new optimizer; a running engine is stopped and resumed",
        args=(_SERVER,),
        danger=True,
    ),
    *JOBS,
    *TRY,
    *PROGRESS,
    *TRIALS,
    *REWARDS,
    *JOURNAL,
    *RUNS,
    Command(
        "alert.dismiss",
        "Alert: Dismiss",
        "Hide an alert",
        args=(Arg("key", "text", "Key of the alert"),),
    ),
    Command(
        "mock.start",
        "Mock user: Start",
        "Replay a dataset through the fake vLLM",
        where="console",
        args=(
            Arg("dataset", "text", "File or folder; the shipped questions by default", False),
            Arg("columns", "text", "PART=COLUMN,... for columns with unusual names", False),
            Arg(
                "target",
                "text",
                "Target file or preset, or an address; the fake vLLM by default",
                False,
            ),
            Arg("concurrency", "int", "Requests in flight", False),
            Arg("pace", "float", "Seconds a worker waits between two requests", False),
            Arg("rate", "float", "Requests per second, however many are in flight", False),
            Arg("passes", "int", "How often the dataset is asked", False),
            Arg("seed", "int", "Shuffle each pass by this seed", False),
            Arg("split", "text", "Ask only this side", False, ("train", "held-out")),
            Arg("held_out", "float", "Share that is held out", False),
            Arg("updates", "int", "Stop after this many policy updates", False),
            Arg("pause_sync", "flag", "Ask nothing while no engine accepts work", False),
            Arg("results", "text", "File that receives one JSON line per row", False),
            Arg("restart", "flag", "Start over instead of continuing", False),
            Arg(
                "override",
                "flag",
                "Also while training is paused: the rows are answered untrained",
                False,
            ),
        ),
    ),
    Command("mock.pause", "Mock user: Pause", "Send nothing until it is resumed"),
    Command("mock.resume", "Mock user: Resume", "Continue sending"),
    Command("mock.stop", "Mock user: Stop", "End after the requests in flight"),
    Command(
        "proxy.restart",
        "Proxy: Restart",
        "Start the fake vLLM again; requests in flight are drained first",
        where="console",
        danger=True,
    ),
    Command(
        "engine.restart_process",
        "Engine: Restart the embedded engine's process",
        "Start the embedded engine again from its last update",
        where="console",
        danger=True,
    ),
    Command("proxy.drain", "Proxy: Drain", "Accept no new requests; finish those in flight"),
)

COMMANDS: Mapping[str, Command] = {command.name: command for command in _ALL}


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
