"""What happened: small frozen records, the only thing that state is made of.

Every event carries `seq` (order in the journal), `at` (Unix seconds), `run_id` (one start of the
proxy) and, where it concerns one, `server` (name of a swarm server). Names are past tense; `kind`
on the wire is the class name in snake case.
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
    """What all events have; the bus stamps the first three when it publishes.

    A field that is as by default is left out of the JSON, so a default that was once released
    stays as it is; `core.jsonio` is for readers that do not know them. The collector of cycles
    leaves events alone: what they hold is data, which has none.
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
    """What all events of one group have."""

    group_id: str
