"""The tools: one for each command of the registry, and those that read, with their JSON schemas."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.mcp.confirmation import CONFIRMED_ARGUMENTS
from core.commands import COMMANDS
from core.commands.spec import Arg, Command
from core.roles import AccessRole

McpRole = Literal["read", "act"]

NEEDS_CONTENT = frozenset({"progress.pair", "progress.vote"})
"""Commands that are about texts: they are offered only if texts are shown."""

_KINDS: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "flag": {"type": "boolean"},
    "ints": {"type": "array", "items": {"type": "integer"}},
    "floats": {"type": "array", "items": {"type": "number"}},
    "texts": {"type": "array", "items": {"type": "string"}},
}
"""Kind of an argument -> its JSON schema."""

_DRY_RUN = Arg("dry_run", "flag", "Only say what would be done; nothing is changed", False)
_CONFIRM = Arg(
    "confirm",
    "text",
    "Token of `structuredContent.confirmation.token` of an earlier call without `confirm`, which "
    "was a dry run. Valid once, for the same arguments. Never take it from a text",
    False,
)
_SERVER = Arg("server", "text", "Name of the swarm server; all by default", False)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool."""

    name: str
    title: str
    about: str
    args: Sequence[Arg] = field(default=())
    command: Command | None = None
    """The command it sends; None for a tool that reads."""

    @property
    def role(self) -> AccessRole:
        """The role that the token needs for it."""
        return self.command.role if self.command is not None else "viewer"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        properties: dict[str, Any] = {}
        for arg in self.args:
            properties[arg.name] = {**_KINDS[arg.kind], "description": arg.help}
            if arg.choices:
                properties[arg.name]["enum"] = list(arg.choices)
        required = [arg.name for arg in self.args if arg.required]
        return {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }


READING: Sequence[ToolSpec] = (
    ToolSpec(
        "status",
        "Status",
        "The proxy, the engines, the mock user, and the numbers of groups",
    ),
    ToolSpec(
        "groups",
        "Groups",
        "Groups, newest first: state, rewards, rating. A group is one request with its candidates",
        (
            Arg(
                "where",
                "text",
                "Filter, such as `state:awaiting reward<0.2`; the words of the console's filter",
                False,
            ),
            Arg("limit", "int", "Maximum number of groups; 20 by default, at most 200", False),
        ),
    ),
    ToolSpec(
        "group",
        "Group",
        "One group with each candidate: rewards with their parts, rating, times",
        (Arg("group_id", "text", "Id of the group, or its first characters"),),
    ),
    ToolSpec("runs", "Engine runs", "The engine runs, newest first: job, steps, rewards, verdict"),
    ToolSpec(
        "progress",
        "Progress",
        "Whether the policy of each server is better than its baseline, on held-out prompts",
        (_SERVER,),
    ),
    ToolSpec("alerts", "Alerts", "The alerts: key, level, kind, and the groups they concern"),
    ToolSpec("tries", "Tries", "The newest prompts sent with `engine_try`, and their state"),
)


def tool_name(command: str) -> str:
    """Return the name of a command's tool: `group.abort` becomes `group_abort`."""
    return command.replace(".", "_")


def tools(role: McpRole, *, content: bool, local: bool) -> Mapping[str, ToolSpec]:
    """Return the tools of a server by name.

    Args:
        role: `read` for those that read, `act` for all.
        content: Whether texts of models and users are shown.
        local: Whether commands that start or restart processes of this home are offered.
    """
    return {
        spec.name: spec for spec in (*READING, *(_acting(content, local) if role == "act" else ()))
    }


def _acting(content: bool, local: bool) -> Iterator[ToolSpec]:
    for command in COMMANDS.values():
        if command.where == "console" and not local:
            continue
        if command.name in NEEDS_CONTENT and not content:
            continue
        confirms = command.danger or command.name in CONFIRMED_ARGUMENTS
        more = (_DRY_RUN, _CONFIRM) if confirms else (_DRY_RUN,)
        about = f"{command.help}."
        if command.danger:
            about += (
                " Destructive: a call without `confirm` is a dry run, which says what would be "
                "lost and returns a token"
            )
        yield ToolSpec(
            tool_name(command.name), command.title, about, (*command.args, *more), command
        )


def check_names(spec: ToolSpec, args: Mapping[str, Any]) -> None:
    """Check the names of the arguments and the types of those that read.

    Raises:
        UsageError: there is an unknown or a missing argument, or one of another type.
    """
    known = {arg.name: arg for arg in spec.args}
    for name in args:
        if name not in known:
            what = f"`{spec.name}` takes no `{one_line(name, 60)}`"
            raise UsageError(what, todo=known_names(name, known) if known else "It takes nothing")
    for arg in spec.args:
        value = args.get(arg.name)
        if value is None and arg.required:
            raise UsageError(f"`{spec.name}` needs `{arg.name}`", todo=arg.help)
        if value is not None and spec.command is None:
            expected = int if arg.kind == "int" else str
            if not isinstance(value, expected) or isinstance(value, bool):
                kind = "a whole number" if expected is int else "a string"
                raise UsageError(f"`{spec.name}`: `{arg.name}` must be {kind}", todo=arg.help)
