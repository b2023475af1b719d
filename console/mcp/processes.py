"""The commands that the home itself executes: start of the mock user, restarts of processes."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from console.backend.mock_process import check_target, mock_args
from console.backend.supervisor import Supervisor
from console.models.command_plan import CommandPlan
from core.commands import COMMANDS, validate
from core.runtime.home import Home, running
from core.settings import Settings

_ROLES = {"proxy.restart": "proxy", "engine.restart_process": "engine"}
_LOSSES = {
    "proxy": "No request: those in flight are finished, new ones are refused meanwhile.",
    "engine": "The claimed episodes, and what was trained since the last update.",
}


class Processes:
    """Starts and restarts processes of a home.

    Args:
        home: The home.
        settings: Its settings, for a process that is started.
    """

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._supervisor = Supervisor(home, settings)

    def close(self) -> None:
        """Leave the processes running."""
        self._supervisor.release()

    async def plan(self, name: str, args: Mapping[str, Any]) -> CommandPlan:
        """Return what a command would do.

        Raises:
            AjetError: it would be refused.
        """
        checked = validate(name, args)
        title = COMMANDS[name].title
        if name == "mock.start":
            if (await asyncio.to_thread(self._supervisor.state, "mock")).alive:
                raise AjetError("the mock user already runs", todo="Stop it first: mock_stop")
            await asyncio.to_thread(check_target, str(checked.get("target") or ""))
            words = " ".join(mock_args(checked))
            return CommandPlan(name, checked, f"would execute “{title}” {words}".rstrip())
        role = _ROLES[name]
        info = await asyncio.to_thread(running, self._home, role)
        if info is None:
            what = f"no {role} runs in this home"
            raise AjetError(what, str(self._home.root), f"Start it: `ajet-console {role}`")
        return CommandPlan(
            name,
            checked,
            f"would execute “{title}”, pid {info.pid}",
            _LOSSES[role],
            (str(info.pid),),
        )

    async def execute(self, one: CommandPlan) -> str:
        """Execute a plan and return a message.

        Raises:
            AjetError: the process cannot be started.
        """
        if one.command == "mock.start":
            await self._supervisor.start("mock", mock_args(one.args))
            return "the mock user is starting; `status` shows its progress"
        role = _ROLES[one.command]
        await self._supervisor.restart(role)
        info = await self._supervisor.wait_ready(role)
        return f"the {role} runs again, pid {info.pid}"
