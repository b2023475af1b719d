"""Commands of the progress measurement: take a look, take a new baseline."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ajet_swarm.common.text import known_names
from core.commands import CommandError
from proxy.evaluation.service import Demand, Evaluation


class ProgressCommands:
    """The commands of one proxy; see `proxy.evaluation`."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._services = evaluation.services
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "progress.look": self._look,
            "progress.trust": self._trust,
        }

    async def _look(self, args: dict[str, Any]) -> str:
        return self._demand(args.get("server"), "look")

    async def _trust(self, args: dict[str, Any]) -> str:
        return self._demand(args.get("server"), "baseline")

    def _demand(self, name: str | None, demand: Demand) -> str:
        name = name or next(iter(self._services), "")
        if name not in self._services:
            raise CommandError(
                f"there is no server `{name}` that is trained",
                todo=known_names(name, self._services),
            )
        return self._services[name].demand(demand)
