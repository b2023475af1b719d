"""The snapshot of the control API, whole or brief, and what a brief one leaves out."""

import asyncio
import gzip
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from core.bus import Bus
from core.state.brief import brief_groups, brief_runs
from proxy.control.query import integer

IDS_CAP = 200
"""Maximum number of groups, or of curves, read at once."""
PACKED_BYTES = 16_384
"""Size of an answer from which it is compressed, for clients that accept it."""


class SnapshotRequests:
    """The requests that read the state of a bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def read(self, request: Request) -> Response:
        """Return the state and its sequence number; brief with the parameter `whole`.

        See `ControlClient.snapshot` for the parameter.
        """
        state, identity = self._bus.state, request.state.identity
        if (whole := request.query_params.get("whole")) is not None:
            state = msgspec.structs.replace(
                state,
                groups=brief_groups(state.groups, max(0, integer(whole, "whole"))),
                engine_runs=brief_runs(state.engine_runs),
            )
        return await _packed(request, {"seq": state.seq, "identity": identity, "state": state})

    async def groups(self, request: Request) -> Response:
        """Return the groups of the parameter `ids` that are in state."""
        groups = self._bus.state.groups
        present = [groups[group_id] for group_id in _list(request, "ids") if group_id in groups]
        return await _packed(request, {"groups": present})

    async def curves(self, request: Request) -> Response:
        """Return the curves of the engine runs whose numbers are in the parameter `runs`."""
        runs = self._bus.state.engine_runs
        known = (runs.numbered(integer(number, "runs")) for number in _list(request, "runs"))
        curves = {run.number: run.curve for run in known if run is not None}
        return await _packed(request, {"curves": curves})


def _list(request: Request, name: str) -> list[str]:
    """Return the parts of a parameter with commas."""
    text = request.query_params.get(name, "")
    return text.split(",")[:IDS_CAP] if text else []


async def _packed(request: Request, value: Any) -> Response:
    """Return a value as JSON, compressed if it is large and the client accepts that."""
    data, headers = msgspec.json.encode(value), {}
    if len(data) >= PACKED_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        data = await asyncio.to_thread(gzip.compress, data, 1, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(data, headers=headers, media_type="application/json")
