"""Base classes of all events.

Every event carries `seq` (order in the journal), `at` (Unix seconds), `run_id` (one start of the
proxy) and, if it concerns one, `server` (name of a swarm server). Class names are in the past
tense; `kind` on the wire is the class name in snake case, so a renamed class breaks stored
journals.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

_P = TypeVar("_P", bound="Params")


def _kind(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag=_kind,
    omit_defaults=True,
    gc=False,
):
    """Fields of every event; the bus sets the first three when it publishes.

    The JSON omits fields that have their default, so a released default must never change;
    `core.jsonio` writes all fields for readers without these classes. Events hold plain data
    without reference cycles, so the garbage collector does not track them (`gc=False`).
    """

    seq: int = 0
    at: float = 0.0
    run_id: str = ""
    server: str = ""

    @property
    def kind(self) -> str:
        """The event's name on the wire."""
        return str(self.__struct_config__.tag)


class Params(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parameters of one kind of cause or alert; a released field keeps its name, type, default."""

    kind: ClassVar[str]
    """Name of the kind."""

    def as_json(self) -> dict[str, Any]:
        """Return the parameters as a JSON object without those that have their default."""
        fields = msgspec.to_builtins(self)
        assert isinstance(fields, dict)
        return fields


def read(kinds: Mapping[str, type[_P]], kind: str, params: Mapping[str, Any]) -> _P | None:
    """Return stored parameters; None for an unknown kind or unexpected parameters.

    Args:
        kinds: Class of each kind.
        kind: Name of the kind.
        params: Unknown ones are ignored.
    """
    try:
        return msgspec.convert(params, kinds[kind])
    except (KeyError, msgspec.ValidationError):
        return None


class GroupEvent(Event, frozen=True, kw_only=True):
    """Fields of every event of one group."""

    group_id: str
