"""Definition of an operator's command and its arguments.

Why a command is not carried out.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ajet_swarm.common.errors import AjetError


class NotNow(AjetError):
    """A command that cannot be carried out in the present state."""


class NoChange(NotNow):
    """A command that succeeds without changing anything."""


if TYPE_CHECKING:
    from core.roles import AccessRole

Kind = Literal["text", "int", "float", "flag", "ints", "floats", "texts"]
Answer = str | tuple[str, dict[str, Any]]
"""Message for the operator; and data for a program, where there are any."""
Handler = Callable[..., Answer | Awaitable[Answer]]
"""Executes a command after its plan: its parameters are the validated arguments."""


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of a command."""

    name: str
    kind: Kind
    help: str
    required: bool = True
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the operator."""

    name: str
    """`area.verb`; also the id of its key binding."""
    title: str
    """Title in the palette: "Group: Abort"."""
    help: str
    args: tuple[Arg, ...] = ()
    danger: bool = False
    """Whether it destroys something; the console then asks for confirmation and names the loss."""
    role: "AccessRole" = "operator"
    """Role that it needs."""
    where: Literal["proxy", "console"] = "proxy"
