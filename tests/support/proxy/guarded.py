"""A control API with a named token of each role, which records the commands that it permits."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from ajet_swarm.common.tasks import Tasks
from core.bus import Bus
from core.commands.spec import Arg, Command
from core.journal.writer import Journal
from core.roles import ROLES, AccessRole
from core.runtime.access import AccessTokens
from core.runtime.home import Home
from core.settings import Settings
from proxy.context import ProxyContext
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient
from proxy.control.dispatch import CommandResult
from proxy.dataset_rows import Rows
from proxy.rewards.model.source import ComposedSource
from tests.support.sample import group_events
from tests.support.served import served

VALUES: Mapping[str, Any] = {
    "text": "x",
    "int": 1,
    "float": 1.0,
    "flag": True,
    "ints": [0],
    "floats": [0.5],
    "texts": ["length=1"],
}
RATING = {
    "group.rate",
    "group.repeat",
    "group.lease",
    "group.edit",
    "group.unrate",
    "group.accept",
    "group.mark",
    "group.note",
    "progress.pair",
    "progress.vote",
}


class Recorder:
    """Records the commands that the API passes on."""

    def __init__(self) -> None:
        self.executed: list[tuple[str, dict[str, Any]]] = []

    async def execute(self, name: str, args: dict[str, Any]) -> CommandResult:
        self.executed.append((name, args))
        return "done", {}

    def directive(self, mock_id: str, *, for_row: bool = False) -> str:
        return "run"


class Guarded:
    """A control API with a named token of each role."""

    def __init__(self, context: ProxyContext, url: str, access: AccessTokens) -> None:
        self.context = context
        self.url = url
        self.access = access
        self.recorder = Recorder()
        self.tokens = {role: access.add(f"{role}-1", role) for role in ROLES}

    def client(self, role: AccessRole) -> ControlClient:
        return ControlClient(self.url, self.tokens[role])


@asynccontextmanager
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    journal = Journal(tmp_path / "j.db")
    access = AccessTokens(Home.open(tmp_path / "home"))
    try:
        async with Tasks("test") as tasks:
            bus = Bus(journal, "run")
            source = ComposedSource()
            context = ProxyContext(Settings(), journal, bus, {}, source, Rows(), tasks, "me")
            one = Guarded(context, "", access)
            api = ControlApi(context, cast(Any, one.recorder), "secret", frozenset(), access)
            async with served(api.app()) as url:
                one.url = url
                for event in group_events(1, at=context.clock(), until="AWAITING_RATING"):
                    bus.publish(event)
                yield one
    finally:
        journal.close()


def value_of(arg: Arg) -> Any:
    if arg.name == "group_id":
        return "g0001"
    return arg.choices[0] if arg.choices else VALUES[arg.kind]


def arguments(command: Command) -> dict[str, Any]:
    return {arg.name: value_of(arg) for arg in command.args if arg.required}
