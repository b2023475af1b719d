"""Commands about engines: start, stop, resume, abort an episode, and their checkpoints."""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.protocol.schemas import EngineState
from proxy.context import ProxyContext, ServerHandle
from proxy.control.job_commands import JobCommands
from proxy.control.job_operation import POLL_LIMIT
from proxy.servers.extensions import (
    CHECKPOINTS,
    PRUNE,
    RESET,
    RESTORE,
    CheckpointResult,
    ask,
    engine_info,
    refresh_checkpoints,
)

log = logging.getLogger(__name__)

STOP_LIMIT = 30.0
"""Seconds until a stopped engine must be OFFLINE; a real server does not respond for 19 of them."""
_ON_STATE = frozenset(
    {"engine.start", "engine.stop", "engine.apply", "engine.resume", "engine.save"}
)
_ON_CHECKPOINTS = frozenset(
    {
        "engine.resume", "engine.save", "engine.restore", "engine.reset", "engine.prune",
        "progress.rewind",
    }
)  # fmt: skip


class EngineCommands:
    """Commands for the swarm servers of one proxy."""

    def __init__(self, context: ProxyContext) -> None:
        self.context = context
        self.jobs = JobCommands(context, self.server)
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            **self.jobs.table,
            "engine.stop": self._stop,
            "engine.resume": self._resume,
            "engine.save": self._save,
            "engine.restore": self._restore,
            "engine.prune": self._prune,
            "engine.reset": self._reset,
            "engine.abort_episode": self._abort_episode,
        }

    def server(self, args: Mapping[str, Any]) -> ServerHandle:
        """Return the named server, or the first one."""
        servers = self.context.servers
        return servers[args.get("server") or next(iter(servers))]

    async def refresh(self, name: str, args: Mapping[str, Any]) -> None:
        """Read what the plan of a command needs: its engine's state may just have changed.

        Raises:
            AjetError: the server does not answer.
        """
        servers = self.context.servers
        known = (args.get("server") or next(iter(servers), "")) in servers
        if not known or name not in _ON_STATE | _ON_CHECKPOINTS:
            return
        server = self.server(args)
        if server.may_be_commanded:
            with contextlib.suppress(TimeoutError):
                await server.watcher.refresh(POLL_LIMIT)
        if name in _ON_CHECKPOINTS:
            await refresh_checkpoints(self.context, server)

    # --- start and stop -------------------------------------------------------------------------

    async def _stop(self, args: dict[str, Any]) -> str:
        server = self.server(args)
        if (operation := self.jobs.running(server)) is not None:
            operation.cancel()  # a stop must also end a start that does not finish
        await server.client.stop_engine()
        with contextlib.suppress(TimeoutError):  # who reads the state next finds it stopped
            await server.watcher.refresh(POLL_LIMIT)
        return f"{server.name} is stopped"

    async def _resume(self, args: dict[str, Any]) -> str:
        server = self.server(args)
        if (await engine_info(server.client)).job is not None:
            await self.jobs.resume(server)
            return f"{server.name} continues"
        job, how = await self.jobs.choose(server, {})
        await self.jobs.resume(server, job, how)
        return f"{server.name} continues with the {how} job: it had none"

    async def _abort_episode(self, args: dict[str, Any]) -> str:
        server = self.server(args)
        prefix = args["episode"].strip()
        matches = [
            episode
            for episode in await server.client.buffer()
            if episode.claimed and prefix and episode.episode_uuid.startswith(prefix)
        ]
        if len(matches) != 1:
            what = (
                f"{len(matches)} claimed episodes begin" if matches else "no claimed episode begins"
            )
            raise AjetError(
                f"{what} with `{prefix:.60}`",
                server.name,
                "It may be finished: read the list again",
            )
        episode = matches[0]
        rolling = server.watcher.current.state is EngineState.ROLLING
        reason = args.get("reason", "") or "the operator aborted it"
        if await server.claimer.ends.give_back([episode.episode_uuid], reason):
            raise AjetError(
                "the server has not confirmed the abort",
                server.name,
                "It may take 5 minutes; read the list again before you repeat it",
            )
        log.info("aborted %s of %s: %s", episode.episode_uuid, server.name, args.get("reason", ""))
        server.watcher.nudge()
        is_ours = episode.client_uuid == self.context.client_uuid
        owner = "of ours" if is_ours else f"of client {episode.client_uuid or '?':.40}"
        result = "it is back in the pool" if rolling else "it is deleted"
        return f"{server.name}: episode {episode.episode_uuid:.8} {owner} aborted; {result}"

    # --- checkpoints ----------------------------------------------------------------------------

    async def _save(self, args: dict[str, Any]) -> str:
        server, name = self.server(args), args["name"].strip()
        done = await ask(server, CheckpointResult, CHECKPOINTS, {"name": name})
        await refresh_checkpoints(self.context, server)
        return f"{server.name}: checkpoint {name} saved, step {done.step}"

    async def _restore(self, args: dict[str, Any]) -> str:
        server, name = self.server(args), args["name"].strip()
        done, next_step = await self._while_off(server, RESTORE, {"name": name})
        return f"{server.name} is back at {name}, step {done.step}; {next_step}"

    async def _reset(self, args: dict[str, Any]) -> str:
        server = self.server(args)
        _, next_step = await self._while_off(server, RESET, {})
        return f"{server.name} is back at its base weights; {next_step}"

    async def _prune(self, args: dict[str, Any]) -> str:
        server = self.server(args)
        done = await ask(server, CheckpointResult, PRUNE, {"keep": args["keep"]})
        await refresh_checkpoints(self.context, server)
        if not done.deleted:
            return f"{server.name}: there is nothing to delete"
        return f"{server.name}: deleted {', '.join(done.deleted)}"

    async def _while_off(
        self, server: ServerHandle, path: str, body: Mapping[str, Any]
    ) -> tuple[CheckpointResult, str]:
        """Send a request that requires OFFLINE; a running engine is stopped and then resumed."""
        was_running = await self._stop_if_running(server)
        try:
            done = await ask(server, CheckpointResult, path, body)
        except AjetError:
            if was_running:  # nothing has changed: the engine continues
                await self.jobs.resume(server)
            raise
        await refresh_checkpoints(self.context, server)
        if not was_running:
            return done, "resume it to continue from there"
        await self.jobs.resume(server)
        return done, "it continues from there"

    async def _stop_if_running(self, server: ServerHandle) -> bool:
        """Stop the engine if it runs; return whether it did."""
        try:
            status = await server.watcher.refresh(STOP_LIMIT)
            if status.is_in({EngineState.OFFLINE}):
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
