"""Base classes of all events.

Every event carries `seq` (order in the journal), `at` (Unix seconds), `run_id` (one start of the
proxy) and, if it concerns one, `server` (name of a swarm server). Class names are in the past
tense; `kind` on the wire is the class name in snake case, so a renamed class breaks stored
journals.
"""

import re

import msgspec


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


class GroupEvent(Event, frozen=True, kw_only=True):
    """Fields of every event of one group."""

    group_id: str
