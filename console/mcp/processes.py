"""The commands that the home itself executes: start of the mock user, restarts of processes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError
from console.backend.mock_process import mock_args
from console.backend.supervisor import Supervisor
from console.models.datasets import FOLDER, SHIPPED
from console.screens.progress.model import UNTRAINED, paused_servers
from console.text.causes import exit_text
from core.commands import COMMANDS, validate
from core.commands.plan import Plan
from core.commands.plan_engines import restart_loss
from core.runtime.home import Home, running
from core.settings import Settings
from core.state import State

_ROLES = {"proxy.restart": "proxy", "engine.restart_process": "engine"}


Snapshot = Callable[[], Awaitable[State]]
"""Returns the state of the proxy."""
FIRST_STATE_SECONDS = 20.0
"""Time in which a mock user reports its run to the proxy; longer if the proxy is busy."""
_EVERY_SECONDS = 0.1


class Processes:
    """Starts and restarts processes of a home.

    Args:
        home: The home.
        settings: Its settings, for a process that is started.
        supervisor: Starts the processes; created if None.
    """

    def __init__(
        self, home: Home, settings: Settings, supervisor: Supervisor | None = None
    ) -> None:
        self._home = home
        self._supervisor = supervisor or Supervisor(home, settings)

    def close(self) -> None:
        """Leave the processes running."""
        self._supervisor.release()

    async def plan(self, name: str, args: Mapping[str, Any], snapshot: Snapshot) -> Plan:
        """Return what a command would do.

        Args:
            name: Name of the command.
            args: Its arguments.
            snapshot: Returns the state of the proxy, where training can be paused.

        Raises:
            AjetError: it would be refused.
        """
        checked = validate(name, args)
        title = COMMANDS[name].title
        if name == "mock.start":
            if (await asyncio.to_thread(self._supervisor.state, "mock")).alive:
                raise AjetError("the mock user already runs", todo="Stop it first: mock_stop")
            message = await self._would_ask(mock_args(checked))
            loses = await self._untrained(snapshot, override=bool(checked.get("override")))
            outside = self._outside(checked)
            return Plan(name, checked, message, consequences=loses, confirm=outside)
        role = _ROLES[name]
        info = await asyncio.to_thread(running, self._home, role)
        if info is None:
            what = f"no {role} runs in this home"
            raise AjetError(what, str(self._home.root), f"Start it: `ajet-console run {role}`")
        state = State()
        with contextlib.suppress(AjetError):  # no proxy runs: nothing more is known
            state = await snapshot()
        return Plan(
            name,
            checked,
            f"would execute “{title}”, pid {info.pid}",
            consequences=tuple(restart_loss(state, role)),
            targets=(str(info.pid),),
        )

    def _outside(self, args: Mapping[str, Any]) -> bool:
        """Return whether a mock user would read a dataset that is not one of the home's."""
        if (dataset := args.get("dataset", "")) in ("", SHIPPED):
            return False
        own, named = self._home.root / FOLDER, Path(dataset).expanduser()
        path = named if named.exists() else own / named
        return not path.resolve().is_relative_to(own.resolve())

    async def execute(self, plan: Plan, snapshot: Snapshot) -> str:
        """Execute a plan and return a message.

        Args:
            plan: The plan.
            snapshot: Returns the state of the proxy, to which a started mock user reports.

        Raises:
            AjetError: the process cannot be started, or fails at once.
        """
        if plan.command == "mock.start":
            await self._supervisor.start("mock", mock_args(plan.args))
            return await self._first_state(snapshot)
        role = _ROLES[plan.command]
        await self._supervisor.restart(role)
        info = await self._supervisor.wait_ready(role)
        return f"the {role} runs again, pid {info.pid}"

    async def _untrained(self, snapshot: Snapshot, *, override: bool) -> tuple[str, ...]:
        """Return what a run of the mock user loses while training is paused; empty if it is not.

        Raises:
            AjetError: training is paused, and the agent does not override it.
        """
        if await asyncio.to_thread(running, self._home, "proxy") is None:
            return ()  # the target is another program
        paused = paused_servers(await snapshot())
        if paused and not override:
            todo = "Resume it with `progress_resume`, or start with `override`"
            raise AjetError(f"{paused}. {UNTRAINED.removesuffix('.')}", todo=todo)
        return (UNTRAINED,) if paused else ()

    async def _would_ask(self, words: Sequence[str]) -> str:
        """Return what a mock user would ask, by a dry run of its command line.

        Raises:
            AjetError: it would be refused.
        """
        report, code = await self._supervisor.output_of("mock", [*words, "--dry-run", "--json"])
        try:
            fields = msgspec.json.decode(report, type=_DryRun)
        except msgspec.MsgspecError:
            what = f"the mock user cannot be checked: {exit_text(code)}"
            raise AjetError(what, todo="`ajet-console run mock --dry-run` shows why") from None
        if fields.error is not None:
            raise AjetError(fields.error.message, fields.error.where, fields.error.todo)
        return "; ".join(step.message for step in fields.steps)

    async def _first_state(self, snapshot: Snapshot) -> str:
        """Return the first state of the mock user that was started.

        Raises:
            AjetError: it failed; gives the reason.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_STATE_SECONDS):
                while True:
                    child = await asyncio.to_thread(self._supervisor.state, "mock")
                    if not child.alive:
                        break
                    info = await asyncio.to_thread(self._supervisor.find, "mock")
                    run = (await snapshot()).mock if info is not None else None
                    if (
                        info
                        and run
                        and (run.mock_id, run.ended_at) == (info.extra.get("mock_id"), None)
                    ):
                        return f"the mock user is {run.phase}; `status` shows its progress"
                    await asyncio.sleep(_EVERY_SECONDS)
        child = await asyncio.to_thread(self._supervisor.state, "mock")
        if child.alive:
            return "the mock user has not reported its run yet; `status` shows whether it does"
        if child.exit_code:
            log = str(self._supervisor.log("mock"))
            raise AjetError(f"the mock user failed: {child.detail}", log, "Read its log")
        return "the mock user has finished; `status` shows its result"


class _Step(msgspec.Struct):
    message: str


class _Error(msgspec.Struct):
    message: str
    where: str = ""
    todo: str = ""


class _DryRun(msgspec.Struct):
    """The envelope of `run mock --dry-run --json`."""

    steps: list[_Step] = []
    error: _Error | None = None
