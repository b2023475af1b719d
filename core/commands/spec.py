"""What a command of the operator is made of."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "int", "float", "flag", "ints", "floats", "texts"]


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
    """One order."""

    name: str
    """`area.verb`; also the id of its key binding."""
    title: str
    """As the palette shows it: "Group: Abort"."""
    help: str
    where: Literal["proxy", "console"] = "proxy"
    args: tuple[Arg, ...] = ()
    danger: bool = False
    """It destroys something: the console asks first and names the loss."""
    key: str = ""
    """Default key; empty for none."""
