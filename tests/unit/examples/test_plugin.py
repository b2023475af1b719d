"""The example package is installed, appears in doctor, and receives the steps of a run."""

import asyncio
import importlib
import json
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from core.bus import Bus
from core.events import EngineChanged, UpdateDone
from core.journal.writer import Journal
from core.plugins import TRACKER_SINKS, Plugins
from proxy.trackers import sink
from proxy.trackers.service import trackers

pytestmark = [pytest.mark.process, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[3] / "examples/plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example and a package whose module raises, installed by pip."""
    folder = tmp_path_factory.mktemp("plugins")
    good, bad, target = folder / "good", folder / "bad", folder / "target"
    shutil.copytree(EXAMPLE, good)  # a build writes into its folder
    bad.mkdir()
    text = (EXAMPLE / "pyproject.toml").read_text()
    text = text.replace("ajet-console-wandb", "bad-plugin").replace("ajet_wandb", "bad_plugin")
    (bad / "pyproject.toml").write_text(text.replace("\nwandb = ", "\nbad = "))
    (bad / "bad_plugin.py").write_text('raise RuntimeError("the licence has expired")\n')
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--target", str(target), str(good), str(bad)]
    subprocess.run(command, check=True, capture_output=True)
    return target


@pytest.fixture
def on_path(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The installed packages can be imported, as in the environment of the console."""
    monkeypatch.syspath_prepend(str(installed))
    importlib.invalidate_caches()
    fresh = Plugins(TRACKER_SINKS, sink.SinkKind, sink.BUILT_IN)
    monkeypatch.setattr(sink, "PLUGINS", fresh)
    yield
    sys.modules.pop("ajet_wandb", None)


@pytest.mark.usefixtures("on_path")
def test_doctor_names_each_with_its_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json", "--home", str(tmp_path / "home")]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    plugins = {check["name"]: check for check in checks if check["area"] == "plug-ins"}
    assert plugins["wandb"]["level"] == "ok"
    assert "ajet-console-wandb 1.0" in plugins["wandb"]["text"]
    assert plugins["bad"]["level"] == "fail"
    assert (
        "bad-plugin 1.0: `bad` does not load: RuntimeError: the licence has expired"
        in (plugins["bad"]["text"])
    )
    assert plugins["bad"]["todo"] == "Repair or remove the package that provides it"


@pytest.mark.usefixtures("on_path")
async def test_the_sink_receives_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []

    class Run:
        def log(self, values: dict[str, float]) -> None:
            logged.append(values)

        def finish(self) -> None:
            logged.append("finished")

    def init(**options: Any) -> Run:
        logged.append(options)
        return Run()

    stub = types.ModuleType("wandb")
    stub.__dict__["init"] = init
    monkeypatch.setitem(sys.modules, "wandb", stub)
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run")
    bus.publish(EngineChanged(server="s", state="ROLLING", step=1))
    sinks = {"wandb": {"project": "mine"}, "bad": None}
    async with trackers(bus, sinks, tmp_path):
        for step in (1, 2):
            bus.publish(UpdateDone(server="s", step=step, stats={"loss": 0.5}))
        async with asyncio.timeout(20):
            while "telemetry:bad" not in bus.state.alerts:
                await asyncio.sleep(0.01)
    journal.close()
    options, first, second, last = logged
    assert (options["project"], options["mode"]) == ("mine", "offline")
    assert ([one["s/step"] for one in (first, second)], first["s/update/loss"]) == ([1, 2], 0.5)
    assert last == "finished"
    assert "licence" in bus.state.alerts["telemetry:bad"].params["error"]
