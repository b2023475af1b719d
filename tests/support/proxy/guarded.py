"""A control API with a named token of each role, which records the commands that it permits."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ajet_swarm.common.tasks import Tasks
from core.bus import Bus
from core.commands import COMMANDS
from core.commands.spec import Arg, Command
from core.events import Checkpoint, GroupRated, RewardPart
from core.events.rewards import WhatIfChanged
from core.journal.writer import Journal
from core.roles import ROLES, AccessRole
from core.runtime.access import AccessTokens
from core.runtime.home import Home
from core.settings import Settings
from core.state import EngineRun, Mock, Probe, Server
from proxy.context import ProxyContext
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient
from proxy.control.dispatch import CommandHandler
from proxy.dataset_rows import Rows
from proxy.rewards.model.source import ComposedSource
from tests.support.looks import measured
from tests.support.sample import group_events
from tests.support.served import below, served

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


class Recorder(CommandHandler):
    """Records the commands that are permitted."""

    def __init__(self, context: ProxyContext) -> None:
        super().__init__(context, {name: partial(self._record, name) for name in COMMANDS})
        self._table["alert.dismiss"] = partial(self._record, "alert.dismiss")
        self.executed: list[tuple[str, dict[str, Any]]] = []

    async def _record(self, name: str, /, **args: Any) -> str:
        self.executed.append((name, args))
        return "done"


class Guarded:
    """A control API with a named token of each role."""

    def __init__(self, context: ProxyContext, url: str, access: AccessTokens) -> None:
        self.context = context
        self.url = url
        self.access = access
        self.recorder = Recorder(context)
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
            api = ControlApi(context, one.recorder, "secret", frozenset(), access)
            async with served(below("/control", api.app())) as url:
                one.url = url
                for event in group_events(1, at=context.clock(), until="AWAITING_RATING"):
                    bus.publish(event)
                yield one
    finally:
        journal.close()


def value_of(arg: Arg) -> Any:
    if arg.name == "group_id":
        return "g0001"
    if arg.name == "rating":
        return "tie"
    return arg.choices[0] if arg.choices else VALUES[arg.kind]


def arguments(command: Command) -> dict[str, Any]:
    return {arg.name: value_of(arg) for arg in command.args if arg.required}


NOT_NOW = {
    "group.refill", "group.repeat", "group.settle", "mock.resume", "engine.stop", "engine.cancel",
    "engine.job", "progress.resume", "rewards.whatif_stop",
}  # fmt: skip
"""Commands that the state of `make_ready` refuses, or that change nothing in it."""


def make_ready(one: Guarded) -> None:
    """Give the proxy a state that permits every command to an operator, except `NOT_NOW`."""
    one.context.bus.publish(  # a rater accepts only what waits for nothing but the own vote
        GroupRated(
            server="embedded", group_id="g0001", rating="tie", rater="rater-1", rewards=(0.5,)
        )
    )
    state = one.context.bus.state
    state.groups["g0001"].until = one.context.clock() + 3600  # longer than any test takes
    state.servers["embedded"] = Server(
        name="embedded",
        url="http://127.0.0.1:9",
        state="OFFLINE",
        checkpoints=(Checkpoint(name="x", step=1, at=0.0, bytes=1),),
    )
    state.servers["x"] = state.servers["embedded"]
    state.engine_runs.runs.append(EngineRun(number=1, server="embedded", first_seq=1, began=0.0))
    state.rewards.parts = tuple(RewardPart(name=name, kind="length") for name in ("x", "length"))
    state.progress["x"] = state.progress["embedded"] = measured()
    state.tries.append(Probe(try_id="t1", server="embedded", group_id="g0001", prompt="x"))
    state.what_if = WhatIfChanged(what="length 1", phase="done", weights=(("length", 1.0),))
    state.mock = Mock(mock_id="m", dataset="d", target="t", total=1)
