"""Dispatches the commands that the proxy executes to their handlers."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core.commands import CommandError
from core.events import MockPaused, MockResumed, MockStopping
from core.state import Mock
from proxy.admission.registry import Groups
from proxy.alerts import dismiss_alert
from proxy.context import ProxyContext
from proxy.control.engine_commands import EngineCommands
from proxy.control.group_commands import GroupCommands
from proxy.control.journal_commands import JournalCommands
from proxy.control.probes import PromptProbes
from proxy.control.progress_commands import ProgressCommands
from proxy.control.run_commands import RunCommands
from proxy.control.what_if import WhatIfCommands
from proxy.evaluation.service import Evaluation
from proxy.groups.giving_way import rows_wait
from proxy.rewards.model.commands import RewardCommands

log = logging.getLogger(__name__)

NAMES = frozenset(
    {"group_id", "server", "episode_uuid", "key", "mode", "mock_id", "part", "pair_id"}
)
"""Arguments that identify something, and contain no text of a user or an operator."""


def without_texts(args: Mapping[str, Any]) -> str:
    """Return arguments for the log: identifiers and numbers in full, the size of all else."""
    return " ".join(f"{name}={_size(name, value)}" for name, value in args.items())


def _size(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    if name in NAMES:
        return one_line(str(value), 60)
    if isinstance(value, str):
        return f"({len(value)} characters)"
    return f"({len(value)} items)" if isinstance(value, list | tuple | dict) else "(set)"


CommandResult = tuple[str, dict[str, Any]]
"""Message for the operator, and data for a program."""

_ENDED = frozenset({"finished", "stopped", "failed"})


class CommandDispatcher:
    """Executes the commands of one proxy.

    Args:
        context: The proxy's shared parts.
        groups: The registry of open groups.
        group_commands: The commands on groups; created if None.
        evaluation: The looks at the probe sets; None for none.
    """

    def __init__(
        self,
        context: ProxyContext,
        groups: Groups,
        group_commands: GroupCommands | None = None,
        evaluation: Evaluation | None = None,
    ) -> None:
        self.context = context
        self.groups = groups
        group_commands = group_commands or GroupCommands(groups)
        rewards = RewardCommands(context.rewards)
        engine_commands = EngineCommands(context)
        self._table: dict[str, Callable[[dict[str, Any]], Awaitable[str | CommandResult]]] = {
            **group_commands.table,
            **engine_commands.table,
            **PromptProbes(context, groups, group_commands).table,
            **ProgressCommands(evaluation or Evaluation({}), engine_commands, group_commands).table,
            **rewards.table,
            **WhatIfCommands(context, rewards).table,
            **JournalCommands(context).table,
            **RunCommands(context).table,
            "alert.dismiss": self._dismiss,
            "mock.pause": self._mock_pause,
            "mock.resume": self._mock_resume,
            "mock.stop": self._mock_stop,
            "proxy.drain": self._drain,
        }

    async def execute(self, name: str, args: dict[str, Any]) -> CommandResult:
        """Execute the command `name` with validated arguments.

        Raises:
            AjetError: it is refused; gives the reason.
        """
        handler = self._table.get(name)
        if handler is None:
            raise CommandError(
                f"`{name}` is not a command of the proxy",
                todo="Use the console or the command line",
            )
        log.info("command %s %s", name, without_texts(args))
        result = await handler(args)
        return (result, {}) if isinstance(result, str) else result

    async def _dismiss(self, args: dict[str, Any]) -> str:
        dismiss_alert(self.context.bus, args["key"])
        return "dismissed"

    # --- the mock user --------------------------------------------------------------------------

    def directive(self, mock_id: str, *, for_row: bool = False) -> str:
        """Return what the mock user of that id should do now: run, pause or stop; for its next
        row also wait, until open groups are rated."""
        mock = self.context.bus.state.mock
        phase = mock.phase if mock is not None and mock.mock_id == mock_id else ""
        if directive := {"paused": "pause", "stopping": "stop"}.get(phase):
            return directive
        groups = self.groups
        waits = for_row and mock_id
        if waits and rows_wait(self.context, groups.runs.values(), groups.server_facts.values()):
            return "wait"
        return "run"

    def _running_mock(self) -> Mock:
        mock = self.context.bus.state.mock
        if mock is None or mock.phase in _ENDED:
            raise AjetError("no mock user is running", todo="Start one with `ajet-console mock`")
        return mock

    async def _mock_pause(self, args: dict[str, Any]) -> str:
        self.context.bus.publish(MockPaused(mock_id=self._running_mock().mock_id))
        return "the mock user pauses"

    async def _mock_resume(self, args: dict[str, Any]) -> str:
        mock = self._running_mock()
        if mock.phase == "running":
            return "the mock user continues"
        if mock.phase != "paused":
            raise AjetError(f"the mock user is {mock.phase}, not paused")
        self.context.bus.publish(MockResumed(mock_id=mock.mock_id))
        return "the mock user continues"

    async def _mock_stop(self, args: dict[str, Any]) -> str:
        mock = self.context.bus.state.mock
        if mock is None or mock.phase in _ENDED:
            return "no mock user is running"
        self.context.bus.publish(MockStopping(mock_id=mock.mock_id))
        return "the mock user stops once its requests in flight are answered"

    async def _drain(self, args: dict[str, Any]) -> str:
        self.context.tasks.spawn(self.groups.drain(60.0), "drain")
        return "new requests are refused; those in flight are completed"
