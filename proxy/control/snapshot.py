"""The snapshot of the control API, whole or brief, and what a brief one leaves out."""

import re
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request

from ajet_swarm.common.errors import UsageError
from core.bus import Bus
from core.state import Group
from core.state.brief import brief_groups, brief_runs

IDS_CAP = 200
"""Maximum number of groups, or of curves, read at once."""
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def integer(text: str, name: str) -> int:
    """Return the whole number of a parameter in the query of a request.

    Raises:
        UsageError: it is not a whole number; names the parameter.
    """
    if not _INTEGER.fullmatch(text):
        raise UsageError(f"`{name}` must be a whole number")
    return int(text)


async def snapshot(bus: Bus, request: Request) -> dict[str, Any]:
    """Return the state and its sequence number; brief with the parameter `whole`.

    See `ControlClient.snapshot` for the parameter.
    """
    state = bus.state
    if (whole := request.query_params.get("whole")) is not None:
        groups = brief_groups(state.groups, max(0, integer(whole, "whole")))
        state = replace(state, groups=groups, engine_runs=brief_runs(state.engine_runs))
    return {"seq": state.seq, "identity": request.state.identity, "state": state}


async def groups(bus: Bus, request: Request) -> dict[str, list[Group]]:
    """Return the groups of the parameter `ids` that are in the state."""
    known = bus.state.groups
    return {"groups": [known[name] for name in _list(request, "ids") if name in known]}


async def curves(bus: Bus, request: Request) -> dict[str, Any]:
    """Return the curves of the engine runs whose numbers are in the parameter `runs`."""
    numbers = (integer(number, "runs") for number in _list(request, "runs"))
    runs = [bus.state.engine_runs.numbered(number) for number in numbers]
    return {"curves": {run.number: run.curve for run in runs if run is not None}}


def _list(request: Request, name: str) -> list[str]:
    """Return the parts of a parameter with commas."""
    text = request.query_params.get(name, "")
    return text.split(",")[:IDS_CAP] if text else []
