"""Dispatches the commands that the proxy executes to their handlers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from ajet_swarm.common.text import one_line
from core.commands import CommandError
from core.commands.plan import Plan, admitted, plan
from core.commands.spec import Handler
from core.events import MockPaused, MockResumed, MockStopping
from core.roles import OWNER, Identity
from core.state import State
from proxy.admission.registry import Groups
from proxy.alerts import dismiss_alert
from proxy.context import ProxyContext
from proxy.control.engine_commands import EngineCommands
from proxy.control.group_commands import GroupCommands
from proxy.control.probes import PromptProbes
from proxy.control.progress_commands import ProgressCommands
from proxy.control.record_commands import RecordCommands
from proxy.control.what_if import WhatIfCommands
from proxy.evaluation.service import Evaluation
from proxy.groups.claim import rows_wait
from proxy.rewards.model.source import RewardCommands

log = logging.getLogger(__name__)

NAMES = frozenset(
    {"group_id", "server", "episode_uuid", "key", "mode", "mock_id", "part", "pair_id"}
)
"""Arguments that identify something, and contain no text of a user or an operator."""
_STOPS = "stops once its requests in flight are answered"


def identifiers(args: Mapping[str, Any]) -> str:
    """Return the arguments that identify something, for the log."""
    named = {name: value for name, value in args.items() if name in NAMES and value}
    return " ".join(f"{name}={one_line(str(value), 60)}" for name, value in named.items())


Refresh = Callable[[str, Mapping[str, Any]], Awaitable[None]]


class CommandHandler:
    """Executes commands: each begins with its plan on the newest state.

    Args:
        context: The proxy's shared parts.
        table: Command -> its handler.
        refresh: Reads what the plan of a command needs, as `EngineCommands.refresh`.
    """

    def __init__(
        self, context: ProxyContext, table: Mapping[str, Handler], refresh: Refresh | None = None
    ) -> None:
        self.context = context
        self._refresh = refresh
        self._table = {**table, "alert.dismiss": self._dismiss}

    async def plan(self, name: str, args: Mapping[str, Any], identity: Identity = OWNER) -> Plan:
        """Return what a command would do now.

        Raises:
            AjetError: it would be refused; gives the reason.
        """
        checked = admitted(self.context.bus.state, name, args, identity)
        if self._refresh is not None:
            await self._refresh(name, checked)
        group_id, stored = checked.get("group_id", ""), None
        groups, inbox = self.context.bus.state.groups, self.context.bus.state.inbox
        if group_id and not any(known.startswith(group_id) for known in groups):
            whole_id = next((known for known in inbox if known.startswith(group_id)), group_id)
            stored = await asyncio.to_thread(self.context.journal.group, whole_id)
        now = self.context.clock()
        return plan(self._newest_state(), name, checked, now, identity, stored)

    async def execute(
        self, name: str, args: Mapping[str, Any], identity: Identity = OWNER
    ) -> tuple[str, dict[str, Any]]:
        """Execute the command `name`; return a message, and data for a program.

        Raises:
            AjetError: it is refused; gives the reason.
        """
        planned = await self.plan(name, args, identity)
        if planned.done:
            return planned.message, {}
        handler = self._table.get(name)
        if handler is None:
            raise CommandError(
                f"`{name}` is not a command of the proxy",
                todo="Use the console or the command line",
            )
        log.info("command %s %s", name, identifiers(planned.args))
        answer = handler(**planned.args)
        result = await answer if isinstance(answer, Awaitable) else answer
        return (result, {}) if isinstance(result, str) else result

    def _newest_state(self) -> State:
        """Return the state with the status of each server as it was read last."""
        state = self.context.bus.state
        servers = dict(state.servers)
        for name, known in state.servers.items():
            if (handle := self.context.servers.get(name)) is not None:
                status = handle.watcher.current
                servers[name] = replace(known, state=handle.state, lost=status.error)
        return replace(state, servers=servers)

    def _dismiss(self, key: str) -> str:
        dismiss_alert(self.context.bus, key)
        return "dismissed"

    def directive(self, mock_id: str, *, for_row: bool = False) -> str:
        """Return what the mock user of that id should do now: run, pause or stop; for its next
        row also wait, until open groups are rated."""
        return "stop"


class CommandDispatcher(CommandHandler):
    """Executes the commands of a proxy that serves requests.

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
        self.groups = groups
        group_commands = group_commands or GroupCommands(groups)
        rewards = RewardCommands(context.rewards)
        engine_commands = EngineCommands(context)
        table: dict[str, Handler] = {
            **group_commands.table,
            **engine_commands.table,
            **PromptProbes(context, groups, group_commands).table,
            **ProgressCommands(evaluation or Evaluation({}), self.execute, group_commands).table,
            **rewards.table,
            **WhatIfCommands(context, rewards).table,
            **RecordCommands(context).table,
            "mock.pause": lambda: self._mock(MockPaused, "pauses"),
            "mock.resume": lambda: self._mock(MockResumed, "continues"),
            "mock.stop": lambda: self._mock(MockStopping, _STOPS),
            "proxy.drain": self._drain,
        }
        super().__init__(context, table, engine_commands.refresh)

    # --- the mock user --------------------------------------------------------------------------

    def directive(self, mock_id: str, *, for_row: bool = False) -> str:
        mock = self.context.bus.state.mock
        phase = mock.phase if mock is not None and mock.mock_id == mock_id else ""
        if directive := {"paused": "pause", "stopping": "stop"}.get(phase):
            return directive
        groups = self.groups
        waits = for_row and mock_id
        if waits and rows_wait(self.context, groups.runs.values(), groups.server_facts.values()):
            return "wait"
        return "run"

    def _mock(self, kind: type[MockPaused | MockResumed | MockStopping], does: str) -> str:
        mock = self.context.bus.state.mock
        self.context.bus.publish(kind(mock_id=mock.mock_id if mock is not None else ""))
        return f"the mock user {does}"

    def _drain(self) -> str:
        self.context.tasks.spawn(self.groups.drain(60.0), "drain")
        return "new requests are refused; those in flight are completed"
