"""Reader of the training run of a server's weights: whose global steps the answers count.

The embedded engine reports an id that is stored with its weights. An AgentJet server reports
nothing of the kind, so each observed start counts as a new run: a start while no proxy watched is
only noticed if the global step went back.
"""

import asyncio
import contextlib
import logging
from pathlib import PurePosixPath

import msgspec

from ajet_swarm.api.outcomes import decoded
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.http.interface import Request
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.job import EXPERIMENT, JobError, get, load_job
from core.events import TrainingRunIdentified
from core.state import Server
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.extensions import INFO, offers

log = logging.getLogger(__name__)

IDENTIFY_WITHIN = 1.0
"""Maximum number of seconds that the first claims after a start wait for the training run."""
_NAME_LENGTH = 60


class _Identity(msgspec.Struct, frozen=True):
    """The used part of the response of `INFO`."""

    run: str | None = None
    run_start: str | None = None


class TrainingRunReader:
    """Reader of one server; it publishes `TrainingRunIdentified`."""

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self.context = context
        self.server = server
        self._reading = self._again = False

    def on_status(self, status: ServerStatus) -> None:
        """Read the training run when the engine begins to roll, and at each of its steps.

        Call it after the event of this status was published.
        """
        if not (self.server.trains and status.reachable and status.state.rolling):
            return
        if self._reading:
            self._again = True
            return
        known = self._state()
        if known is not None and not known.run_number:
            self.server.identifying = asyncio.Event()
        self._reading = True
        self.context.tasks.spawn(self._read(), f"training run:{self.server.name}")

    async def _read(self) -> None:
        try:
            while True:
                self._again = False
                try:
                    await self._identify()
                except (SwarmError, msgspec.MsgspecError, RecursionError) as error:
                    log.info("%s does not report its training run: %s", self.server.name, error)
                if not self._again:
                    return
        finally:
            self._reading = False
            if self.server.identifying is not None:
                self.server.identifying.set()
                self.server.identifying = None

    async def _identify(self) -> None:
        reported = await self._reported()
        if reported is not None and reported.run:
            self._publish(reported.run, reported.run_start or "", by_name=True)
            return
        known = self._state()
        if known is not None and known.training_run is not None and known.training_run.start:
            return  # complete already
        experiment, model = await self._experiment(), await self._model()
        if (known := self._state()) is not None:
            self._publish(f"{experiment or 'run'}.{known.engine_run}", model, by_name=False)

    async def _reported(self) -> _Identity | None:
        """Return what the embedded engine reports; None for any other server."""
        if not await offers(self.server, INFO):
            return None
        client = self.server.client
        request = Request("GET", client.url + INFO, timeout=10.0, repeatable=True)
        return decoded(await client.transport.request(request), _Identity, self.server.name)

    def _publish(self, name: str, start: str, *, by_name: bool) -> None:
        known = self._state()
        if known is None:
            return
        last = known.runs[-1] if known.runs else None
        same = last is not None and (
            last.name == name if by_name else last.engine_run == known.engine_run
        )
        if last is not None and same and not by_name:  # a failed reading makes no other name
            name = last.name if name.startswith("run.") else name
            start = start or last.start
        if last is not None and same:
            if (last.name, last.start, last.engine_run) == (name, start, known.engine_run):
                return
            number = last.number
        else:
            number = 1 if last is None else last.number + 1
        self.context.bus.publish(
            TrainingRunIdentified(server=self.server.name, number=number, name=name, start=start)
        )

    async def _experiment(self) -> str:
        """Return the name of the job's experiment; empty if unknown."""
        known = self._state()
        if known is not None and known.job is not None and not known.foreign_start:
            return experiment_of(known.job.yaml)
        with contextlib.suppress(SwarmError):
            if folder := await self.server.client.experiment_dir():
                return PurePosixPath(folder).name[:_NAME_LENGTH]
        return ""

    async def _model(self) -> str:
        """Return the model that the job began with, as the server reports it."""
        pool = await self.server.watcher.poll_pool()
        return "" if pool is None or pool.stale else pool.training_model_path or ""

    def _state(self) -> Server | None:
        return self.context.bus.state.servers.get(self.server.name)


def experiment_of(job: str) -> str:
    """Return the experiment's name in the YAML of a job; empty without a readable one."""
    try:
        name = get(load_job(job), EXPERIMENT)
    except JobError:  # sent by a version that accepted it
        return ""
    return name[:_NAME_LENGTH] if isinstance(name, str) else ""


async def identified(server: ServerHandle) -> None:
    """Wait while the training run of a started engine is read, at most `IDENTIFY_WITHIN`
    seconds."""
    if server.identifying is not None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.identifying.wait(), IDENTIFY_WITHIN)
