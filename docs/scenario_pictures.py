"""Makes the pictures of docs/library/examples.md: the console beside each example while that runs.

.venv/bin/python -m docs.scenario_pictures             # all of them
.venv/bin/python -m docs.scenario_pictures math tool   # those
"""

import asyncio
import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from console.app import ConsoleApp
from console.backend.options import ConsoleOptions
from console.backend.startup import open_session
from console.session.app_state import Session
from core.runtime.home import Home
from core.settings import load
from core.state import State
from docs.pictures import ROOT, home, lean
from tests.support.stack import Stack, until

FOLDER = ROOT / "docs" / "library" / "scenarios" / "img"
SIZE = (120, 36)
LIMIT = 300.0
"""Seconds a scenario may take to come to its picture."""
LOOK: Final = re.compile(r"look on.*?: ajet-console (.*)")
TRIES = 40
SERVERS = ("f9",)
BELOW = ("f9", "pagedown")
GROUP = ("f2", "home", *["down"] * 5, "enter")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is run, and what is looked at.

    Attributes:
        command: Arguments of Python. `{folder}` is a folder of its own, `{engine}` an embedded
            engine that is started for it, `{port}` a free port.
        keys: They lead to the screen.
        updates: So many are done before.
        first: Run to its end before.
        look: Flags of the console; those that the example says when empty.
        servers: So often it says so.
        shows: What the picture should show: taken again a few times until it does.
        environment: More of it.
    """

    command: str
    keys: Sequence[str]
    updates: int = 6
    first: str = ""
    look: str = ""
    servers: int = 1
    shows: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


CLIENTS = r"[3-9] clients"
TRAINED = "will train|trained by update"
WATCH = "--watch-only --swarm-url embedded={engine}"
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "distributed": Scenario("-m examples.distributed --updates 60", BELOW, 4, shows=CLIENTS),
    "blackbox": Scenario(
        "examples/blackbox/agent_roll.py",
        SERVERS,
        look=WATCH,
        environment={"AJET_SWARM_URL": "{engine}"},
    ),
    "multi_model": Scenario("-m examples.multi_model --updates 100", SERVERS, 8),
    "teacher_student": Scenario(
        "-m examples.multi_model.teacher_student --updates 60", SERVERS, servers=2
    ),
    "cocktail": Scenario("-m examples.cocktail --updates 100", BELOW, shows=CLIENTS),
    "swarm_script": Scenario(
        "-m examples.swarm_script.train --steps 200",
        SERVERS,
        look=WATCH,
        environment={"AJET_SWARM_URL": "{engine}"},
    ),
    "persona": Scenario("-m examples.persona --updates 200 --held-out 4", GROUP, shows=TRAINED),
    "math": Scenario("-m examples.math --updates 200 --held-out 4", ("f1",), 12),
    "math_tool": Scenario("-m examples.math --tool --updates 200 --held-out 4", SERVERS),
    "passive": Scenario(
        "{folder}/my_app/agent_roll.py",
        ("f1",),
        first="-m console init passive {folder}/my_app --yes",
        look="--home {folder}/my_app/.ajet",
        environment={"AJET_SWARM_URL": "{engine}", "PORT": "{port}"},
    ),
    "werewolves": Scenario("-m examples.werewolves --updates 60", SERVERS, 2),
}


def run(name: str, scenario: Scenario) -> None:
    """Start a scenario, watch it, take its picture, end it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = {"folder": str(folder)}
        templates = f"{scenario.command}{scenario.look}{scenario.environment}"
        if "{engine}" in templates:
            names["engine"] = stack.enter_context(Stack(folder / "engine")).engine().url
        if "{port}" in templates:
            names["port"] = free_port()
        more = {key: value.format(**names) for key, value in scenario.environment.items()}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}
        if scenario.first:
            first = [sys.executable, *shlex.split(scenario.first.format(**names))]
            subprocess.run(first, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        output = folder / "output"
        with output.open("wb") as out:
            child = subprocess.Popen(
                [sys.executable, *shlex.split(scenario.command.format(**names))],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        stack.callback(end, child)

        def flags() -> str:
            assert child.poll() is None, output.read_text()
            matches = LOOK.findall(output.read_text())
            return scenario.look.format(**names) or " ".join(
                matches[scenario.servers - 1 :] and matches
            )

        look = shlex.split(until("it prints how to watch it", flags, LIMIT))
        if "--watch-only" in look:
            watcher = stack.enter_context(Stack(folder / "seat"))
            watcher.proxy(*look)
            where = watcher.home
        else:
            root = Path(look[look.index("--home") + 1])
            until("its home exists", (root / "token").exists, LIMIT)
            where = Home.open(root)
        picture = asyncio.run(take(where, scenario))
        (FOLDER / f"{name}.svg").write_text(picture)


async def take(where: Home, scenario: Scenario) -> str:
    """Return the console's picture after the scenario's updates."""
    options = ConsoleOptions(home=where, settings=load(None, {}), start_engine=False)
    session, starter = open_session(options)
    app = ConsoleApp(session, starter)
    async with app.run_test(size=SIZE) as pilot:
        await moment(session, scenario.updates)
        for _ in range(TRIES):
            await home(pilot)
            await pilot.press(*scenario.keys)
            await pilot.pause(0.7)
            await moment(session, 0, midst=True)
            await pilot.pause(0.2)
            picture = lean(app.export_screenshot(simplify=True))
            if re.search(scenario.shows, picture.replace("&#160;", " ")):
                break
    return re.sub(r"/tmp/(ajet-example-)\w{8}", r"~/\g<1>00000000000", picture)  # as long


async def moment(session: Session, updates: int, midst: bool = False) -> None:
    """Wait for a number of updates on a server; with `midst`, until a batch is partly complete."""
    end = time.monotonic() + LIMIT

    def reached(state: State) -> bool:
        servers = list(state.servers.values())
        pools = [server.pool for server in servers if server.pool is not None]
        partial = any(0 < pool.completed_episodes < pool.episode_target for pool in pools)
        return bool(servers) and (
            all(server.state == "ROLLING" for server in servers)
            and any((server.step or 0) > updates for server in servers)
            and (partial or not midst)
        )

    while not reached(session.state):
        assert time.monotonic() < end, f"no update {updates} in time"
        await asyncio.sleep(0.02)


def end(child: "subprocess.Popen[bytes]") -> None:
    """End the scenario and its children: SIGINT, then SIGTERM, then SIGKILL."""
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(15)
            return


def free_port() -> str:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def main(names: Sequence[str]) -> int:
    """Take the pictures of the named scenarios, by default all; return the exit code."""
    unknown = set(names) - set(SCENARIOS)
    if unknown:
        sys.stderr.write(f"no scenario {', '.join(sorted(unknown))}: {', '.join(SCENARIOS)}\n")
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, scenario in SCENARIOS.items():
        if not names or name in names:
            run(name, scenario)
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
