"""Carries out the commands about engines: start, stop, resume, and what is saved of the policy."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from core.commands import CommandError
from core.errors import AjetError
from core.events import AlertCleared, AlertRaised
from proxy.kept import CHECKPOINTS, PRUNE, RESET, RESTORE, Done, ask, has_job, look, offers
from proxy.seat import Seat, ServerSeat
from swarm.job import Job, default_job, dump_job, hand_job
from swarm.schemas import EngineState

STOP_LIMIT = 30.0
"""Seconds a stopped engine may take to be seen OFFLINE; a real server stands still for 19."""
LOOK_LIMIT = 5.0
"""Seconds a poll may take that looks again before an order is refused."""
BASE = "base"
"""Names the weights the policy came with; it is always there."""


class EngineOrders:
    """Orders for the swarm servers of one proxy."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "engine.start": self._start_job,
            "engine.stop": self._stop,
            "engine.resume": self._resume,
            "engine.save": self._save,
            "engine.restore": self._restore,
            "engine.prune": self._prune,
            "engine.reset": self._reset,
        }

    def _server(self, args: Mapping[str, Any]) -> ServerSeat:
        servers = self.seat.servers
        name = args.get("server") or next(iter(servers), "")
        if name not in servers:
            raise CommandError(f"there is no server `{name}`", todo=f"Known: {', '.join(servers)}")
        return servers[name]

    # --- start and stop -------------------------------------------------------------------------

    async def _start_job(self, args: dict[str, Any]) -> str:
        server = self._server(args)
        await _must_be_off(server)
        await self._start(server, self._job(args.get("preset") == "hand"))
        return f"{server.name} is starting"

    def _job(self, hand: bool = False) -> Job:
        model = self.seat.settings.engine.model
        return hand_job(model) if hand else default_job(model)

    async def _start(self, server: ServerSeat, job: Job | None) -> None:
        """Start with `job`, or with the one the server has."""
        self.seat.bus.publish(AlertCleared(key=f"start:{server.name}"))
        try:
            if job is not None:
                await server.client.sync_train_config(dump_job(job))
            await server.client.start_engine()
        except AjetError as error:
            self.seat.bus.publish(
                AlertRaised(
                    key=f"start:{server.name}",
                    cause=f"{server.name} did not start: {error.what}",
                    todo=error.todo or "Stop it and try again",
                    level="error",
                )
            )
            raise
        server.watcher.nudge()

    async def _stop(self, args: dict[str, Any]) -> str:
        server = self._server(args)
        await server.client.stop_engine()
        server.watcher.nudge()
        return f"{server.name} is stopped"

    async def _resume(self, args: dict[str, Any]) -> str:
        server = await self._keeping(args)
        await _must_be_off(server)
        has = await has_job(server)
        await self._start(server, None if has else self._job())
        return f"{server.name} goes on" + ("" if has else " with the default job: it had none")

    # --- what is saved --------------------------------------------------------------------------

    async def _keeping(self, args: Mapping[str, Any]) -> ServerSeat:
        """The server, when it keeps checkpoints.

        Raises:
            AjetError: it does not.
        """
        server = self._server(args)
        if not await offers(server, CHECKPOINTS):
            raise AjetError(
                "this server has no checkpoints",
                server.name,
                "An AgentJet server saves by its own job: see save_freq there",
            )
        return server

    async def _save(self, args: dict[str, Any]) -> str:
        server = await self._keeping(args)
        name = args["name"].strip()
        told = await ask(server, Done, CHECKPOINTS, {"name": name})
        await look(self.seat, server)
        return f"{server.name}: checkpoint {name} saved, step {told.step}"

    async def _restore(self, args: dict[str, Any]) -> str:
        server = await self._keeping(args)
        name = args["name"].strip()
        found = {one.name: one for one in await look(self.seat, server)}
        if name != BASE and name not in found:
            raise AjetError(
                f"there is no checkpoint `{name:.80}`",
                server.name,
                f"There are: {', '.join([*found, BASE])}",
            )
        if name in found and found[name].damaged:
            raise AjetError(f"the checkpoint {name} is damaged", server.name, "Choose another")
        done, then = await self._while_off(server, RESTORE, {"name": name})
        return f"{server.name} is back at {name}, step {done.step}; {then}"

    async def _reset(self, args: dict[str, Any]) -> str:
        server = await self._keeping(args)
        _, then = await self._while_off(server, RESET, {})
        return f"{server.name} is back at its base weights; {then}"

    async def _prune(self, args: dict[str, Any]) -> str:
        server = await self._keeping(args)
        if args["keep"] < 0:
            raise CommandError("a negative number cannot be kept", todo="Give 0 or more")
        told = await ask(server, Done, PRUNE, {"keep": args["keep"]})
        await look(self.seat, server)
        if not told.deleted:
            return f"{server.name}: there is nothing to delete"
        return f"{server.name}: deleted {', '.join(told.deleted)}"

    async def _while_off(
        self, server: ServerSeat, path: str, body: Mapping[str, Any]
    ) -> tuple[Done, str]:
        """Ask what wants the policy closed; an engine that ran is stopped first and resumed."""
        ran = await self._halted(server)
        try:
            done = await ask(server, Done, path, body)
        except AjetError:
            if ran:  # nothing has changed, so it goes on as it was
                await self._start(server, None)
            raise
        await look(self.seat, server)
        if not ran:
            return done, "resume it to go on from there"
        await self._start(server, None)
        return done, "it goes on from there"

    async def _halted(self, server: ServerSeat) -> bool:
        """Stop the engine when it runs; returns whether it did."""
        try:
            seen = await server.watcher.refresh(STOP_LIMIT)
            if seen.is_in({EngineState.OFFLINE}):
                return False
            await server.client.stop_engine()
            server.watcher.nudge()
            await server.watcher.wait_for({EngineState.OFFLINE}, STOP_LIMIT)
        except TimeoutError:
            raise AjetError(
                f"the engine was not seen OFFLINE within {STOP_LIMIT:.0f} s",
                server.name,
                "Look at its state, then try again",
            ) from None
        return True


async def _must_be_off(server: ServerSeat) -> None:
    seen = server.watcher.current
    if seen.reachable and seen.state is not EngineState.OFFLINE:  # it may have gone down just now
        with contextlib.suppress(TimeoutError):
            seen = await server.watcher.refresh(LOOK_LIMIT)
    if seen.reachable and seen.state not in (EngineState.OFFLINE, EngineState.CANNOT_CONNECT):
        raise AjetError(
            f"the engine of {server.name} is {seen.state}, not OFFLINE",
            todo="Stop it first" if seen.state == "BOOTING" else "",
        )
