"""Runs and figures at TensorBoard and other trackers."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import UsageError
from core.bus import Bus
from core.events import EngineChanged, LookEnded, TrainingRunIdentified, UpdateDone
from core.events.progress import PartFigures
from core.plugins import TRACKER_SINKS, Plugins
from proxy.trackers import service, sink
from proxy.trackers.service import trackers
from proxy.trackers.sink import SinkKind, StepFigures, sink_kind
from proxy.trackers.tensorboard import TensorBoardSink
from tests.support.event_files import scalars
from tests.support.proxy.until import until
from tests.support.proxy.world import settings, world

pytestmark = pytest.mark.slow


class Kept:
    """A sink of a test."""

    made: list["Kept"]

    def __init__(self, act: Callable[[StepFigures], None] | None = None) -> None:
        self.figures: list[StepFigures] = []
        self.closed = False
        self.act = act

    def log(self, figures: StepFigures) -> None:
        if self.act is not None:
            self.act(figures)
        self.figures.append(figures)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install plug-ins by name: a sink, or the exception that its factory raises."""

    def install(**sinks: Kept | Exception) -> None:
        def factory(one: Kept | Exception) -> SinkKind:
            def make(options: Mapping[str, Any], folder: Path) -> Kept:
                if isinstance(one, Exception):
                    raise one
                return one

            return SinkKind(make, "a test's")

        points = [_Point(name, "x:y", TRACKER_SINKS) for name in sinks]
        for name, one in sinks.items():
            _Point.plugins[name] = factory(one)
        plugins = Plugins(TRACKER_SINKS, SinkKind, sink.BUILT_IN, find=lambda group: points)
        monkeypatch.setattr(sink, "PLUGINS", plugins)

    return install


class _Point(EntryPoint):
    """An entry point of a plug-in in memory."""

    plugins: dict[str, SinkKind] = {}  # noqa: RUF012 - of the tests

    def load(self) -> Any:
        return self.plugins[self.name]


def update(bus: Bus, step: int) -> None:
    bus.publish(UpdateDone(server="s", step=step, stats={"loss": 0.5}, run=1))


async def test_each_step_reaches_the_sink(tmp_path: Path, install: Callable[..., None]) -> None:
    kept = Kept()
    install(kept=kept)
    async with world(tmp_path, configured=settings(proxy={"repeats": 4})) as w:
        bus = w.context.bus
        async with trackers(bus, {"kept": None}, tmp_path):
            await w.reply(await w.ask("one"))
            await w.complete("two")
            step = next(iter(bus.state.groups.values())).step
            assert step is not None
            update(bus, step)
            bus.publish(
                LookEnded(
                    server="s", look_id="l", role="look", outcome="complete", step=step,
                    mean=0.5, low=0.25, high=0.75, parts=(PartFigures(part="taste", mean=0.5),),
                )
            )  # fmt: skip
            await until(lambda: len(kept.figures) == 2)
        assert kept.closed
    first, look = kept.figures
    assert (first.server, first.step) == ("s", step)
    assert first.at > 1e9
    values = first.values
    assert values["reward/mean"] == pytest.approx(0.15)
    assert (values["groups/count"], values["reward/count"]) == (2, 8)
    assert values["part/taste"] == pytest.approx(0.15)
    assert (values["answers/count"], values["update/loss"]) == (8, 0.5)
    assert values["answers/tokens"] >= 0
    assert dict(look.values) == {
        "look/mean": 0.5, "look/low": 0.25, "look/high": 0.75, "look/part/taste": 0.5,
    }  # fmt: skip


async def test_a_sink_that_raises_costs_only_itself(
    bus: Bus, tmp_path: Path, install: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    def fail_twice(figures: StepFigures) -> None:
        if figures.step < 3:
            raise OSError("disk \x1b full")

    good, bad = Kept(), Kept(fail_twice)
    install(good=good, bad=bad, dead=ValueError("no key"))
    bus.publish(EngineChanged(server="s", state="ROLLING", step=1))
    async with trackers(bus, {"good": {}, "bad": {}, "dead": {}, "unknown": {}}, tmp_path):
        for step in (1, 2):
            update(bus, step)
        await until(lambda: len(bus.state.alerts) == 3)
        alerts = {key: one.params["error"] for key, one in bus.state.alerts.items()}
        assert "\x1b" not in alerts["telemetry:bad"]
        assert "no key" in alerts["telemetry:dead"]
        assert "no sink `unknown`" in alerts["telemetry:unknown"]
        update(bus, 3)
        await until(lambda: "telemetry:bad" not in bus.state.alerts)
    assert [one.step for one in good.figures] == [1, 2, 3]
    assert [one.step for one in bad.figures] == [3]
    told = [one for one in caplog.records if "sink bad takes no" in one.getMessage()]
    assert len(told) == 1


async def test_a_slow_sink_is_reported_and_its_queue_is_bounded(
    bus: Bus, tmp_path: Path, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_WAITING", 3)
    free, going = threading.Event(), threading.Event()

    def wait(figures: StepFigures) -> None:
        going.set()
        free.wait(20)

    slow = Kept(wait)
    install(slow=slow)
    bus.publish(EngineChanged(server="s", state="ROLLING", step=1))
    try:
        sinks = {"slow": {}}  # type: ignore[var-annotated]  # options
        async with trackers(bus, sinks, tmp_path, limit=1e-6, close_seconds=0.05) as (one,):
            update(bus, 1)
            await asyncio.to_thread(going.wait, 20)
            for step in range(2, 8):
                update(bus, step)
            assert one.dropped == 3
            await until(lambda: "telemetry:slow" in bus.state.alerts)
            assert "for one step" in bus.state.alerts["telemetry:slow"].params["error"]
    finally:
        free.set()


async def test_tensorboard_files_are_read_back(bus: Bus, tmp_path: Path) -> None:
    bus.publish(EngineChanged(server="s", state="ROLLING", step=1))
    bus.publish(TrainingRunIdentified(server="s", number=1, name="../math 1"))
    async with trackers(bus, {"tensorboard": {}}, tmp_path):
        for step in (1, 2):
            bus.publish(UpdateDone(server="s", step=step, stats={"loss": step / 2}, run=1, at=50.0))
    found = [one for one in scalars(tmp_path / "tensorboard/s/_math_1") if "loss" in one.tag]
    assert found == [("update/loss", 1, 50.0, 0.5), ("update/loss", 2, 50.0, 1.0)]


def test_an_option_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no option `dir`"):
        sink_kind("tensorboard").make({"dir": "x"}, tmp_path)
    with pytest.raises(UsageError, match="Did you mean `tensorboard`"):
        sink_kind("tensorbord")


async def test_a_sink_with_a_full_queue_is_closed(
    bus: Bus, tmp_path: Path, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_WAITING", 1)
    may_go = threading.Event()
    kept = Kept(lambda figures: may_go.wait(60) and None)
    install(kept=kept)
    bus.publish(TrainingRunIdentified(server="s", number=1, name="r", start=""))
    async with trackers(bus, {"kept": None}, tmp_path, close_seconds=60) as (only,):
        for step in range(1, 4):
            update(bus, step)
        await until(lambda: only.dropped)
        asyncio.get_running_loop().call_later(0.1, may_go.set)
    assert kept.closed
    assert kept.figures


def figures(server: str, run: str, step: int) -> StepFigures:
    return StepFigures(server, run, step, 50.0, {"loss": step / 2})


def written(folder: Path) -> list[tuple[int, float]]:
    return [(one.step, one.value) for one in scalars(folder)]


def settled(threads: int) -> tuple[int, int]:
    """The number of threads and open files, once the threads of closed writers have ended."""
    end = time.monotonic() + 20
    while threading.active_count() > threads and time.monotonic() < end:
        for one in threading.enumerate():
            if one.name == "QueueFeederThread":
                one.join(0.01)
    return threading.active_count(), len(os.listdir("/dev/fd"))


def test_runs_one_after_the_other_leave_one_writer_open(tmp_path: Path) -> None:
    before = threading.active_count()
    files = len(os.listdir("/dev/fd"))
    sink = TensorBoardSink(tmp_path)
    sink.log(figures("s", "run-0", 0))
    one = threading.active_count() - before, len(os.listdir("/dev/fd")) - files
    assert one[0] > 0
    for number in range(1, 12):
        sink.log(figures("s", f"run-{number}", number))
    assert settled(before + one[0]) == (before + one[0], files + one[1])
    sink.log(figures("other", "run-0", 5))  # a server of its own does not close the first
    assert settled(before + 2 * one[0])[0] == before + 2 * one[0]
    sink.close()
    assert settled(before) == (before, files)
    for number in range(12):
        assert written(tmp_path / "s" / f"run-{number}") == [(number, number / 2)]
    assert written(tmp_path / "other" / "run-0") == [(5, 2.5)]


def test_a_run_that_comes_back_keeps_what_was_written(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path)
    for step, run in enumerate(("a", "b", "a", "", "a")):  # within one second
        sink.log(figures("s", run, step))
    sink.close()
    assert sorted(written(tmp_path / "s" / "a")) == [(0, 0.0), (2, 1.0), (4, 2.0)]
    assert written(tmp_path / "s") == [(3, 1.5)]
