"""The doctor names each plug-in of other packages."""

import asyncio
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from console.doctor import plugin as checked
from console.doctor.finding import CheckContext
from core.plugins import TRACKER_SINKS, Plugins
from core.runtime.home import Home


def test_each_plugin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = CheckContext(home=Home(tmp_path), settings=None)
    monkeypatch.setattr(checked, "_groups", lambda: ())
    (none,) = asyncio.run(asyncio.to_thread(checked.plugins, context))
    assert (none.level, none.text) == ("ok", "none installed")
    points = [
        EntryPoint("good", "math:pi", TRACKER_SINKS),
        EntryPoint("bad", "no_such_module:SINK", TRACKER_SINKS),
    ]
    group = Plugins(TRACKER_SINKS, float, find=lambda name: points)
    monkeypatch.setattr(checked, "_groups", lambda: (group,))
    good, bad = checked.plugins(context)
    assert (good.area, good.name, good.level) == ("plug-ins", "good", "ok")
    assert good.text.startswith("tracker sinks, ")
    assert (bad.name, bad.level) == ("bad", "fail")
    assert "ModuleNotFoundError" in bad.text
    assert bad.todo
