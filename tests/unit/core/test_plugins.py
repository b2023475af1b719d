"""Plug-ins: each is loaded on its own, a faulty one costs only itself."""

import logging
import sys
import types
from importlib.metadata import Distribution, EntryPoint, MetadataPathFinder
from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from core.plugins import PluginReport, Plugins

GROUP = "ajet_console.test_numbers"


@pytest.fixture
def package(tmp_path: Path) -> Distribution:
    """An installed package of five plug-ins: two are good, the others are each faulty."""
    info = tmp_path / "numbers_of_others-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: numbers-of-others\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\none = numbers_module:ONE\nthree = numbers_module:THREE\n"
        "text = numbers_module:TEXT\nraises = numbers_raises:ONE\nexits = numbers_exits:ONE\n"
    )
    (tmp_path / "numbers_raises.py").write_text('raise OSError("no such\\x1b[31m device")\n')
    (tmp_path / "numbers_exits.py").write_text("raise SystemExit\n")
    context = Distribution.discover(name="numbers-of-others", path=[str(tmp_path)])
    return next(iter(context))


@pytest.fixture
def plugins(package: Distribution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins[int]:
    module = types.ModuleType("numbers_module")
    module.__dict__.update(ONE=1, THREE=3, TEXT="four")
    monkeypatch.setitem(sys.modules, "numbers_module", module)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Plugins(GROUP, int, ("three",), find=lambda group: package.entry_points)


def test_a_faulty_plugin_costs_only_itself(
    plugins: Plugins[int], caplog: pytest.LogCaptureFixture
) -> None:
    assert plugins.names() == ("one", "text", "raises", "exits")
    assert plugins.load_all() == {"one": 1}
    for _ in range(2):
        with pytest.raises(UsageError, match="does not load: OSError: no such") as caught:
            plugins.load("raises")
        assert caught.value.where == "entry point numbers_raises:ONE"
    with pytest.raises(UsageError, match=r"is a str\. It must be a builtins\.int"):
        plugins.load("text")
    with pytest.raises(UsageError, match="does not load: SystemExit"):
        plugins.load("exits")
    with pytest.raises(KeyError):
        plugins.load("three")
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len([one for one in logged if "`raises`" in one]) == 1
    assert all("numbers-of-others 1.2" in one for one in logged)


def test_each_plugin_is_reported_with_its_package(plugins: Plugins[int]) -> None:
    reports = {report.name: report for report in plugins.reports()}
    package = "numbers-of-others 1.2"
    assert reports["one"] == PluginReport(GROUP, "one", package, "numbers_module:ONE")
    assert list(reports) == ["one", "text", "raises", "exits", "three"]
    assert "built-in" in reports["three"].fault
    assert "rename" in reports["three"].todo
    assert "\x1b" not in reports["raises"].fault


def test_of_two_plugins_of_one_name_the_first_is_used() -> None:
    points = [
        EntryPoint("pi", "math:pi", GROUP),
        EntryPoint("pi", "math:tau", GROUP),
    ]
    plugins = Plugins(GROUP, float, find=lambda group: points)
    assert plugins.load("pi") < 4
    (used, refused) = plugins.reports()
    assert (used.place, used.fault) == ("math:pi", "")
    assert refused.place == "math:tau"
    assert "name of a plug-in of math:pi" in refused.fault


def test_installed_packages_are_found(
    package: Distribution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    MetadataPathFinder().invalidate_caches()
    plugins = Plugins(GROUP, int)
    assert plugins.names() == ("one", "three", "text", "raises", "exits")
    assert Plugins("ajet_console.none", int).reports() == []
