"""Commands of the progress measurement: look, new baseline, rewind, pause and resume."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ajet_swarm.common.text import known_names
from core.commands import CommandError
from proxy.control.engine_commands import EngineCommands
from proxy.control.rewind import Rewinder
from proxy.evaluation.service import PAUSED_BY_OPERATOR, Evaluation, ProgressService


class ProgressCommands:
    """The commands of one proxy; see `proxy.evaluation`.

    Args:
        evaluation: The looks at the probe sets.
        engine_commands: Restores checkpoints, applies jobs.
    """

    def __init__(self, evaluation: Evaluation, engine_commands: EngineCommands) -> None:
        self._services = evaluation.services
        restore = engine_commands.table["engine.restore"]
        for name, service in self._services.items():
            service.restore = _restorer(restore, name)
        self._rewinder = Rewinder(engine_commands.context, engine_commands.table["engine.apply"])
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "progress.look": self._look,
            "progress.trust": self._trust,
            "progress.rewind": self._rewind,
            "progress.pause": self._pause,
            "progress.resume": self._resume,
        }

    async def _look(self, args: dict[str, Any]) -> str:
        return self._service(args).demand("look")

    async def _trust(self, args: dict[str, Any]) -> str:
        return self._service(args).demand("baseline")

    async def _rewind(self, args: dict[str, Any]) -> str:
        path, plan_id = args.get("path") or "", args.get("plan_id") or ""
        return await self._rewinder.rewind(self._service(args), path, plan_id)

    async def _pause(self, args: dict[str, Any]) -> str:
        return self._service(args).pause(PAUSED_BY_OPERATOR)

    async def _resume(self, args: dict[str, Any]) -> str:
        return self._service(args).resume()

    def _service(self, args: Mapping[str, Any]) -> ProgressService:
        name = args.get("server") or next(iter(self._services), "")
        if name not in self._services:
            raise CommandError(
                f"there is no server `{name}` that is trained",
                todo=known_names(name, self._services),
            )
        return self._services[name]


def _restorer(
    restore: Callable[[dict[str, Any]], Awaitable[str]], server: str
) -> Callable[[str], Awaitable[str]]:
    async def run(name: str) -> str:
        return await restore({"server": server, "name": name})

    return run
