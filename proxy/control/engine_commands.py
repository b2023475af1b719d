"""Commands about engines: start, stop, resume, abort an episode, and their checkpoints."""

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.protocol.schemas import EngineState
from core.commands.spec import Handler
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
        self.jobs = JobCommands(context)
        self.table: Mapping[str, Handler] = {
            **self.jobs.table,
            "engine.stop": self._stop,
            "engine.resume": self._resume,
            "engine.save": self._save,
            "engine.restore": self._restore,
            "engine.prune": self._prune,
            "engine.reset": self._reset,
            "engine.abort_episode": self._abort_episode,
        }

    async def refresh(self, name: str, args: Mapping[str, Any]) -> None:
        """Read what the plan of a command needs: its engine's state may just have changed.

        Raises:
            AjetError: the server does not answer.
        """
        servers = self.context.servers
        server = servers.get(args.get("server") or next(iter(servers), ""))
        if server is None or name not in _ON_STATE | _ON_CHECKPOINTS:
            return
        if server.may_be_commanded:
            with contextlib.suppress(TimeoutError):
                await server.watcher.refresh(POLL_LIMIT)
        if name in _ON_CHECKPOINTS:
            await refresh_checkpoints(self.context, server)

    # --- start and stop -------------------------------------------------------------------------

    async def _stop(self, server: str = "") -> str:
        handle = self.context.server_of(server)
        if (operation := self.jobs.running(handle)) is not None:
            operation.cancel()  # a stop must also end a start that does not finish
        await handle.client.stop_engine()
        with contextlib.suppress(TimeoutError):  # who reads the state next finds it stopped
            await handle.watcher.refresh(POLL_LIMIT)
        return f"{handle.name} is stopped"

    async def _resume(self, server: str = "") -> str:
        handle = self.context.server_of(server)
        if (await engine_info(handle.client)).job is not None:
            await self.jobs.resume(handle)
            return f"{handle.name} continues"
        job, how = await self.jobs.choose(handle)
        await self.jobs.resume(handle, job, how)
        return f"{handle.name} continues with the {how} job: it had none"

    async def _abort_episode(self, episode: str, server: str = "", reason: str = "") -> str:
        handle, prefix = self.context.server_of(server), episode.strip()
        matches = [
            held
            for held in await handle.client.buffer()
            if held.claimed and prefix and held.episode_uuid.startswith(prefix)
        ]
        if len(matches) != 1:
            count = f"{len(matches)} claimed episodes begin"
            what = count if matches else "no claimed episode begins"
            todo = "It may be finished: read the list again"
            raise AjetError(f"{what} with `{prefix:.60}`", handle.name, todo)
        (found,) = matches
        rolling = handle.watcher.current.state is EngineState.ROLLING
        cause = reason or "the operator aborted it"
        if await handle.claimer.ends.give_back([found.episode_uuid], cause):
            todo = "It may take 5 minutes; read the list again before you repeat it"
            raise AjetError("the server has not confirmed the abort", handle.name, todo)
        log.info("aborted %s of %s: %s", found.episode_uuid, handle.name, reason)
        handle.watcher.nudge()
        is_ours = found.client_uuid == self.context.client_uuid
        owner = "of ours" if is_ours else f"of client {found.client_uuid or '?':.40}"
        result = "it is back in the pool" if rolling else "it is deleted"
        return f"{handle.name}: episode {found.episode_uuid:.8} {owner} aborted; {result}"

    # --- checkpoints ----------------------------------------------------------------------------

    async def _save(self, name: str, server: str = "") -> str:
        handle, name = self.context.server_of(server), name.strip()
        done = await self._checkpoints(handle, CHECKPOINTS, {"name": name})
        return f"{handle.name}: checkpoint {name} saved, step {done.step}"

    async def _restore(self, name: str, server: str = "") -> str:
        handle, name = self.context.server_of(server), name.strip()
        done, next_step = await self._while_off(handle, RESTORE, {"name": name})
        return f"{handle.name} is back at {name}, step {done.step}; {next_step}"

    async def _reset(self, server: str = "") -> str:
        handle = self.context.server_of(server)
        _, next_step = await self._while_off(handle, RESET, {})
        return f"{handle.name} is back at its base weights; {next_step}"

    async def _prune(self, keep: int, server: str = "") -> str:
        handle = self.context.server_of(server)
        done = await self._checkpoints(handle, PRUNE, {"keep": keep})
        if not done.deleted:
            return f"{handle.name}: there is nothing to delete"
        return f"{handle.name}: deleted {', '.join(done.deleted)}"

    async def _checkpoints(
        self, server: ServerHandle, path: str, body: Mapping[str, Any]
    ) -> CheckpointResult:
        """Send a request that changes the checkpoints, and read them again."""
        done = await ask(server, CheckpointResult, path, body)
        await refresh_checkpoints(self.context, server)
        return done

    async def _while_off(
        self, server: ServerHandle, path: str, body: Mapping[str, Any]
    ) -> tuple[CheckpointResult, str]:
        """Send a request that requires OFFLINE; a running engine is stopped and then resumed."""
        was_running = await self._stop_if_running(server)
        try:
            done = await self._checkpoints(server, path, body)
        except AjetError:
            if was_running:  # nothing has changed: the engine continues
                await self.jobs.resume(server)
            raise
        if was_running:
            await self.jobs.resume(server)
        return done, f"{'it continues' if was_running else 'resume it to continue'} from there"

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
            what = f"the engine was not seen OFFLINE within {STOP_LIMIT:.0f} s"
            raise AjetError(what, server.name, "Look at its state, then try again") from None
        return True
