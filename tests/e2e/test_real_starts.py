"""Every way to start an AgentJet server, on one that is as strict with its job as a real one."""

import asyncio
import runpy
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from ajet_swarm.api import watcher
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.job.schema import BATCH, GPUS, KL, LEARNING_RATE, MODEL
from ajet_swarm.job.server import MODEL_VARIABLE
from ajet_swarm.job.tree import Job, get, put
from console.cli import main
from console.screens.dialogs.confirm import ConfirmScreen
from console.screens.engine.job import JobScreen
from core.runtime.home import Home, Role
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient
from proxy.control.dispatch import CommandDispatcher
from tests.support.console import FakeLink, run_console
from tests.support.proxy.world import world
from tests.support.scripted.job import as_upstream
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import below, served

ROOT = Path(__file__).parents[2]
OF_THE_ENVIRONMENT = "the/model"
OF_THE_DOCS = "/models/Qwen2.5-7B-Instruct"


@dataclass
class Place:
    """A home with a proxy whose one server is off."""

    swarm: ScriptedSwarm
    gpus: int
    """GPUs of the server's one node; the operator names the number wherever it is not 8."""
    home: Home
    control: ControlClient
    folder: Path

    @property
    def named(self) -> tuple[str, ...]:
        """Flags that name the number of GPUs."""
        return () if self.gpus == 8 else ("--set", f"gpus={self.gpus}")

    async def run(self, *argv: str) -> None:
        assert await asyncio.to_thread(main, list(argv)) == 0

    async def start(self, *argv: str, order: str = "start") -> None:
        await self.run("engine", order, "--yes", *self.named, *argv)


class ThroughLink(FakeLink):
    """A console's link whose orders reach a real proxy."""

    def __init__(self, control: ControlClient, state: Any) -> None:
        super().__init__(state)
        self.control = control

    async def command(self, name: str, args: Mapping[str, Any]) -> Any:
        return await self.control.command(name, args)

    async def job(self, server: str) -> Any:
        return await self.control.job(server)


@asynccontextmanager
async def place(home: Home, folder: Path, gpus: int) -> AsyncIterator[Place]:
    async with (
        ScriptedSwarm(state="OFFLINE") as swarm,
        world(home.root, swarm, watched=True) as made,
    ):
        swarm.gpus = gpus
        control = ControlApi(
            made.context, CommandDispatcher(made.context, made.groups), home.token(), frozenset()
        )
        async with served(below("/control", control.app())) as url:
            with Role(home, "proxy") as role:
                role.publish(url=url)
                async with ControlClient(url, home.token()) as client:
                    yield Place(swarm, gpus, home, client, folder)
                control.close()


async def by_key(at: Place, key: str) -> None:
    if at.named:
        await at.run("engine", "job", *at.named)
    link = ThroughLink(at.control, await at.control.snapshot())
    async with run_console(link=link, at="engine") as console:
        await console.press(key)
        await console.until(lambda: isinstance(console.app.screen, ConfirmScreen))
        await console.press("y")
        await console.until(lambda: at.swarm.requests["/start_engine"])


async def by_form(at: Place) -> None:
    link = ThroughLink(at.control, await at.control.snapshot())
    async with run_console(link=link, at="engine") as console:
        await console.press("e")
        await console.until(lambda: isinstance(console.app.screen, JobScreen))
        await console.until(lambda: "Learning rate" in console.text())
        box = console.app.screen.query_one("#job-model", Input)
        box.focus()
        box.value = "of/the-form"
        if at.named:
            console.app.screen.query_one("#job-gpus", Input).value = str(at.gpus)
        await console.settle()
        console.app.screen.set_focus(None)
        await console.press("a")
        await console.until(lambda: isinstance(console.app.screen, ConfirmScreen))
        await console.press("y")
        await console.until(lambda: at.swarm.requests["/start_engine"])


async def by_preset(at: Place) -> None:
    """The number of GPUs is kept from an earlier job; the preset alone does not name it."""
    if at.named:
        await at.run("engine", "job", *at.named)
    await at.run("engine", "start", "--yes", "--preset", "hand")


def docs_job(at: Place) -> str:
    """The `job.yaml` of docs/guide/gpu-server.md as a file."""
    page = (ROOT / "docs" / "guide" / "gpu-server.md").read_text()
    block = page.split("```yaml\n", 1)[1].split("```", 1)[0]
    assert block.startswith("# job.yaml")
    file = at.folder / "job.yaml"
    file.write_text(block.replace("n_gpus_per_node: 8", f"n_gpus_per_node: {at.gpus}"))
    return str(file)


async def by_template(at: Place, kind: str) -> None:
    folder = at.folder / kind
    await at.run("init", kind, str(folder), "--yes", "--gpus", str(at.gpus))
    sys.path.insert(0, str(folder))
    try:
        job = runpy.run_path(str(folder / "agent_roll.py"))["job"]()
    finally:
        sys.path.remove(str(folder))
        for name in [name for name, module in sys.modules.items() if _in(folder, module)]:
            del sys.modules[name]
    async with AsyncSwarm(at.swarm.url) as client:
        await client.auto_sync_train_config_and_start_engine(job)


def _in(folder: Path, module: Any) -> bool:
    return str(getattr(module, "__file__", "") or "").startswith(str(folder))


async def by_debug(at: Place) -> None:
    from ajet_swarm.debug.agent import load

    await at.run("init", "blackbox", str(at.folder / "debug"), "--yes", "--gpus", str(at.gpus))
    before = list(sys.path), set(sys.modules)
    try:
        _, _, job = load(at.folder / "debug")
    finally:
        sys.path[:] = before[0]
        for name in set(sys.modules) - before[1]:
            if _in(at.folder, sys.modules[name]):
                del sys.modules[name]
    assert job is not None
    async with AsyncSwarm(at.swarm.url) as client:
        await client.auto_sync_train_config_and_start_engine(job)


async def by_library(at: Place) -> None:
    async with AsyncSwarm(at.swarm.url) as client:
        job = AgentJetJob(model=OF_THE_ENVIRONMENT, batch_size=4, n_gpu=at.gpus)
        await client.auto_sync_train_config_and_start_engine(job)


async def by_library_file(at: Place) -> None:
    async with AsyncSwarm(at.swarm.url) as client:
        job = AgentJetJob(base_yaml_config=docs_job(at))
        await client.auto_sync_train_config_and_start_engine(job)


WAYS: Mapping[str, tuple[Callable[[Place], Awaitable[None]], str]] = {
    "console, s": (lambda at: by_key(at, "s"), OF_THE_ENVIRONMENT),
    "console, h": (lambda at: by_key(at, "h"), OF_THE_ENVIRONMENT),
    "console, form": (by_form, "of/the-form"),
    "engine start": (lambda at: at.start(), OF_THE_ENVIRONMENT),
    "engine start --preset hand": (lambda at: by_preset(at), OF_THE_ENVIRONMENT),
    "engine start --set": (lambda at: at.start("--set", "model=a/b"), "a/b"),
    "engine start --file": (lambda at: at.start("--file", docs_job(at)), OF_THE_DOCS),
    "engine start --swarm-url": (
        lambda at: at.start("--swarm-url", at.swarm.url),
        OF_THE_ENVIRONMENT,
    ),
    "engine apply": (lambda at: at.start(order="apply"), OF_THE_ENVIRONMENT),
    "engine apply --file": (
        lambda at: at.start("--file", docs_job(at), order="apply"),
        OF_THE_DOCS,
    ),
    "AgentJetJob": (by_library, OF_THE_ENVIRONMENT),
    "AgentJetJob, docs' job.yaml": (by_library_file, OF_THE_DOCS),
    "init passive": (lambda at: by_template(at, "passive"), OF_THE_ENVIRONMENT),
    "init blackbox": (lambda at: by_template(at, "blackbox"), OF_THE_ENVIRONMENT),
    "init blackbox, debug": (by_debug, OF_THE_ENVIRONMENT),
}
"""Name -> what starts the server, and the model that it is to train."""


ARGUMENTS = (
    MODEL,
    BATCH,
    GPUS,
    "ajet.project_name",
    "ajet.experiment_name",
    "ajet.trainer_common.save_freq",
    "ajet.trainer_common.checkpoint_base_dir",
)
"""What the ways choose themselves."""


@pytest.mark.parametrize("gpus", [8, 4, 1])
@pytest.mark.parametrize("way", WAYS)
async def test_a_server_rolls(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, gpus: int
) -> None:
    monkeypatch.setenv(MODEL_VARIABLE, OF_THE_ENVIRONMENT)
    monkeypatch.setattr(watcher, "QUIET", 0.1)
    start, model = WAYS[way]
    async with place(home, tmp_path, gpus) as at:
        await start(at)
        await at.swarm.until(lambda: at.swarm.state == "ROLLING" or at.swarm.boot_error)
        assert not at.swarm.boot_error
        composed = at.swarm.composed
        chosen: Job = {}
        for path in ARGUMENTS:
            if (value := get(composed, path)) is not None:
                put(chosen, path, value)
        assert composed == as_upstream(chosen)
        assert get(composed, MODEL) == model
        if "hand" in way or way == "console, h":
            assert get(composed, BATCH) == (2 if gpus == 8 else 1)
        for path in (LEARNING_RATE, KL, "ajet.trainer_common.ppo_epochs"):
            assert get(composed, path) is None, f"{path} is the server's own"
        row = (way, str(gpus), at.swarm.state, get(composed, MODEL), str(get(composed, BATCH)))
        sys.stdout.write(f"| {' | '.join(row)} |\n")
